"""The paper's classifier: learning, looking at it, growing and freezing."""

from __future__ import annotations

import pickle
import threading
import warnings
from copy import deepcopy
from dataclasses import FrozenInstanceError
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import sklearn
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from dkvb import BottleneckClassifier, fit_keys
from dkvb._support import memory, validation
from dkvb.bottleneck.fit_keys import FewRowsWarning
from dkvb.bottleneck.key_settings import FewClassesWarning
from dkvb.estimators.registry import load_classifier, make_classifier

from ..estimators.settings import blobs

WIDTH = 12
SIZES = {"n_codebooks": 4, "n_pairs": 8, "key_dim": 2}
NAMES = np.array(["ant", "bee", "cat", "dog", "elk", "fox"])


def overlapping(n, n_classes=4, seed=0):
    """Classes that cannot be told apart without error."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(5).normal(size=(n_classes, WIDTH))
    y = rng.integers(n_classes, size=n)
    return (centres[y] + 1.2 * rng.normal(size=(n, WIDTH))).astype(np.float32), y


@cache
def keys():
    return fit_keys(overlapping(3000, seed=9)[0], n_codebooks=16, n_pairs=32, key_dim=4)


def model(own=None, **params):
    return BottleneckClassifier(own or keys(), **{"learning_rate": 30.0, "epochs": 5, **params})


def same_bits(first, second):
    ours, theirs = first.state_arrays(), second.state_arrays()
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[k], theirs[k]) for k in ours)


def unchanged(classifier, call, error, match):
    """The call raises and leaves every object where it was."""
    before = dict(vars(classifier))
    with pytest.raises(error, match=match):
        call()
    assert vars(classifier) == before
    return True


# ----------------------------------------------------------------------------------------- keys
def test_keys_have_the_papers_settings_unless_told_otherwise():
    X, y = blobs(4, a_class=60, width=20)
    made = BottleneckClassifier(SIZES).fit(X, y).keys_
    assert made.settings["conditioning"] == "centre"
    assert made.conditioning.output_width == 20
    method = {"method": "lloyd", "epochs": 3, "conditioning": "half-whitened", "n_components": 5}
    made = BottleneckClassifier({**SIZES, **method}).fit(X, y).keys_
    assert made.conditioning.output_width == 5
    assert (made.settings["method"], made.settings["epochs"]) == ("lloyd", 3)


def test_keys_of_few_rows_are_few():
    X, y = blobs(4, a_class=20)
    made = BottleneckClassifier({"n_codebooks": 3}).fit(X, y)
    assert made.keys_.n_pairs <= 10


def test_a_first_batch_of_few_classes_is_warned_of():
    X, y = blobs(3)
    with pytest.warns(FewClassesWarning, match="a first batch of 3 classes"):
        BottleneckClassifier().partial_fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FewClassesWarning)
        BottleneckClassifier().fit(X, y)
        BottleneckClassifier().partial_fit(X, y, classes=[0, 1, 2])


@pytest.mark.parametrize(
    ("own", "error", "says"),
    [
        (5, TypeError, "keys: expected a Keys object, None, or a mapping.*got int"),
        ({"n_books": 5}, ValueError, "keys: expected one of .*'n_codebooks'.*got 'n_books'"),
    ],
)
def test_other_keys_are_refused(own, error, says):
    clf = BottleneckClassifier(own)
    assert unchanged(clf, lambda: clf.fit(*blobs(3)), error, says)


def test_keys_from_unlabelled_rows():
    X, y = blobs(3, a_class=50)
    clf = BottleneckClassifier.with_key_rows(X, keys=SIZES, epochs=3)
    assert clf.keys.keys.shape == (4, 8, 2)
    assert clf.keys.fingerprint == fit_keys(X, **SIZES).fingerprint
    assert clf.fit(X, y).keys_ is clf.keys
    with pytest.raises(ValueError, match="epochs: expected"):
        BottleneckClassifier.with_key_rows(X, epochs=0)


def test_key_settings_by_text():
    made = make_classifier(
        "bottleneck", {"n_codebooks": "4", "key_epochs": "2", "epochs": "7", "key_dim": "3"}
    )
    assert made.keys == {"n_codebooks": 4, "epochs": 2, "key_dim": 3}
    assert made.epochs == 7
    with pytest.raises(ValueError, match="keys: expected None beside n_codebooks; got keys"):
        make_classifier("bottleneck", {"keys": keys(), "n_codebooks": 4})
    with pytest.raises(ValueError, match=r"parameter of 'bottleneck': .*got 'pseudocount'"):
        make_classifier("bottleneck", {"pseudocount": "0.02"})


def test_the_width_of_keys_is_checked_before_anything_changes():
    X, y = overlapping(20)
    clf = model()
    for learn in (clf.fit, clf.partial_fit):
        call = lambda learn=learn: learn(X[:, :3], y)  # noqa: E731
        assert unchanged(clf, call, ValueError, "X: expected width 12, that of the keys; got 3")
    fitted = model().fit(X, y)
    assert unchanged(fitted, lambda: fitted.fit(X[:, :3], y), ValueError, "expected width 12")


def test_other_keys_need_a_new_model():
    X, y = overlapping(50)
    clf = model().fit(X, y).set_params(keys=fit_keys(X, **SIZES))
    with pytest.raises(ValueError, match="keys: expected those learned with so far"):
        clf.partial_fit(X, y)
    assert clf.fit(X, y).keys_ is clf.keys


# ------------------------------------------------------------------------------------- learning
@pytest.mark.parametrize("at_once", [1, 2])
def test_undeclared_classes_are_learned_as_well_as_declared_ones(at_once, tmp_path):
    """A column that started at zero would win wherever the others have been pushed back."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(6, 8))
    y = np.repeat(np.arange(6), 60)
    X = (centres[y] + rng.normal(scale=0.8, size=(len(y), 8))).astype(np.float32)
    own = fit_keys(X, n_codebooks=16, n_pairs=24, key_dim=3, epochs=2)

    def learned(**declared):
        clf = BottleneckClassifier(own, epochs=20)
        for first in range(0, 6, at_once):
            rows = (y >= first) & (y < first + at_once)
            clf.partial_fit(X[rows], y[rows], **declared)
            clf.save(tmp_path / "model")  # what stands for classes to come is in the file
            clf = load_classifier(tmp_path / "model")
        return clf

    undeclared, declared = learned(), learned(classes=np.arange(6))
    assert declared.score(X, y) > 0.8
    assert abs(undeclared.score(X, y) - declared.score(X, y)) < 0.02
    assert undeclared.predict_proba(X).shape == (len(y), 6)
    assert np.array_equal(undeclared.freeze().predict(X), undeclared.predict(X))


