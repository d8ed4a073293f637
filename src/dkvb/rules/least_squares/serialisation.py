"""What rule `least_squares` has learned, as tensors and facts, and back."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from dkvb._support.files import State
from dkvb.bottleneck import Keys
from dkvb.rules.least_squares.choice import HeldOutScores
from dkvb.rules.least_squares.incremental import Choice
from dkvb.rules.least_squares.ridge import Solution, solution_of
from dkvb.rules.least_squares.samples import Samples
from dkvb.rules.least_squares.state import SOLUTIONS, SumsState
from dkvb.rules.least_squares.sums import Moments, RidgeSums, carried, gram_size

_CHOICE = "choice"  # of λ
_OLD_SOLUTIONS = {"empirical": "unweighted", "uniform": "balanced"}  # of formats 1 and 2
# The tensors of stored samples, and their names in formats 1 and 2.
SAMPLES = {"sample_rows": "ledger_rows", "sample_hashes": "ledger_hashes"}
SAMPLES |= {"sample_class_index": "ledger_columns"}


def tensors(state: SumsState) -> dict[str, Tensor]:
    """All sums, and the samples that are stored."""
    found = {**state.sums.tensors(), "selected": state.selected}
    if state.samples is not None:
        found |= {"sample_" + name: value for name, value in vars(state.samples).items()}
    return found


def to_state(state: SumsState, temperature: float) -> State:
    """Sums, the λ that was chosen, and the solutions that are known: these are small beside the
    sums, and an inference-only copy has nothing else."""
    solved = [name for name in SOLUTIONS if name in vars(state)]
    saved = State(tensors(state), {"read_temperature": temperature, "solved": solved})
    for name in solved:
        solution: Solution = getattr(state, name)
        part = _scored_state(solution.held_out_scores)
        part.tensors["values"], part.facts["lam"] = solution.values, solution.lam
        saved = saved.with_part(name, part)
    choice = state.latest_choice()
    if choice is not None:
        part = _scored_state(choice.held_out_scores)
        part.facts |= {"penalty": choice.penalty, "n_rows": choice.n_rows}
        saved = saved.with_part(_CHOICE, part)
    return saved


def from_state(state: State, keys: Keys, n_classes: int) -> tuple[SumsState, float]:
    """What `to_state` described, also in formats 1 to 3, and the temperature of reads."""
    M, device = keys.n_codebooks * keys.n_pairs, keys.device
    frozen = "gram" in state.tensors and not state.tensors["gram"].numel()
    solved = _solved(state)
    if frozen and len(solved) < len(SOLUTIONS):
        raise state.damaged("solved: expected all solutions where the sums are gone")
    sums = ridge_sums_from(state, M, n_classes, device, inference_only=frozen)
    selected = state.whole_numbers("selected", (M,)).to(device)
    samples = _samples(state, keys, n_classes)
    found = SumsState(sums, selected, samples, choice=_choice(state, sums))
    for written, name in solved.items():
        vars(found)[name] = _solution(state.part(written), sums, frozen)
    fact = "read_temperature" if "read_temperature" in state.facts else "temperature"
    temperature = float(state.fact(fact, (int, float)))
    if not 0 < temperature < float("inf"):
        raise state.damaged(f"{fact}: expected a number above 0; got {temperature}")
    return found, temperature


def _solution(part: State, sums: RidgeSums, frozen: bool) -> Solution:
    M, Y = sums.learned.cross.shape
    values = part.tensor("values", torch.float64, (M, Y), sums.learned.cross.device)
    lam = float(part.fact("lam", float))
    cross = sums.learned.rounded().cross + sums.held.rounded().cross
    penalty = 0.0 if frozen else lam * sums.trace / M
    return solution_of(values, cross, penalty, lam, _scored(part, sums.held, Y))


def _choice(state: State, sums: RidgeSums) -> Choice | None:
    part = state.part(_CHOICE)
    if not part.facts:
        return None
    penalty, n_rows = (float(part.fact(name, (int, float))) for name in ("penalty", "n_rows"))
    if not (0 <= penalty < math.inf and 0 <= n_rows < math.inf):
        raise state.damaged(f"{_CHOICE}: expected numbers from 0; got {penalty} and {n_rows}")
    scored = _scored(part, sums.held, None)
    if scored is not None and len(scored.total) > sums.n_columns:
        raise state.damaged(f"{_CHOICE}: expected scores of at most {sums.n_columns} classes")
    return Choice(penalty, n_rows, scored)


def _scored_state(scored: HeldOutScores | None) -> State:
    if scored is None:
        return State({}, {"scored": False})
    parts = {"score_squares": scored.score_squares, "score_sums": scored.score_sums}
    return State(parts | {"score_rows": scored.total}, {"scored": True})


def _scored(part: State, held: Moments, n_classes: int | None) -> HeldOutScores | None:
    """Held-out scores of so many classes, or of those that there were when λ was chosen."""
    if not part.fact(part.first_of("scored", "judged"), bool):
        return None
    device = held.cross.device
    total = held.total
    if "score_rows" in part.tensors:  # formats before have none, and no rows after the choice
        total = part.tensor("score_rows", torch.float64, (n_classes,), device)
    shape = (len(total), len(total))
    squares, own = (
        part.tensor(kind, torch.float64, shape, device) for kind in ("score_squares", "score_sums")
    )
    return HeldOutScores(total, total, squares, own)


def params_from_flat(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters of the rule from those of a classifier of format 1 or 2."""
    found: dict[str, Any] = {}
    if "prior" in params:
        found["class_weight"] = {"empirical": None, "uniform": "balanced"}[params["prior"]]
    if "temperature" in params:
        found["read_temperature"] = params["temperature"]
    flags = [value for value in params.values() if isinstance(value, bool)]
    if flags:  # the one boolean parameter of these formats
        found["store_samples"] = flags[0]
    return found


