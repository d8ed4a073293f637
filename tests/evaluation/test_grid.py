"""Runs as jobs: keys that are shared, models that learn side by side, identities."""

from dataclasses import replace

import numpy as np
import pytest

from dkvb.bottleneck import Batch
from dkvb.evaluation import grid as grid
from dkvb.evaluation.grid import ORDERS, ClassifierSpec, Data, Grid, fingerprint, parse_spec
from dkvb.evaluation.jobs import run_missing
from dkvb.evaluation.runner import evaluate

SIZES = {"n_codebooks": 4, "n_pairs": 8, "key_dim": 2, "key_epochs": 1}
BOTTLENECK = parse_spec("bottleneck:n_codebooks=4,n_pairs=8,key_dim=2,key_epochs=1")


@pytest.fixture
def data(rng):
    def rows(n):
        y = np.repeat(np.arange(4), n)
        return (4 * np.eye(4, 8)[y] + rng.normal(size=(len(y), 8))).astype(np.float32), y

    return Data(rows(20), rows(5), rows(10)[0], {"train": "blobs"})


def test_orders_and_settings_share_keys(data, monkeypatch):
    fitted = []
    cls = grid.classifier_class("bottleneck")
    real = cls.fit_keys
    monkeypatch.setattr(cls, "fit_keys", lambda self, X: fitted.append(1) or real(self, X))
    monkeypatch.setattr(grid, "_FITTED", {})
    faster = replace_settings(BOTTLENECK, learning_rate=3.0)
    records = list(Grid((BOTTLENECK, faster), seeds=(1, 2), orders=ORDERS).run(data))
    assert len(records) == 8
    assert len(fitted) == 2  # one a seed
    assert len({r.config["keys"]["fingerprint"] for r in records}) == 2
    wider = replace_settings(BOTTLENECK, key_dim=3)
    list(Grid((wider,)).run(data))
    assert len(fitted) == 3
    other = Data(data.train, data.test, data.keys + 1)
    list(Grid((BOTTLENECK,)).run(other))
    assert len(fitted) == 4  # other rows, other keys


def replace_settings(spec, **changes):
    return ClassifierSpec(f"{spec.name}:{changes}", spec.name, spec.settings | changes)


def test_orders_share_codes(data, monkeypatch):
    searched = []
    real = Batch._search

    def search(batch, distances):
        searched.append(len(batch))
        return real(batch, distances)

    monkeypatch.setattr(Batch, "_search", search)
    settings = {"candidate_keys": "all", **SIZES}
    two, three = (
        ClassifierSpec(f"{n} codebooks", "bottleneck", {**settings, "n_codebooks": n})
        for n in (2, 3)
    )
    runs = Grid((two, three), orders=ORDERS)
    records = list(runs.run(data))
    n_train, n_test = len(data.train[1]), len(data.test[1])
    # Two classifiers with keys of their own; train and test rows once each.
    assert searched.count(n_train) == searched.count(n_test) == 2
    for record in records:
        (alone,) = Grid(
            (next(spec for spec in runs.classifiers if spec.text == record.classifier),),
            orders=(record.config["order"],),
        ).run(data)
        assert alone.accuracy_matrix == record.accuracy_matrix


def test_a_smoke_test_is_brief_whatever_the_sizes(data, monkeypatch):
    made = []

    def noted(make, *rest):
        made.append(make())
        return evaluate(lambda: made[-1], *rest)

    monkeypatch.setattr(grid, "evaluate", noted)
    texts = (
        "bottleneck",
        "ranpac",
        "mlp:epochs=2000",
        "bottleneck:n_codebooks=2",
    )
    Grid(tuple(map(parse_spec, texts))).smoke_test(data)
    bottleneck, ranpac, mlp, small = made
    assert (bottleneck.keys_.n_codebooks, ranpac.n_features, mlp.epochs) == (4, 64, 1)
    assert small.keys_.n_codebooks == 2
    for wrong in ("bottleneck:n_codebooks=0", "ranpac:n_features=0", "mlp:epochs=0"):
        with pytest.raises(ValueError, match="expected a whole number of at least 1; got 0"):
            Grid((parse_spec(wrong),)).smoke_test(data)


def test_kernel_takes_key_data_and_gives_the_same_predictions_in_any_order(data):
    runs = Grid((parse_spec("kernel"),), orders=("class-incremental", "iid"))
    runs.smoke_test(data)
    incremental, iid = runs.run(data)
    assert incremental.metrics["final_accuracy"] == iid.metrics["final_accuracy"]
    assert incremental.curve[-1].test_loss == iid.curve[-1].test_loss