def test_whole_weights_repeat_rows():
    X, y = overlapping(60)
    weight = np.arange(60) % 3
    chosen = np.repeat(np.arange(60), weight)
    repeated = model().fit(X[chosen], y[chosen])
    assert same_bits(model().fit(X, y, sample_weight=weight.astype(float)), repeated)
    assert same_bits(model().fit(X, y, torch.as_tensor(weight).double()), repeated)


@pytest.mark.parametrize(
    ("weight", "says"),
    [
        ([0.5] * 20, "whole numbers.*scale and round"),
        ([-1] * 20, "at least 0"),
        ([np.nan] * 20, "whole numbers"),
        ([1] * 19, "20 numbers"),
        (["1"] * 20, "20 numbers"),
        ([0] * 20, "a row that counts"),
        ([validation.MOST_ROWS] * 20, "at most 1000000000 rows"),
        ([2**62] * 20, "at most 1000000000 rows"),
    ],
)
def test_other_weights_are_refused(weight, says):
    X, y = overlapping(20)
    clf = model().partial_fit(X, y)
    call = lambda: clf.partial_fit(X, y, sample_weight=weight)  # noqa: E731
    assert unchanged(clf, call, ValueError, f"sample_weight: .*{says}")


def test_weights_are_routed():
    X, y = overlapping(60)
    weight = np.ones(len(X))
    weight[::2] = 0
    with sklearn.config_context(enable_metadata_routing=True):
        classifier = model().set_fit_request(sample_weight=True)
        classifier.set_score_request(sample_weight=True)
        scaler = StandardScaler(with_mean=False, with_std=False)
        pipeline = make_pipeline(scaler.set_fit_request(sample_weight=False), classifier)
        found = pipeline.fit(X, y, sample_weight=weight)
        assert sum(found[-1].class_count_.values()) == len(X) // 2
        scored = cross_validate(
            pipeline, X, y, cv=2, params={"sample_weight": weight}, error_score="raise"
        )
    assert len(scored["test_score"]) == 2


