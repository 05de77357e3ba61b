"""Vector copies against the scalar conversions of `kernels.bits`: every code, every length near a block, nothing beyond."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from numba import njit

from ticktrue.kernels import bits, matmul, moves

COUNTS = [0, 1, 7, 15, 16, 17, 31, 32, 33, 160, 320]
GUARD = np.float32(-77.0)


def _compiled(move: Any, arguments: int) -> Any:
    """A function that does nothing but the intrinsic `move`, of so many arguments."""

    @njit
    def five(a, b, c, d, e):  # type: ignore[no-untyped-def]
        move(a, b, c, d, e)

    @njit
    def six(a, b, c, d, e, f):  # type: ignore[no-untyped-def]
        move(a, b, c, d, e, f)

    @njit
    def four(a, b, c, d):  # type: ignore[no-untyped-def]
        move(a, b, c, d)

    return {4: four, 5: five, 6: six}[arguments]


_copy, _widen, _widen_int8, _widen_e4m3 = (
    _compiled(move, 5) for move in (moves.copy, moves.widen, moves.widen_int8, moves.widen_e4m3)
)
_put, _narrow, _narrow_int8, _shift = (
    _compiled(move, 5) for move in (moves.put, moves.narrow, moves.narrow_int8, moves.shift)
)
_strided, _fill = _compiled(moves.strided, 6), _compiled(moves.fill, 4)


def _same(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> bool:
    return bool((a.view(np.uint32) == b.view(np.uint32)).all())


def _guarded(pool: npt.NDArray[np.float32], first: int, end: int) -> bool:
    """Whether nothing but [first, end) was written."""
    return bool((pool[:first] == GUARD).all() and (pool[end:] == GUARD).all())


def _all_bf16() -> npt.NDArray[np.uint16]:
    return np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)


def test_every_bf16_widens_to_its_float() -> None:
    codes = _all_bf16()
    pool = np.full(codes.size, GUARD, np.float32)
    _widen(codes.view(np.int8), 0, pool, 0, codes.size)
    assert (pool.view(np.uint32) == codes.astype(np.uint32) << 16).all()


def test_every_bf16_and_its_neighbours_round_as_the_scalar_does() -> None:
    high = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)
    tails = (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)
    words = np.concatenate([high | np.uint32(tail) for tail in tails])
    octets = np.zeros(2 * words.size, np.int8)
    _narrow(words.view(np.float32), 0, octets, 0, words.size)
    scalar = njit(lambda u: bits.f32_to_bf16_bits(bits.u32_as_f32(u)))
    expected = np.array([scalar(u) for u in words], dtype=np.uint16)
    assert (octets.view(np.uint16) == expected).all()


def test_every_e4m3_and_int8_widens_as_the_scalar_does() -> None:
    codes = np.arange(256, dtype=np.uint8)
    finite = codes[(codes & 0x7F) != 0x7F]
    pool = np.full(finite.size, GUARD, np.float32)
    _widen_e4m3(finite.view(np.int8), 0, pool, 0, finite.size)
    assert _same(pool, np.array([bits.e4m3_to_f32(np.uint8(c)) for c in finite], np.float32))
    pool = np.full(256, GUARD, np.float32)
    _widen_int8(codes.view(np.int8), 0, pool, 0, 256)
    assert (pool == codes.view(np.int8)).all()


def test_every_e4m3_weight_multiplies_as_the_scalar_says() -> None:
    """A tile of one row: x * weight, for blocks of every width."""
    codes = np.arange(256, dtype=np.uint8)
    finite = codes[(codes & 0x7F) != 0x7F]
    wide = np.array([bits.e4m3_to_f32(np.uint8(c)) for c in finite], np.float32)
    for n in (1, 8, 16, 24, 32, 64, 72, finite.size):
        for events in (1, 4, 5):
            pool = np.concatenate([np.linspace(0.3, 1.7, events), np.zeros(events * n)]).astype(np.float32)
            matmul.pass_float(finite.view(np.int8), 0, n, 1, 0, n, pool, 0, 1, events, n, events, 0)
            expected = pool[:events, None] * wide[None, :n] + np.float32(0)
            assert _same(pool[events:], expected.ravel())


@pytest.mark.parametrize("count", COUNTS)
def test_nothing_is_moved_beyond_the_count(count: int) -> None:
    values = np.linspace(-90, 90, 400).astype(np.float32)
    octets = values.view(np.int8)
    for first in (0, 3):
        pool = np.full(400, GUARD, np.float32)
        _copy(octets, 4 * first, pool, 5, count)
        assert _same(pool[5 : 5 + count], values[first : first + count])
        assert _guarded(pool, 5, 5 + count)
        pool = np.full(400, GUARD, np.float32)
        _shift(values, first, pool, 5, count)
        assert _same(pool[5 : 5 + count], values[first : first + count])
        assert _guarded(pool, 5, 5 + count)
        for store, size in ((_put, 4), (_narrow, 2), (_narrow_int8, 1)):
            room = np.full(1600, 99, np.int8)
            store(values, first, room, 8, count)
            assert (room[:8] == 99).all()
            assert (room[8 + size * count :] == 99).all()
            assert count == 0 or (room[8 : 8 + size * count] != 99).any()
        pool = np.full(400, GUARD, np.float32)
        _fill(pool, 5, count, np.float32(3))
        assert (pool[5 : 5 + count] == 3).all()
        assert _guarded(pool, 5, 5 + count)


def test_a_count_below_one_moves_nothing_and_strides_are_kept() -> None:
    values = np.arange(64, dtype=np.float32)
    room = np.full(64, GUARD, np.float32)
    _fill(room, 5, -3, np.float32(1))
    _shift(values, 0, room, 0, -1)
    _strided(values, 0, 3, room, 0, -1)
    assert (room == GUARD).all()
    _strided(values, 2, 7, room, 4, 8)
    assert (room[4:12] == values[2::7][:8]).all()
    assert _guarded(room, 4, 12)


@pytest.mark.parametrize("events", [16, 40, 64, 67, 130])
@pytest.mark.parametrize("rows", [15, 16, 64, 80])
def test_few_columns_and_many_events_sum_as_many_columns_do(events: int, rows: int) -> None:
    """Events in SIMD lanes (blocks of 16 turned in registers, the rest one by one) against columns in them."""
    rng = np.random.default_rng(events * rows)
    columns, stride = 3, 5
    tile = rng.standard_normal(rows * stride).astype(np.float32)
    x = rng.standard_normal(events * (rows + 2)).astype(np.float32)
    pools = [np.concatenate([x, np.full(events * columns, GUARD)]) for _ in range(2)]
    few, many = pools
    turned, sums = np.empty(64 * rows, np.float32), np.empty(64, np.float32)
    matmul.pass_few(
        tile, 1, stride, rows, 0, columns, few, 0, rows + 2, x.size, columns, events, turned, sums
    )
    matmul.pass_float(tile, 1, stride, rows, 0, columns, many, 0, rows + 2, x.size, columns, events, 0)
    assert _same(few, many)
    assert _same(few[: x.size], x)
