"""Keys from unlabelled rows, however these come."""

import warnings

import numpy as np
import pytest
import torch

from dkvb import fit_keys
from dkvb.bottleneck.fit_keys import PRESETS, FewRowsWarning
from dkvb.bottleneck.keys import first_of_equals
from dkvb.kernels import kmeans

METHODS = ["ema", "ema-reference", "lloyd", "sample"]
SMALL = {
    "preset": "paper",
    "n_codebooks": 3,
    "n_pairs": 20,
    "key_dim": 4,
    "epochs": 3,
    "batch_size": 64,
}


def gaussian(n: int = 1000, m: int = 10, seed: int = 0):
    return np.random.default_rng(seed).normal(size=(n, m)).astype(np.float32)


def error(keys, X) -> float:
    """Mean squared distance of heads to their keys, on rows the keys have never seen."""
    return float(keys.distances(X, keys.codes(X)).mean())


@pytest.mark.parametrize("method", METHODS)
def test_every_method(method):
    X = gaussian()
    keys = fit_keys(X, **SMALL, method=method)
    assert keys.keys.shape == (3, 20, 4)
    assert keys.keys.dtype == torch.float32
    assert not keys.keys.requires_grad
    assert keys.settings["method"] == method
    report = keys.report
    assert 50 < report.rows < 150  # one row in ten
    assert report.distinct == 1.0
    assert report.used == 1.0
    assert 0.2 < report.relative_error < 0.7
    # What it says of rows held out is true of rows it never saw.
    test = gaussian(2000, seed=1)
    assert abs(error(keys, test) ** 0.5 / report.quantization_error - 1) < 0.1
    spread = keys.heads(test).var(dim=0).sum() / 3
    assert abs(error(keys, test) / float(spread) / report.relative_error - 1) < 0.2


def test_learned_keys_cover_better_than_samples():
    X, test = gaussian(3000), gaussian(1000, seed=1)
    settings = SMALL | {"n_pairs": 64, "epochs": 10}
    errors = {method: error(fit_keys(X, **settings, method=method), test) for method in METHODS}
    assert errors["lloyd"] < 0.9 * errors["sample"]
    assert errors["ema"] < 0.9 * errors["sample"]


@pytest.mark.parametrize("method", METHODS)
def test_the_seed_decides(method):
    X = gaussian()
    same, again = (fit_keys(X, **SMALL, method=method, random_state=3) for _ in range(2))
    assert same.fingerprint == again.fingerprint
    assert torch.equal(same.keys, again.keys)
    assert fit_keys(X, **SMALL, method=method, random_state=4).fingerprint != same.fingerprint


def test_threads_do_not_matter():
    X = gaussian()
    threads = torch.get_num_threads()
    found = []
    for count in (1, 2):
        torch.set_num_threads(count)
        found.append(fit_keys(X, **SMALL).keys)
    torch.set_num_threads(threads)
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("method", METHODS)
def test_every_kind_of_array(method, tmp_path):
    X = gaussian().astype(np.float16).astype(np.float32)
    np.save(tmp_path / "x.npy", X.astype(np.float16))
    stored = np.load(tmp_path / "x.npy", mmap_mode="r")
    expected = fit_keys(X, **SMALL, method=method).fingerprint
    for same in (stored, torch.from_numpy(X), torch.from_numpy(X).half(), X.astype(float), list(X)):
        assert fit_keys(same, **SMALL, method=method).fingerprint == expected


def test_groups_of_codebooks_do_not_matter(monkeypatch):
    from dkvb.bottleneck import key_data as rows

    X = gaussian()
    settings = SMALL | {"n_codebooks": 5}
    for method in METHODS:
        together = fit_keys(X, **settings, method=method)
        with monkeypatch.context() as patch:
            patch.setitem(rows.GROUP_BYTES, "cpu", 1)  # two codebooks at a time
            apart = fit_keys(X, **settings, method=method)
        torch.testing.assert_close(apart.keys, together.keys)
        assert abs(apart.report.relative_error - together.report.relative_error) < 1e-6


