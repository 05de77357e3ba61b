"""Copies between memory and streams, and within streams, as vector code: float32 as it is, narrower types widened and rounded.

Intrinsics, because an event is short: the slices that a scalar loop would need cost more than the copy. Source and target never
overlap. Memory is int8, addressed in bytes; streams are float32, addressed in lanes. A count below 1 moves nothing.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ticktrue.kernels.vectors import Value, data, every_lane, from_bf16, from_e4m3, splat

_F32, _I8, _I16, _I32, _I64 = ir.FloatType(), *(ir.IntType(bits) for bits in (8, 16, 32, 64))
_LANES = 16


def _at(context: Any, builder: Any, kind: types.Array, value: Value, first: Value) -> Value:
    """Pointer to element `first` of an array."""
    return builder.gep(data(context, builder, kind, value), [first])


def _each_block(builder: Any, count: Value, body: Callable[[Value, int], None]) -> None:
    """body(i, lanes) for blocks of _LANES elements from i on, then for single ones."""
    done = cgutils.alloca_once_value(builder, ir.Constant(_I64, 0))
    for lanes in (_LANES, 1):
        head, inside, after = (builder.append_basic_block(n) for n in ("next", "move", "moved"))
        builder.branch(head)
        builder.position_at_end(head)
        i = builder.load(done)
        end = builder.add(i, ir.Constant(_I64, lanes))
        builder.cbranch(builder.icmp_signed("<=", end, count), inside, after)
        builder.position_at_end(inside)
        body(i, lanes)
        builder.store(end, done)
        builder.branch(head)
        builder.position_at_end(after)


def _vector(builder: Any, pointer: Value, lanes: int) -> Value:
    """The pointer, to `lanes` elements at once."""
    return builder.bitcast(pointer, ir.VectorType(pointer.type.pointee, lanes).as_pointer())


def _rounded(builder: Any, value: Value, lanes: int) -> Value:
    """float32 as bits of the nearest bf16, as `bits.f32_to_bf16_bits` says."""
    u = builder.bitcast(value, ir.VectorType(_I32, lanes))
    high = builder.lshr(u, every_lane(16, lanes))
    even = builder.and_(high, every_lane(1, lanes))
    nearest = builder.lshr(
        builder.add(builder.add(u, every_lane(0x7FFF, lanes)), even), every_lane(16, lanes)
    )
    nan = builder.icmp_unsigned(
        ">", builder.and_(u, every_lane(0x7FFF_FFFF, lanes)), every_lane(0x7F80_0000, lanes)
    )
    bits = builder.select(nan, builder.or_(high, every_lane(0x40, lanes)), nearest)
    return builder.trunc(bits, ir.VectorType(_I16, lanes))


def _mover(
    arrays: tuple[types.Type, types.Type],
    elements: tuple[Value, Value],
    change: Callable[[Any, Value, int], Value],
) -> Any:
    """An intrinsic (source, a, room, o, count): element i of room from o on = change(element i of source from a on), i < count.

    `arrays` are the types of items of source and room, in which a and o count; `elements` those that are read and written.
    """

    @intrinsic
    def move(_typing, source, a, room, o, count):
        if (source.dtype, room.dtype) != arrays:
            return None

        def generate(context, builder, signature, arguments):
            ends = (
                _at(context, builder, signature.args[0], arguments[0], arguments[1]),
                _at(context, builder, signature.args[2], arguments[2], arguments[3]),
            )
            x, z = (builder.bitcast(end, kind.as_pointer()) for end, kind in zip(ends, elements, strict=True))

            def body(i, lanes):
                value = builder.load(_vector(builder, builder.gep(x, [i]), lanes), align=1)
                to = _vector(builder, builder.gep(z, [i]), lanes)
                builder.store(change(builder, value, lanes), to, align=1)

            _each_block(builder, arguments[4], body)
            return context.get_dummy_value()

        return types.void(source, a, room, o, count), generate

    return move


def _filler() -> Any:
    """An intrinsic (room, o, count, value): room[o + i] = value for i < count."""

    @intrinsic
    def every(_typing, room, o, count, value):
        if room.dtype != types.float32 or value != types.float32:
            return None

        def generate(context, builder, signature, arguments):
            z = _at(context, builder, signature.args[0], arguments[0], arguments[1])

            def body(i, lanes):
                same = splat(builder, arguments[3], lanes)
                builder.store(same, _vector(builder, builder.gep(z, [i]), lanes), align=4)

            _each_block(builder, arguments[2], body)
            return context.get_dummy_value()

        return types.void(room, o, count, value), generate

    return every


def _strided() -> Any:
    """An intrinsic (source, a, step, room, o, count): room[o + i] = source[a + i step] for i < count."""

    @intrinsic
    def take(_typing, source, a, step, room, o, count):
        if source.dtype != types.float32 or room.dtype != types.float32:
            return None

        def generate(context, builder, signature, arguments):
            x = _at(context, builder, signature.args[0], arguments[0], arguments[1])
            z = _at(context, builder, signature.args[3], arguments[3], arguments[4])
            with cgutils.for_range(builder, arguments[5]) as loop:
                value = builder.load(builder.gep(x, [builder.mul(loop.index, arguments[2])]))
                builder.store(value, builder.gep(z, [loop.index]))
            return context.get_dummy_value()

        return types.void(source, a, step, room, o, count), generate

    return take


def _turned() -> Any:
    """An intrinsic (source, a, step, room, o, to): room[o + i to + j] = source[a + j step + i] for i, j < 16."""

    def woven(builder, rows, apart):
        """Rows `apart` from each other exchange blocks of `apart` lanes: the second half of one, the first of the other."""
        out = list(rows)
        for i in range(_LANES):
            if i & apart == 0:
                low, high = rows[i], rows[i + apart]
                first = [j if j & apart == 0 else _LANES + j - apart for j in range(_LANES)]
                second = [j + apart if j & apart == 0 else _LANES + j for j in range(_LANES)]
                for at, picked in ((i, first), (i + apart, second)):
                    kind = ir.VectorType(_I32, _LANES)
                    out[at] = builder.shuffle_vector(low, high, ir.Constant(kind, picked))
        return out

    @intrinsic
    def turn(_typing, source, a, step, room, o, to):
        if source.dtype != types.float32 or room.dtype != types.float32:
            return None

        def generate(context, builder, signature, arguments):
            x = _at(context, builder, signature.args[0], arguments[0], arguments[1])
            z = _at(context, builder, signature.args[3], arguments[3], arguments[4])

            def row(pointer, stride, i):
                at = builder.gep(pointer, [builder.mul(stride, ir.Constant(_I64, i))])
                return _vector(builder, at, _LANES)

            rows = [builder.load(row(x, arguments[2], i), align=4) for i in range(_LANES)]
            for apart in (1, 2, 4, 8):
                rows = woven(builder, rows, apart)
            for i, value in enumerate(rows):
                builder.store(value, row(z, arguments[5], i), align=4)
            return context.get_dummy_value()

        return types.void(source, a, step, room, o, to), generate

    return turn


def _same(_builder: Any, value: Value, _lanes: int) -> Value:
    return value


def _from_int8(builder: Any, raw: Value, lanes: int) -> Value:
    return builder.sitofp(raw, ir.VectorType(_F32, lanes))


def _to_int8(builder: Any, value: Value, lanes: int) -> Value:
    return builder.fptosi(value, ir.VectorType(_I8, lanes))


_LOADED, _STORED, _SHIFTED = (
    (types.int8, types.float32),
    (types.float32, types.int8),
    (types.float32, types.float32),
)
copy = _mover(_LOADED, (_F32, _F32), _same)
widen = _mover(_LOADED, (_I16, _F32), from_bf16)
widen_int8 = _mover(_LOADED, (_I8, _F32), _from_int8)
widen_e4m3 = _mover(_LOADED, (_I8, _F32), from_e4m3)
put = _mover(_STORED, (_F32, _F32), _same)
narrow = _mover(_STORED, (_F32, _I16), _rounded)
narrow_int8 = _mover(_STORED, (_F32, _I8), _to_int8)
shift = _mover(_SHIFTED, (_F32, _F32), _same)
strided = _strided()
turn = _turned()
fill = _filler()
