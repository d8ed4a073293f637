import json

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.naive_bayes import GaussianNB

from dkvb.evaluation.records import RunRecord, append_record, read_records, summarise
from dkvb.evaluation.runner import evaluate
from dkvb.evaluation.streams import class_incremental, from_tasks, iid


class Forgetful(ClassifierMixin, BaseEstimator):
    """Knows the class means of the last call only; counts its epochs and its calls."""

    def __init__(self, epochs=1):
        self.epochs = epochs

    def partial_fit(self, X, y, classes=None):
        self.calls_ = [*getattr(self, "calls_", []), (len(X), self.epochs, list(classes))]
        self.classes_ = np.asarray(classes)
        self.means_ = {label: X[y == label].mean(axis=0) for label in np.unique(y)}
        return self

    def decision_function(self, X):
        scores = np.full((len(X), len(self.classes_)), -1e9)
        for label, mean in self.means_.items():
            scores[:, self.classes_ == label] = -((X - mean) ** 2).sum(axis=1, keepdims=True)
        return scores


class Remembering(ClassifierMixin, BaseEstimator):
    """Keeps the class means of every call; gives probabilities and no scores; has no epochs."""

    def partial_fit(self, X, y, classes=None):
        self.model_ = getattr(self, "model_", Forgetful())
        earlier = getattr(self.model_, "means_", {})
        self.model_.partial_fit(X, y, classes)
        self.model_.means_ = earlier | self.model_.means_
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X):
        return softmax(self.model_.decision_function(X), axis=1)


class Preparing(Forgetful):
    """Counts how often it prepares, and accepts only what it prepared."""

    class Prepared:
        def __init__(self, X):
            self.X = X

        def __len__(self):
            return len(self.X)

        def __getitem__(self, rows):
            return type(self)(self.X[rows])

    def batch(self, X):
        self.prepared_ = getattr(self, "prepared_", 0) + 1
        return self.Prepared(X)

    def partial_fit(self, X, y, classes=None):
        return super().partial_fit(X.X, y, classes)

    def decision_function(self, X):
        return super().decision_function(X.X)


class PredictOnly:
    """The least a classifier can be: no scores, no parameters."""

    def partial_fit(self, X, y, classes=None):
        self.label_ = y[0]
        return self

    def predict(self, X):
        return np.full(len(X), self.label_)


@pytest.fixture
def blobs(rng):
    """Six far-apart classes, 20 train and 10 test rows each."""
    centres = 50 * np.eye(6, 8)

    def draw(rows):
        y = np.repeat(np.arange(6), rows)
        return (centres[y] + rng.normal(size=(len(y), 8))).astype(np.float32), y

    return draw(20), draw(10)


def test_a_learner_of_the_last_task_forgets_everything(blobs):
    train, test = blobs
    stream = class_incremental(train[1], 2, seed=1)
    record = evaluate(Forgetful, stream, train, test, name="forgetful")
    assert record.accuracy_matrix == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert record.metrics["final_accuracy"] == pytest.approx(1 / 3, abs=1e-6)
    assert record.metrics["forgetting"] == 1
    assert record.metrics["backward_transfer"] == -1
    assert record.metrics["average_incremental_accuracy"] == pytest.approx(11 / 18, abs=1e-6)
    assert record.metrics["forward_transfer"] == pytest.approx(-1 / 6, abs=1e-6)
    assert record.tasks == [task.classes.tolist() for task in stream]
    assert record.classifier == "forgetful"
    assert (record.seed, record.stream) == (1, "B0-Inc2")
    assert record.classes == [0, 1, 2, 3, 4, 5]
    assert all(point.test_loss is None for point in record.curve)


def test_a_summing_learner_forgets_nothing(blobs):
    train, test = blobs
    record = evaluate(Remembering, class_incremental(train[1], 2, seed=3), train, test)
    assert record.metrics["final_accuracy"] == 1
    assert record.metrics["forgetting"] == 0
    assert record.metrics["top5_accuracy"] == 1
    assert np.array_equal(record.accuracy_matrix, np.tril(np.ones((3, 3))))
    assert [point.accuracy for point in record.curve] == pytest.approx([1 / 3, 2 / 3, 1], abs=1e-6)


def test_loss_is_the_cross_entropy_of_predict_proba(blobs):
    (X, y), (X_train, y_train) = blobs  # the larger set is the test set
    noisy = X_train + 40 * np.random.default_rng(1).normal(size=X_train.shape)
    record = evaluate(GaussianNB, iid(y_train), (noisy, y_train), (X, y))
    model = GaussianNB().partial_fit(noisy, y_train, classes=np.arange(6))

    def loss(X, y):
        return -np.log(model.predict_proba(X)[np.arange(len(y)), y]).mean()

    assert record.curve[0].test_loss == pytest.approx(loss(X, y), abs=1e-5)
    assert record.curve[0].train_loss == pytest.approx(loss(noisy, y_train), abs=1e-5)
    assert record.metrics["test_loss"] == record.curve[0].test_loss


