"""More from the same encoder: mirrored views and a further layer, by the kernel classifier.

    python -m benchmarks views --data cifar-10-batches-bin [--encoder NAME] [--train N] [--test N]

--data is what `dkvb embed --data` takes, with the splits train and test, labelled. Every N-th image
is embedded: plain, with its mirror image, with a further layer, and with both. Embeddings stay in
the cache of `dkvb embed`, and the classifier's settings are its defaults.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks import records
from dkvb.embedding import Cache, embed, load_dataset, load_encoder
from dkvb.estimators.registry import make_classifier

METHODS = ("kernel", "prototypes")
VARIANTS = {
    "plain": {},
    "flip": {"views": "flip"},
    "layers": {"layers": "last,stage3"},
    "both": {"views": "flip", "layers": "last,stage3"},
}


def run(
    data: str,
    encoder: str,
    out: Path,
    rows: tuple[int, int],
    variants: list[str],
    cache: Path | None,
    device: str,
) -> int:
    """Embed, learn, test; print and append one record per variant."""
    shown = []
    for variant in variants:
        model = load_encoder(encoder, device=device, **VARIANTS[variant])
        found = [
            embed(model, load_dataset(data, split, kind="image").subsample(n), Cache(cache))
            for split, n in zip(("train", "test"), rows, strict=True)
        ]
        train, test = found
        one = records.record(
            "views",
            "accuracy",
            data=Path(data).name,
            encoder=encoder,
            variant=variant,
            **VARIANTS[variant],
            width=model.dimension,
            train_rows=len(train.items),
            test_rows=len(test.items),
            embedded=train.embedded + test.embedded,
            embed_seconds=train.seconds + test.seconds,
        )
        for method in METHODS:
            classifier = make_classifier(method).fit(train.array(), train.labels)
            one[method] = float(np.mean(classifier.predict(test.array()) == test.labels))
            if method == "kernel":
                one["loo"] = classifier.loo_score_
        records.append(out, [one])
        cells = [f"{100 * one[name]:.2f}" for name in ("kernel", "loo", "prototypes")]
        shown.append([variant, str(model.dimension), *cells])
    columns = ["<variant", "width", "kernel", "leave-one-out", "prototypes"]
    records.show(f"{encoder}, {rows[0]} images to learn, {rows[1]} to test", columns, shown)
    return 0
