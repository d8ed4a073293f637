"""The inner loop of every search on the CPU: scores of a few heads against panels of keys.

numba vectorises only innermost loops, and then keeps one accumulator a head. A search wants a tile
of several heads × several vectors of keys in registers, so that each loaded number is used often.
This tile is written out here as LLVM vector instructions; everything around it is plain numba. The
key dimension stays a run-time number, so one compilation serves all shapes.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array


def _tile() -> tuple[int, int]:
    """Float32 lanes of a vector register, and how many of them the tile takes a head."""
    features = binding.get_host_cpu_features()
    if features.get("avx512f"):
        return 16, 4
    if features.get("avx"):
        return 8, 2  # only 16 registers: 8 accumulators, 4 minima and the operands
    return 4, 4


LANES, VECTORS = _tile()
HEADS = 4
PANEL = LANES * VECTORS  # keys that are scored together, and contiguous in memory
CACHE_LINE = 16  # float32 numbers
DOUBLES = LANES // 2  # float64 lanes of a vector register

_INDEX = ir.IntType(64)
_FLOAT = ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, LANES)


def _load(builder: Any, base: Any, offset: Any, kind: ir.Type) -> Any:
    pointer = builder.bitcast(builder.gep(base, [offset]), kind.as_pointer())
    return builder.load(pointer, align=4, typ=kind)


def _splat(builder: Any, scalar: Any, lanes: int = LANES) -> Any:
    undefined = ir.Constant(ir.VectorType(scalar.type, lanes), ir.Undefined)
    one = builder.insert_element(undefined, scalar, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
    return builder.shuffle_vector(one, undefined, zeros)


@intrinsic
def score_panels(
    typing_context: Any,
    heads: Any,
    keys: Any,
    bias: Any,
    first: Any,
    last: Any,
    scores: Any,
    lowest: Any,
) -> Any:
    """Score HEADS heads against panels first … last − 1: score = bias + head · key.

    heads (d, HEADS) negated by the caller, keys (panels, d, PANEL), bias (panels, PANEL), all
    float32 and contiguous. Writes scores (HEADS, at least (last − first) · PANEL) and lowest
    (HEADS,), the lowest score of each head; +inf in `bias` is fine, NaN is not.
    """
    signature = types.void(heads, keys, bias, types.int64, types.int64, scores, lowest)
    return signature, _scoring(ahead=False)


@intrinsic
def score_panels_ahead(
    typing_context: Any,
    heads: Any,
    keys: Any,
    bias: Any,
    first: Any,
    last: Any,
    scores: Any,
    lowest: Any,
) -> Any:
    """`score_panels` for keys that are read from memory: meanwhile it fetches the next panel."""
    signature = types.void(heads, keys, bias, types.int64, types.int64, scores, lowest)
    return signature, _scoring(ahead=True)


def _scoring(ahead: bool) -> Any:
    """What generates the instructions of `score_panels`."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        def array(position: int) -> Any:
            return make_array(sig.args[position])(context, builder, args[position])

        def times(a: Any, b: int) -> Any:
            return builder.mul(a, _INDEX(b))

        head_data, key_data, bias_data = array(0).data, array(1).data, array(2).data
        out, lowest_data = array(5), array(6).data
        depth = builder.extract_value(array(0).shape, 0)
        row_length = builder.extract_value(out.shape, 1)
        first_panel, last_panel = args[3], args[4]
        fma = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), f"llvm.fmuladd.v{LANES}f32"
        )
        address, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        fetch = builder.module.declare_intrinsic(
            "llvm.prefetch", [address], ir.FunctionType(ir.VoidType(), [address, *[flag] * 3])
        )
        tile = [(h, v) for h in range(HEADS) for v in range(VECTORS)]

        before = builder.block
        panels = builder.append_basic_block("panels")
        depths = builder.append_basic_block("depths")
        store = builder.append_basic_block("store")
        finish = builder.append_basic_block("finish")
        builder.branch(panels)

        builder.position_at_end(panels)
        panel = builder.phi(_INDEX)
        minima = [builder.phi(_VECTOR) for _ in range(HEADS)]
        panel.add_incoming(first_panel, before)
        for minimum in minima:
            minimum.add_incoming(ir.Constant(_VECTOR, [float("inf")] * LANES), before)
        bias_at = times(panel, PANEL)
        biases = [
            _load(builder, bias_data, builder.add(bias_at, _INDEX(v * LANES)), _VECTOR)
            for v in range(VECTORS)
        ]
        keys_at = builder.mul(bias_at, depth)
        builder.branch(depths)

        builder.position_at_end(depths)
        j = builder.phi(_INDEX)
        j.add_incoming(_INDEX(0), panels)
        sums = {}
        for h, v in tile:
            sums[h, v] = builder.phi(_VECTOR)
            sums[h, v].add_incoming(biases[v], panels)
        row_at = builder.add(keys_at, times(j, PANEL))
        row = [
            _load(builder, key_data, builder.add(row_at, _INDEX(v * LANES)), _VECTOR)
            for v in range(VECTORS)
        ]
        totals = {}
        for h in range(HEADS):
            at = builder.add(times(j, HEADS), _INDEX(h))
            head = _splat(builder, _load(builder, head_data, at, _FLOAT))
            for v in range(VECTORS):
                totals[h, v] = builder.call(fma, [head, row[v], sums[h, v]])
        if ahead:  # the same row of the next panel, into the second cache
            next_at = builder.add(row_at, times(depth, PANEL))
            for offset in range(0, PANEL, CACHE_LINE):
                at = builder.gep(key_data, [builder.add(next_at, _INDEX(offset))])
                builder.call(fetch, [builder.bitcast(at, address), *map(flag, (0, 2, 1))])
        following = builder.add(j, _INDEX(1))
        j.add_incoming(following, depths)
        for at in tile:
            sums[at].add_incoming(totals[at], depths)
        builder.cbranch(builder.icmp_signed("<", following, depth), depths, store)

        builder.position_at_end(store)
        column = times(builder.sub(panel, first_panel), PANEL)
        lower = list(minima)
        for h, v in tile:
            at = builder.add(
                builder.mul(row_length, _INDEX(h)), builder.add(column, _INDEX(v * LANES))
            )
            place = builder.bitcast(builder.gep(out.data, [at]), _VECTOR.as_pointer())
            builder.store(totals[h, v], place, align=4)
            less = builder.fcmp_ordered("<", totals[h, v], lower[h], flags=("nnan", "nsz"))
            lower[h] = builder.select(less, totals[h, v], lower[h])
        next_panel = builder.add(panel, _INDEX(1))
        panel.add_incoming(next_panel, store)
        for h in range(HEADS):
            minima[h].add_incoming(lower[h], store)
        builder.cbranch(builder.icmp_signed("<", next_panel, last_panel), panels, finish)

        builder.position_at_end(finish)
        reduce = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(_FLOAT, [_VECTOR]),
            f"llvm.vector.reduce.fmin.v{LANES}f32",
        )
        for h in range(HEADS):
            value = builder.call(reduce, [lower[h]], fastmath=("nnan", "nsz"))
            builder.store(value, builder.gep(lowest_data, [_INDEX(h)]))
        return context.get_dummy_value()

    return generate


