"""The ONNX graph of a head, node by node.

Built by hand and not traced by `torch.onnx.export`, which unrolls loops: at 256 codebooks that is
thousands of nodes, and nothing in such a file says that one codebook's distances must be gone
before the next's are made. Here one `Loop` runs over codebooks, so that memory is that of one of
them: n·(p + K) float64 numbers beside the tensors of the file, and no n × C × K tensor.

Numbers are stored in float32 or float16 and brought to float64 where they are used: the embedding's
conditioning, its projection and the distances decide which key is nearest, and in float64 that
decision is the classifier's own but for ties (`Head.tie_margin`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from torch import Tensor

from dkvb.export.head import Head, KernelValues
from dkvb.memory.calibration import LOWEST

FLOAT, DOUBLE, HALF = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16
INT64, BOOL = TensorProto.INT64, TensorProto.BOOL
LARGE = 1024  # bytes


class Tensors:
    """The tensors of a graph. Large ones stay outside it as arrays, since no message of protobuf
    may pass 2 GB; whoever writes the file puts them in, or beside it."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix  # of constants, which have no names of their own
        self.protos: list[TensorProto] = []
        self.large: dict[str, NDArray[Any]] = {}

    def add(self, name: str | None, array: NDArray[Any]) -> str:
        name = name or f"{self.prefix}constant_{len(self.protos)}"
        if array.nbytes < LARGE:
            self.protos.append(numpy_helper.from_array(array, name))
        else:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            self.protos.append(TensorProto(name=name, data_type=kind, dims=array.shape))
            self.large[name] = array
        return name


