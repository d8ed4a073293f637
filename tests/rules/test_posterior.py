"""Scores from counts: by hand, from one list or several, with and without clusters."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dkvb.bottleneck.key_clusters import find_key_clusters
from dkvb.rules.counts import leave_one_out, posterior, sparse
from dkvb.rules.counts import state as counts

C, K, Y = 3, 20, 4
CLASS_WEIGHTS = ["balanced", None]


def problem(n=60, seed=0, uneven=True):
    rng = np.random.default_rng(seed)
    codes = torch.from_numpy(rng.integers(K, size=(n, C)).astype(np.int32))
    share = [0.6, 0.25, 0.1, 0.05] if uneven else [0.25] * 4
    y = rng.permutation(np.repeat(np.arange(Y), np.round(n * np.array(share)).astype(int)))
    return codes, torch.from_numpy(y)


def keys(seed=3):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(size=(C, K, 2)).astype(np.float32))


def learned(codes, y, clusters, parts=1):
    state = counts.grow(counts.start(C, K, clusters=clusters), Y)
    for rows in torch.arange(len(y)).chunk(parts):
        state = counts.update(state, codes[rows], y[rows])
    return state


def scores_of(state, codes, pseudocount, class_weight):
    """Scores of counts alone (n, Y), and how counts become scores."""
    solution = posterior.solve(state, None, pseudocount, class_weight)
    logs = posterior.log_likelihoods(state, codes, solution)
    return solution.scores(logs, None), solution


def by_hand(codes, y, clusters, pseudocount):
    """log K p(k | y) of every key: (C, K, Y), as the module's first lines have it."""
    table = np.zeros((C, K, Y))
    for row, label in zip(codes.numpy(), y.numpy(), strict=True):
        table[np.arange(C), row, label] += 1
    N = np.bincount(y, minlength=Y)
    if clusters is None:
        p = np.full((C, K, Y), 1 / K)
    else:
        partitions = clusters.of_key.numpy()  # (4, C, K)
        density = np.zeros((4, C, K, Y))
        for r, c, k in np.ndindex(4, C, K):
            same = partitions[r, c] == partitions[r, c, k]
            density[r, c, k] = table[c, same].sum(axis=0) / same.sum()
        a1, a2 = 0.5 * round(K**0.5), 0.5 * round(K ** (1 / 3))
        p2 = (density[2:].mean(axis=0) + a2 / K) / (N + a2)
        p = (density[:2].mean(axis=0) + a1 * p2) / (N + a1)
    p = (table + pseudocount * K * p) / (N + pseudocount * K)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    return np.log(K * p)


@pytest.fixture(params=[False, True], ids=["plain", "clusters"])
def clusters(request):
    return find_key_clusters(keys()) if request.param else None


@pytest.mark.parametrize("few_rows", [0, 64])  # read from one list, or from several
@pytest.mark.parametrize("class_weight", CLASS_WEIGHTS)
@pytest.mark.parametrize("pseudocount", [0.05, 1.0])
def test_scores_by_hand(class_weight, pseudocount, few_rows, clusters, monkeypatch):
    monkeypatch.setattr(posterior, "FEW_ROWS", few_rows)
    monkeypatch.setattr(counts, "GROWTH", 1)  # keeps lists apart
    codes, y = problem()
    state = learned(codes, y, clusters, parts=3)
    assert len(state.tallies) > 1
    new, _ = problem(11, seed=1)
    logs = by_hand(codes, y, clusters, pseudocount)
    rows = np.bincount(y, minlength=Y)
    expected = sum(logs[c, new[:, c]] for c in range(C))
    if class_weight is None:
        expected = expected + np.log(rows / rows.sum())
    else:
        usage = np.stack([np.bincount(codes[:, c], minlength=K) for c in range(C)]) / len(y)
        mean = np.einsum("ck,cky->cy", usage, logs)
        variance = np.einsum("ck,cky->cy", usage, (logs - mean[:, None]) ** 2).mean(axis=0)
        mean, width = mean.mean(axis=0), np.log(variance) / 2
        uneven = np.log(rows).var()
        strength = uneven / (uneven + 0.2)
        assert strength > 0.5
        shift = mean.mean() + strength * (mean - mean.mean())
        scale = np.exp(1.2 * strength * (width - width.mean()))
        expected = (expected - C * shift) / scale
    found, solution = scores_of(state, new, pseudocount, class_weight)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    parts = posterior.contributions(state, new, solution)
    np.testing.assert_allclose(parts.sum(dim=1), expected, rtol=1e-9, atol=1e-9)