def test_tensors_of_any_kind_are_taken():
    X, y = overlapping(60)
    rows = np.round(X * 4) / 4  # in steps of 1/4, which bfloat16 holds
    plain = model().fit(rows, y)
    for x in (
        torch.tensor(rows, requires_grad=True),
        torch.tensor(rows).bfloat16(),
        torch.tensor(rows).half(),
        torch.tensor(rows).double(),
    ):
        twin = model().fit(x, torch.as_tensor(y))
        assert same_bits(twin, plain)
        assert np.array_equal(twin.predict(x), plain.predict(rows))
        assert np.array_equal(twin.novelty(x), plain.novelty(rows))
        assert str(twin.explain(x[0])) == str(plain.explain(rows[0]))
    own = BottleneckClassifier({"n_codebooks": 4, "n_pairs": 8})
    assert same_bits(own.fit(x, y), clone(own).fit(rows, y))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_tensors_on_cuda_are_taken():
    X, y = overlapping(60)
    plain = model().fit(X, y)
    x = torch.tensor(X).cuda()
    assert same_bits(model().fit(x, torch.as_tensor(y).cuda()), plain)
    assert np.array_equal(plain.predict(x), plain.predict(X))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_batch_of_the_cpu_is_read_on_cuda():
    """Rows whose keys were never used are picked by a tensor on the GPU."""
    X, y = overlapping(60)
    clf = model(device="cuda").fit(X[:3], y[:3])
    batch = clf.batch(torch.tensor(X))
    assert len(batch.codes) == len(X)
    assert np.array_equal(clf.predict(batch), clf.predict(X))


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_a_batch_is_made_before_anything_is_learned(kind):
    X, y = overlapping(60)
    clf = model()
    assert same_bits(clf.fit(clf.batch(kind(X)), y), model().fit(X, y))


def test_fitting_anew_from_codes():
    X, y = overlapping(200)
    clf = BottleneckClassifier(SIZES).fit(X, y)
    scores = clf.decision_function(X)
    assert np.array_equal(clf.fit(clf.batch(X), y).decision_function(X), scores)
    grown = model().fit(X, y).grow_keys(X + 30)
    assert grown.keys_ is not keys()
    expected = model().fit(X, y).decision_function(X)
    assert np.array_equal(grown.fit(grown.batch(X), y).decision_function(X), expected)


def test_values_that_do_not_fit_into_memory_are_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setattr(memory, "free_memory", lambda device: 100)
    clf = model()
    with pytest.raises(MemoryError, match=r"values: .*100 bytes are free; .*smaller") as error:
        clf.partial_fit(*overlapping(20))
    assert "\n" not in str(error.value)
    assert not hasattr(clf, "classes_")