class Nodes:
    """Nodes in the order they compute; every call adds one and returns its output's name."""

    def __init__(self, prefix: str, tensors: Tensors) -> None:
        self.prefix, self.tensors = prefix, tensors
        self.nodes: list[NodeProto] = []

    def __call__(self, op: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        output = name or f"{self.prefix}{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], output, **attributes))
        return output

    def constant(self, number: Any, dtype: Any = np.float64) -> str:
        """A few numbers; those of the loop's body lie outside it, where it can see them."""
        return self.tensors.add(None, np.asarray(number, dtype=dtype))

    def tensor(self, name: str, tensor: Tensor) -> str:
        """A tensor as it is stored."""
        return self.tensors.add(name, tensor.contiguous().numpy())

    def double(self, part: str, unit: float = 1.0) -> str:
        """Some stored numbers, in float64 and their own unit."""
        wide = self("Cast", part, to=DOUBLE)
        return wide if unit == 1.0 else self("Mul", wide, self.constant(unit))

    def axis(self, number: int) -> str:
        """An axis, or one index, as the 1-d tensor that operators take."""
        return self.constant([number], np.int64)


def head_graph(head: Head) -> tuple[GraphProto, dict[str, NDArray[Any]]]:
    """`embedding` (batch, m) float32 → `scores`, `probabilities`, `label` and, of a bottleneck,
    `codes`. Also its large tensors, by name."""
    tensors = Tensors()
    top = Nodes("head/", tensors)
    rows = top("Identity", _conditioned(top, head, "embedding"), name="head/rows")
    body = _Body(top, head)
    batch = top("Shape", "embedding", start=0, end=1)
    zero = top.constant(0.0)
    shape = top("Concat", batch, top.constant([head.n_outputs], np.int64), axis=0)
    carried = [top("Expand", zero, shape)]
    if head.rejection is not None:
        carried.append(top("Expand", zero, batch))
    loop = body.graph(rows)
    results = ["head/pooled", "head/far"][: len(carried)] + ["head/codes"] * body.hard
    count = top.constant(head.n_codebooks, np.int64)
    node = helper.make_node("Loop", [count, "", *carried], results, "head/books", body=loop)
    top.nodes.append(node)
    outputs = _answers(top, head)
    if body.hard:
        top("Transpose", "head/codes", perm=[1, 0], name="codes")
        outputs.append(helper.make_tensor_value_info("codes", INT64, ["batch", head.n_codebooks]))
    source = helper.make_tensor_value_info("embedding", FLOAT, ["batch", head.width])
    graph = helper.make_graph(top.nodes, "dkvb", [source], outputs, tensors.protos)
    return graph, tensors.large


def _conditioned(top: Nodes, head: Head, embedding: str) -> str:
    """Embeddings (n, m) float32 → conditioned rows (n, p) float64."""
    z = top.double(embedding)
    if head.power != 1.0:
        size = top("Abs", z)
        root = (
            top("Sqrt", size) if head.power == 0.5 else top("Pow", size, top.constant(head.power))
        )
        z = top("Mul", top("Sign", z), root)
    if head.normalise:
        squares = top("ReduceSum", top("Mul", z, z), top.axis(1), keepdims=1)
        norm = top("Sqrt", squares)
        positive = top("Greater", norm, top.constant(0.0))
        z = top("Div", z, top("Where", positive, norm, top.constant(1.0)))
    z = top("Sub", z, top.double(top.tensor("centre", head.centre)))
    if head.components is not None:
        components = top.double(
            top.tensor("components", head.components.tensor), head.components.unit
        )
        z = top("MatMul", z, components)
    return z


class _Body:
    """The body of the loop: what one codebook adds to the scores."""

    def __init__(self, top: Nodes, head: Head) -> None:
        self.head, self.add = head, Nodes("book/", top.tensors)
        self.hard = not isinstance(head.read, KernelValues)
        self._keys = top.tensor("keys", head.keys.tensor)
        self._bounds = top.tensor("bounds", head.bounds)
        self._one, self._first = top.constant([1], np.int64), top.axis(0)
        if head.matrices is not None:
            self._matrices = top.tensor("matrices", head.matrices.tensor)
        if head.numbers is not None:
            self._numbers = top.tensor("key_numbers", head.numbers)
        self._table = top.tensor("values", head.read.table.tensor)

    def graph(self, rows: str) -> GraphProto:
        """Inputs: the codebook's number, a condition, the sums so far; outputs: those, codes."""
        add, head = self.add, self.head
        book = add("Unsqueeze", "book", self._first)  # (1,)
        start = add("Gather", self._bounds, book)
        stop = add("Gather", self._bounds, add("Add", book, self._one))
        keys = add.double(add("Slice", self._keys, start, stop, self._first), head.keys.unit)
        heads = self._heads(rows, book)  # (n, d)
        half = add("Mul", add.constant(0.5), self._sum_squares(keys))  # (K,)
        # ½‖k‖² − h·k, which orders keys as L2 distances do
        scores = add("Gemm", heads, keys, half, alpha=-1.0, transB=1, name="book/scores")  # (n, K)
        outputs = [_info("going", BOOL, [])]
        add("Identity", "go", name="going")
        if isinstance(head.read, KernelValues):
            self._kernel(scores, heads, head.read)
        else:
            code = add("ArgMin", scores, axis=1, keepdims=0)  # (n,) the lowest index of equals
            pair = add("Add", code, start)  # (n,)
            if head.numbers is None:
                number = code
            else:
                number = add("Cast", add("Gather", self._numbers, pair), to=INT64)
            fetched = add.double(add("Gather", self._table, pair), head.read.table.unit)
            add("Add", "pooled", fetched, name="pooled_next")
        outputs.append(_info("pooled_next", DOUBLE, ["batch", head.n_outputs]))
        carried = [_info("pooled", DOUBLE, ["batch", head.n_outputs])]
        if head.rejection is not None:
            self._distance(scores, heads, book)
            outputs.append(_info("far_next", DOUBLE, ["batch"]))
            carried.append(_info("far", DOUBLE, ["batch"]))
        if self.hard:
            add("Identity", number, name="code")
            outputs.append(_info("code", INT64, ["batch"]))
        inputs = [_info("book", INT64, []), _info("go", BOOL, []), *carried]
        return helper.make_graph(add.nodes, "codebook", inputs, outputs)

    def _sum_squares(self, vectors: str) -> str:
        """‖·‖² of vectors (r, d): (r,)."""
        add = self.add
        return add("ReduceSum", add("Mul", vectors, vectors), self._one, keepdims=0)

    def _heads(self, rows: str, book: str) -> str:
        add, head = self.add, self.head
        if head.matrices is not None:
            own = add("Squeeze", add("Gather", self._matrices, book), self._first)  # (p, d)
            return add("MatMul", rows, add.double(own, head.matrices.unit))
        if head.projection == "identity":
            return rows
        width = add.constant([head.keys.tensor.shape[1]], np.int64)
        first = add("Mul", book, width)
        return add("Slice", rows, first, add("Add", first, width), self._one)

    def _kernel(self, scores: str, heads: str, read: KernelValues) -> None:
        """Add values weighed by a kernel (n, Y), from ½d² − ½‖h‖² (n, K)."""
        add = self.add
        squares = add("Unsqueeze", self._sum_squares(heads), self._one)  # (n, 1)
        two = add.constant(2.0)
        squared = add("Max", add("Add", add("Mul", two, scores), squares), add.constant(0.0))
        kernel = add("Exp", add("Mul", squared, add.constant(-read.gamma)))
        said = add("MatMul", kernel, add.double(self._table, read.table.unit))
        add("Add", "pooled", said, name="pooled_next")

    def _distance(self, scores: str, heads: str, book: str) -> None:
        """Add d² to the nearest key, in units of the codebook's quantization error."""
        add, rejection = self.add, self.head.rejection
        assert rejection is not None
        lowest = add("ReduceMin", scores, self._one, keepdims=0)
        squared = add("Add", add("Mul", lowest, add.constant(2.0)), self._sum_squares(heads))
        quantization_error = add("Gather", add.constant(rejection.quantization_error.numpy()), book)
        near = add("Div", add("Max", squared, add.constant(0.0)), quantization_error)
        add("Add", "far", near, name="far_next")


def _answers(top: Nodes, head: Head) -> list[ValueInfoProto]:
    """From sums over codebooks to the outputs."""
    scaled = top("Mul", "head/pooled", top.constant(head.scale.numpy()))
    scores = top("Add", scaled, top.constant(head.base.numpy()))  # (n, Y)
    shape: list[int | str] = ["batch", head.n_outputs]
    top("Cast", scores, to=FLOAT, name="scores")
    logits = scores if head.slope is None else _log_softplus(top, head, scores)
    shares = top("Softmax", top("Div", logits, top.constant(head.temperature)), axis=1)
    top("Cast", shares, to=FLOAT, name="probabilities")
    outputs = [_info("scores", FLOAT, shape), _info("probabilities", FLOAT, shape)]
    if head.rejection is None:
        top("ArgMax", scores, axis=1, keepdims=0, name="label")
    else:
        outputs.append(_rejected(top, head, top("ArgMax", scores, axis=1, keepdims=0)))
    return [*outputs, _info("label", INT64, ["batch"])]


def _log_softplus(top: Nodes, head: Head, scores: str) -> str:
    """log softplus(slope · score), −∞ for a class without examples (n, Y)."""
    steep = top("Mul", scores, top.constant(head.slope))
    steep = top("Max", steep, top.constant(LOWEST))
    # log(1 + eˣ) = max(x, 0) + log(1 + e^−|x|), which does not overflow
    small = top("Log", top("Add", top("Exp", top("Neg", top("Abs", steep))), top.constant(1.0)))
    softplus = top("Add", top("Max", steep, top.constant(0.0)), small)
    return top("Add", top("Log", softplus), top.constant(head.base.numpy()))


def _rejected(top: Nodes, head: Head, best: str) -> ValueInfoProto:
    """`label`, −1 where `novelty` is too high."""
    rejection = head.rejection
    assert rejection is not None
    distance = top("Div", "head/far", top.constant(float(head.n_codebooks)))
    distance = top("Unsqueeze", top("Cast", distance, to=FLOAT), top.axis(1))  # (n, 1)
    reference = top.tensor("reference", rejection.reference)
    nearer = top("Cast", top("Less", reference, distance), to=DOUBLE)  # (n, h)
    novelty = top("ReduceMean", nearer, top.axis(1), keepdims=0)
    top("Cast", novelty, to=FLOAT, name="novelty")
    far = top("Greater", novelty, top.constant(rejection.above))
    top("Where", far, top.constant(-1, np.int64), best, name="label")
    return _info("novelty", FLOAT, ["batch"])


def _info(name: str, kind: int, shape: Sequence[int | str]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, list(shape))