def test_even_classes_need_no_balancing(clusters):
    codes, y = problem(uneven=False)
    state = learned(codes, y, clusters)
    solution = posterior.solve(state, None, 0.1, "balanced")
    assert not solution.shift.any()
    assert bool((solution.scale == 1).all())


@pytest.mark.parametrize("class_weight", CLASS_WEIGHTS)
def test_a_left_out_row_was_never_seen(class_weight, clusters):
    codes, y = problem(400)
    state = learned(codes, y, clusters)
    kept = leave_one_out.kept_rows(state, 100)
    assert len(kept.codes) > 3
    _, solution = scores_of(state, kept.codes, 0.1, class_weight)
    logs = leave_one_out.left_out_logs(state, kept, solution, 0.1, class_weight)
    scores = solution.scores(logs, None)
    for row, code, column in zip(scores, kept.codes, kept.class_index, strict=True):
        without = counts.update(state, code[None], column[None], sign=-1)
        fewer = posterior.solve(without, None, 0.1, class_weight)
        own = posterior.log_likelihoods(without, code[None], fewer)
        rows = without.per_class[column].double() / len(y)
        prior_term = rows.log() if class_weight is None else 0.0
        own = own[0, column] - C * solution.shift[column]
        expected = own / solution.scale[column] + prior_term
        np.testing.assert_allclose(row[column], expected, rtol=1e-9)
        others = torch.arange(Y) != column
        plain = scores_of(state, code[None], 0.1, class_weight)[0][0]
        np.testing.assert_allclose(row[others], plain[others], rtol=1e-9)


@given(st.integers(0, 1 << 30), st.integers(1, 5), st.integers(1, 5))
def test_any_order_and_batching_give_the_same_regional_counts(seed, parts, other_parts):
    codes, y = problem(seed=seed)
    found = find_key_clusters(keys())
    state = learned(codes, y, found, parts)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(y)))
    again = learned(codes[order], y[order], found, other_parts)
    half = counts.merge(learned(codes[:20], y[:20], found), learned(codes[20:], y[20:], found))
    late = counts.with_clusters(learned(codes, y, None), found)
    more = counts.update(counts.update(state, codes[:7], y[:7]), codes[:7], y[:7], sign=-1)
    expected = sparse.whole(state.by_cluster)
    for one in (again, half, late, more):
        by_cluster = sparse.whole(one.by_cluster)
        assert torch.equal(by_cluster.places, expected.places)
        assert torch.equal(by_cluster.counts, expected.counts)


def test_counts_of_many_codebooks_are_found_in_their_clusters():
    books = 200  # 2,400 clusters in all, whose places need more than 32 bits
    rng = np.random.default_rng(0)
    codes, y = torch.from_numpy(rng.integers(9, size=(4, books))), torch.arange(4)
    found = find_key_clusters(torch.from_numpy(rng.normal(size=(books, 9, 2)).astype(np.float32)))
    states = [counts.grow(counts.start(books, 9, clusters=one), Y) for one in (found, None)]
    direct, late = (counts.update(state, codes, y) for state in states)
    late = counts.with_clusters(late, found)
    by_cluster = [sparse.whole(state.by_cluster) for state in (direct, late)]
    assert torch.equal(by_cluster[0].places, by_cluster[1].places)
    assert torch.equal(by_cluster[0].counts, by_cluster[1].counts)