# What is learned from 1 to 60 rows, some of them equal, in a few calls.
streams = st.fixed_dictionaries(
    {
        "n": st.integers(1, 60),
        "n_classes": st.integers(1, 4),
        "distinct": st.integers(1, 60),
        "cuts": st.lists(st.integers(1, 59), max_size=4),
        "own_keys": st.booleans(),
        "seed": st.integers(0, 1000),
    }
)


@given(stream=streams)
@settings(max_examples=25)
def test_every_method_answers_of_few_rows(stream, tmp_path_factory):
    n, rng = stream["n"], np.random.default_rng(stream["seed"])
    X = rng.normal(size=(min(n, stream["distinct"]), WIDTH)).astype(np.float32)
    X = X[np.r_[: len(X), rng.integers(len(X), size=n - len(X))]]
    y = NAMES[rng.integers(stream["n_classes"], size=n)]
    own = keys()
    if stream["own_keys"]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FewRowsWarning)
            own = fit_keys(X, n_codebooks=8, n_pairs=16, key_dim=2, epochs=2)
    clf = model(own)
    for start, stop in pairwise(sorted({0, n, *(cut for cut in stream["cuts"] if cut < n)})):
        clf.partial_fit(X[start:stop], y[start:stop])
    queries = np.random.default_rng(9).normal(size=(7, WIDTH)).astype(np.float32)
    answers, shares = clf.predict(queries), clf.predict_proba(queries)
    assert set(answers) <= set(clf.classes_)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    np.testing.assert_allclose(np.exp(clf.predict_log_proba(queries)), shares)
    assert np.isfinite(clf.novelty(queries)).all()
    assert clf.predict(clf.batch(queries)).tolist() == answers.tolist()
    assert clf.explain(queries[0]).label == answers[0]
    asked = clf.ask(queries)
    assert asked.labels.tolist() == answers.tolist()
    assert np.array_equal(asked.probabilities, shares)
    assert np.array_equal(asked.novelty, clf.novelty(queries))

    path = tmp_path_factory.mktemp("models") / "model.safetensors"
    clf.save(path)
    loaded = BottleneckClassifier.load(path)
    assert np.array_equal(loaded.predict_proba(queries), shares)
    assert same_bits(loaded.partial_fit(X, y), clf.partial_fit(X, y))


def test_answers_are_those_of_one_moment():
    """Threads predict while another learns."""
    n_classes = 12
    X, y = blobs(n_classes)
    names = np.array([f"class {'x' * k}" for k in range(n_classes)])[y]  # widths grow too
    queries = blobs(n_classes, seed=1)[0][:20]
    own = fit_keys(blobs(n_classes, seed=7)[0], n_codebooks=8, n_pairs=16, key_dim=3)

    def steps():
        """Yield the classifier after each stage of its life."""
        clf = model(own)
        for label in np.unique(names):
            yield clf.partial_fit(X[names == label], names[names == label])
        yield clf.grow_keys(queries + 30)

    def answer(clf):
        return clf.predict(queries).tolist(), clf.predict_proba(queries).tobytes()

    expected = [answer(clf) for clf in steps()]
    labels, shares = [one for one, _ in expected], {other for _, other in expected}
    life = steps()
    clf = next(life)
    done, problems, answered = threading.Event(), [], []

    def hammer():
        try:
            while not done.is_set():
                found = answer(clf)
                answered.append(found[0])
                if found[0] not in labels or found[1] not in shares:
                    problems.append(found[0])
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=hammer) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in life:
            # More answers than there are threads: one at least began after this stage.
            enough = len(answered) + 4
            while len(answered) < enough and not problems:
                done.wait(0.001)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert problems == []
    assert any(one != answered[0] for one in answered)  # they did predict while it learned


