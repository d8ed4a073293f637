import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn import metrics as reference

from dkvb.evaluation import metrics

# Three tasks, worked by hand.
A = np.array(
    [
        [0.9, 0.1, 0.0],
        [0.6, 0.8, 0.2],
        [0.3, 0.7, 1.0],
    ]
)


def test_hand_computed():
    assert metrics.final_accuracy(A) == pytest.approx((0.3 + 0.7 + 1.0) / 3)
    assert metrics.final_accuracy(A, [2, 2, 1]) == pytest.approx((0.6 + 1.4 + 1.0) / 5)
    assert metrics.average_incremental_accuracy(A) == pytest.approx((0.9 + 0.7 + 2 / 3) / 3)
    assert metrics.average_incremental_accuracy(A, [2, 2, 1]) == pytest.approx(
        (0.9 + 0.7 + 3.0 / 5) / 3
    )
    assert metrics.forgetting(A) == pytest.approx((0.6 + 0.1) / 2)
    assert metrics.backward_transfer(A) == pytest.approx((-0.6 - 0.1) / 2)
    assert metrics.forward_transfer(A, [0.5, 0.05, 0.1]) == pytest.approx((0.05 + 0.1) / 2)


def test_forgetting_is_from_the_best_not_from_the_first():
    late_bloomer = [[0.5, 0.0, 0.0], [0.9, 0.8, 0.0], [0.6, 0.8, 1.0]]
    assert metrics.forgetting(late_bloomer) == pytest.approx((0.3 + 0.0) / 2)
    assert metrics.backward_transfer(late_bloomer) == pytest.approx((0.1 + 0.0) / 2)


def test_one_task_has_nothing_to_forget():
    assert metrics.final_accuracy([[0.7]]) == 0.7
    assert metrics.average_incremental_accuracy([[0.7]]) == 0.7
    assert metrics.forgetting([[0.7]]) == 0.0
    assert metrics.backward_transfer([[0.7]]) == 0.0
    assert metrics.forward_transfer([[0.7]], [0.1]) == 0.0


def test_what_was_not_measured_is_left_out():
    nan = float("nan")
    gap = [[0.9, nan, 0.0], [0.6, nan, 0.0], [0.3, nan, 1.0]]
    assert metrics.final_accuracy(gap) == pytest.approx(0.65)
    assert metrics.forgetting(gap) == pytest.approx(0.6)
    assert metrics.backward_transfer(gap) == pytest.approx(-0.6)
    assert np.isnan(metrics.forgetting([[nan, 0.0], [nan, 1.0]]))


matrices = st.integers(1, 6).flatmap(lambda t: hnp.arrays(float, (t, t), elements=st.floats(0, 1)))


@given(matrices)
def test_ranges(matrix):
    chance = np.full(len(matrix), 0.1)
    for value in (
        metrics.final_accuracy(matrix),
        metrics.average_incremental_accuracy(matrix),
        metrics.forgetting(matrix),
    ):
        assert -1e-12 <= value <= 1 + 1e-12
    assert -1 <= metrics.backward_transfer(matrix) <= 1
    assert -0.1 - 1e-12 <= metrics.forward_transfer(matrix, chance) <= 0.9 + 1e-12
    assert metrics.forgetting(matrix) >= -metrics.backward_transfer(matrix) - 1e-12


@given(st.integers(1, 8))
def test_a_perfect_classifier(tasks):
    perfect = np.tril(np.ones((tasks, tasks)))  # all of what was learned, nothing of what was not
    assert metrics.final_accuracy(perfect) == 1
    assert metrics.average_incremental_accuracy(perfect) == 1
    assert metrics.forgetting(perfect) == 0
    assert metrics.backward_transfer(perfect) == 0


@given(st.integers(2, 8))
def test_a_classifier_that_knows_only_the_last_task(tasks):
    forgetful = np.eye(tasks)
    assert metrics.final_accuracy(forgetful) == pytest.approx(1 / tasks)
    assert metrics.forgetting(forgetful) == 1
    assert metrics.backward_transfer(forgetful) == -1


labels = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=50).map(
    lambda pairs: np.array(pairs).T
)


@given(labels)
def test_same_as_scikit_learn(pair):
    truth, prediction = pair
    classes = np.arange(5)
    per_class = metrics.per_class_accuracy(truth, prediction, classes)
    recall = reference.recall_score(
        truth, prediction, labels=classes, average=None, zero_division=np.nan
    )
    np.testing.assert_allclose(per_class, recall)
    measured = np.isin(classes, truth)
    assert np.array_equal(~np.isnan(per_class), measured)
    assert metrics.mean_per_class_accuracy(per_class) == pytest.approx(recall[measured].mean())


def test_the_mean_over_classes_is_not_the_share_of_rows():
    per_class = metrics.per_class_accuracy([0] * 9 + [1], [0] * 10, [0, 1])
    assert metrics.mean_per_class_accuracy(per_class) == 0.5


@given(st.integers(0, 2**32 - 1), st.integers(1, 7))
def test_top_k(seed, k):
    rng = np.random.default_rng(seed)
    scores = rng.permuted(np.arange(6.0) * np.ones((20, 1)), axis=1)  # (n, Y), no ties
    truth = rng.integers(0, 6, 20)
    best = np.argsort(-scores, axis=1)[:, :k]
    expected = sum(t in row for t, row in zip(truth, best, strict=True))
    assert metrics.top_k_hits(truth, scores, np.arange(6), k) == expected


def test_top_k_takes_infinite_scores_and_two_classes():
    scores = [[-np.inf, 1.0, 2.0], [-np.inf, 2.0, 1.0]]
    assert metrics.top_k_hits([1, 0], scores, [0, 1, 2], k=2) == 1
    assert metrics.top_k_hits(["a", "b"], [[1.0, 0.0], [1.0, 0.0]], ["a", "b"], k=1) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.forgetting([[1.0, 0.5]]), "A: expected a square"),
        (lambda: metrics.forgetting([]), "A: expected a square"),
        (lambda: metrics.forgetting([[81.5]]), "A: expected accuracies as fractions"),
        (lambda: metrics.final_accuracy(A, [1, 2]), "classes_per_task: expected 3"),
        (lambda: metrics.final_accuracy(A, [1, 0, 2]), "classes_per_task: expected 3"),
        (lambda: metrics.forward_transfer(A, [0.1]), "baseline: expected 3"),
        (lambda: metrics.per_class_accuracy([0, 1], [0], [0, 1]), "y_pred: expected"),
        (lambda: metrics.per_class_accuracy([0, 9], [0, 0], [0, 1]), "y_true: expected labels"),
        (lambda: metrics.top_k_hits([0], [[1.0]], [0, 1]), "scores: expected shape"),
        (lambda: metrics.top_k_hits([0], [[np.nan, 1.0]], [0, 1], k=1), "NaN"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
