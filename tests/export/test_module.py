"""The head as a torch module, and as a program of torch.export."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dkvb import fit_keys
from dkvb.export import as_module

from .problems import SETTINGS, keys, made, rows, trained

X, Y = rows(1000, seed=3)


@pytest.mark.parametrize("conditioning", ["centre", "normalised", "whitened"])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_module_answers_as_the_classifier(name: str, conditioning: str) -> None:
    classifier = trained(name, conditioning)
    scores, probabilities, label = as_module(classifier)(torch.from_numpy(X))
    assert scores.numpy() == pytest.approx(classifier.decision_function(X), rel=1e-5, abs=1e-5)
    assert probabilities.numpy() == pytest.approx(classifier.predict_proba(X), abs=1e-6)
    assert (classifier.classes_[label] == classifier.predict(X)).all()


@pytest.mark.parametrize("power", [0.5, 0.7])
def test_powers(power: float) -> None:
    x, y = rows(300, seed=4, signed=False)
    own = fit_keys(x, n_codebooks=3, n_pairs=16, key_dim=2, conditioning="whitened", epochs=1)
    own = replace(own, conditioning=replace(own.conditioning, power=power))
    classifier = made("used", own).fit(x, y)
    probabilities = as_module(classifier)(torch.from_numpy(x))[1]
    assert probabilities.numpy() == pytest.approx(classifier.predict_proba(x), abs=1e-6)


@pytest.mark.parametrize("projection", ["partition", "identity"])
def test_other_projections(projection: str) -> None:
    classifier = trained("used", "centre", projection)
    probabilities = as_module(classifier)(torch.from_numpy(X))[1]
    assert probabilities.numpy() == pytest.approx(classifier.predict_proba(X), abs=1e-6)


@pytest.mark.parametrize("name", ["used", "all"])
def test_a_program_takes_any_number_of_rows(name: str) -> None:
    classifier = trained(name, "whitened")
    module, x = as_module(classifier), torch.from_numpy(X)
    program = torch.export.export(
        module, (x[:8],), dynamic_shapes=({0: torch.export.Dim("batch")},)
    )
    for n in (1, 2, 1000):
        _, probabilities, label = program.module()(x[:n])
        assert probabilities.numpy() == pytest.approx(classifier.predict_proba(X[:n]), abs=1e-6)
        assert (classifier.classes_[label] == classifier.predict(X[:n])).all()


def test_rejection() -> None:
    classifier = made("all", keys(), novelty_threshold=0.8).fit(*rows(150, seed=2))
    label = as_module(classifier)(torch.from_numpy(X))[2].numpy()
    expected = classifier.predict(X)
    assert 0 < (label == -1).sum() < 1000
    assert (np.array([*classifier.classes_, "unknown"])[label] == expected).all()