def test_pruned_counts_keep_their_regions():
    codes, y = problem()
    found = find_key_clusters(keys())
    state = learned(codes, y, found)
    place = torch.argsort(state.usage == 0, dim=1, stable=True)[
        :, : int((state.usage > 0).sum(1).max())
    ]
    frozen = counts.only_pairs(state, place)
    new = (codes[:9, :, None] == place).int().argmax(dim=2)
    for class_weight in CLASS_WEIGHTS:
        before, _ = scores_of(state, codes[:9], 0.1, class_weight)
        after, _ = scores_of(frozen, new, 0.1, class_weight)
        np.testing.assert_allclose(after, before, rtol=1e-9)


def test_regions_hold_keys_that_lie_together():
    rng = np.random.default_rng(0)
    corners = rng.normal(size=(5, 3)) * 100
    points = np.concatenate([corners + rng.normal(size=(5, 3)) for _ in range(5)])  # 25 keys
    found = find_key_clusters(torch.from_numpy(points.astype(np.float32))[None])
    assert found.of_key.shape == (4, 1, 25)
    assert found.sizes.sum(dim=2).eq(25).all()
    for partition in found.of_key[:2, 0]:
        assert torch.equal(partition.view(5, 5)[:1].expand(5, 5), partition.view(5, 5))
        assert len(set(partition[:5].tolist())) == 5
    one = find_key_clusters(torch.zeros(2, 1, 3))
    assert one.of_key.eq(0).all()


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, Y - 1)), min_size=1, max_size=60),
    st.integers(1, 20),
    st.randoms(use_true_random=False),
)
def test_which_rows_calibrate_depends_on_content_alone(drawn, most, random):
    """Few distinct rows, repeated; classes in another order have other columns."""
    target = list(range(Y))
    shuffled = list(drawn)
    random.shuffle(shuffled)
    random.shuffle(target)
    found = []
    for rows, column_of in ((drawn, range(Y)), (shuffled, target)):
        codes = torch.tensor([[code] * C for code, _ in rows], dtype=torch.int32)
        columns = torch.tensor([column_of[label] for _, label in rows])
        state = learned(codes, columns, None)
        state = replace(state, kept_codes=codes, kept_class_index=columns)  # as if all were kept
        kept, column, weight = leave_one_out.kept_rows(state, most)
        assert len(kept) <= most
        label = [list(column_of).index(y) for y in column.tolist()]
        found.append(sorted(zip(kept[:, 0].tolist(), label, weight.tolist(), strict=True)))
    assert found[0] == found[1]


def test_classes_keep_their_proportions_at_the_cut(rng):
    codes = torch.from_numpy(rng.integers(K, size=(4000, C)).astype(np.int32))
    columns = torch.arange(4000) % 10 % Y  # 1200, 1200, 800, 800
    state = replace(learned(codes, columns, None), kept_codes=codes, kept_class_index=columns)
    _, column, weight = leave_one_out.kept_rows(state, 100)
    assert 96 <= len(column) <= 100
    assert np.bincount(column, minlength=Y) == pytest.approx([30, 30, 20, 20], abs=2)
    stand_for = torch.zeros(Y, dtype=torch.float64).index_add(0, column, weight)
    assert stand_for.tolist() == pytest.approx([1200, 1200, 800, 800])


@pytest.mark.parametrize("parts", [1, 3])
def test_likelihoods_that_are_kept_change_no_bit(parts, clusters, monkeypatch):
    codes, y = problem(400)
    asked = torch.arange(len(codes)).split(1) if parts == 1 else torch.arange(len(codes)).chunk(5)
    state = learned(codes, y, clusters, parts)
    solution = posterior.solve(state, None, 0.1, "balanced")
    some = torch.cat([posterior.log_likelihoods(state, codes[rows], solution) for rows in asked])
    assert bool(vars(solution)["_known"].is_known.any())
    monkeypatch.setattr(posterior, "MOST_KNOWN", 0)
    fresh = posterior.solve(learned(codes, y, clusters, parts), None, 0.1, "balanced")
    assert torch.equal(posterior.log_likelihoods(state, codes, fresh), some)
    assert "_known" not in vars(fresh)
