"""Small problems for the kernel classifier."""

import numpy as np


def blobs(n=60, width=6, classes=3, seed=0, noise=0.6):
    """Embeddings (n, width) and string labels (n,), some on the wrong side."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, width))
    y = rng.integers(classes, size=n)
    X = centres[y] + rng.normal(scale=noise, size=(n, width))
    return X.astype(np.float32), np.array(["ant", "bee", "cat", "dog"])[y]


def same_state(a, b):
    """Whether two classifiers have learned the same examples, bit for bit."""
    one, other = a.state_arrays(), b.state_arrays()
    return (
        a.classes_.tolist() == b.classes_.tolist()
        and one.keys() == other.keys()
        and all(one[name].tobytes() == other[name].tobytes() for name in one)
    )
