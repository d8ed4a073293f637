"""State dicts: read from a file without running code in it, checked, and told apart by content."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.torch
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from dkvb.embedding.encoders.encoder import EncoderSpec

State = Mapping[str, Tensor]

_WRAPPERS = ("state_dict", "model", "teacher", "student")
_PREFIXES = ("module.", "backbone.", "encoder.")


def read_state(path: str | Path, *, scripted: bool = False) -> dict[str, Tensor]:
    """A state dict from a .safetensors or torch file; nothing in the file is executed.

    With `scripted` a TorchScript archive will do too, which can hold code of its own.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"weights: expected a file; found none at {path}; check the path")
    try:
        content = _read(path, scripted)
    except Exception as error:  # foreign files make the readers raise anything
        raise ValueError(
            f"weights {path}: expected a state dict that torch.load(..., weights_only=True) or "
            f"safetensors reads; it cannot be read ({' '.join(str(error).split())[:200]}); "
            "save module.state_dict() again with torch.save or safetensors"
        ) from error
    state = _unwrapped(content)
    if not state:
        raise ValueError(
            f"weights {path}: expected a state dict, names to tensors; got {type(content).__name__}"
        )
    return state


def _read(path: Path, scripted: bool) -> Any:
    if path.suffix == ".safetensors":
        return safetensors.torch.load_file(path)
    if scripted and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if any(name.endswith("/constants.pkl") for name in archive.namelist()):
                return torch.jit.load(path, map_location="cpu").state_dict()
    return torch.load(path, map_location="cpu", weights_only=True)


def _unwrapped(content: Any) -> dict[str, Tensor]:
    """Names to tensors, out of what training scripts wrap around them.

    >>> list(_unwrapped({"state_dict": {"module.conv.weight": torch.ones(1)}, "epoch": 3}))
    ['conv.weight']
    """
    for wrapper in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
            break
    if not isinstance(content, Mapping):
        return {}
    state = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    for prefix in _PREFIXES:
        if state and all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): value for name, value in state.items()}
    return state


def load_into(module: nn.Module, state: State, name: str, unused: tuple[str, ...] = ()) -> None:
    """Put every tensor in its place; names and shapes must be the module's own.

    `unused`: beginnings of names that may be missing in either, such as classification heads.
    """
    own = module.state_dict()

    def needed(names: Any) -> set[str]:
        return {n for n in names if not n.startswith(unused) and "num_batches_tracked" not in n}

    missing, foreign = needed(own) - needed(state), needed(state) - needed(own)
    wrong = [n for n in needed(own) & needed(state) if own[n].shape != state[n].shape]
    if missing or foreign or wrong:
        first = min(wrong, default="")
        raise ValueError(
            f"weights: expected a state dict of {name}; {len(missing)} names are missing"
            f"{_some(missing)}, {len(foreign)} are foreign{_some(foreign)}, {len(wrong)} shapes "
            "differ"
            + (f" ({first}: {tuple(own[first].shape)} expected, " if first else "")
            + (f"{tuple(state[first].shape)} in the file)" if first else "")
            + "; give the file that belongs to this encoder"
        )
    module.load_state_dict({n: state[n] for n in own if n in state}, strict=False)


def _some(names: set[str]) -> str:
    return f" ({', '.join(sorted(names)[:3])}{', ...' if len(names) > 3 else ''})" if names else ""


def download(fetch: Callable[[], Any], spec: EncoderSpec) -> Any:
    """What `fetch` downloads or finds on this machine; a failure names the way without a network.

    Where downloads are not allowed, libraries of Hugging Face are offline while `fetch` runs.
    """
    try:
        with nullcontext() if spec.allow_download else _hub_offline():
            return fetch()
    except Exception as error:  # every library has errors of its own for a missing network
        reason = " ".join(str(error).split())[:200]
        if not spec.allow_download:
            raise ValueError(
                f"encoder {spec.name}: expected its weights on this machine, since the name comes "
                f"from a file and nothing is downloaded unless allowed; found none ({reason}); "
                f"trust it with --allow-download, or name it with --encoder"
            ) from error
        raise ValueError(
            f"encoder {spec.name}: expected to download its weights, which failed "
            f"({reason}); give a local file with --weights"
        ) from error


@contextmanager
def _hub_offline() -> Iterator[None]:
    """Keep huggingface_hub, if it is installed, from contacting its server."""
    try:
        from huggingface_hub import constants
    except ImportError:
        yield
        return
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def fingerprint(state: State) -> str:
    """A hash of names, shapes, types and numbers, whatever file they came from.

    >>> fingerprint({"a": torch.zeros(2)}) == fingerprint({"a": torch.zeros(2)})
    True
    >>> fingerprint({"a": torch.zeros(2)}) == fingerprint({"a": torch.zeros(3)})
    False
    """
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
