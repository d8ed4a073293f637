"""Figures show what was measured."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkvb.evaluation import plots
from dkvb.evaluation.records import Evaluation, RunRecord


def record(stream, tasks, tested):
    return RunRecord(
        classifier="model", stream=stream, seed=1, classes=list(range(4)), tasks=tasks,
        config={}, versions={},
        curve=[Evaluation(task, None, 0.5, [0.5] * 4, None, None, 0.75) for task in tested],
        accuracy_matrix=[], metrics={}, times={},
    )  # fmt: skip


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """The axes of the figure of some records."""

    def axes(*records):
        figures = []
        monkeypatch.setattr(plots, "save_figure", lambda figure, path: figures.append(figure))
        plots.plot_accuracy(records, tmp_path / "picture.png")
        return figures[0].axes

    return axes


def points(line):
    return np.stack([line.get_xdata(), line.get_ydata()], axis=1).tolist()


def test_a_stream_evaluated_after_the_last_task_only_is_a_point(drawn):
    (axes,) = drawn(record("B0-Inc2", [[0, 1], [2, 3]], tested=[1]))
    assert [points(line) for line in axes.lines] == [[[2, 50]]]


def test_both_accuracies_are_lines_and_iid_is_a_tick_at_the_right_edge(drawn):
    everything, seen = drawn(
        record("B0-Inc2", [[0, 1], [2, 3]], tested=[0, 1]),
        record("iid", [[0, 1, 2, 3]], tested=[0]),
    )
    for axes, height in ((everything, 50), (seen, 75)):
        line, tick = axes.lines
        assert points(line) == [[1, height], [2, height]]
        assert [y for _, y in points(tick)] == [50, 50]
        assert min(tick.get_xdata()) > 0.9  # of the width
    assert "classes seen so far" in seen.get_title()


def test_lines_are_labelled_at_their_ends_and_labels_do_not_overlap(drawn):
    records = [
        replace(record("B0-Inc2", [[0, 1], [2, 3]], tested=[0, 1]), classifier=f"model {number}")
        for number in range(3)
    ]
    *_, axes = drawn(*records)
    heights = sorted(text.xyann[1] for text in axes.texts)
    assert [text.get_text() for text in axes.texts] == [f"model {i}  50.0" for i in range(3)]
    assert np.diff(heights).min() >= plots._LABEL_GAP - 1e-9
    assert axes.get_legend() is None


@given(st.lists(st.floats(0, 100), max_size=20), st.floats(0.1, 5))
def test_labels_are_apart_and_in_order(values, gap):
    heights = plots.spread_labels(values, gap)
    order = np.argsort(values, kind="stable")
    assert (np.diff(np.array(heights)[order]) >= gap - 1e-9).all()
    if values:
        assert max(heights) <= 100