@pytest.mark.parametrize("method", ["ema", "lloyd"])
@pytest.mark.parametrize("size", [23, 400])
def test_a_stream_is_as_good_as_an_array(method, size):
    X, test = gaussian(1500), gaussian(1000, seed=1)
    settings = SMALL | {"n_pairs": 40, "method": method}
    streamed = fit_keys([X[i : i + size] for i in range(0, 1500, size)], **settings)
    assert streamed.n_pairs == 40
    assert abs(error(streamed, test) / error(fit_keys(X, **settings), test) - 1) < 0.1


class Again:
    """Batches that can be iterated again."""

    def __init__(self, batches):
        self.batches, self.times = batches, 0

    def __iter__(self):
        self.times += 1
        return iter(self.batches)


def test_batches_that_can_be_iterated_again_are():
    X = gaussian()
    batches = [torch.from_numpy(part) for part in np.array_split(X, 9)]
    expected = fit_keys(batches, **SMALL).fingerprint
    stream = Again(batches)
    assert fit_keys(stream, **SMALL).fingerprint == expected
    assert stream.times > SMALL["epochs"]


@pytest.mark.parametrize("method", ["ema", "lloyd", "sample"])
def test_a_generator_serves_one_epoch(method):
    X, test = gaussian(3000), gaussian(1000, seed=1)
    settings = SMALL | {"method": method, "epochs": 1}
    once = fit_keys((part for part in np.array_split(X, 40)), **settings)
    # All of it was used: as good as what the same stream gives in a list, which is read once more
    # to make keys the means of rows.
    again = fit_keys(np.array_split(X, 40), **settings)
    if method == "sample":
        assert torch.equal(once.keys, again.keys)
    else:
        torch.testing.assert_close(error(once, test), error(again, test), rtol=0.1, atol=0)
    if method != "sample":
        assert error(once, test) < 1.1 * error(fit_keys(X, **settings), test)
        with pytest.raises(ValueError, match="X: expected batches that can be iterated 3 times"):
            fit_keys((part for part in np.array_split(X, 40)), **SMALL | {"method": method})


@pytest.mark.parametrize("method", METHODS)
def test_spatial_maps_are_their_positions(method):
    maps = gaussian(600).reshape(100, 2, 3, 10)
    settings = SMALL | {"method": method}
    keys = fit_keys(maps, **settings | {"batch_size": 8})
    flat = fit_keys(maps.reshape(600, 10), **settings | {"batch_size": 48})
    assert keys.fingerprint == flat.fingerprint
    streamed = fit_keys(list(maps.reshape(10, 10, 2, 3, 10)), **settings | {"batch_size": 8})
    assert streamed.keys.shape == keys.keys.shape


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("as_stream", [False, True])
def test_fewer_rows_than_pairs(method, as_stream):
    X = gaussian(15)
    with pytest.warns(
        FewRowsWarning, match=r"n_pairs: 20 keys per codebook need as many rows; X has"
    ):
        keys = fit_keys([X[:7], X[7:]] if as_stream else X, **SMALL, method=method)
    assert 10 <= keys.n_pairs <= 15
    assert keys.codes(X, top=1).shape == (15, 3, 1)


def test_one_row_is_enough_for_one_pair():
    for i in range(30):  # some of them would be held out
        X = gaussian(1, seed=i)
        for rows in (X, [X]):
            keys = fit_keys(rows, preset="paper", n_codebooks=2, n_pairs=1, key_dim=3, epochs=2)
            assert keys.keys.shape == (2, 1, 3)
            assert keys.report.quantization_error < 1e-4
            assert keys.keys.abs().max() < 1e-4  # the row is its own centre


def test_equal_rows():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewRowsWarning)
        keys = fit_keys(
            np.ones((50, 4)), preset="paper", n_codebooks=2, n_pairs=3, key_dim=2, epochs=2
        )
    assert keys.report.relative_error == 0.0
    assert keys.report.distinct < 1.0
    assert not keys.codes(np.ones((5, 4)), top=1).int().any()


def test_the_reference_draws_equal_keys():
    """Clusters of very different size: keys expire, and are drawn again from few rows. Ours are
    equal only where there were too few rows for a mean."""
    rng = np.random.default_rng(0)
    X = 10 * rng.normal(size=(10, 8))[rng.integers(10, size=3000)] + rng.normal(size=(3000, 8))
    settings = {"preset": "paper", "n_codebooks": 2, "n_pairs": 256, "key_dim": 4, "batch_size": 32}
    ours, reference = (fit_keys(X, **settings, method=method) for method in METHODS[:2])
    assert ours.report.distinct == ours.report.used > 0.95
    assert reference.report.distinct < 1.0
    assert reference.report.used < reference.report.distinct
    assert reference.report.distinct == float(first_of_equals(reference.keys).double().mean())