def test_old_keys_are_dropped(data, monkeypatch):
    monkeypatch.setattr(grid, "_FITTED", {})
    monkeypatch.setattr(grid, "_MAX_FITTED", 2)
    list(Grid((BOTTLENECK,), seeds=(1, 2, 3)).run(data))
    assert len(grid._FITTED) == 2


def test_side_by_side_is_the_same_as_apart(data, monkeypatch):
    specs = tuple(map(parse_spec, ("linear:learning_rate=0.1", "mlp:hidden=4", "prototypes")))
    runs = Grid(specs, seeds=(1, 2), orders=ORDERS, epochs=3)
    apart = {(r.classifier, r.stream, r.seed): r for r in runs.run(data)}
    monkeypatch.setattr(Grid, "_is_batched", lambda self, spec: spec.name != "prototypes")
    jobs = runs.make_jobs(data)
    assert [len(job.specs) for job in jobs] == [2, 2, 8]
    together = {(r.classifier, r.stream, r.seed): r for r in runs.run(data)}
    assert together.keys() == apart.keys()
    for key, record in together.items():
        ours, theirs = record.metrics, apart[key].metrics
        assert ours["final_accuracy"] == pytest.approx(theirs["final_accuracy"], abs=0.051)
        if theirs["test_loss"] is not None:
            assert ours["test_loss"] == pytest.approx(theirs["test_loss"], rel=1e-3)
        assert record.config["order"] == apart[key].config["order"]
        assert record.config["settings"] == apart[key].config["settings"]


def test_a_stack_with_a_missing_cell_runs_only_that(data, tmp_path, monkeypatch):
    monkeypatch.setattr(Grid, "_is_batched", lambda self, spec: True)
    runs = Grid((parse_spec("linear"),), seeds=(1, 2, 3))
    path = tmp_path / "records.jsonl"
    before = run_missing(runs.make_jobs(data), path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[2]]) + "\n")
    after = run_missing(runs.make_jobs(data), path)
    assert [replace(r, times={}, config={}) for r in after] == [
        replace(r, times={}, config={}) for r in before
    ]
    assert after[1].config["batched_runs"] == 1


def test_what_decides_numbers_is_in_the_identity(data):
    base = Grid((parse_spec("linear"),))

    def identity(runs, rows=data):
        return runs.make_jobs(rows)[0].specs[0].run_id

    changes = [{"seeds": (2,)}, {"epochs": 2}, {"evaluate_every": 1}, {"classes_per_task": 1},
               {"orders": ("iid",)}, {"final_only": True}, {"imbalance_factor": 10.0},
               {"orders": ("blurry",)}, {"orders": ("blurry",), "blurry_percent": 20},
               {"classifiers": (parse_spec("linear:bias=false"),)}]  # fmt: skip
    others = [identity(replace(base, **change)) for change in changes]
    moved = Data((data.train[0] + 1, data.train[1]), data.test, data.keys, data.names)
    assert len({identity(base), identity(base, moved), *others}) == len(changes) + 2
    assert identity(base) == identity(Grid((parse_spec("linear"),)))
    assert identity(base) == identity(replace(base, device="cuda"))  # the same run elsewhere
    # iid has one task, whatever the others have.
    iid = replace(base, orders=("iid",))
    assert identity(iid) == identity(replace(iid, classes_per_task=3))


def test_blurry_and_long_tailed_streams_reach_the_records(data):
    grid = Grid((parse_spec("prototypes"),), orders=("blurry", "iid"), imbalance_factor=4)
    blurry, iid = grid.run(data)
    assert blurry.stream == "blurry-10 B0-Inc2 imbalance-4"
    assert iid.stream == "iid imbalance-4"
    with pytest.raises(ValueError, match="blurry_percent: expected"):
        Grid((parse_spec("prototypes"),), blurry_percent=200)


def test_a_fingerprint_sees_rows_labels_and_shape(rng):
    x, y = rng.normal(size=(50, 3)), np.arange(50)
    seen = {fingerprint(x), fingerprint(x + 1), fingerprint(x[:49]), fingerprint(x, y),
            fingerprint(x, y + 1), fingerprint(x.astype(np.float32))}  # fmt: skip
    assert len(seen) == 6
    assert fingerprint(x.copy(), y.copy()) == fingerprint(x, y)
    large = np.zeros((9000, 2), dtype=np.float16)
    for row in (0, 4095, 4096, 5001, 8999):  # a single number counts, wherever it stands
        changed = large.copy()
        changed[row, 1] = 1
        seen |= {fingerprint(changed)}
    assert len(seen | {fingerprint(large)}) == 12
