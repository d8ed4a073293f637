"""One open model used by several threads: each change counts once, readers never fail."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dkvb.estimators.registry import make_classifier
from dkvb.store import create, open_folder, read_folder

from ..support.files.models import assert_same, rows
from .faults import reference
from .shared import assert_same_state, learned

THREADS = 8


def batch(label):
    rng = np.random.default_rng(list(label.encode()))
    return rng.normal(size=(3, 6)).astype(np.float32), [label] * 3


@pytest.mark.parametrize("name", ["kernel"])
def test_eight_threads_learn_forget_and_predict_with_one_model(path, name):
    X, y = rows()
    labels = [[f"{thread}-{i}" for i in range(6)] for thread in range(THREADS)]
    with create(path, reference(name, (X, y))) as model:

        def work(own):
            for i, label in enumerate(own):
                assert model.learn(*batch(label)) == 3
                assert model.classifier.predict(X).shape == (len(X),)
                if i % 3 == 2:
                    assert model.forget(own[i - 1]) == 3
                assert label in read_folder(path).classifier.classes_

        with ThreadPoolExecutor(THREADS) as pool:
            for done in [pool.submit(work, own) for own in labels]:
                done.result()
        kept = [label for own in labels for i, label in enumerate(own) if i % 3 != 1]
        expected = reference(name, (X, y), *map(batch, kept))
        assert_same_state(model.classifier, expected)
    found = read_folder(path)
    assert_same_state(found.classifier, expected)
    operations = [entry.operation for entry in found.history]
    assert operations.count("learn") == THREADS * 6
    assert operations.count("forget") == THREADS * 2


def test_eight_threads_with_a_classifier_that_changes_in_place(path):
    X, y = rows()
    with create(path, make_classifier("prototypes").fit(X, y)) as model:

        def work(thread):
            for i in range(4):
                model.learn(*batch(f"{thread}-{i}"))
                model.classifier.predict(X)

        with ThreadPoolExecutor(THREADS) as pool:
            for done in [pool.submit(work, thread) for thread in range(THREADS)]:
                done.result()
        assert len(model.classifier.classes_) == 4 + 4 * THREADS
    assert_same(read_folder(path).classifier, model.classifier, X)


def test_a_classifier_that_was_handed_out_stays_as_it_was(path):
    X, y = rows()
    with create(path, learned("kernel", (X, y))) as model:
        before = model.classifier
        model.learn(X[:2], ["elk"] * 2)
        model.forget("yak")
        assert_same(before, learned("kernel", (X, y)), X)


def test_a_closed_model_changes_nothing(path):
    X, y = rows()
    model = create(path, learned("kernel", (X, y)))
    model.close()
    for change in (lambda: model.learn(X, y), lambda: model.forget("yak"), model.compact):
        with pytest.raises(ValueError, match="expected an open model"):
            change()
    assert len(read_folder(path).history) == 1


def test_waiting_for_the_lock(path):
    X, y = rows()
    model = create(path, learned("kernel", (X, y)))
    timer = threading.Timer(0.3, model.close)
    timer.start()
    try:
        with pytest.raises(BlockingIOError, match="is changing this model after 0"):
            open_folder(path, wait=0.05)
        open_folder(path, wait=60).close()
    finally:
        timer.join()


def test_reads_while_a_model_is_overwritten_never_fail(path):
    X, y = rows()
    models = [
        make_classifier("bottleneck", {"n_codebooks": n, "key_dim": 2}).fit(X, y) for n in (3, 4)
    ]
    create(path, models[0]).close()
    stop = threading.Event()

    def overwrite():
        number = 0
        while not stop.is_set():
            number += 1
            with create(path, models[number % 2], overwrite=True) as model:
                model.learn(X[:1], y[:1])

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(overwrite)
        try:
            for _ in range(150):
                found = read_folder(path)
                assert found.classifier.keys_.n_codebooks in (3, 4)
        finally:
            stop.set()
        writing.result()
