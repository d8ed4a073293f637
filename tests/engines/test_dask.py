"""Dask with two workers: the models of one process."""

import pytest

pytest.importorskip("distributed")

import dask
import dask.dataframe
from distributed import Client, LocalCluster

from dkvb.engines import dask as engine

from .conftest import N, killer, same

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as made,
    ):
        yield made


def test_a_model_of_all_partitions(client, files, table, estimator, expected):
    paths = sorted(files.glob("*.parquet"))
    assert same(engine.fit(paths, estimator), expected)
    assert same(engine.fit([table.slice(0, 1000), table.slice(1000)], estimator), expected)


def test_a_data_frame(client, files, estimator, expected, rows):
    frame = dask.dataframe.read_parquet(files)
    assert same(engine.fit(frame, estimator), expected)
    found = engine.predict(frame, expected).compute().sort_values("id")
    assert (found["prediction"].to_numpy(dtype=str) == expected.predict(rows[0])).all()


def test_without_a_cluster(files, estimator, expected):
    with dask.config.set(scheduler="synchronous"):
        assert same(engine.fit(sorted(files.glob("*.parquet")), estimator), expected)


def test_a_killed_worker_is_retried(client, table, estimator, expected, tmp_path):
    marker = tmp_path / "killed"
    kill = killer(str(marker))

    @dask.delayed
    def part(i):
        if i == 2:
            kill()
        return table.slice(i * 600, 600)

    assert same(engine.fit([part(i) for i in range(4)], estimator), expected)
    assert marker.exists()


def test_predictions(client, files, expected, rows):
    parts = engine.predict(sorted(files.glob("*.parquet")), expected)
    found = [row for part in dask.compute(*parts) for row in part["prediction"].to_pylist()]
    assert len(found) == N
    assert found == expected.predict(rows[0]).tolist()
