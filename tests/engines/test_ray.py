"""Ray with two workers: the models of one process."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("ray")

from dkvb import BottleneckClassifier, fit_keys
from dkvb._support.optional import require
from dkvb.engines import ray as engine

from .conftest import N, killer, same

ray = require("ray", "ray", "tests")

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False,
             object_store_memory=200 << 20)  # fmt: skip
    yield ray
    ray.shutdown()


@pytest.fixture
def dataset(cluster, files):
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    return ray.data.read_parquet(str(files), override_num_blocks=8)


def test_telemetry_is_off_before_ray_starts():
    """Importing the engine is enough."""
    program = "import os; import dkvb.engines.ray; print(os.environ['RAY_USAGE_STATS_ENABLED'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "0\n", done.stderr


def test_a_model_of_all_partitions(dataset, estimator, expected):
    assert same(engine.fit(dataset, estimator, n_workers=2), expected)


def test_a_killed_worker_is_retried(dataset, estimator, expected, tmp_path, monkeypatch):
    """Killed when it has read all its rows, which are then in no other actor."""
    marker = tmp_path / "killed"
    kill = killer(str(marker))
    learn = engine._Learner.learn

    class Shard:
        def __init__(self, shard):
            self.shard = shard

        def iter_batches(self, **settings):
            yield from self.shard.iter_batches(**settings)
            kill()

    class Killed(engine._Learner):
        def learn(self, shard, *arguments):
            return learn(self, Shard(shard), *arguments)

    monkeypatch.setattr(engine, "_Learner", Killed)
    assert same(engine.fit(dataset, estimator, n_workers=2), expected)
    assert marker.exists()


def test_an_actor_that_always_dies(dataset, rows, monkeypatch):
    class Dies(engine._Learner):
        def learn(self, *arguments):
            os._exit(1)

    monkeypatch.setattr(engine, "_Learner", Dies)
    keys = fit_keys(rows[0], n_codebooks=2, n_pairs=4, key_dim=3)
    with pytest.raises(ray.exceptions.RayActorError):
        engine.fit(dataset, BottleneckClassifier(keys), retries=1)


def test_predictions(dataset, expected, rows):
    found = engine.predict(dataset, expected).to_pandas().sort_values("id")
    assert found["id"].tolist() == list(range(N))
    assert (found["prediction"].to_numpy(dtype=str) == expected.predict(rows[0])).all()
