"""A disk that is full at any moment leaves the old model or the new one."""

import errno
import os
import subprocess

import numpy as np
import pytest

from dkvb._support.files import atomic
from dkvb.store import create, open_folder, read_folder

from ..support.files.models import assert_same, rows
from .shared import assert_same_state, learned

OPERATIONS = {
    "first learn": lambda model, X, y: model.learn(X[:3], ["elk"] * 3),
    "learn": lambda model, X, y: model.learn(X[3:5], y[3:5]),
    "forget": lambda model, X, y: model.forget("bee"),
    "forget_samples": lambda model, X, y: model.forget_samples(X[:4], y[:4]),
    "merge": lambda model, X, y: model.merge(learned("kernel", (X, y))),
    "compact": lambda model, X, y: model.compact(),
}
STEPS = ("write_all", "sync", "rename", "sync_folder", "remove")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_full_disk_at_any_step_leaves_the_old_model_or_the_new_one(path, operation, monkeypatch):
    X, y = rows()
    failed = 0
    for number in range(1, 40):
        model = create(path, learned("kernel", (X, y)), overwrite=True)
        if operation != "first learn":
            model.learn(X[:3], y[:3])
        before = {**model.classifier.state_arrays()}
        with monkeypatch.context() as context:
            count = _failing(context, number)
            try:
                OPERATIONS[operation](model, X, y)
                done = True
            except OSError:
                done = False
        model.close()
        found = read_folder(path)
        after = _after(operation, X, y)
        assert_same(model.classifier, found.classifier, X)  # disk and memory agree
        if done:
            assert_same_state(found.classifier, after)
            if count[0] < number:
                break
        else:
            failed += 1
            state = found.classifier.state_arrays()
            assert _equal(state, before) or _equal(state, after.state_arrays())
        with open_folder(path) as model:  # and all goes on
            model.learn(X[:2], y[:2])
    assert failed >= (2 if operation == "learn" else 4)


def _failing(context, number):
    count = [0]

    def counted(real):
        def step(*arguments):
            count[0] += 1
            if count[0] == number:
                raise OSError(28, "No space left on device")
            return real(*arguments)

        return step

    for name in STEPS:
        context.setattr(atomic, name, counted(getattr(atomic, name)))
    return count


def _after(operation, X, y):
    model = learned("kernel", (X, y))
    if operation != "first learn":
        model.partial_fit(X[:3], y[:3])
    if operation == "first learn":
        return model.partial_fit(X[:3], ["elk"] * 3)
    if operation == "learn":
        return model.partial_fit(X[3:5], y[3:5])
    if operation == "forget":
        return model.forget("bee")
    if operation == "forget_samples":
        return model.forget_samples(X[:4], y[:4])
    return model.merge(learned("kernel", (X, y))) if operation == "merge" else model


def _equal(one, other):
    return one.keys() == other.keys() and all(
        one[name].shape == other[name].shape and np.array_equal(one[name], other[name])
        for name in one
    )


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs the right to mount")
def test_a_disk_that_is_really_full(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    size = "size=160k"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", place]).returncode:
        pytest.skip("may not mount")
    try:
        X, y = rows()
        many = np.tile(X, (10, 1))
        model = create(place / "model", learned("kernel", (X, y)))
        done, full = [], []
        while len(full) < 4:
            part = many + len(done), ["more"] * len(many)
            try:
                model.learn(*part)
                done.append(part)
                if len(done) == 4:
                    model.compact()
            except OSError as error:
                full.append(error.errno)
                expected = learned("kernel", (X, y), *done)
                assert_same_state(read_folder(place / "model").classifier, expected)
                assert_same_state(model.classifier, expected)
        assert set(full) == {errno.ENOSPC}
        assert len(done) > 3
        model.close()
    finally:
        subprocess.run(["umount", place], check=True)
