"""An encoder's ONNX graph, from a torch module or a file, between pictures and a head."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import GraphProto, ModelProto, TensorProto, compose, helper, version_converter
from torch import Tensor, nn

from dkvb._support.optional import require
from dkvb.embedding.encoders.encoder import ModuleEncoder
from dkvb.embedding.encoders.onnx_files import OnnxEncoder
from dkvb.embedding.encoders.sentences import SentenceEncoder
from dkvb.embedding.encoders.settings import FLIP
from dkvb.export.graph import Nodes, Tensors
from dkvb.export.pictures import add_transform, picture_input

PREFIX = "encoder/"  # of all names of an encoder, so that none meets a name of the head


class Features(nn.Module):
    """An encoder of `dkvb.embedding` from transformed images to embeddings, as one module."""

    def __init__(self, encoder: ModuleEncoder) -> None:
        super().__init__()
        self.module, self.features = encoder.module, encoder.features

    def forward(self, image: Tensor) -> Tensor:
        return self.features(image).float()


def encoder_model(
    encoder: Any, input_shape: Sequence[int] | None, opset: int | None, oldest: int
) -> ModelProto:
    """The encoder as an ONNX model of the opset asked for, or its own, at least `oldest`."""
    _check_kind(encoder, input_shape)
    if isinstance(encoder, OnnxEncoder):
        encoder = encoder.path
    if isinstance(encoder, ModuleEncoder):
        side = encoder.transform.crop
        encoder, input_shape = Features(encoder), (3, side, side)
    if isinstance(encoder, nn.Module):
        if input_shape is None:
            raise ValueError(
                "input_shape: expected the shape of one input of the encoder, such as "
                "(3, 224, 224); got None"
            )
        return _traced(encoder, tuple(input_shape), opset or oldest)
    if not Path(encoder).is_file():
        raise ValueError(f"encoder: expected an ONNX file; found none at {encoder}")
    return _in_opset(onnx.load(str(encoder)), opset, oldest)


def _check_kind(encoder: Any, input_shape: Sequence[int] | None) -> None:
    if isinstance(encoder, SentenceEncoder):
        raise ValueError(
            f"encoder: expected an encoder of images; got {encoder.name}, which takes texts: ONNX "
            "has no standard operators for tokens, so encoders of texts cannot be exported yet; "
            "export the model without its encoder, and give it embeddings that "
            "sentence-transformers makes"
        )
    if not isinstance(encoder, nn.Module | ModuleEncoder | OnnxEncoder | str | Path):
        raise TypeError(
            "encoder: expected a torch module, the path of an ONNX file, or an encoder of images "
            f"made of one of these; got {type(encoder).__name__}"
        )
    if input_shape is not None and not isinstance(encoder, nn.Module):
        raise ValueError(
            "input_shape: expected None for an ONNX file, which says its own, and for an encoder "
            "of dkvb.embedding, which takes pictures"
        )


def _traced(module: nn.Module, shape: tuple[int, ...], opset: int) -> ModelProto:
    require("onnxscript", "export", "export_onnx of a torch module")
    training, log = module.training, logging.getLogger("torch.onnx")
    level = log.level
    example = torch.zeros((2, *shape), device=next(iter(_tensors(module)), torch.empty(0)).device)
    try:
        with warnings.catch_warnings():
            # What torch and onnxscript say about each other, and about packages not installed.
            warnings.simplefilter("ignore")
            log.setLevel(logging.ERROR)
            program = torch.onnx.export(
                module.eval(),
                (example,),
                input_names=["image"],
                output_names=["features"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                opset_version=opset,
                dynamo=True,
                verbose=False,
            )
    finally:
        module.train(training)
        log.setLevel(level)
    assert program is not None
    return program.model_proto


def _tensors(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


def _in_opset(model: ModelProto, opset: int | None, oldest: int) -> ModelProto:
    own = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    wanted = opset or max(own, oldest)
    if own > wanted:
        raise ValueError(f"opset: expected at least {own}, that of the encoder; got {wanted}")
    return model if own == wanted else version_converter.convert_version(model, wanted)


def joined(encoder: ModelProto, head: GraphProto, width: int, of: Any = None) -> GraphProto:
    """One graph: pictures, the encoder, its only output as the head's embedding, the head.

    `of` is the encoder that the model was made of. Unless it is one of `dkvb.embedding`, whose
    transform is known, the graph takes what the encoder does.
    """
    given = {tensor.name for tensor in encoder.graph.initializer}
    inputs = [value for value in encoder.graph.input if value.name not in given]
    rank = _check_ends(encoder.graph, inputs, width, pooled=isinstance(of, OnnxEncoder))
    known = isinstance(of, ModuleEncoder | OnnxEncoder)
    if known and of.dimension != width:
        raise ValueError(_other_width(width, f"width {of.dimension}"))
    del encoder.graph.value_info[:]  # shapes in between, under the old names
    graph = compose.add_prefix(encoder, PREFIX, rename_inputs=known, inplace=True).graph
    tensors = Tensors("picture/")
    before, after = Nodes("picture/", tensors), Nodes("rows/", tensors)
    last = graph.output[0].name
    if isinstance(of, ModuleEncoder | OnnxEncoder):
        entry = inputs[0].name  # with the prefix
        flip = isinstance(of, OnnxEncoder) and of.views == FLIP  # a module's own graph has it
        add_transform(before, of.transform, "picture/fitted" if flip else entry)
        if flip:
            _add_mirror(before, "picture/fitted", entry)
        inputs = [picture_input(of.transform)]
        if isinstance(of, OnnxEncoder):
            last = _rows(after, last, rank, of.pooling, flip)
    after("Cast", last, name="embedding", to=TensorProto.FLOAT)
    return helper.make_graph(
        [*before.nodes, *graph.node, *after.nodes, *head.node],
        "dkvb",
        inputs,
        head.output,
        [*tensors.protos, *graph.initializer, *head.initializer],
        sparse_initializer=graph.sparse_initializer,
    )


def _add_mirror(add: Nodes, images: str, output: str) -> None:
    """Add mirror images after the images (n, 3, h, w): (2n, 3, h, w)."""
    backwards = add.constant([np.iinfo(np.int64).min], np.int64)
    mirror = add("Slice", images, add.axis(-1), backwards, add.axis(3), add.axis(-1))
    add("Concat", images, mirror, name=output, axis=0)


def _rows(add: Nodes, features: str, rank: int, pooling: str, flip: bool) -> str:
    """Rows (n, m) of an ONNX file's output, pooled, and of both views where there are two."""
    if rank > 2 and pooling == "mean":
        axes = add.constant(list(range(2, rank)), np.int64)
        features = add("ReduceMean", features, axes, keepdims=0)
    elif rank > 2:
        features = add("Flatten", features)
    if flip:
        size = add("Shape", features, start=0, end=1)
        half = add("Div", size, add.constant([2], np.int64))
        parts = (add.axis(0), half), (half, size)
        plain, mirror = (add("Slice", features, *part, add.axis(0)) for part in parts)
        features = add("Mul", add("Add", plain, mirror), add.constant(0.5, np.float32))
    return features


