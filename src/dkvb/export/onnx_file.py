"""Trained models as ONNX files: the head alone, or an encoder and the head."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import dkvb
from dkvb._support import validation
from dkvb._support.files import replace_file
from dkvb._support.optional import require
from dkvb.export.head import Exportable, Head, head_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto, TensorProto

DTYPES = ("float32", "float16")
OPSET = 18  # the oldest whose operators suffice, so that most runtimes know it
ONE_FILE = (1 << 31) - (1 << 24)  # bytes of tensors in one file: protobuf ends at 2 GB
_ALIGNED = 4096  # bytes: tensors that start at a page can be mapped into memory
_LARGE = 1024  # bytes, from which tensors lie in the second file where there is one


@dataclass(frozen=True)
class ExportReport:
    """What was written, and how far it can be trusted to choose the same keys."""

    path: Path
    external_data: Path | None  # where tensors lie that would not fit into one file
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opset: int
    dtype: str  # that large tensors are stored in
    tie_margin: float  # see Head.tie_margin: codes are the classifier's where distances differ more
    tensor_bytes: int
    file_bytes: int


def export_onnx(
    classifier: Exportable,
    path: str | Path,
    *,
    encoder: Any = None,
    input_shape: Sequence[int] | None = None,
    dtype: str = "float32",
    opset: int | None = None,
) -> ExportReport:
    """Write a trained model to an ONNX file that needs neither Python nor this package to run.

    The file takes `embedding` (batch, m) float32, any number of rows, and answers with `scores` and
    `probabilities` (batch, Y), the index of the `label` (batch,), −1 where `novelty_threshold`
    makes it unknown, and the `codes` (batch, C) of the keys that were read, where each codebook
    reads one. The labels themselves are in the file's metadata under "labels", JSON, in the order
    of columns.

    With an `encoder` of images of `dkvb.embedding`, the file takes `image` (batch, height, width,
    3) uint8, upright RGB pictures of any size, and resizes, crops and scales them as the encoder's
    transform does; its metadata hold the transform. Other encoders are a torch module from inputs
    of `input_shape` (without the batch) to embeddings, or the path of an ONNX file of one: the file
    takes what they do. An encoder is written as it is; `dtype="float16"` halves the head alone,
    at the price of other keys where two are about equally near. `opset` is 18, or the encoder's.
    Above 2 GB tensors go to a second file, `path` + ".data", which must stay beside the first.
    """
    onnx = require("onnx", "export", "export_onnx")
    from dkvb.export.encoder import encoder_model, joined
    from dkvb.export.graph import head_graph

    path = Path(path)
    validation.one_of("dtype", dtype, DTYPES)
    if not path.parent.is_dir():
        raise ValueError(f"path: expected a file in a folder that exists; got {path}")
    newest = onnx.defs.onnx_opset_version()
    if opset is not None and (
        isinstance(opset, bool) or not isinstance(opset, int) or not OPSET <= opset <= newest
    ):
        raise ValueError(f"opset: expected None or {OPSET} to {newest}; got {opset!r}")
    head = head_of(classifier)
    head = head.halved() if dtype == "float16" else head
    graph, large = head_graph(head)
    functions: Sequence[Any] = ()
    imports = {"": opset or OPSET}
    if encoder is not None:
        first = encoder_model(encoder, input_shape, opset, OPSET)
        imports = {entry.domain: entry.version for entry in first.opset_import}
        graph, functions = joined(first, graph, head.width, encoder), first.functions
    elif input_shape is not None:
        raise ValueError(
            f"input_shape: expected None without an encoder, which takes rows of width "
            f"{head.width}; got {tuple(input_shape)}"
        )
    helper = onnx.helper
    opsets = [helper.make_opsetid(domain, version) for domain, version in imports.items()]
    model = helper.make_model(
        graph,
        opset_imports=opsets,
        functions=functions,
        ir_version=helper.find_min_ir_version_for(opsets),
        producer_name="dkvb",
        producer_version=dkvb.__version__,
    )
    helper.set_model_props(model, _metadata(head, dtype, encoder))
    external, tensor_bytes = _write(model, large, path)
    return ExportReport(
        path,
        external,
        tuple(value.name for value in model.graph.input),
        tuple(value.name for value in model.graph.output),
        imports[""],
        dtype,
        head.tie_margin(),
        tensor_bytes,
        path.stat().st_size + (external.stat().st_size if external else 0),
    )


def _metadata(head: Head, dtype: str, encoder: Any) -> dict[str, str]:
    from dkvb.embedding.encoders.settings import encoder_fingerprint
    from dkvb.embedding.encoders.transforms import ImageTransform

    facts: dict[str, Any] = {
        "labels": head.labels,
        "classifier": head.kind,
        "keys": head.fingerprint,
        "dtype": dtype,
        "tie_margin": head.tie_margin(),
    }
    transform = getattr(encoder, "transform", None)
    if isinstance(transform, ImageTransform):
        facts["transform"] = transform.describe()
        facts["encoder_fingerprint"] = encoder_fingerprint(encoder.identity)
    return {name: json.dumps(value, ensure_ascii=False) for name, value in facts.items()}


def _write(
    model: ModelProto, large: dict[str, NDArray[Any]], path: Path
) -> tuple[Path | None, int]:
    """Put large tensors into the model, or into a second file, and write; returns that file, and
    the bytes of all tensors."""
    from onnx import checker

    initializers = list(model.graph.initializer)
    size = sum(large[t.name].nbytes if t.name in large else _bytes(t) for t in initializers)
    if size <= ONE_FILE:
        for tensor in initializers:
            if tensor.name in large:
                tensor.raw_data = large[tensor.name].tobytes()
        checker.check_model(model, full_check=True)
        replace_file(path, [model.SerializeToString()])
        return None, size
    data = path.with_name(path.name + ".data")
    replace_file(data, _moved_out(initializers, large, data.name))
    replace_file(path, [model.SerializeToString()])
    checker.check_model(str(path), full_check=True)
    return data, size


def _moved_out(
    initializers: list[TensorProto], large: dict[str, NDArray[Any]], location: str
) -> Iterator[bytes | memoryview]:
    """The bytes of large tensors, each of which then says where in the file it lies."""
    from onnx import StringStringEntryProto, TensorProto

    offset = 0
    for tensor in initializers:
        if tensor.name in large:
            content = large[tensor.name].reshape(-1).view(np.uint8).data
        elif len(tensor.raw_data) >= _LARGE:
            content = memoryview(tensor.raw_data)
        else:
            continue
        facts = {"location": location, "offset": offset, "length": content.nbytes}
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.extend(
            StringStringEntryProto(key=key, value=str(value)) for key, value in facts.items()
        )
        tensor.ClearField("raw_data")
        padding = -content.nbytes % _ALIGNED
        yield content
        yield bytes(padding)
        offset += content.nbytes + padding


def _bytes(tensor: TensorProto) -> int:
    return len(tensor.raw_data) or int(tensor.ByteSize())
