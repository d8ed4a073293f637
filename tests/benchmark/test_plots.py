"""What a picture claims is what was measured."""

import numpy as np
import pytest

from dkvb.benchmark import plots
from dkvb.benchmark.records import Evaluation, RunRecord


def record(stream, tasks, tested):
    return RunRecord(
        classifier="model", stream=stream, seed=1, classes=list(range(4)), tasks=tasks,
        config={}, versions={},
        curve=[Evaluation(task, None, 0.5, [0.5] * 4, None, None) for task in tested],
        accuracy_matrix=[], metrics={}, times={},
    )  # fmt: skip


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """The lines of the picture of some records, as places and heights."""

    def lines(*records):
        kept = []
        monkeypatch.setattr(plots, "save", lambda figure, path: kept.append(figure) or path)
        plots.plot_accuracy(records, tmp_path / "picture.png")
        (axes,) = kept[0].axes
        return [np.stack([line.get_xdata(), line.get_ydata()], axis=1) for line in axes.lines]

    return lines


def test_a_stream_tested_at_its_end_only_is_a_point_there(drawn):
    (point,) = drawn(record("B0-Inc2", [[0, 1], [2, 3]], tested=[1]))
    assert point.tolist() == [[2, 50]]


def test_one_task_is_a_level_and_tasks_are_a_line(drawn):
    line, level = drawn(
        record("B0-Inc2", [[0, 1], [2, 3]], tested=[0, 1]),
        record("iid", [[0, 1, 2, 3]], tested=[0]),
    )
    assert line.tolist() == [[1, 50], [2, 50]]
    assert level.tolist() == [[0, 50], [2, 50]]