@intrinsic
def sum_columns(
    typing_context: Any, rows: Any, picked: Any, matrix: Any, first: Any, second: Any, sums: Any
) -> Any:
    """Columns first … first + DOUBLES − 1 and second … second + DOUBLES − 1 of the products of
    HEADS rows with a matrix, in float64: sums[h] = rows[picked[h]] · matrix.

    rows (n, p) and sums (HEADS, d) are float64, picked (HEADS,) int64, matrix (p, d) float32 or
    float64, all contiguous; p is at least 1. Products are added in the order of the matrix's rows.
    """
    signature = types.void(rows, picked, matrix, types.int64, types.int64, sums)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        row_array, places, table, out = (
            make_array(sig.args[at])(context, builder, args[at]) for at in (0, 1, 2, 5)
        )
        width, stride = (builder.extract_value(table.shape, at) for at in (0, 1))
        wide, narrow = ir.VectorType(ir.DoubleType(), DOUBLES), ir.VectorType(_FLOAT, DOUBLES)
        fma = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(wide, [wide] * 3), f"llvm.fmuladd.v{DOUBLES}f64"
        )
        begins = []
        for h in range(HEADS):
            place = builder.load(builder.gep(places.data, [_INDEX(h)]))
            begins.append(builder.gep(row_array.data, [builder.mul(place, width)]))
        tile = [(h, v) for h in range(HEADS) for v in range(2)]
        before, inside = builder.block, builder.append_basic_block("inside")
        finish = builder.append_basic_block("finish")
        builder.branch(inside)

        builder.position_at_end(inside)
        row = builder.phi(_INDEX)
        row.add_incoming(_INDEX(0), before)
        totals = {at: builder.phi(wide) for at in tile}
        columns = []
        for column in args[3:5]:
            at = builder.add(builder.mul(row, stride), column)
            if sig.args[2].dtype == types.float64:
                columns.append(_load(builder, table.data, at, wide))
            else:
                columns.append(builder.fpext(_load(builder, table.data, at, narrow), wide))
        results = {}
        for h in range(HEADS):
            factor = _splat(builder, builder.load(builder.gep(begins[h], [row])), DOUBLES)
            for v in range(2):
                results[h, v] = builder.call(fma, [factor, columns[v], totals[h, v]])
        following = builder.add(row, _INDEX(1))
        row.add_incoming(following, inside)
        for at in tile:
            totals[at].add_incoming(ir.Constant(wide, [0.0] * DOUBLES), before)
            totals[at].add_incoming(results[at], inside)
        builder.cbranch(builder.icmp_signed("<", following, width), inside, finish)

        builder.position_at_end(finish)
        for h, v in tile:
            at = builder.add(builder.mul(stride, _INDEX(h)), args[3 + v])
            place = builder.bitcast(builder.gep(out.data, [at]), wide.as_pointer())
            builder.store(results[h, v], place, align=8)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def up_to(typing_context: Any, scores: Any, head: Any, column: Any, limit: Any) -> Any:
    """The set of k in 0 … PANEL − 1 with scores[head, column + k] ≤ limit, as bits of an int64."""
    signature = types.int64(scores, types.int64, types.int64, types.float32)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        array = make_array(sig.args[0])(context, builder, args[0])
        row_length = builder.extract_value(array.shape, 1)
        start = builder.add(builder.mul(row_length, args[1]), args[2])
        limits = _splat(builder, args[3])
        bits = _INDEX(0)
        for v in range(VECTORS):
            vector = _load(builder, array.data, builder.add(start, _INDEX(v * LANES)), _VECTOR)
            less = builder.fcmp_ordered("<=", vector, limits)
            part = builder.zext(builder.bitcast(less, ir.IntType(LANES)), _INDEX)
            bits = builder.or_(bits, builder.shl(part, _INDEX(v * LANES)))
        return bits

    return signature, generate


@intrinsic
def first_bit(typing_context: Any, bits: Any) -> Any:
    """The position of the lowest bit that is set; `bits` is not 0."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.int64(types.int64), generate


def emit_prefetch(builder: Any, pointer: Any, locality: int) -> None:
    """Emit an instruction that asks for the cache line of a pointer; locality 3: to the first-level
    cache, 2: to the second."""
    address, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    fetch = builder.module.declare_intrinsic(
        "llvm.prefetch", [address], ir.FunctionType(ir.VoidType(), [address, *[flag] * 3])
    )
    builder.call(fetch, [builder.bitcast(pointer, address), *map(flag, (0, locality, 1))])


@intrinsic
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of array.flat[index], which is not waited for; array is contiguous."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = make_array(sig.args[0])(context, builder, args[0]).data
        emit_prefetch(builder, builder.gep(data, [args[1]]), locality=2)
        return context.get_dummy_value()

    return types.void(array, types.int64), generate
