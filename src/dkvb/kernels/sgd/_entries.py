"""Reading and changing the values of one row's pairs: the inner loops of `descend` on the CPU.

Every pair lies on another cache line, so time goes into waiting for memory. The loops are written
out as LLVM vector instructions to hold an entry in registers and to ask for the entries of a later
row while the present one is summed. There is a loop for each number of columns up to a
cache line's and one for four lines, so that one compilation serves any number of classes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from dkvb.kernels._numba import compiled
from dkvb.kernels._simd import emit_prefetch

LINE = 16  # float32 numbers in a cache line
LINES = 4 * LINE
BOOKS = 32  # codebooks of a block
SECOND = 2  # the cache level to fetch to: measured to be faster than the first
AHEAD = 4  # rows between asking memory for an entry and using it

_INDEX = ir.IntType(64)


class _Entries:
    """Emits loops over rows and codebooks that visit the entries of each row."""

    def __init__(self, context: Any, builder: Any, sig: Any, args: Any) -> None:
        self.builder = builder
        self.values = make_array(sig.args[0])(context, builder, args[0])
        self.codes = make_array(sig.args[1])(context, builder, args[1])
        self.signed = sig.args[1].dtype.signed
        self.n_rows, self.column = args[2:4]
        self.rows = make_array(sig.args[4])(context, builder, args[4])  # of sums or of changes

    def at(self, row: Any, codebook: Any) -> Any:
        """Where values[codebook, codes[row, codebook], column] lies."""
        builder = self.builder
        _, n_pairs, stride = cgutils.unpack_tuple(builder, self.values.shape, 3)
        width = builder.extract_value(self.codes.shape, 1)
        place = builder.add(builder.mul(row, width), codebook)
        code = builder.load(builder.gep(self.codes.data, [place]))
        if code.type != _INDEX:
            code = builder.sext(code, _INDEX) if self.signed else builder.zext(code, _INDEX)
        entry = builder.mul(builder.add(builder.mul(codebook, n_pairs), code), stride)
        return builder.gep(self.values.data, [builder.add(entry, self.column)])

    def other(self, row: Any) -> Any:
        """Where the sums or changes of a row lie, from the column on."""
        stride = self.builder.extract_value(self.rows.shape, 1)
        place = self.builder.add(self.builder.mul(row, stride), self.column)
        return self.builder.gep(self.rows.data, [place])

    def load(self, pointer: Any, width: int) -> Any:
        kind = ir.VectorType(ir.FloatType(), width)
        return self.builder.load(
            self.builder.bitcast(pointer, kind.as_pointer()), align=4, typ=kind
        )

    def store(self, vector: Any, pointer: Any) -> None:
        pointer = self.builder.bitcast(pointer, vector.type.as_pointer())
        self.builder.store(vector, pointer, align=4)

    def fetch(self, row: Any, codebook: Any, width: int) -> None:
        """Ask for the entry of a later row."""
        builder = self.builder
        later = builder.add(row, _INDEX(AHEAD))
        final = builder.sub(self.n_rows, _INDEX(1))
        later = builder.select(builder.icmp_signed("<", later, final), later, final)
        start = self.at(later, codebook)
        columns = list(range(0, width, LINE))
        if LINE % width and width % LINE:
            columns.append(width - 1)  # may lie on the next line
        for column in columns:
            emit_prefetch(builder, builder.gep(start, [_INDEX(column)]), SECOND)

    def loop(self, length: Any, carried: Any, body: Callable[[Any, Any], Any]) -> Any:
        """Emit a loop 0 … length − 1, at least one; body(i, carried) returns what to carry on."""
        builder, before = self.builder, self.builder.block
        inside, after = builder.append_basic_block("inside"), builder.append_basic_block("after")
        builder.branch(inside)
        builder.position_at_end(inside)
        i, kept = builder.phi(_INDEX), builder.phi(carried.type)
        i.add_incoming(_INDEX(0), before)
        kept.add_incoming(carried, before)
        result = body(i, kept)
        following = builder.add(i, _INDEX(1))
        i.add_incoming(following, builder.block)  # the body may hold a loop of its own
        kept.add_incoming(result, builder.block)
        builder.cbranch(builder.icmp_signed("<", following, length), inside, after)
        builder.position_at_end(after)
        return result

    def visit(self, row_body: Callable[[Any, Any], None]) -> None:
        """Emit the loop over rows; row_body(row, loop over codebooks)."""
        n_codebooks = self.builder.extract_value(self.values.shape, 0)

        def body(row: Any, kept: Any) -> Any:
            row_body(row, partial(self.loop, n_codebooks))
            return kept

        self.loop(self.n_rows, _INDEX(0), body)

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
    return types.int64(values, codes, types.int64, types.int64, rows)


@intrinsic
def _read(typing_context: Any, values: Any, codes: Any, n_rows: Any, column: Any, sums: Any) -> Any:
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        entries = _Entries(context, builder, sig, args)

        def emit(width: int) -> None:
            def row_body(row: Any, books: Any) -> None:
                def body(codebook: Any, total: Any) -> Any:
                    entry = entries.load(entries.at(row, codebook), width)
                    entries.fetch(row, codebook, width)
                    return builder.fadd(total, entry)

                zeros = ir.Constant(ir.VectorType(ir.FloatType(), width), [0.0] * width)
                entries.store(books(zeros, body), entries.other(row))

            entries.visit(row_body)

        return entries.for_width(emit)

    return _signature(values, codes, sums), generate


@intrinsic
def _add(
    typing_context: Any, values: Any, codes: Any, n_rows: Any, column: Any, changes: Any
) -> Any:
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        entries = _Entries(context, builder, sig, args)

        def emit(width: int) -> None:
            def row_body(row: Any, books: Any) -> None:
                def body(codebook: Any, change: Any) -> Any:
                    at = entries.at(row, codebook)
                    entries.store(builder.fadd(entries.load(at, width), change), at)
                    entries.fetch(row, codebook, width)
                    return change

                books(entries.load(entries.other(row), width), body)

            entries.visit(row_body)

        return entries.for_width(emit)

    return _signature(values, codes, changes), generate


@intrinsic
def copy_codes(
    typing_context: Any,
    codes: Any,
    row: Any,
    later: Any,
    first: Any,
    books: Any,
    target: Any,
    position: Any,
) -> Any:
    """target[position, :] = codes[row, first : first + books], for at most as many as it holds;
    `later` is a row that will be copied soon."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        source = make_array(sig.args[0])(context, builder, args[0])
        block = make_array(sig.args[5])(context, builder, args[5])
        this, next_one, start, length, _, to = args[1:]
        width = builder.extract_value(source.shape, 1)
        source_at = builder.gep(source.data, [builder.add(builder.mul(this, width), start)])
        later_at = builder.gep(source.data, [builder.add(builder.mul(next_one, width), start)])
        emit_prefetch(builder, later_at, SECOND)
        target_at = builder.gep(block.data, [builder.mul(to, _INDEX(BOOKS))])
        itemsize = sig.args[0].dtype.bitwidth // 8
        full = builder.icmp_signed("==", length, _INDEX(BOOKS))
        # A length that is known becomes one or two vector instructions.
        with builder.if_else(full) as (then, otherwise):
            with then:
                cgutils.raw_memcpy(builder, target_at, source_at, _INDEX(BOOKS), itemsize)
            with otherwise:
                cgutils.raw_memcpy(builder, target_at, source_at, length, itemsize)
        return context.get_dummy_value()

    return types.void(codes, *[types.int64] * 4, target, types.int64), generate


@partial(compiled, in_order=True)  # the same for every width, or padding would change results
def read_entries(values: Any, codes: Any, n_rows: int, sums: Any) -> None:
    """sums[i, :] = the sum of values[c, codes[i, c], :] over codebooks c, for rows i < n_rows.

    values (C, K, Y), codes (n, at least C), sums (n, at least Y); at least one row.
    """
    column = 0
    while column < values.shape[2]:
        column += _read(values, codes, n_rows, column, sums)


@partial(compiled, in_order=True)
def add_entries(values: Any, codes: Any, n_rows: int, changes: Any) -> None:
    """values[c, codes[i, c], :] += changes[i, :] for all codebooks c, rows i < n_rows in order."""
    column = 0
    while column < values.shape[2]:
        column += _add(values, codes, n_rows, column, changes)
