"""Ordered products of a block of columns held in registers: the inner loops of `kernels.matmul`, written as vector code.

One block is C neighbouring columns of a tile; every column is a SIMD lane with its own sum, k ascends for all of them, and each
term is one multiplication and one addition (numerics rows 7 to 9). A loop over k that LLVM builds from scalar code keeps its sums
in memory, which costs more than the arithmetic where columns are few.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ticktrue.kernels.vectors import data, from_bf16, from_e4m3, splat

_F32, _I64 = ir.FloatType(), ir.IntType(64)
LINE, READ, NEAR, DATA = 64, 0, 2, 1

Vector = Any  # an llvmlite value; the library has no types
Convert = Callable[[Any, Any, int], Any]


def _load(builder: ir.IRBuilder, base: ir.Value, at: ir.Value, count: int) -> Vector:
    """`count` neighbouring elements from index `at` on, wherever they lie."""
    element = base.type.pointee
    pointer = builder.bitcast(builder.gep(base, [at]), ir.VectorType(element, count).as_pointer())
    return builder.load(pointer, align=element.width // 8 if isinstance(element, ir.IntType) else 4)


def _as_it_is(_builder: ir.IRBuilder, raw: ir.Value, _count: int) -> Vector:
    return raw


def _counted(
    builder: ir.IRBuilder, count: ir.Value, sums: list[Vector], body: Callable[..., list[Vector]]
) -> list[Vector]:
    """A loop k = 0 .. count - 1 that carries `sums`; body(k, sums) gives the next ones."""
    entry, head = builder.block, builder.append_basic_block("k")
    inside, done = builder.append_basic_block("term"), builder.append_basic_block("summed")
    builder.branch(head)
    builder.position_at_end(head)
    k = builder.phi(_I64)
    k.add_incoming(ir.Constant(_I64, 0), entry)
    carried = []
    for start in sums:
        phi = builder.phi(start.type)
        phi.add_incoming(start, entry)
        carried.append(phi)
    builder.cbranch(builder.icmp_signed("<", k, count), inside, done)
    builder.position_at_end(inside)
    after = body(k, carried)
    k.add_incoming(builder.add(k, ir.Constant(_I64, 1)), builder.block)
    for phi, value in zip(carried, after, strict=True):
        phi.add_incoming(value, builder.block)
    builder.branch(head)
    builder.position_at_end(done)
    return carried


def _fetch(builder: ir.IRBuilder, base: ir.Value, at: ir.Value, count: int) -> None:
    """Asks for the cache lines of `count` neighbouring elements from index `at` on; any address may be asked for."""
    byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
    ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    size = base.type.pointee.width // 8 if isinstance(base.type.pointee, ir.IntType) else 4
    for first in range(0, count, LINE // size):
        where = builder.gep(base, [builder.add(at, ir.Constant(_I64, first))])
        builder.call(ask, [builder.bitcast(where, byte), *(number(n) for n in (READ, NEAR, DATA))])


@intrinsic
def fetch(_typing, tile, at, stride, rows, columns):
    """(tile, at, stride, rows, columns): asks for every cache line of some neighbouring columns of a tile, row by row."""

    def generate(context, builder, signature, arguments):
        base = data(context, builder, signature.args[0], arguments[0])
        _, first, step, count, width = arguments
        element = base.type.pointee
        lane = ir.Constant(_I64, LINE * 8 // (element.width if isinstance(element, ir.IntType) else 32))
        with cgutils.for_range(builder, count) as row:
            begin = builder.add(first, builder.mul(row.index, step))
            last = builder.add(begin, builder.sub(width, ir.Constant(_I64, 1)))
            with cgutils.for_range_slice(builder, begin, last, lane) as (line, _):
                _fetch(builder, base, line, 1)
            _fetch(builder, base, last, 1)
        return context.get_dummy_value()

    return types.void(tile, at, stride, rows, columns), generate


_CONVERTED: dict[types.Type, Convert] = {
    types.uint16: from_bf16,
    types.int8: from_e4m3,
    types.float32: _as_it_is,
}


def _float_block(columns: int, events: int) -> Any:
    """An intrinsic (tile, at, stride, rows, pool, x, sx, o, so, ahead): `events` sums of each of `columns` columns.

    pool[o + e so + c] = sum over k of pool[x + e sx + k] * tile[at + k stride + c], from +0. A tile of uint16 holds bf16, of int8
    e4m3. The same elements `ahead` further on are asked for meanwhile, for the tile that comes next.
    """

    @intrinsic
    def block(_typing, tile, at, stride, rows, pool, x, sx, o, so, ahead):
        convert = _CONVERTED[tile.dtype]

        def generate(context, builder, signature, arguments):
            tile_data = data(context, builder, signature.args[0], arguments[0])
            pool_data = data(context, builder, signature.args[4], arguments[4])
            _, first, step, count, _, x0, sx0, o0, so0, next_ = arguments
            xs = [builder.add(x0, builder.mul(sx0, ir.Constant(_I64, e))) for e in range(events)]
            zero = ir.Constant(ir.VectorType(_F32, columns), [0.0] * columns)

            def term(k, sums):
                here = builder.add(first, builder.mul(k, step))
                _fetch(builder, tile_data, builder.add(here, next_), columns)
                w = _load(builder, tile_data, here, columns)
                w = convert(builder, w, columns)
                out = []
                for at_x, total in zip(xs, sums, strict=True):
                    value = builder.load(builder.gep(pool_data, [builder.add(at_x, k)]))
                    out.append(builder.fadd(total, builder.fmul(splat(builder, value, columns), w)))
                return out

            for e, total in enumerate(_counted(builder, count, [zero] * events, term)):
                to = builder.gep(pool_data, [builder.add(o0, builder.mul(so0, ir.Constant(_I64, e)))])
                builder.store(total, builder.bitcast(to, total.type.as_pointer()), align=4)
            return context.get_dummy_value()

        return types.void(tile, at, stride, rows, pool, x, sx, o, so, ahead), generate

    return block


def _int8_block(columns: int, events: int) -> Any:
    """As `_float_block` for int8: xs int16 values [event][row], k in pairs whose products are added in 16 bits (row 8).

    (tile, at, stride, pairs, xs, x, sx, pool, o, so, ahead); `pairs` of rows are taken, the tile and xs have that many.
    """
    narrow, wide = ir.VectorType(ir.IntType(16), columns), ir.VectorType(ir.IntType(32), columns)

    @intrinsic
    def block(_typing, tile, at, stride, pairs, xs, x, sx, pool, o, so, ahead):
        def generate(context, builder, signature, arguments):
            tile_data = data(context, builder, signature.args[0], arguments[0])
            x_data = data(context, builder, signature.args[4], arguments[4])
            pool_data = data(context, builder, signature.args[7], arguments[7])
            _, first, step, count, _, x0, sx0, _, o0, so0, next_ = arguments
            starts = [builder.add(x0, builder.mul(sx0, ir.Constant(_I64, e))) for e in range(events)]

            def term(pair, sums):
                k = builder.mul(pair, ir.Constant(_I64, 2))
                rows = []
                for i in range(2):
                    here = builder.add(first, builder.mul(builder.add(k, ir.Constant(_I64, i)), step))
                    _fetch(builder, tile_data, builder.add(here, next_), columns)
                    rows.append(builder.sext(_load(builder, tile_data, here, columns), narrow))
                out = []
                for start, total in zip(starts, sums, strict=True):
                    both = None
                    for i in range(2):
                        at_x = builder.add(start, builder.add(k, ir.Constant(_I64, i)))
                        value = splat(builder, builder.load(builder.gep(x_data, [at_x])), columns)
                        product = builder.mul(value, rows[i])
                        both = product if both is None else builder.add(both, product)
                    out.append(builder.add(total, builder.sext(both, wide)))
                return out

            zero = ir.Constant(wide, [0] * columns)
            for e, total in enumerate(_counted(builder, count, [zero] * events, term)):
                value = builder.sitofp(total, ir.VectorType(_F32, columns))
                to = builder.gep(pool_data, [builder.add(o0, builder.mul(so0, ir.Constant(_I64, e)))])
                builder.store(value, builder.bitcast(to, value.type.as_pointer()), align=4)
            return context.get_dummy_value()

        return types.void(tile, at, stride, pairs, xs, x, sx, pool, o, so, ahead), generate

    return block


float_64, float_32, float_16, float_8, float_1 = (_float_block(n, 1) for n in (64, 32, 16, 8, 1))
float_32x4, float_16x4, float_8x4 = (_float_block(n, 4) for n in (32, 16, 8))
int8_64, int8_32, int8_16 = (_int8_block(n, 1) for n in (64, 32, 16))
int8_8, int8_1 = (_int8_block(n, 1) for n in (8, 1))
int8_32x4, int8_16x4 = (_int8_block(n, 4) for n in (32, 16))
