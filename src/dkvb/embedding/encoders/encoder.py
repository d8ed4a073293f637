"""What an encoder is: a name, a width, a transform for one item, and `encode` for a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from dkvb._support import validation
from dkvb.embedding.encoders.layers import mirrored
from dkvb.embedding.encoders.settings import FLIP, KINDS, PLAIN
from dkvb.embedding.encoders.transforms import ImageTransform
from dkvb.embedding.encoders.weights import fingerprint

PRECISIONS = ("auto", "float32", "float16")

Identity = Mapping[str, Any]


class EncoderSpec(NamedTuple):
    """An encoder to build: its name, weights, settings, device and precision."""

    name: str  # without settings
    weights: str | Path | None = None  # a local file; None: what its library has
    layers: tuple[str, ...] = ("last",)
    pooling: str = "mean"
    views: str = PLAIN
    device: torch.device | str = "cpu"
    precision: str = "auto"
    allow_download: bool = True  # whether a server may be contacted for weights

    @property
    def settings(self) -> dict[str, str]:
        """The settings that decide the embeddings, besides the weights."""
        return {"name": self.name, "layer": ",".join(self.layers), "pooling": self.pooling}


class FrozenEncoder(Protocol):
    """Frozen: the same item gives the same row for ever."""

    @property
    def name(self) -> str:
        """What users call it."""

    @property
    def takes(self) -> str:
        """The kind of item it encodes: "image", "text" or "vector"."""

    @property
    def dimension(self) -> int:
        """The width m of an embedding."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""

    @property
    def identity(self) -> Identity:
        """All that decides the result besides the transform, as JSON can hold it."""

    @property
    def transform(self) -> Callable[[Any], Any]:
        """From an item (a PIL image, a string, a row of numbers) to what `encode` takes many of."""

    def encode(self, batch: Sequence[Any]) -> Tensor:
        """Embeddings (n, m) float32 on the CPU, of n transformed items."""


class ModuleEncoder:
    """A torch module behind the protocol: frozen, in eval mode, without gradients.

    `features` leads from transformed images (n, 3, crop, crop) to rows (n, m). With
    `views="flip"` the embedding is the mean of an image's row and its mirror image's.
    """

    def __init__(
        self,
        name: str,
        module: nn.Module,
        features: Callable[[Tensor], Tensor],
        transform: ImageTransform,
        *,
        identity: Identity,
        views: str = PLAIN,
        device: torch.device | str = "cpu",
        precision: str = "auto",
    ) -> None:
        self.name, self.takes, self.transform = name, "image", transform
        self.device = torch.device(device)
        self.precision = resolve_precision(precision, self.device)
        # Channels last: the same numbers, and convolutions are a fifth to a third faster.
        self.module = module.eval().requires_grad_(False).to(self.device)
        self.module.to(memory_format=torch.channels_last)
        self.features = mirrored(features) if views == FLIP else features
        self.identity = {
            **identity,
            **views_identity(views),
            "weights": fingerprint(module.state_dict()),
            "precision": self.precision,
        }
        self.dimension = self.encode([torch.zeros(3, transform.crop, transform.crop)]).shape[1]

    def encode(self, batch: Sequence[Tensor]) -> Tensor:
        """Embeddings (n, m) of transformed images, each (3, crop, crop)."""
        x = torch.stack(list(batch))  # (n, 3, crop, crop)
        x = x.to(self.device, memory_format=torch.channels_last)
        with torch.inference_mode(), arithmetic(self.device, self.precision):
            return self.features(x).float().cpu()


class CallableEncoder:
    """Any function from a list of transformed items to rows (n, m), as an array or a tensor.

    `fingerprint` must change whenever function and transform would give other rows: it is all that
    the cache knows of them (an `ImageTransform` it knows by itself). For a torch module,
    `weights.fingerprint(module.state_dict())` will do.

    >>> lengths = CallableEncoder(
    ...     lambda texts: [[len(text)] for text in texts],
    ...     name="lengths", dimension=1, takes="text", fingerprint="1",
    ... )
    >>> lengths.encode(["a", "bcd"])
    tensor([[1.],
            [3.]])
    """

    def __init__(
        self,
        function: Callable[[Sequence[Any]], Any],
        *,
        name: str,
        dimension: int,
        fingerprint: str,
        takes: str = "image",
        transform: Callable[[Any], Any] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.name, self.function = name, function
        self.dimension = validation.positive_int("dimension", dimension)
        self.takes = validation.one_of("takes", takes, KINDS)
        self.transform = transform or as_it_is
        self.device = torch.device(device)
        if not isinstance(fingerprint, str) or not fingerprint:
            raise ValueError(
                "fingerprint: expected a text that changes whenever the function does; "
                f"got {fingerprint!r}"
            )
        self.identity: Identity = {"name": name, "weights": fingerprint}

    def encode(self, batch: Sequence[Any]) -> Tensor:
        """Embeddings (n, m) float32."""
        with torch.inference_mode():
            rows = self.function(batch)
        if not isinstance(rows, Tensor):
            rows = torch.from_numpy(np.asarray(rows, dtype=np.float32))
        return rows.detach().float().cpu()


def views_identity(views: str) -> Identity:
    """What views add to an identity: nothing for the plain one, which was all there was before."""
    return {} if views == PLAIN else {"views": views}


def as_it_is(item: Any) -> Any:
    """The transform of encoders that take items as they come."""
    return item


def resolve_precision(precision: str, device: torch.device) -> str:
    """Half precision (mixed) on a GPU and float32 elsewhere, unless one is asked for."""
    validation.one_of("precision", precision, PRECISIONS)
    if precision == "auto":
        return "float16" if device.type == "cuda" else "float32"
    if precision == "float16" and device.type != "cuda":
        raise ValueError(
            f"precision: expected float32 on {device.type}; got float16, which only pays on a GPU"
        )
    return precision


@contextmanager
def arithmetic(device: torch.device, precision: str) -> Iterator[None]:
    """Mixed precision, or float32 that means float32: on a GPU, without TensorFloat-32."""
    if device.type != "cuda":
        yield
    elif precision == "float16":
        with torch.autocast("cuda", dtype=torch.float16):
            yield
    else:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            yield
