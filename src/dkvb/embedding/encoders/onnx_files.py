"""Any ONNX file that takes pictures (n, 3, h, w) and gives rows or spatial maps."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dkvb._support.optional import require
from dkvb.embedding.encoders.encoder import EncoderSpec, Identity, pooled
from dkvb.embedding.encoders.transforms import ImageTransform


class OnnxEncoder:
    """An ONNX file behind the protocol; its first input takes pictures, its first output is used.

    Unless a transform is given, pictures are made as large as the file asks for (224 where it
    does not say), without cropping, and scaled by the mean and standard deviation of ImageNet.
    """

    takes = "image"

    def __init__(
        self,
        path: str | Path,
        *,
        transform: ImageTransform | None = None,
        pooling: str = "mean",
        device: torch.device | str = "cpu",
    ) -> None:
        runtime = require("onnxruntime", "onnx", "encoder onnx")
        path = Path(path)
        if not path.is_file():
            raise ValueError(f"encoder: expected an ONNX file; found none at {path}")
        self.name, self.pooling, self.device = f"onnx:{path}", pooling, torch.device(device)
        providers = ["CPUExecutionProvider"]
        if self.device.type == "cuda":
            providers.insert(0, "CUDAExecutionProvider")
        available = [one for one in providers if one in runtime.get_available_providers()]
        self._session = runtime.InferenceSession(str(path), providers=available)
        source = self._session.get_inputs()[0]
        if len(source.shape) != 4:
            raise ValueError(
                f"encoder onnx: expected a first input (n, 3, height, width); got {source.shape}"
            )
        self._input, (self._rows, _, height, _) = source.name, source.shape
        self.transform = transform or ImageTransform(height if isinstance(height, int) else 224)
        self.identity: Identity = {"name": "onnx", "weights": _hash(path), "pooling": pooling}
        side = self.transform.crop
        self.dimension = self.encode([torch.zeros(3, side, side)]).shape[1]

    def encode(self, batch: Sequence[Tensor]) -> Tensor:
        """Embeddings (n, m) of transformed pictures, in pieces where the file fixes how many."""
        x = torch.stack(list(batch)).numpy().astype(np.float32)  # (n, 3, h, w)
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
    name, weights, layer, pooling = spec[:4]
    if weights is not None or layer != "last":
        raise ValueError(
            f"weights, layer: expected neither for {name}, which holds its own; "
            f"got {weights} and {layer}"
        )
    return OnnxEncoder(name.partition(":")[2], pooling=pooling, device=spec.device)


def _hash(path: Path) -> str:
    """Of the file, and of those that it names as the place of its tensors, as large models do."""
    digest = hashlib.sha256()
    for part in (path, *(path.parent / place for place in _places_of_tensors(path))):
        with part.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _places_of_tensors(path: Path) -> list[str]:
    """The files, relative to its own folder, that an ONNX file keeps tensors in."""
    onnx = require("onnx", "onnx", "encoder onnx")
    model = onnx.load(path, format="protobuf", load_external_data=False)
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
