"""Reading and changing the values of one row's pairs: the inner loops of `descend` on the CPU.

Every pair lies on another cache line, so time goes into waiting for memory. The loops are written
out as LLVM vector instructions to hold an entry in registers and to ask for the entries of a later
row (`ahead`) while the present one is summed. There is a loop for each number of columns up to a
cache line's and one for four lines, so that one compilation serves any number of classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from dkvb.kernels._numba import compiled

LINE = 16  # float32 numbers in a cache line
LINES = 4 * LINE

_BYTE = ir.IntType(8).as_pointer()
_FLAG = ir.IntType(32)
_INDEX = ir.IntType(64)


class _Entries:
    """Emits a loop over codebooks first … last − 1 that visits the entries of `row`."""

    def __init__(self, context: Any, builder: Any, sig: Any, args: Any) -> None:
        self.builder = builder
        self.values = make_array(sig.args[0])(context, builder, args[0])
        self.codes = make_array(sig.args[1])(context, builder, args[1])
        self.signed = sig.args[1].dtype.signed
        self.row, self.ahead, self.first, self.last, self.column = args[2:7]
        rows = make_array(sig.args[7])(context, builder, args[7])
        stride = builder.extract_value(rows.shape, 1)
        place = builder.add(builder.mul(args[8], stride), self.column)
        self.other = builder.gep(rows.data, [place])  # where the row of sums or of changes lies

    def at(self, row: Any, codebook: Any) -> Any:
        """Where values[codebook, codes[row, codebook], column] lies."""
        builder = self.builder
        _, n_pairs, stride = cgutils.unpack_tuple(builder, self.values.shape, 3)
        _, n_codebooks = cgutils.unpack_tuple(builder, self.codes.shape, 2)
        place = builder.add(builder.mul(row, n_codebooks), codebook)
        code = builder.load(builder.gep(self.codes.data, [place]))
        if code.type != _INDEX:
            code = builder.sext(code, _INDEX) if self.signed else builder.zext(code, _INDEX)
        entry = builder.mul(builder.add(builder.mul(codebook, n_pairs), code), stride)
        return builder.gep(self.values.data, [builder.add(entry, self.column)])

    def load(self, pointer: Any, width: int) -> Any:
        kind = ir.VectorType(ir.FloatType(), width)
        return self.builder.load(
            self.builder.bitcast(pointer, kind.as_pointer()), align=4, typ=kind
        )

    def store(self, vector: Any, pointer: Any) -> None:
        pointer = self.builder.bitcast(pointer, vector.type.as_pointer())
        self.builder.store(vector, pointer, align=4)

    def fetch(self, codebook: Any, width: int, write: bool) -> None:
        """Ask for the entry of the row ahead."""
        builder = self.builder
        prefetch = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [_BYTE, _FLAG, _FLAG, _FLAG]),
            "llvm.prefetch.p0",
        )
        start = self.at(self.ahead, codebook)
        for column in sorted({*range(0, width, LINE), width - 1}):  # the last may cross a line
            line = builder.bitcast(builder.gep(start, [_INDEX(column)]), _BYTE)
            builder.call(prefetch, [line, _FLAG(int(write)), _FLAG(3), _FLAG(1)])

    def loop(self, start: Any, body: Callable[[Any, Any], Any]) -> Any:
        """Emit the loop; body(codebook, carried vector) returns the vector to carry on."""
        builder, before = self.builder, self.builder.block
        inside, after = builder.append_basic_block("books"), builder.append_basic_block("after")
        builder.branch(inside)
        builder.position_at_end(inside)
        codebook, carried = builder.phi(_INDEX), builder.phi(start.type)
        codebook.add_incoming(self.first, before)
        carried.add_incoming(start, before)
        result = body(codebook, carried)
        following = builder.add(codebook, _INDEX(1))
        codebook.add_incoming(following, inside)
        carried.add_incoming(result, inside)
        builder.cbranch(builder.icmp_signed("<", following, self.last), inside, after)
        builder.position_at_end(after)
        return result

    def for_width(self, emit: Callable[[int], None]) -> Any:
        """Emit `emit` for each width, choose by the columns that are left, return the width."""
        builder = self.builder
        left = builder.sub(builder.extract_value(self.values.shape, 2), self.column)
        width = left
        for limit in (LINE, LINES):
            wide = builder.icmp_signed(">=", left, _INDEX(limit))
            width = builder.select(wide, _INDEX(limit), width)
        done = builder.append_basic_block("done")
        choice = builder.switch(width, done)
        for case in (*range(1, LINE + 1), LINES):
            block = builder.append_basic_block(f"width{case}")
            choice.add_case(_INDEX(case), block)
            builder.position_at_end(block)
            emit(case)
            builder.branch(done)
        builder.position_at_end(done)
        return width


def _signature(values: Any, codes: Any, rows: Any) -> Any:
    return types.int64(values, codes, *[types.int64] * 5, rows, types.int64)


@intrinsic
def _read(
    typing_context: Any,
    values: Any,
    codes: Any,
    row: Any,
    ahead: Any,
    first: Any,
    last: Any,
    column: Any,
    sums: Any,
    position: Any,
) -> Any:
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        entries = _Entries(context, builder, sig, args)

        def emit(width: int) -> None:
            def body(codebook: Any, total: Any) -> Any:
                entry = entries.load(entries.at(entries.row, codebook), width)
                entries.fetch(codebook, width, write=False)
                return builder.fadd(total, entry)

            zeros = ir.Constant(ir.VectorType(ir.FloatType(), width), [0.0] * width)
            entries.store(entries.loop(zeros, body), entries.other)

        return entries.for_width(emit)

    return _signature(values, codes, sums), generate


@intrinsic
def _add(
    typing_context: Any,
    values: Any,
    codes: Any,
    row: Any,
    ahead: Any,
    first: Any,
    last: Any,
    column: Any,
    changes: Any,
    position: Any,
) -> Any:
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        entries = _Entries(context, builder, sig, args)

        def emit(width: int) -> None:
            def body(codebook: Any, change: Any) -> Any:
                at = entries.at(entries.row, codebook)
                entries.store(builder.fadd(entries.load(at, width), change), at)
                entries.fetch(codebook, width, write=True)
                return change

            entries.loop(entries.load(entries.other, width), body)

        return entries.for_width(emit)

    return _signature(values, codes, changes), generate


@compiled
def read_entries(
    values: Any, codes: Any, row: int, ahead: int, first: int, last: int, sums: Any, position: int
) -> None:
    """sums[position, :] = the sum of values[c, codes[row, c], :] over codebooks first … last − 1.

    values (C, K, Y), codes (n, C), sums (…, at least Y).
    """
    column = 0
    while column < values.shape[2]:
        column += _read(values, codes, row, ahead, first, last, column, sums, position)


@compiled
def add_entries(
    values: Any,
    codes: Any,
    row: int,
    ahead: int,
    first: int,
    last: int,
    changes: Any,
    position: int,
) -> None:
    """values[c, codes[row, c], :] += changes[position, :] for codebooks first … last − 1."""
    column = 0
    while column < values.shape[2]:
        column += _add(values, codes, row, ahead, first, last, column, changes, position)
