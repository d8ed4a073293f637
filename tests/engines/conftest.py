"""Rows, and classifiers of all of them in one process. `make test-engines` runs these tests."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import dkvb

N, M = 2_400, 12


def make_rows():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 6, N)
    X = (rng.normal(size=(N, M)) + y[:, None] % 3).astype(np.float32)
    return X, np.array(["ant", "bee", "cat", "dog", "elk", "fox"])[y]


@pytest.fixture(scope="session")
def rows():
    return make_rows()


@pytest.fixture(scope="session")
def table(rows):
    X, y = rows
    return pa.table({"id": np.arange(N), "x": list(X), "label": y})


@pytest.fixture(scope="session")
def files(table, tmp_path_factory):
    """The table in eight Parquet files."""
    folder = tmp_path_factory.mktemp("rows")
    for i in range(8):
        pa.parquet.write_table(table.slice(i * N // 8, N // 8), folder / f"{i}.parquet")
    return folder


@pytest.fixture(scope="session", params=["examples", "sums"])
def estimator(request):
    """A classifier that has learned nothing."""
    return dkvb.KernelClassifier(request.param)


@pytest.fixture(scope="session")
def expected(estimator, rows):
    """The same classifier after all rows, in one process."""
    from sklearn.base import clone

    return clone(estimator).fit(*rows)


def same(one, other):
    """Whether two classifiers are bit-equal, and predict the same."""
    ours, theirs = one.state_arrays(), other.state_arrays()
    X = make_rows()[0][:200]
    return (
        ours.keys() == theirs.keys()
        and all(np.array_equal(ours[name], theirs[name]) for name in ours)
        and (one.predict(X) == other.predict(X)).all()
    )


def killer(marker):
    """A function that kills its process, once: workers cannot import this module."""

    def kill():
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), 9)

    return kill