# ----------------------------------------------------------------------------- novelty and drift
def test_novelty_is_a_quantile_of_rows_like_those_of_the_keys():
    clf = model()  # needs keys only
    like, unlike = overlapping(2000, seed=21)[0], overlapping(100, seed=22)[0] + 20
    found = clf.novelty(like)
    assert found.shape == (2000,)
    for q in (0.1, 0.5, 0.9):
        assert np.quantile(found, q) == pytest.approx(q, abs=0.08)
    assert clf.novelty(unlike).min() == 1.0
    assert np.array_equal(clf.novelty(clf.batch(like[:20])), found[:20])
    assert np.array_equal(clf.novelty(like[3:4]), found[3:4])
    with pytest.raises(NotFittedError, match="no keys yet"):
        BottleneckClassifier().novelty(like)


def test_drift_is_calibrated_under_no_shift_and_sees_one():
    clf = model()
    rows = overlapping(8000, seed=31)[0]
    p = np.array([clf.drift(a[:40], a[40:]).p_value for a in rows.reshape(80, 100, WIDTH)])
    # Under no shift p is uniform: 80 values, each bound passed with probability below 1e-3.
    assert (p < 0.05).sum() <= 12
    assert 20 <= (p < 0.5).sum() <= 60
    seen = clf.drift(rows[:200] * 1.3, rows[200:400])
    assert seen.p_value < 1e-3
    assert seen.novelty > seen.reference_novelty
    with pytest.raises(FrozenInstanceError):
        seen.p_value = 1.0


def test_large_batches_have_the_same_meaning():
    clf = model()
    rows = overlapping(4400, seed=41)[0]
    assert clf.drift(rows[:2200], rows[2200:]).p_value > 0.01
    assert clf.drift(rows[:2200] * 1.1, rows[2200:]).p_value < 1e-3


@pytest.mark.parametrize(
    ("naming", "unknown"),
    [
        (np.array(["ant", "bee", "cat", "dog"]), "unknown"),
        (np.arange(4), -1),
        (np.arange(4, dtype=np.uint8), -1),
        (np.arange(4.0), -1),
    ],
    ids=["string", "integer", "unsigned", "float"],
)
def test_inputs_beyond_the_threshold_are_unknown(naming, unknown):
    X, y = overlapping(400)
    clf = model().fit(X, naming[y])
    queries = np.concatenate([overlapping(100, seed=3)[0], X[:5] + 30])
    plain, far = clf.predict(queries), clf.novelty(queries) > 0.9
    found = clf.set_params(novelty_threshold=0.9).predict(queries)
    assert 5 <= far.sum() < 60
    assert (found[far] == unknown).all()
    assert (found[~far] == plain[~far]).all()
    assert (clf.predict(clf.batch(queries)) == found).all()
    assert (clf.ask(queries).labels == found).all()
    assert (clf.set_params(novelty_threshold=1.0).predict(queries) == plain).all()


def test_labels_that_leave_no_name_for_unknown():
    X, y = overlapping(50)
    for labels, says in ((y > 1, "got booleans"), (y - 1, "no class -1")):
        clf = model(novelty_threshold=0.5)
        call = lambda clf=clf, labels=labels: clf.fit(X, labels)  # noqa: E731
        assert unchanged(clf, call, ValueError, f"novelty_threshold: .*{says}")
        with pytest.raises(ValueError, match=f"novelty_threshold: .*{says}"):
            model().fit(X, labels).set_params(novelty_threshold=0.5).predict(X)


# ------------------------------------------------------------------------------- explain and use
def test_contributions_add_up_to_scores():
    X, y = overlapping(400)
    clf = model().fit(X, NAMES[y])
    explained = clf.explain(X[7])
    assert explained.label == clf.predict(X[7:8])[0]
    assert explained.classes.tolist() == ["ant", "bee", "cat", "dog"]
    assert np.allclose(explained.contributions.sum(axis=0), explained.scores)
    assert np.allclose(explained.scores, clf.decision_function(X[7:8])[0])
    assert explained.novelty == clf.novelty(X[7:8])[0]
    votes = explained.votes()
    assert len(votes) == 16
    assert (explained.selected == clf.usage_[np.arange(16), explained.pairs]).all()
    assert [vote.lead for vote in votes] == sorted((v.lead for v in votes), reverse=True)
    own = [vote for vote in votes if vote.label == explained.label]
    assert explained.votes(explained.label, most=2) == own[:2]
    assert explained.label in str(explained)
    assert "codebook" in str(explained)
    with pytest.raises(ValueError, match="x: expected one input; got 2"):
        clf.explain(X[:2])