def _check_ends(graph: GraphProto, inputs: list[Any], width: int, pooled: bool) -> int:
    """Raise where the encoder does not lead from any number of inputs to embeddings (n, width), or
    to maps that are `pooled`; return the number of axes of its output."""
    names = [output.name for output in graph.output]
    if len(names) != 1 or len(inputs) != 1:
        raise ValueError(
            f"encoder: expected one input and one output; got inputs "
            f"{[value.name for value in inputs]} and outputs {names}; cut the file to one of each"
        )
    first, last = (value.type.tensor_type.shape.dim for value in (inputs[0], graph.output[0]))
    if (len(last) != 2 or last[1].dim_value not in (0, width)) and not (pooled and len(last) > 2):
        shape = tuple(dim.dim_value or dim.dim_param or "?" for dim in last)
        raise ValueError(_other_width(width, str(shape)))
    if first and first[0].dim_value:
        raise ValueError(
            f"encoder: expected a file for any number of inputs; got one for {first[0].dim_value}; "
            "export the encoder with a dynamic first axis"
        )
    return len(last)


def _other_width(width: int, got: str) -> str:
    return (
        f"encoder: expected embeddings (batch, {width}), the width of the keys; got {got}; "
        "use the encoder that the keys were fitted to, pooled and flattened"
    )
