"""An encoder's ONNX graph, from a torch module or a file, with a head after it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import GraphProto, ModelProto, TensorProto, compose, helper, version_converter
from torch import Tensor, nn

from dkvb._support.optional import require
from dkvb.embedding.encoders.encoder import ModuleEncoder

PREFIX = "encoder/"  # of all names but those of inputs, so that none meets a name of the head


class _Features(nn.Module):
    """An encoder of `dkvb.embedding` from transformed images to embeddings, as one module."""

    def __init__(self, encoder: ModuleEncoder) -> None:
        super().__init__()
        self.module, self.features = encoder.module, encoder._features

    def forward(self, image: Tensor) -> Tensor:
        return self.features(image).float()


def encoder_model(
    encoder: Any, input_shape: Sequence[int] | None, opset: int | None, oldest: int
) -> ModelProto:
    """The encoder as an ONNX model of the opset asked for, or its own, at least `oldest`."""
    if isinstance(encoder, ModuleEncoder):
        side = encoder.transform.crop
        encoder, input_shape = _Features(encoder), (3, side, side)
    if isinstance(encoder, nn.Module):
        if input_shape is None:
            raise ValueError(
                "input_shape: expected the shape of one input of the encoder, such as "
                "(3, 224, 224); got None"
            )
        return _traced(encoder, tuple(input_shape), opset or oldest)
    if not isinstance(encoder, str | Path):
        raise TypeError(
            "encoder: expected a torch module, the path of an ONNX file, or an encoder made of a "
            f"torch module; got {type(encoder).__name__}"
        )
    if input_shape is not None:
        raise ValueError("input_shape: expected None for an ONNX file, which says its own")
    if not Path(encoder).is_file():
        raise ValueError(f"encoder: expected an ONNX file; found none at {encoder}")
    return _in_opset(onnx.load(str(encoder)), opset, oldest)


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


def joined(encoder: ModelProto, head: GraphProto, width: int) -> GraphProto:
    """One graph: the encoder's inputs, its only output as the head's embedding, the head's
    outputs."""
    given = {tensor.name for tensor in encoder.graph.initializer}
    inputs = [value for value in encoder.graph.input if value.name not in given]
    _check_ends(encoder.graph, inputs, width)
    del encoder.graph.value_info[:]  # shapes in between, under the old names
    graph = compose.add_prefix(encoder, PREFIX, rename_inputs=False, inplace=True).graph
    last = graph.output[0].name
    bridge = helper.make_node("Cast", [last], ["embedding"], "embedding", to=TensorProto.FLOAT)
    return helper.make_graph(
        [*graph.node, bridge, *head.node],
        "dkvb",
        [value for value in graph.input if value.name in {known.name for known in inputs}],
        head.output,
        [*graph.initializer, *head.initializer],
        sparse_initializer=graph.sparse_initializer,
    )


def _check_ends(graph: GraphProto, inputs: list[Any], width: int) -> None:
    """Raise where the encoder does not lead from any number of inputs to embeddings (n, width)."""
    names = [output.name for output in graph.output]
    if len(names) != 1 or len(inputs) != 1:
        raise ValueError(
            f"encoder: expected one input and one output; got inputs "
            f"{[value.name for value in inputs]} and outputs {names}; cut the file to one of each"
        )
    first, last = (value.type.tensor_type.shape.dim for value in (inputs[0], graph.output[0]))
    if len(last) != 2 or last[1].dim_value not in (0, width):
        shape = tuple(dim.dim_value or dim.dim_param or "?" for dim in last)
        raise ValueError(
            f"encoder: expected embeddings (batch, {width}), the width of the keys; got {shape}; "
            "use the encoder that the keys were fitted to, pooled and flattened"
        )
    if first and first[0].dim_value:
        raise ValueError(
            f"encoder: expected a file for any number of inputs; got one for {first[0].dim_value}; "
            "export the encoder with a dynamic first axis"
        )