def test_predictions_read_used_keys_unless_told_otherwise():
    X, y = overlapping(30)
    queries = overlapping(200, seed=1)[0]
    clf = model().fit(X, y)
    seen = clf.usage_ > 0
    assert not seen.all()
    for active, candidates in ((torch.from_numpy(seen), "used"), (None, "all")):
        codes = keys().codes(queries, active=active).long()
        batch = clf.set_params(candidate_keys=candidates).batch(queries)
        values = torch.from_numpy(clf.state_arrays()["values"])[torch.arange(16), codes].mean(dim=1)
        np.testing.assert_allclose(clf.decision_function(batch), values, atol=1e-6)
        assert torch.equal(batch.codes, keys().codes(queries))
        # Codes that are known by now change nothing.
        np.testing.assert_allclose(clf.decision_function(batch), values, atol=1e-6)


def test_usage_counts_selections():
    X, y = overlapping(40)
    assert model().fit(X, y).usage_.sum() == 5 * 40 * 16
    with pytest.raises(NotFittedError):
        _ = model().usage_


# ------------------------------------------------------------------------ among other estimators
def test_clones_and_deep_copies_share_keys():
    clf = model().fit(*overlapping(50))
    assert clone(clf).keys is keys()
    assert not hasattr(clone(clf), "keys_")
    assert deepcopy(clf).keys_ is keys()


def test_grid_search_in_other_processes_and_pipelines():
    X, y = overlapping(300)
    search = GridSearchCV(model(), {"learning_rate": [1.0, 30.0]}, cv=2, n_jobs=2)
    search.fit(X, y)
    assert search.best_score_ > 0.5
    assert search.best_estimator_.keys_.fingerprint == keys().fingerprint
    alone = cross_val_score(model(**search.best_params_), X, y, cv=2)
    assert alone.mean() == pytest.approx(search.best_score_)
    pipeline = make_pipeline(FunctionTransformer(np.float32), model()).fit(X, y)
    assert (pipeline.predict(X) == model().fit(X, y).predict(X)).all()


@pytest.mark.parametrize(
    "name", ["forget", "forget_samples", "merge", "relabel", "rename", "suspects", "loo_score_"]
)
def test_operations_on_single_rows_are_the_kernels(name):
    clf = model().fit(*overlapping(20))
    assert not hasattr(clf, name)
    with pytest.raises(AttributeError, match=f"{name}: expected a KernelClassifier") as error:
        getattr(clf, name)
    assert "\n" not in str(error.value)
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = clf.colour


# -------------------------------------------------------------------------------- keys that grow
def rows(n=60, seed=0):
    """Rows of named classes, some of them twice or more often."""
    X, y = blobs(4, a_class=n, seed=seed)
    chosen = np.random.default_rng(seed).integers(len(X), size=n)
    return X[chosen], NAMES[y[chosen]]


def elsewhere(n=80):
    """Rows far from all keys, in two groups."""
    rng = np.random.default_rng(3)
    centres = np.array([[30.0] * 6, [-30.0] * 6], np.float32)
    y = np.arange(n) % 2
    return (centres[y] + 0.3 * rng.normal(size=(n, 6))).astype(np.float32), NAMES[4 + y]


@cache
def few_keys():
    X = blobs(6, seed=7)[0]
    return fit_keys(X, n_codebooks=8, n_pairs=16, key_dim=3, random_state=1)


