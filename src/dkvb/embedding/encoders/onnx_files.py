"""Any ONNX file that takes images (n, 3, h, w) and gives rows or spatial maps."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dkvb._support.files.regular import check_regular, read_regular
from dkvb._support.optional import require
from dkvb.embedding.encoders.encoder import EncoderSpec, Identity, views_identity
from dkvb.embedding.encoders.layers import mirrored, pooled
from dkvb.embedding.encoders.settings import FLIP, PLAIN
from dkvb.embedding.encoders.transforms import ImageTransform

_LARGEST_SIDE = 8192  # of a batch of images that a file may ask for
_LARGEST_MODEL = 2 << 30  # bytes that protobuf reads
_LARGEST_FILE = 1 << 40


class OnnxEncoder:
    """An ONNX file behind the protocol; its first input takes images, its first output is used.

    Unless a transform is given, images are made as large as the file asks for (224 where it
    does not say), without cropping, and scaled by the mean and standard deviation of ImageNet.
    """

    takes = "image"

    def __init__(
        self,
        path: str | Path,
        *,
        transform: ImageTransform | None = None,
        pooling: str = "mean",
        views: str = PLAIN,
        device: torch.device | str = "cpu",
    ) -> None:
        runtime = require("onnxruntime", "onnx", "encoder onnx")
        path = Path(path)
        if not path.is_file():
            raise ValueError(f"encoder: expected an ONNX file; found none at {path}")
        digest = _hash(path)  # first: it checks which files the runtime would open
        self.name, self.path, self.device = f"onnx:{path}", path, torch.device(device)
        self.pooling, self.views = pooling, views
        self._features = mirrored(self._run) if views == FLIP else self._run
        providers = ["CPUExecutionProvider"]
        if self.device.type == "cuda":
            providers.insert(0, "CUDAExecutionProvider")
        available = [one for one in providers if one in runtime.get_available_providers()]
        options = runtime.SessionOptions()
        options.log_severity_level = 4  # what is wrong is raised, not printed as well
        try:
            # Without fallback: a second try would be announced on standard output.
            self._session = runtime.InferenceSession(
                str(path), options, providers=available, enable_fallback=0
            )
            source = self._session.get_inputs()[0]
        except Exception as error:  # the runtime has many kinds of its own
            raise _unusable(path, error) from error
        shape = source.shape
        sides = [side for side in shape if isinstance(side, int)]
        if len(shape) != 4 or not all(1 <= side <= _LARGEST_SIDE for side in sides):
            raise ValueError(
                f"encoder onnx: expected a first input (n, 3, height, width), none of them above "
                f"{_LARGEST_SIDE}; got {shape}"
            )
        self._input, (self._rows, _, height, _) = source.name, shape
        self.transform = transform or ImageTransform(height if isinstance(height, int) else 224)
        self.identity: Identity = {
            "name": "onnx",
            "weights": digest,
            "pooling": pooling,
            **views_identity(views),
        }
        side = self.transform.crop
        try:
            self.dimension = self.encode([torch.zeros(3, side, side)]).shape[1]
        except Exception as error:
            raise _unusable(path, error) from error

    def encode(self, batch: Sequence[Tensor]) -> Tensor:
        """Embeddings (n, m) of transformed images, each (3, h, w)."""
        return self._features(torch.stack(list(batch)))

    def _run(self, images: Tensor) -> Tensor:
        """Rows (n, m) of images (n, 3, h, w), in pieces where the file fixes how many."""
        x = images.numpy().astype(np.float32)
        size = self._rows if isinstance(self._rows, int) else len(x)
        parts = []
        for start in range(0, len(x), size):
            part = x[start : start + size]
            short = size - len(part)
            part = np.pad(part, ((0, short), (0, 0), (0, 0), (0, 0)))
            (features, *_) = self._session.run(None, {self._input: part})
            parts.append(torch.from_numpy(np.array(features[: size - short])))
        return pooled(torch.cat(parts), self.pooling).float()


def build(spec: EncoderSpec) -> OnnxEncoder:
    """The ONNX file after the colon."""
    name, weights, layers, pooling = spec[:4]
    if weights is not None or layers != ("last",):
        raise ValueError(
            f"weights, layers: expected neither for {name}, which holds its own; "
            f"got {weights} and {','.join(layers)}"
        )
    where = name.partition(":")[2]
    return OnnxEncoder(where, pooling=pooling, views=spec.views, device=spec.device)


def _unusable(path: Path, error: Exception) -> ValueError:
    reason = " ".join(str(error).split())[:300]
    return ValueError(
        f"encoder onnx:{path}: expected an ONNX file that onnxruntime runs on images "
        f"(n, 3, height, width); it fails ({reason}); export it again"
    )


def _hash(path: Path) -> str:
    """Of the file, and of the files that hold its tensors, as those of large models do."""
    digest = hashlib.sha256()
    try:
        for part in (path, *(_inside(path.parent, place) for place in _places_of_tensors(path))):
            check_regular(part, _LARGEST_FILE)
            with part.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    except OSError as error:
        raise ValueError(
            f"encoder onnx:{path}: expected tensors in files beside it; {error}"
        ) from error
    return digest.hexdigest()


def _inside(folder: Path, place: str) -> Path:
    """The file that a model names, which must lie in the model's folder, links followed."""
    path = folder / place
    if Path(place).is_absolute() or not path.resolve().is_relative_to(folder.resolve()):
        raise OSError(f"it names {place!r:.80}, which lies elsewhere")
    return path


def _places_of_tensors(path: Path) -> list[str]:
    """The files, relative to its own folder, that an ONNX file keeps tensors in."""
    onnx = require("onnx", "onnx", "encoder onnx")
    content = read_regular(path, _LARGEST_MODEL)
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # the parser's own kinds
        raise _unusable(path, error) from error
    return sorted(
        {
            entry.value
            for tensor in _messages(model, onnx.TensorProto)
            if onnx.external_data_helper.uses_external_data(tensor)
            for entry in tensor.external_data
            if entry.key == "location"
        }
    )


def _messages(message: Any, kind: type) -> Iterator[Any]:
    """All messages of a kind inside another, wherever: weights, constants, branches, functions."""
    if isinstance(message, kind):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                yield from _messages(part, kind)
