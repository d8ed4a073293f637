"""Spark with two threads: the models of one process."""

import os
import sys

import numpy as np
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from dkvb import BottleneckClassifier
from dkvb.engines import spark

from .conftest import N, killer, same

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def session():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    made = (
        SparkSession.builder.master("local[2, 4]")  # two threads; a task may fail three times
        .config("spark.ui.enabled", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    yield made
    made.stop()


def test_a_model_of_all_partitions(session, files, estimator, expected):
    frame = session.read.parquet(str(files)).repartition(5)
    assert same(spark.fit(frame, estimator), expected)
    assert same(spark.fit(frame, expected, x_column="x", y_column="label"), expected)


def test_a_killed_worker_is_retried(session, files, estimator, expected, tmp_path):
    marker = tmp_path / "killed"
    kill = killer(str(marker))

    def interrupt(batches):
        for i, batch in enumerate(batches):
            if i == 1:
                kill()
            yield batch

    frame = session.read.parquet(str(files)).repartition(3)
    frame = frame.mapInArrow(interrupt, frame.schema)
    assert same(spark.fit(frame, estimator), expected)
    assert marker.exists()


def test_predictions(session, files, expected, rows):
    frame = spark.predict(session.read.parquet(str(files)), expected)
    found = frame.select("id", "prediction").toPandas().sort_values("id")
    assert found["id"].tolist() == list(range(N))
    assert (found["prediction"].to_numpy(dtype=str) == expected.predict(rows[0])).all()


def test_models_that_cannot_be_merged_are_refused(session, files):
    frame = session.read.parquet(str(files))
    for wrong in (BottleneckClassifier(), np.zeros(3)):
        with pytest.raises(TypeError, match=r"expected a KernelClassifier; .*cannot be merged"):
            spark.fit(frame, wrong)
