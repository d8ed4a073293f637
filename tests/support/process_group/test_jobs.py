"""1, 2 and 4 processes find the same keys, learn the same models, and send what shapes promise."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dkvb._support import process_group
from dkvb._support.process_group import volume
from dkvb.rules.counts import state as counts

from .jobs import run

C, K, D, M, N = 6, 20, 3, 12, 503
EPOCHS, BATCH = 3, 50

PROGRAM = f"""
from dkvb import BottleneckClassifier, fit_keys
from dkvb._support.process_group import all_gather, all_gather_objects, all_to_all
from dkvb._support.process_group import parts, shard, traffic
from dkvb.rules import rule_class
from dkvb.rules.counts import class_sums, processes
from dkvb.rules.counts import state as counts
from dkvb.rules.least_squares import sums

C, K, D, M, N = {C}, {K}, {D}, {M}, {N}
CUTS = {{1: [0, N], 2: [0, 100, N], 4: [0, 3, 3, 300, N]}}  # uneven, and one has nothing


def since(before):
    after = traffic()
    return {{kind: after[kind] - before.get(kind, 0) for kind in after}}


def primitives():
    rank, size = process_group.rank(), process_group.world_size()
    rows = torch.arange(5.0 * 7 * 2).view(7, 5, 2)
    return {{
        "integers": process_group.all_reduce(torch.tensor([2**53, rank + 1])),
        "broadcast": process_group.broadcast(torch.tensor([10 + rank])),
        "gathered": torch.cat(all_gather(torch.full((rank % 3, 2), rank, dtype=torch.uint16))),
        "objects": all_gather_objects({{"rank": rank, "text": "é" * rank}}),
        "swapped": all_to_all(rows[shard(7)], parts(5)),
        "total": process_group.all_reduce_int(rank),
    }}


def keys(X):
    found = {{}}
    rows = X[shard(len(X))]
    for method in ("ema", "ema-reference", "lloyd", "sample"):
        for conditioning in ("centre", "whitened"):
            before = traffic()
            fitted = fit_keys(
                rows, n_codebooks=C, n_pairs=K, key_dim=D, epochs={EPOCHS}, method=method,
                batch_size={BATCH}, conditioning=conditioning,
            )
            found[method, conditioning] = {{
                "keys": fitted.keys, "novelty": fitted.novelty, "report": vars(fitted.report),
                "traffic": since(before),
            }}
    stream = [rows[:40], rows[40:]]
    how = {{"preset": "paper", "n_codebooks": 2, "n_pairs": K, "key_dim": D, "epochs": 2}}
    fitted = fit_keys(stream, **how, batch_size=16)
    found["stream"] = {{"keys": fitted.keys}}
    return found


def learn(X, y, key_rows):
    found = {{}}
    own_keys = key_rows[shard(len(key_rows))]
    fitted = fit_keys(own_keys, preset="paper", n_codebooks=C, n_pairs=K, key_dim=D)
    cuts = CUTS[process_group.world_size()]
    own = slice(cuts[process_group.rank()], cuts[process_group.rank() + 1])
    for rule, settings in (
        ("counts", {{}}),
        ("least_squares", {{"store_samples": True}}),
        ("sgd", {{"epochs": {EPOCHS}, "batch_size": {BATCH}}}),
    ):
        before = traffic()
        rows = slice(None) if rule == "sgd" else own
        model = BottleneckClassifier(fitted, rule_class(rule)(**settings))
        model.partial_fit(X[rows][::2], y[rows][::2])  # labels that others have not seen, too
        first = since(before)
        model.partial_fit(X[rows][1::2], y[rows][1::2])
        found[rule] = {{
            "state": model.state_tensors(), "traffic": first, "rows": len(X[rows][::2]),
            "scores": torch.from_numpy(model.decision_function(X[:40])),
            "probabilities": torch.from_numpy(model.predict_proba(X[:40])),
            "counted": sum(model.class_count_.values()), "classes": model.classes_.tolist(),
        }}
    codes = fitted.codes(X[own]) if own.stop > own.start else torch.zeros(0, C)
    columns = torch.from_numpy(np.unique(y, return_inverse=True)[1][own])
    for way in (True, False):
        processes.sends_table = lambda entries, cells: way
        before = traffic()
        empty = counts.grow(counts.start(C, K), 7)
        state = processes.update_together(empty, codes.int(), columns)
        found["table" if way else "lists"] = {{
            "state": counts.canonical(state), "traffic": since(before),
            "entries": len(counts.update(empty, codes.int(), columns).whole),
        }}
    # As with billions of rows: rows that are kept are sketched, and sums have high limbs.
    counts.PENDING, sums.LIMB, class_sums.FULL, processes.FULL = 5, 2.0**34, 1 << 20, 1 << 20
    for rule in ("counts", "least_squares"):
        model = BottleneckClassifier(fitted, rule).partial_fit(X[own], y[own])
        found["many", rule] = model.partial_fit(X[own], y[own]).state_tensors()
    return found


