"""Build the embeddings that come with the package (src/dkvb/data) from full embedding files.

    python scripts/build_demo_data.py --cifar10 TRAIN.npz TEST.npz --cifar100 TRAIN.npz TEST.npz

Each file holds `x` (n, m) floats, `y` (n,) integer labels and `classes` (the label names). Of
CIFAR-10 500 train and 200 test images per class are kept, of CIFAR-100 50 and 10. A PCA to 256
components, fitted on the kept CIFAR-100 train rows only, makes them small; the scores are stored
in 8 bits. All components share one step: equal error everywhere, and the many components of small
variance use few of the 256 levels, which compresses well.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
COMPONENTS = 256
PER_CLASS = {"cifar10": (500, 200), "cifar100": (50, 10)}  # train, test
LIMIT = 4_000_000  # bytes, all four files together


@dataclass(frozen=True)
class Rows:
    """Chosen rows of one embedding file."""

    x: Floats  # (n, m)
    y: NDArray[np.uint8]  # (n,)
    classes: NDArray[np.str_]  # (Y,)


def choose(path: Path, per_class: int, rng: np.random.Generator) -> Rows:
    """Draw the same number of rows of every class, and keep them in the file's order."""
    with np.load(path) as file:
        x, y, classes = file["x"], file["y"], file["classes"]
    rows = np.sort(
        np.concatenate(
            [
                rng.choice(np.flatnonzero(y == label), per_class, replace=False)
                for label in range(len(classes))
            ]
        )
    )
    return Rows(x[rows].astype(np.float64), y[rows].astype(np.uint8), classes)


def principal_axes(x: Floats) -> tuple[Floats, Floats]:
    """The mean (m,) and the leading axes (m, 256) of the rows."""
    mean = x.mean(axis=0)  # (m,)
    _, axes = np.linalg.eigh(np.cov(x, rowvar=False))  # variances ascending
    return mean, axes[:, : -COMPONENTS - 1 : -1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in PER_CLASS:
        parser.add_argument(
            f"--{name}", nargs=2, type=Path, required=True, metavar=("TRAIN", "TEST")
        )
    default = Path(__file__).parents[1] / "src" / "dkvb" / "embedding" / "datasets" / "bundled"
    parser.add_argument("--out", type=Path, default=default)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    rng = np.random.default_rng(arguments.seed)
    chosen = {
        (name, split): choose(path, per_class, rng)
        for name, counts in PER_CLASS.items()
        for split, path, per_class in zip(
            ("train", "test"), getattr(arguments, name), counts, strict=True
        )
    }
    mean, axes = principal_axes(chosen["cifar100", "train"].x)
    widest = np.abs((chosen["cifar100", "train"].x - mean) @ axes).max()
    step = np.float32(widest / 127)

    total = 0
    for (name, split), rows in chosen.items():
        scores = (rows.x - mean) @ axes  # (n, 256)
        codes = np.clip(np.rint(scores / step), -127, 127).astype(np.int8)
        path = arguments.out / f"{name}-{split}.npz"
        np.savez_compressed(path, codes=codes, step=step, labels=rows.y, classes=rows.classes)
        total += path.stat().st_size
        print(f"{path.name}: {len(codes)} rows, {path.stat().st_size:,} bytes")
    print(f"total {total:,} bytes; limit {LIMIT:,}")
    if total > LIMIT:
        raise SystemExit("the bundle is too large")


if __name__ == "__main__":
    main()
