"""Photos of a few classes, cut from samples that other packages carry."""

from __future__ import annotations

import random
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from PIL import Image, ImageEnhance

SIDE = 320


def _sample(name: str) -> Any:
    package, folder = (
        ("sklearn", "datasets/images")
        if name in ("china.jpg", "flower.jpg")
        else ("skimage", "data")
    )
    spec = find_spec(package)  # the files alone: importing it needs more packages
    assert spec is not None, f"{package} is not installed: see requirements/browser.txt"
    assert spec.origin is not None
    return Image.open(Path(spec.origin).parent / folder / name).convert("RGB")


def cut(sample: str, folder: Path, label: str, n: int, seed: int = 0) -> list[Path]:
    """Write n photos, each another part of a sample in another light; return their paths."""
    rng, image = random.Random(f"{label} {seed}"), _sample(sample)
    paths = []
    for i in range(n):
        side = round(min(image.size) * rng.uniform(0.6, 0.95))
        left, top = (rng.randint(0, length - side) for length in image.size)
        part = image.crop((left, top, left + side, top + side)).resize((SIDE, SIDE))
        if rng.random() < 0.5:
            part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        part = ImageEnhance.Brightness(part).enhance(rng.uniform(0.7, 1.25))
        part = part.rotate(rng.uniform(-12, 12), Image.Resampling.BICUBIC)
        part = part.crop((32, 32, SIDE - 32, SIDE - 32))
        paths.append(folder / f"{label}-{seed}{i:02d}.jpg")
        part.save(paths[-1], quality=90)
    return paths