def work():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, M)).astype(np.float32), rng.integers(7, size=N)
    X[np.arange(N), y] += 3
    key_rows = rng.normal(size=(300, M)).astype(np.float32)
    y = np.array(list("abcdefg"))[y]
    return {{"primitives": primitives(), "keys": keys(X), "learned": learn(X, y, key_rows)}}
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return run(PROGRAM, tmp_path_factory.mktemp("job"))


def others(found):
    return [(size, rank, found[size][rank]) for size in (2, 4) for rank in range(size)]


def test_sums_gathers_and_exchanges(found):
    rows = torch.arange(5.0 * 7 * 2).view(7, 5, 2)
    for size, rank, one in others(found):
        got = one["primitives"]
        assert got["integers"].tolist() == [size * 2**53, size * (size + 1) // 2]
        assert got["broadcast"].tolist() == [10]
        lengths = [r % 3 for r in range(size)]
        assert got["gathered"].dtype == torch.uint16
        assert got["gathered"][:, 0].tolist() == [r for r in range(size) for _ in range(lengths[r])]
        assert got["objects"] == [{"rank": r, "text": "é" * r} for r in range(size)]
        assert torch.equal(got["swapped"], rows[:, process_group.parts(5, size)[rank]])
        assert got["total"] == size * (size - 1) // 2


def test_keys_are_those_of_one_process(found):
    expected = found[1][0]["keys"]
    for _, _, one in others(found):
        for how, fitted in expected.items():
            if how == "stream":
                continue
            torch.testing.assert_close(one["keys"][how]["keys"], fitted["keys"], rtol=0, atol=1e-5)
            torch.testing.assert_close(
                one["keys"][how]["novelty"], fitted["novelty"], rtol=1e-5, atol=1e-5
            )
            assert one["keys"][how]["report"] == pytest.approx(fitted["report"], rel=1e-5)


def test_keys_from_streams_are_the_same_everywhere(found):
    for size in (2, 4):
        everyones = [one["keys"]["stream"]["keys"] for one in found[size]]
        assert all(torch.equal(one, everyones[0]) for one in everyones)
        assert everyones[0].shape == (2, K, D)
        assert everyones[0].unique(dim=1).shape[1] > K // 2


def test_counts_are_the_same_bit_for_bit(found):
    expected = found[1][0]["learned"]
    for _, _, one in others(found):
        for name, tensor in expected["counts"]["state"].items():
            assert torch.equal(one["learned"]["counts"]["state"][name], tensor), name
        assert torch.equal(one["learned"]["counts"]["scores"], expected["counts"]["scores"])
        for way in ("table", "lists"):
            for name, tensor in expected[way]["state"].items():
                assert torch.equal(one["learned"][way]["state"][name], tensor), (way, name)


def test_least_squares_sums_are_the_same_bit_for_bit(found):
    expected = found[1][0]["learned"]["least_squares"]
    for _, _, one in others(found):
        got = one["learned"]["least_squares"]
        for name, tensor in expected["state"].items():
            assert torch.equal(got["state"][name], tensor), name
        torch.testing.assert_close(got["scores"], expected["scores"], rtol=1e-9, atol=1e-9)


def test_sgd_is_that_of_one_process(found):
    expected = found[1][0]["learned"]["sgd"]
    assert expected["state"]["values"].abs().max() > 0.05
    for size in (2, 4):
        together = [one["learned"]["sgd"] for one in found[size]]
        for name in ("values", "usage"):
            whole = torch.cat([one["state"][name] for one in together])
            torch.testing.assert_close(whole, expected["state"][name], rtol=0, atol=1e-6)
        for one in together:
            torch.testing.assert_close(one["scores"], expected["scores"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("rule", ["counts", "least_squares"])
def test_many_rows_give_the_same_bits(found, rule):
    expected = found[1][0]["learned"]["many", rule]
    assert rule == "counts" or "gram_high" in expected
    for _, _, one in others(found):
        tensors = one["learned"]["many", rule]
        assert tensors.keys() == expected.keys()
        assert all(torch.equal(tensor, expected[name]) for name, tensor in tensors.items())


def test_every_process_knows_all_classes_and_rows(found):
    for _, _, one in [(1, 0, found[1][0]), *others(found)]:
        for rule in ("counts", "least_squares", "sgd"):
            assert one["learned"][rule]["classes"] == list("abcdefg")
            assert one["learned"][rule]["counted"] == N


def test_bytes_are_what_shapes_say(found):
    for size, rank, one in others(found):
        keys, learned = one["keys"], one["learned"]
        lloyd = keys["lloyd", "centre"]["traffic"]
        first_keys = C * K * D * 4
        means, centre = C * K * 8 * (1 + D), M * 8
        assert (
            lloyd["all_reduce"] == EPOCHS * volume.lloyd_pass(C, K, D) + first_keys + means + centre
        )

        ema = keys["ema", "centre"]["traffic"]
        own_books = len(range(C)[process_group.parts(C, size)[rank]])
        sent = volume.ema_exchange(1, C - own_books, D)
        assert ema["all_reduce"] == centre
        assert ema["all_to_all"] % sent == 0
        fitting = ema["all_to_all"] // sent  # rows of this process that were not held out
        share = process_group.parts(N, size)[rank]
        assert 0.8 * (share.stop - share.start) < fitting <= share.stop - share.start

        batches = -(-((N + 1) // 2) // BATCH)
        partial = (N + 1) // 2 - BATCH * (batches - 1)
        columns = 7 + 1  # nobody declared the classes: one is for those to come
        steps = (batches - 1) * volume.sgd_step(BATCH, columns) + volume.sgd_step(partial, columns)
        assert learned["sgd"]["traffic"]["all_reduce"] == EPOCHS * steps

        ridge = learned["least_squares"]["traffic"]
        assert ridge["all_reduce"] == volume.least_squares(C * K, 7) + 7 * 8  # and the rows a class

        everyones = [other["learned"]["lists"] for other in found[size]]
        longest = max(other["entries"] for other in everyones)
        kept = int(everyones[0]["state"]["kept_times"].sum())
        lists, table = learned["lists"]["traffic"], learned["table"]["traffic"]
        assert table["all_reduce"] == volume.counts_table(C, K, 7) + 7 * 8
        assert lists["all_reduce"] == 7 * 8
        most_kept, left = divmod(
            lists["all_gather"] - volume.counts_lists(longest, 0, C), 2 * C + 8
        )
        assert left == 0
        assert -(-kept // size) <= most_kept <= kept
        assert table["all_gather"] == volume.kept_rows(most_kept, C)


@settings(max_examples=30)
@given(st.data())
def test_any_split_gives_the_same_counts(data):
    """What processes send each other are lists to be merged: any split, any part empty."""
    n = data.draw(st.integers(0, 60))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    codes = torch.from_numpy(rng.integers(5, size=(n, 3)).astype(np.int32))
    y = torch.from_numpy(rng.integers(4, size=n))
    owner = torch.from_numpy(rng.integers(data.draw(st.integers(1, 5)), size=n))
    empty = counts.grow(counts.start(3, 5), 4)
    whole = counts.canonical(counts.update(empty, codes, y))
    parts = [counts.update(empty, codes[owner == r], y[owner == r]) for r in range(5)]
    merged = parts[0]
    for part in parts[1:]:
        merged = counts.merge(merged, part)
    for name, tensor in counts.canonical(merged).items():
        assert torch.equal(tensor, whole[name])


def test_outside_of_a_job_nothing_happens():
    tensor = torch.tensor([1, 2])
    assert process_group.all_reduce(tensor) is tensor
    assert process_group.broadcast(tensor) is tensor
    assert process_group.all_gather(tensor)[0] is tensor
    assert process_group.all_gather_objects({1: 2}) == [{1: 2}]
    assert torch.equal(process_group.all_to_all(tensor[:, None], [slice(0, 1)]), tensor[:, None])
    assert (process_group.rank(), process_group.world_size(), process_group.all_reduce_int(3)) == (
        0,
        1,
        3,
    )
    with process_group.init():
        assert process_group.world_size() == 1
    assert process_group.traffic() == {}
