"""Compare an exported file's answers with the model's, by onnxruntime, on rows of your own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from dkvb._support.optional import require
from dkvb._support.validation import as_float32
from dkvb.bottleneck import Batch, Keys
from dkvb.bottleneck.classifier import BottleneckClassifier
from dkvb.memory import KernelClassifier

TIE = 1e-6  # probabilities that differ by less are equal but for rounding


@dataclass(frozen=True)
class Parity:
    """A file compared with the classifier it was made from."""

    rows: int
    codes: int  # compared: rows × codebooks, 0 where reads are soft
    codes_differ: int
    outside_margin: int  # of these, with distances further apart than the file's tie margin
    probability_difference: float  # the largest, over rows whose codes all agree
    labels_differ: int  # over the same rows, where probabilities tell the two labels apart


def check_onnx(
    path: str | Path,
    classifier: BottleneckClassifier | KernelClassifier,
    X: ArrayLike,
    inputs: Any = None,
) -> Parity:
    """Run a file on rows X (n, m), and compare its answers with the classifier's.

    For a file with an encoder, `inputs` (n, ...) are what the encoder takes and X the embeddings
    that it makes of them.
    """
    runtime = require("onnxruntime", "export", "check_onnx")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    rows = as_float32(np.asarray(X))
    given = rows if inputs is None else np.asarray(inputs)
    found = dict(zip(names, session.run(names, {session.get_inputs()[0].name: given}), strict=True))
    facts = session.get_modelmeta().custom_metadata_map
    agree, differ, outside = np.ones(len(rows), bool), 0, 0
    if "codes" in found:
        assert isinstance(classifier, BottleneckClassifier)
        keys = classifier.keys_
        ours = classifier._codes(classifier._fitted(), Batch(keys, rows)).long()  # (n, C)
        theirs = torch.from_numpy(found["codes"])
        other = ours != theirs
        agree, differ = ~other.any(dim=1).numpy(), int(other.sum())
        gap = keys.distances(rows, theirs) - keys.distances(rows, ours)  # (n, C)
        limit = json.loads(facts["tie_margin"]) * margin_unit(keys, torch.from_numpy(rows))
        outside = int((other & (gap > limit)).sum())
    expected = classifier.predict_proba(rows)
    apart = np.abs(found["probabilities"] - expected).max(axis=1)
    names = json.loads(facts["labels"])
    named = np.array([*names, "unknown" if isinstance(names[0], str) else -1])  # last: rejected
    label = classifier.predict(rows)
    # Between equal classes rounding decides, and a file's need not be the classifier's.
    lost = expected.max(axis=1) - expected[np.arange(len(rows)), found["label"]]
    told_apart = (lost > TIE) | (found["label"] < 0) | (label == named[-1])
    other_label = told_apart & (named[found["label"]] != label)
    return Parity(
        len(rows),
        found["codes"].size if "codes" in found else 0,
        differ,
        outside,
        float(apart[agree].max(initial=0.0)),
        int(other_label[agree].sum()),
    )


def margin_unit(keys: Keys, rows: Tensor) -> Tensor:
    """S² (n, C), the unit of the tie margin; see `Head.tie_margin`."""
    c, p = keys.conditioning, keys.projection
    x = c._elementwise(rows).norm(dim=1)  # (n,)
    size = (torch.where(x > 0, 1.0, 0.0) if c.normalise else x) + c.centre.double().norm()
    if c.components is not None:
        size = size * c.components.double().norm()
    reach = keys.keys.double().norm(dim=2).amax(dim=1)  # (C,)
    spread = torch.ones_like(reach) if p.matrices is None else p._norms
    unit: Tensor = (size[:, None] * spread + reach).square()
    return unit