@pytest.mark.parametrize("backend", ["oracle", "cpu"])
def test_moving_averages_by_hand(backend):
    """Equations of the paper's appendix: N := γN + (1−γ)n, m := γm + (1−γ)Σh, k := m / N."""
    heads = torch.tensor([-3.0, -1.0, 2.0]).view(3, 1, 1)
    keys = torch.tensor([-1.0, 1.0]).view(1, 2, 1)
    counts, sums = torch.ones(1, 2), keys.clone()
    order = torch.arange(3)
    kmeans.ema(heads, keys, counts, sums, order, 3, 0.5, 0.0, 0, backend=backend)
    assert counts.tolist() == [[0.5 + 0.5 * 2, 0.5 + 0.5 * 1]]
    assert sums.flatten().tolist() == [-0.5 + 0.5 * -4, 0.5 + 0.5 * 2]
    total = 2.5
    smoothed = [(n + 1e-5) / (total + 2e-5) * total for n in (1.5, 1.0)]
    torch.testing.assert_close(
        keys.flatten(), torch.tensor([-2.5 / smoothed[0], 1.5 / smoothed[1]])
    )


@pytest.mark.parametrize("scale", [2.0**100, 2.0**-100])
@pytest.mark.parametrize("method", METHODS)
def test_scale_does_not_matter(method, scale):
    """Powers of two change no digit, though squares of these rows are no float32 numbers."""
    X = gaussian()
    # Held-out rows are picked by content, which a scale changes: none here.
    X = X[(gaussian_held(X) == gaussian_held(X * np.float32(scale)))]
    plain = fit_keys(X, **SMALL, method=method)
    scaled = fit_keys(X * np.float32(scale), **SMALL, method=method)
    assert abs(scaled.report.relative_error / plain.report.relative_error - 1) < 0.1
    assert scaled.report.used == 1.0
    torch.testing.assert_close(scaled.keys / scale, plain.keys)


def gaussian_held(X):
    from dkvb.bottleneck.key_data import _held

    return _held(torch.from_numpy(X)).numpy()


def test_the_bar_shows_only_when_asked(capsys):
    fit_keys(gaussian(), **SMALL)
    assert capsys.readouterr().err == ""
    fit_keys(gaussian(), **SMALL, progress=True)
    assert "keys (ema)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (np.full((30, 10), np.nan), ValueError, "X: expected finite"),
        ([gaussian(30), np.full((30, 10), np.inf)], ValueError, "X: expected finite"),
        ([gaussian(30), gaussian(30, 9)], ValueError, "X: expected width 10.*got 9"),
        ([gaussian(30), gaussian(30)[:0]], ValueError, "X: expected at least one row"),
        (gaussian(30)[0], ValueError, "X: expected a 2-d array"),
        (gaussian(30)[None], ValueError, "X: expected a 2-d array"),
        (gaussian(30)[:0], ValueError, "X: expected at least one row"),
        (np.zeros((0, 2, 2, 10)), ValueError, "X: expected at least one row"),
        (np.zeros((3, 2, 2, 0)), ValueError, "X: expected at least one row and one column"),
        ([], ValueError, "X: expected at least one batch; got an empty iterable"),
        (5, TypeError, "X: expected an array or an iterable of batches; got int"),
        (np.array([["a"] * 10] * 30), TypeError, "X: expected real numbers"),
    ],
)
def test_bad_rows(X, error, message):
    with pytest.raises(error, match=message):
        fit_keys(X, **SMALL)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_codebooks", 0), ("n_pairs", 2.5), ("key_dim", -1), ("method", "kmeans"),
        ("projection", "pca"), ("epochs", 0), ("batch_size", "9"), ("decay", 1.5),
        ("random_state", -1), ("conditioning", "zca"),
    ],
)  # fmt: skip
def test_bad_settings(name, value):
    with pytest.raises(ValueError, match=f"^{name}: expected "):
        fit_keys(gaussian(50), **SMALL | {name: value})


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_gives_what_is_not_given(preset):
    X = gaussian(400)
    named = {name: value for name, value in PRESETS[preset].items() if name != "n_pairs"}
    small = {"n_codebooks": 3, "key_dim": 4, "epochs": 1}
    by_preset = fit_keys(X, preset, **small)
    assert (
        by_preset.fingerprint
        == fit_keys(X, "paper", **named | small, n_pairs=by_preset.n_pairs).fingerprint
    )
    assert by_preset.settings["conditioning"] == PRESETS[preset]["conditioning"]


