"""What users of scikit-learn expect: HTML, data frames, metadata routing."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dkvb import BottleneckClassifier, KernelClassifier
from dkvb.embedding import CallableEncoder, Encoder

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4)).astype(np.float32)
y = np.where(X[:, 0] > 0, "yes", "no")
SMALL = {"n_codebooks": 4, "n_pairs": 8}
OURS = [
    KernelClassifier(),
    BottleneckClassifier(SMALL, learning_rate=3.0),
]


def letters():
    return CallableEncoder(
        lambda texts: [[text.count(letter) for letter in "abc"] for text in texts],
        name="letters", dimension=3, takes="text", fingerprint="1",
    )  # fmt: skip


def name(estimator):
    return type(estimator).__name__


@pytest.mark.parametrize("estimator", [*OURS, Encoder(letters())], ids=name)
def test_html_names_the_class(estimator):
    assert type(estimator).__name__ in estimator._repr_html_()


@pytest.mark.parametrize("estimator", OURS, ids=name)
def test_frames_name_their_columns(estimator):
    frame = pd.DataFrame(X, columns=list("wxyz"))
    fitted = sklearn.base.clone(estimator).fit(frame, y)
    assert fitted.feature_names_in_.tolist() == list("wxyz")
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame[list("zyxw")])


@pytest.mark.parametrize("estimator", OURS, ids=name)
def test_weights_are_routed_to_fit(estimator):
    weights = np.arange(60) % 3
    chosen = np.repeat(np.arange(60), weights)
    with sklearn.config_context(enable_metadata_routing=True):
        asks = sklearn.base.clone(estimator).set_fit_request(sample_weight=True)
        routed = make_pipeline(StandardScaler(), asks)
        routed[0].set_fit_request(sample_weight=False)
        routed.fit(X, y, sample_weight=weights)
    scaled = StandardScaler().fit_transform(X)
    direct = sklearn.base.clone(estimator).fit(scaled[chosen], y[chosen])
    np.testing.assert_array_equal(routed.predict(X), direct.predict(scaled))


def test_the_encoder_gives_frames():
    encoder = Encoder(letters()).set_output(transform="pandas")
    frame = encoder.fit_transform(pd.Series(["abba", "cab"], index=[7, 9]))
    assert frame.columns.tolist() == ["encoder0", "encoder1", "encoder2"]
    assert frame.index.tolist() == [7, 9]
    assert type(encoder.set_output(transform="polars").transform(["ab"])).__module__.startswith(
        "polars"
    )
