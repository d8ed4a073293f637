"""Build the bundled text embeddings from files of BANKING77 embeddings.

    python scripts/build_text_data.py TRAIN.npz TEST.npz

Each file holds `codes` (n, m) int8, `scale` (m,) and `labels` (n,), the embeddings being
codes / 127 · scale. Of 20 random classes with at least 80 training rows, 60 distinct training rows
and 38 distinct test rows are kept.
"""

import argparse
from pathlib import Path

import numpy as np

N_CLASSES, PER_CLASS = 20, {"train": 60, "test": 38}
OUT = Path(__file__).parents[1] / "src" / "dkvb" / "embedding" / "datasets" / "bundled"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()

    files = {split: np.load(getattr(given, split), allow_pickle=False) for split in PER_CLASS}
    names, counts = np.unique(files["train"]["labels"], return_counts=True)
    rng = np.random.default_rng(0)
    classes = np.sort(rng.choice(names[counts >= 80], N_CLASSES, replace=False))
    for split, per_class in PER_CLASS.items():
        codes, labels = files[split]["codes"], files[split]["labels"]
        distinct = np.zeros(len(labels), dtype=bool)
        distinct[np.unique(codes, axis=0, return_index=True)[1]] = True
        rows = np.concatenate(
            [
                rng.permutation(np.flatnonzero((labels == name) & distinct))[:per_class]
                for name in classes
            ]
        )
        rows = rng.permutation(rows)
        np.savez_compressed(
            given.out / f"banking77-{split}.npz",
            codes=codes[rows],
            step=(files[split]["scale"] / 127).astype(np.float32),
            labels=np.searchsorted(classes, labels[rows]).astype(np.uint8),
            classes=classes,
        )


if __name__ == "__main__":
    main()