def _solved(state: State) -> dict[str, str]:
    """Which solutions are known, by the names they were written under."""
    names = _OLD_SOLUTIONS | {name: name for name in SOLUTIONS}
    solved = state.fact("solved", list)
    if not all(isinstance(name, str) and name in names for name in solved):
        raise state.damaged("solved: expected the solutions that are known")
    return {name: names[name] for name in solved}


def _samples(state: State, keys: Keys, n_classes: int) -> Samples | None:
    names = {new: new if new in state.tensors else old for new, old in SAMPLES.items()}
    if names["sample_class_index"] not in state.tensors:
        return None
    class_index = state.whole_numbers(names["sample_class_index"], (None,), high=max(1, n_classes))
    hashes = state.whole_numbers(names["sample_hashes"], class_index.shape, high=1 << 63)
    shape = (len(class_index), keys.projection.width)
    rows = state.tensor(names["sample_rows"], torch.float16, shape)
    return Samples(*(tensor.to(keys.device) for tensor in (rows, hashes, class_index)))


def ridge_sums_from(
    state: State, M: int, Y: int, device: torch.device | str, *, inference_only: bool = False
) -> RidgeSums:
    """The sums that `RidgeSums.tensors` gave; inference-only ones have no products."""
    products = 0 if inference_only else gram_size(M)

    def moments_of(prefix: str) -> Moments:
        shapes = {"gram": (products,), "cross": (M, Y), "total": (Y,), "square": (Y,)}
        high = {name + "_high": shapes[name] for name in ("gram", "cross")}
        shapes |= {name: shape for name, shape in high.items() if prefix + name in state.tensors}
        found = {
            name: state.tensor(prefix + name, torch.float64, shape, device)
            for name, shape in shapes.items()
        }
        for name, sums in found.items():
            if sums.numel() and not all(bool(end.isfinite()) for end in sums.aminmax()):
                raise state.damaged(f"tensor {prefix + name!r}: expected finite numbers")
        moments = Moments(**found)
        return carried(moments) if products else moments  # version 0.1 filled low limbs up to 2⁵³

    return RidgeSums(moments_of(""), moments_of("held_"))