def test_the_train_loss_is_measured_on_no_more_rows_than_the_test_loss(blobs):
    asked = []

    class Watching(Remembering):
        def predict_proba(self, X):
            asked.append(len(X))
            return super().predict_proba(X)

    (X, y), (X_test, y_test) = blobs
    evaluate(Watching, iid(y), (X, y), (X_test[::6], y_test[::6]))
    assert max(asked) == len(y_test[::6])


def test_iid_is_one_task(blobs):
    train, test = blobs
    record = evaluate(Forgetful, iid(train[1], seed=2), train, test)
    assert record.accuracy_matrix == [[1]]
    assert record.metrics["final_accuracy"] == record.metrics["average_incremental_accuracy"] == 1
    assert record.metrics["forgetting"] == record.metrics["backward_transfer"] == 0
    assert record.stream == "iid"


def test_all_classes_are_declared_from_the_start(blobs):
    (X, y), (X_test, y_test) = blobs
    made = []

    def make():
        made.append(Forgetful())
        return made[-1]

    first_four = y < 4
    stream = class_incremental(y[first_four], 2, seed=0)
    record = evaluate(make, stream, (X[first_four], y[first_four]), (X_test, y_test))
    assert len(made) == 1
    assert [call[2] for call in made[0].calls_] == [[0, 1, 2, 3, 4, 5]] * 2
    assert record.metrics["final_accuracy"] == pytest.approx(2 / 6, abs=1e-6)  # 4, 5: never learned


def test_evaluate_every_cuts_epochs_into_pieces(blobs):
    train, test = blobs
    made = []

    def make():
        made.append(Forgetful(epochs=5))
        return made[-1]

    stream = class_incremental(train[1], 3, seed=0)
    record = evaluate(make, stream, train, test, evaluate_every=2)
    assert [call[1] for call in made[0].calls_] == [2, 2, 1] * 2
    assert [(p.task, p.epoch) for p in record.curve] == [
        (0, 2), (0, 4), (0, 5), (1, 2), (1, 4), (1, 5),
    ]  # fmt: skip
    assert np.shape(record.accuracy_matrix) == (2, 2)
    assert record.config["params"] == {"epochs": 5}

    once = evaluate(lambda: Forgetful(epochs=5), stream, train, test)
    assert [p.epoch for p in once.curve] == [5, 5]
    assert once.metrics == record.metrics
    without_epochs = evaluate(Remembering, stream, train, test, evaluate_every=2)
    assert [p.epoch for p in without_epochs.curve] == [None, None]


def test_a_single_pass_is_not_cut_into_pieces(blobs):
    class SinglePass(Forgetful):
        learns_in_epochs = False

    train, test = blobs
    record = evaluate(lambda: SinglePass(epochs=4), iid(train[1]), train, test, evaluate_every=1)
    assert [p.epoch for p in record.curve] == [None]


def test_what_can_be_prepared_is_prepared_once(blobs):
    train, test = blobs
    made = []

    def make():
        made.append(Preparing())
        return made[-1]

    stream = class_incremental(train[1], 2, seed=1)
    record = evaluate(make, stream, train, test)
    assert made[0].prepared_ == 2  # train, test
    assert record.accuracy_matrix == evaluate(Forgetful, stream, train, test).accuracy_matrix


def test_string_labels_two_classes_one_class_and_one_row(blobs):
    (X, y), (X_test, y_test) = blobs
    names = np.array(["ant", "bee", "cat", "dog", "elk", "fox"])
    record = evaluate(
        Remembering, class_incremental(names[y], 2, seed=1), (X, names[y]), (X_test, names[y_test])
    )
    assert record.classes == names.tolist()
    assert record.metrics["final_accuracy"] == 1
    for keep in (y < 2, y < 1):
        stream = class_incremental(y[keep], 1, seed=0)
        two = evaluate(Remembering, stream, (X[keep], y[keep]), (X_test[:10], y_test[:10]))
        assert two.metrics["final_accuracy"] == 1
    one_row = evaluate(Forgetful, iid(y[:1]), (X[:1], y[:1]), (X_test[:1], y_test[:1]))
    assert one_row.metrics["final_accuracy"] == 1


def test_binary_decision_function(blobs):
    """scikit-learn's exception: two classes, one column."""

    class Binary(Forgetful):
        def decision_function(self, X):
            scores = super().decision_function(X)
            return scores[:, 1] - scores[:, 0]

    (X, y), (X_test, y_test) = blobs
    keep, keep_test = (y == 1) | (y == 4), (y_test == 1) | (y_test == 4)
    data = (X[keep], y[keep]), (X_test[keep_test], y_test[keep_test])
    for stream in (iid(y[keep]), class_incremental(y[keep], 1, seed=0)):
        one, both = (evaluate(kind, stream, *data) for kind in (Binary, Forgetful))
        assert one.curve == both.curve
        assert one.metrics == both.metrics


def test_a_classifier_with_predict_alone(blobs):
    train, test = blobs
    record = evaluate(PredictOnly, iid(train[1]), train, test)
    assert record.metrics["final_accuracy"] == pytest.approx(1 / 6, abs=1e-6)
    assert record.metrics["top5_accuracy"] is None
    assert record.config == {"params": {}}