def test_new_keys_come_where_novelty_is_high(tmp_path):
    X, y = rows(200)
    far, names = elsewhere()
    clf = model(few_keys(), learning_rate=20.0, epochs=10).partial_fit(X, y)
    known = clf.novelty(X)
    scores, usage, selected = clf.decision_function(X), clf.usage_, clf.usage_ > 0
    assert clf.novelty(far).min() == 1.0
    old_batch = clf.batch(X)
    assert clf.grow_keys(far, n_new=12) is clf
    old, new = few_keys(), clf.keys_
    assert new.fingerprint != old.fingerprint
    assert new.settings["generation"] == 1
    with pytest.raises(ValueError, match="a batch of other keys"):
        clf.predict(old_batch)
    # Pairs that had learned are where they were, and nothing has been forgotten.
    same = (new.keys[:, :16] == old.keys).all(dim=2).numpy()
    assert same[selected].all()
    assert new.n_pairs == 16 + 12 - (~selected).sum(axis=1).min()
    assert np.array_equal(clf.usage_[:, :16], usage)
    assert not clf.usage_[:, 16:].any()
    assert np.median(clf.novelty(X) - known) <= 0
    assert np.allclose(clf.decision_function(X), scores)
    assert np.median(clf.novelty(far)) < 1.0
    clf.partial_fit(far, names)
    assert clf.score(far, names) == 1.0
    assert clf.score(X, y) > 0.9
    clf.save(tmp_path / "model")
    loaded = BottleneckClassifier.load(tmp_path / "model")
    assert loaded.keys_.fingerprint == new.fingerprint
    assert loaded.keys.fingerprint == old.fingerprint
    assert same_bits(loaded.partial_fit(X, y), clf.partial_fit(X, y))


def test_dead_keys_are_used_before_new_ones_are_added():
    X, y = rows(200)
    clf = model(few_keys()).partial_fit(X[:2], y[:2])  # at most two keys per codebook are alive
    clf.grow_keys(elsewhere()[0], n_new=3)
    assert clf.keys_.n_pairs == 16
    changed = (clf.keys_.keys != few_keys().keys).any(dim=2).sum(dim=1)
    assert (changed == 3).all()


def test_growing_where_nothing_is_new_changes_nothing():
    X, y = rows(100)
    clf = model(few_keys()).partial_fit(X, y)
    before = dict(vars(clf))
    clf.grow_keys(elsewhere()[0], above=1.0)
    assert vars(clf) == before
    assert unchanged(clf, lambda: clf.grow_keys(X, n_new=0), ValueError, "n_new")
    assert unchanged(clf, lambda: clf.grow_keys(X, above=2), ValueError, "above")


# ---------------------------------------------------------------------------------- frozen copies
@pytest.mark.parametrize("candidate_keys", ["all", "used"])
def test_a_frozen_copy_predicts_the_same_and_is_read_only(candidate_keys):
    X, y = rows(30)
    queries = blobs(6, seed=9)[0]
    clf = model(few_keys(), candidate_keys=candidate_keys)
    clf.partial_fit(X, y, classes=[*np.unique(y), "yak"])
    frozen = clf.freeze()
    assert np.array_equal(frozen.decision_function(queries), clf.decision_function(queries))
    assert np.array_equal(frozen.predict_proba(queries), clf.predict_proba(queries))
    assert (frozen.predict(frozen.batch(queries)) == clf.predict(queries)).all()
    assert (frozen.keys_.n_pairs < 16) == (candidate_keys == "used")
    again = pickle.loads(pickle.dumps(frozen))
    assert np.array_equal(again.decision_function(queries), frozen.decision_function(queries))
    for copy in (frozen, again):
        for call in (
            lambda copy=copy: copy.partial_fit(X, y),
            lambda copy=copy: copy.fit(X, y),
            lambda copy=copy: copy.grow_keys(X),
        ):
            assert unchanged(copy, call, ValueError, "inference-only copy")
    clf.partial_fit(X, y)  # the original goes on
