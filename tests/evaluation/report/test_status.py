"""The status of an experiment: length, encoders, seeds, and what is left open."""

import pytest

from dkvb.evaluation.records import RunRecord
from dkvb.evaluation.report.collect import Collection, Group
from dkvb.evaluation.report.sentences import make_sentences
from dkvb.evaluation.report.status import make_status


def group(name, kind, seeds, epochs=2000, encoder="resnet50"):
    """Records of bottlenecks with some seeds, by classifier."""
    records = [
        RunRecord(
            classifier,
            "B0-Inc2",
            seed,
            [],
            [],
            {"settings": {"epochs": epochs}},
            {},
            [],
            [],
            {},
            {},
        )
        for classifier, own in seeds.items()
        for seed in own
    ]
    return Group(name, encoder, kind, records, {})


@pytest.mark.parametrize(
    ("one", "line"),
    [
        (
            group("cifar10", "full", {"bottleneck": (1, 2, 3), "sdmlp": (1,)}),
            "measured at full length on resnet50 (seeds 1–3; sdmlp: seed 1)",
        ),
        (
            group("cifar10", "changed", {"bottleneck": (1,)}, epochs=200),
            "measured at reduced length (200 epochs) on resnet50 (seed 1)",
        ),
        (
            group("refit", "quick", {"bottleneck": (1, 2)}, 10, "resnet50 (bundled subset)"),
            "measured at reduced size and length (10 epochs) on resnet50 (seeds 1, 2)",
        ),
        (
            group("refit", "full", {"keys fixed": (1,)}, epochs=5),
            "measured at a length of our choice (5 epochs; the paper gives none) on resnet50 "
            "(seed 1)",
        ),
        (
            group("imagenet", "synthetic", {"bottleneck": (1,)}, encoder="synthetic"),
            "measured on synthetic embeddings, whose accuracies are not comparable (seed 1)",
        ),
    ],
)
def test_a_line_names_length_encoders_and_seeds(one, line):
    status = make_status(Collection([one], []), [])
    assert status[one.experiment] == line
    assert status["toy"] == "not measured"


def test_thresholds_that_were_changed_after_data_are_named():
    text = make_sentences(Collection([], []), [], [])
    assert "changed after seeing data, with their history: `equal_split`, `fly_within`" in text