def test_own_tasks_and_a_class_without_test_rows(blobs):
    (X, y), (X_test, y_test) = blobs
    stream = from_tasks(y, classes=[[0], [1, 2, 3, 4, 5]])
    seen = y_test != 0
    record = evaluate(Forgetful, stream, (X, y), (X_test[seen], y_test[seen]))
    assert record.accuracy_matrix == [[None, 0], [None, 1]]
    assert record.curve[0].per_class == [None, 0, 0, 0, 0, 0]
    assert record.metrics["final_accuracy"] == 1
    assert record.metrics["forgetting"] is None
    assert json.loads(record.to_json())["metrics"]["forgetting"] is None


def test_records_say_what_ran(blobs):
    train, test = blobs
    record = evaluate(Forgetful, iid(train[1]), train, test, config={"order": "iid"}, seed=7)
    wanted = {"dkvb", "torch", "numpy", "sklearn", "python", "platform", "device"}
    assert wanted <= record.versions.keys()
    assert record.versions["numpy"] == np.__version__
    assert record.config == {"params": {"epochs": 1}, "order": "iid"}
    assert record.seed == 7
    assert record.times.keys() == {"keys", "prepare", "learn", "predict"}
    assert all(seconds >= 0 for seconds in record.times.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: {"train": (X, y[:-1])}, "train: expected"),
        (lambda X, y: {"test": (X, y[:-1])}, "test: expected"),
        (lambda X, y: {"test": (X[:0], y[:0])}, "test: expected"),
        (lambda X, y: {"stream": iid(np.append(y, 0))}, "stream: expected"),
        (lambda X, y: {"evaluate_every": 0}, "evaluate_every: expected"),
    ],
)
def test_bad_input_is_refused_before_learning(blobs, change, message):
    (X, y), test = blobs
    arguments = {"stream": iid(y), "train": (X, y), "test": test} | change(X, y)

    def never():
        pytest.fail("a classifier was made")

    with pytest.raises(ValueError, match=message):
        evaluate(never, **arguments)


# ------------------------------------------------------------------------------------ records


@pytest.fixture
def record(blobs):
    train, test = blobs
    return evaluate(Forgetful, class_incremental(train[1], 2, seed=1), train, test, name="a")


def changed(record, **fields):
    return RunRecord(**{**vars(record), **fields})


def test_a_record_survives_json(record):
    assert "\n" not in record.to_json()
    assert RunRecord.from_json(record.to_json()) == record


def test_records_are_appended(record, tmp_path):
    path = tmp_path / "records.jsonl"
    other = changed(record, classifier="größer\n", seed=2)
    append_record(path, record)
    append_record(path, other)
    assert read_records(path) == ([record, other], [])


def test_a_cut_line_is_found_and_the_rest_is_kept(record, tmp_path):
    path = tmp_path / "records.jsonl"
    append_record(path, record)
    whole = path.read_bytes()
    for cut in (1, len(whole) // 2, len(whole) - 2):
        path.write_bytes(whole + whole[:cut])
        assert read_records(path) == ([record], [2])
        append_record(path, record)  # after a killed run
        assert read_records(path) == ([record, record], [2])


def test_foreign_lines_are_damage_too(record, tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_bytes(b'{"a": 1}\n[]\n\xff\xfe\n' + record.to_json().encode())
    assert read_records(path) == ([record], [1, 2, 3])


def test_summary_is_in_percent_over_seeds(record):
    def with_accuracy(value, **fields):
        return changed(record, metrics={**record.metrics, "final_accuracy": value}, **fields)

    records = [with_accuracy(v, seed=s) for s, v in enumerate((0.80, 0.82, 0.84))]
    summary = summarise(records)
    assert summary["a"]["final_accuracy"] == {"mean": 82.0, "std": 2.0}
    assert summary["a"]["forgetting"] == {"mean": 100.0, "std": 0.0}
    assert summary["a"]["test_loss"] == {"mean": None, "std": None}
    assert summarise(records[:1])["a"]["final_accuracy"] == {"mean": 80.0, "std": None}


def test_summary_keeps_streams_and_classifiers_apart(record):
    records = [record, changed(record, stream="iid"), changed(record, classifier="b:k=1")]
    assert list(summarise(records)) == ["a (B0-Inc2)", "a (iid)", "b:k=1 (B0-Inc2)"]
    assert list(summarise([records[0], records[2]])) == ["a", "b:k=1"]


def test_at_the_end_the_final_accuracy_is_the_same_and_nothing_else_is_claimed(blobs):
    train, test = blobs
    stream = class_incremental(train[1], 2, seed=3)
    full = evaluate(Remembering, stream, train, test)
    brief = evaluate(Remembering, stream, train, test, final_only=True)
    assert brief.metrics["final_accuracy"] == full.metrics["final_accuracy"]
    assert len(brief.curve) == 1
    assert brief.metrics["forgetting"] is None
    assert brief.metrics["average_incremental_accuracy"] is None
    assert brief.accuracy_matrix[:-1] == [[]] * (len(stream) - 1)
    assert brief.accuracy_matrix[-1] == full.accuracy_matrix[-1]