def test_an_unknown_preset_lists_those_there_are():
    with pytest.raises(ValueError, match=r"preset: expected one of 'paper'; got 'fast'"):
        fit_keys(gaussian(50), "fast")


# ----------------------------------------------------------------------------------- few rows
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(("n", "most"), [(1, 1), (3, 3), (20, 4), (80, 9), (300, 34)])
def test_few_rows_get_few_keys_unless_asked(preset, n, most):
    keys = fit_keys(gaussian(n), preset, n_codebooks=2, key_dim=2, epochs=1)
    assert keys.n_pairs <= most
    assert keys.n_pairs >= most - 2


def test_moving_averages_of_few_rows_leave_the_rows_they_start_from():
    X, test = gaussian(120), gaussian(500, seed=1)
    ema, lloyd = (fit_keys(X, **SMALL | {"n_pairs": 8, "method": m}) for m in ("ema", "lloyd"))
    assert error(ema, test) < 1.1 * error(lloyd, test)


def test_whitening_of_few_rows_is_weaker():
    """Axes of small variance are scaled up less the fewer rows say how small it is."""
    X = gaussian(3000, m=20) * np.linspace(3, 0.3, 20)
    ratios = []
    for n in (40, 400, 3000):
        keys = fit_keys(X[:n], conditioning="whitened", n_codebooks=1, key_dim=2, epochs=1)
        scale = keys.conditioning.components.norm(dim=0)
        ratios.append(float(scale.max() / scale.min()))
    assert ratios[0] < 2 < ratios[1] < ratios[2]


@pytest.mark.parametrize("method", ["ema", "lloyd"])
@pytest.mark.parametrize("n", [60, 300, 2000])
def test_no_key_is_a_row(method, n):
    """Rows of a class that is forgotten cannot be read from keys."""
    X = gaussian(n)
    keys = fit_keys(X, "paper", n_codebooks=4, key_dim=4, method=method)
    distances = (keys.heads(X)[:, :, None] - keys.keys.double()).norm(dim=3)  # (n, C, K)
    scale = keys.report.quantization_error
    assert float(distances.min()) > 1e-3 * scale
    codes = keys.codes(X)
    for book in range(4):
        counts = torch.bincount(codes[:, book].long(), minlength=keys.n_pairs)
        used = counts[keys.first_of_equals[book]]
        assert int(used.min()) >= 2  # three of the rows that fitted; codes are of keys moved since


# --------------------------------------------------------------------------------- kinds of data
def test_data_loaders():
    X = torch.from_numpy(gaussian(400))
    rows = torch.utils.data.TensorDataset(X)
    labelled = torch.utils.data.TensorDataset(X, torch.arange(400))
    expected = fit_keys(list(X.split(50)), **SMALL).fingerprint
    for source in (rows, labelled):
        loader = torch.utils.data.DataLoader(source, batch_size=50)
        assert fit_keys(loader, **SMALL).fingerprint == expected
    assert fit_keys(torch.utils.data.DataLoader(X, batch_size=50), **SMALL).fingerprint == expected


def test_tensors_of_any_kind():
    X = torch.from_numpy(gaussian(400))
    expected = fit_keys(X, **SMALL).fingerprint
    assert fit_keys(X.clone().requires_grad_(), **SMALL).fingerprint == expected
    half = X.to(torch.bfloat16)
    assert fit_keys(half, **SMALL).fingerprint == fit_keys(half.float(), **SMALL).fingerprint


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_tensors_on_a_gpu():
    X = torch.from_numpy(gaussian(400))
    assert fit_keys(X.cuda(), **SMALL).fingerprint == fit_keys(X, **SMALL).fingerprint
