"""From an image to what an image encoder takes: resize, crop, scale; and noise, where asked."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dkvb._support import validation
from dkvb.embedding.pictures import pillow

if TYPE_CHECKING:
    from PIL import Image

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

_INTERPOLATIONS = ("bilinear", "bicubic", "lanczos", "nearest")

Pixels = NDArray[np.float32]


@dataclass(frozen=True)
class PixelNoise:
    """Gaussian noise on the pixels of the original image, which are in [0, 1].

    It is a function of the image and the seed: the same in any order, batch or process.
    """

    alpha: float
    seed: int = 0

    def __post_init__(self) -> None:
        validation.real("noise", self.alpha, low=0.0)
        validation.seed("noise seed", self.seed)

    def __call__(self, pixels: Pixels) -> Pixels:
        """Noisy pixels (height, width, 3), neither clipped nor rounded."""
        content = hashlib.sha256(np.ascontiguousarray(pixels).tobytes()).digest()
        words = np.frombuffer(content, dtype=np.uint32)
        generator = np.random.default_rng([self.seed, *words.tolist()])
        return pixels + np.float32(self.alpha) * generator.standard_normal(
            pixels.shape, dtype=np.float32
        )


@dataclass(frozen=True)
class ImageTransform:
    """Resize, cut the centre out, scale: what torchvision, timm and open_clip do, on PIL images.

    The shorter side becomes `resize` pixels and the centre of `crop` × `crop` is taken; with
    `resize=None` the whole image is made `crop` × `crop`, whatever its proportions.

    >>> from PIL import Image
    >>> ImageTransform(crop=224, resize=256)(Image.new("RGB", (640, 480))).shape
    torch.Size([3, 224, 224])
    """

    crop: int
    resize: int | None = None
    interpolation: str = "bicubic"
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    noise: PixelNoise | None = None

    def __post_init__(self) -> None:
        validation.positive_int("crop", self.crop)
        validation.one_of("interpolation", self.interpolation, _INTERPOLATIONS)

    def __call__(self, image: Image.Image) -> Tensor:
        """Float32 (3, crop, crop)."""
        image = image.convert("RGB")
        if self.noise is None:
            pixels = np.asarray(self._fit(image), dtype=np.float32) / np.float32(
                255
            )  # (crop, crop, 3)
        else:
            noisy = self.noise(
                np.asarray(image, dtype=np.float32) / np.float32(255)
            )  # (height, width, 3)
            # In floats, since 8 bits would round small noise away.
            library = pillow("noise")
            planes = [self._fit(library.fromarray(noisy[:, :, c])) for c in range(3)]
            pixels = np.stack([np.asarray(plane) for plane in planes], axis=-1)
        chw = torch.from_numpy(pixels).permute(2, 0, 1)  # (3, crop, crop)
        mean, std = (torch.tensor(values)[:, None, None] for values in (self.mean, self.std))
        return ((chw - mean) / std).contiguous()

    def _fit(self, image: Image.Image) -> Image.Image:
        how = pillow("images").Resampling[self.interpolation.upper()]
        if self.resize is None:
            return image.resize((self.crop, self.crop), how)
        width, height = image.size
        short = min(width, height)
        # Rounded down, and the crop's corner to the nearest even number, as torchvision does.
        wide, high = (int(self.resize * side / short) for side in (width, height))
        if (wide, high) != image.size:
            image = image.resize((wide, high), how)
        left, top = round((wide - self.crop) / 2.0), round((high - self.crop) / 2.0)
        return image.crop((left, top, left + self.crop, top + self.crop))

    def without_crop(self) -> ImageTransform:
        """The same transform without cropping, for small images whose object fills the frame."""
        return replace(self, resize=None)

    def describe(self) -> dict[str, Any]:
        """Everything that decides the result, as JSON can hold it."""
        return asdict(self)
