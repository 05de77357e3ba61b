"""Ordered products of the matrix unit (numerics rows 7 to 9, 14, 17): one K tile, k ascending from +0, never fused.

SIMD lanes are outputs (`kernels.blocks`), so every output's own sum keeps its order. `x` rows and results lie in one float32
pool; a tile lies in memory (bf16, int8, e4m3 or float32) or in the pool. Offsets are in elements.
"""

import numpy as np
from numba import njit

from ticktrue.kernels import blocks, moves

_ZERO = np.float32(0)

_F = "float32[::1]"
_I = ", int64"
_TILES = ("uint16", "int8", "float32")
SIGNATURES: dict[str, tuple[str, ...]] = {
    "_next": (f"UniTuple(int64, 2)({_I[2:]}{_I})",),
    "_float_columns": tuple(f"void(int64, {kind}[::1]{_I * 3}, {_F}{_I * 5})" for kind in _TILES),
    "_float_columns_4": tuple(f"void(int64, {kind}[::1]{_I * 3}, {_F}{_I * 5})" for kind in _TILES),
    "_int8_columns": (f"void(int64, int8[::1]{_I * 3}, int16[::1]{_I * 2}, {_F}{_I * 3})",),
    "_int8_columns_4": (f"void(int64, int8[::1]{_I * 3}, int16[::1]{_I * 2}, {_F}{_I * 3})",),
    "pass_float": tuple(f"void({kind}[::1]{_I * 5}, {_F}{_I * 6})" for kind in _TILES),
    "pass_int8": (f"void(int8[::1]{_I * 5}, {_F}{_I * 6}, int16[::1])",),
    "pass_few": (f"void({_F}{_I * 5}, {_F}{_I * 5}, {_F}, {_F})",),
    "pass_ones": (f"void({_F}{_I * 6})",),
}
WIDEST = 64


@njit(cache=True, error_model="numpy")
def _next(c, n):
    """(first column, columns) of the block after column c of n: a last one reaches back rather than be narrow.

    Columns that two blocks share are made twice, with equal bits.
    """
    left = n - c
    size = WIDEST
    while size >= 8:
        if left >= size:
            return c, size
        if left > size // 2 and n >= size:
            return n - size, size
        size //= 2
    return c, 1


@njit(cache=True, error_model="numpy")
def _float_columns(width, tile, at, stride, rows, pool, x, sx, o, so, ahead):
    """A block of `width` columns, one event."""
    if width == 64:
        blocks.float_64(tile, at, stride, rows, pool, x, sx, o, so, ahead)
    elif width == 32:
        blocks.float_32(tile, at, stride, rows, pool, x, sx, o, so, ahead)
    elif width == 16:
        blocks.float_16(tile, at, stride, rows, pool, x, sx, o, so, ahead)
    elif width == 8:
        blocks.float_8(tile, at, stride, rows, pool, x, sx, o, so, ahead)
    else:
        blocks.float_1(tile, at, stride, rows, pool, x, sx, o, so, ahead)


@njit(cache=True, error_model="numpy")
def _float_columns_4(width, tile, at, stride, rows, pool, x, sx, o, so, ahead):
    """A block of `width` columns, four events that share one pass over the tile."""
    if width == 64:
        blocks.float_32x4(tile, at, stride, rows, pool, x, sx, o, so, ahead)
        blocks.float_32x4(tile, at + 32, stride, rows, pool, x, sx, o + 32, so, ahead)
    elif width == 32:
        blocks.float_32x4(tile, at, stride, rows, pool, x, sx, o, so, ahead)
    elif width == 16:
        blocks.float_16x4(tile, at, stride, rows, pool, x, sx, o, so, ahead)
    elif width == 8:
        blocks.float_8x4(tile, at, stride, rows, pool, x, sx, o, so, ahead)
    else:
        for e in range(4):
            blocks.float_1(tile, at, stride, rows, pool, x + e * sx, sx, o + e * so, so, ahead)


@njit(cache=True, error_model="numpy")
def pass_float(tile, at, stride, rows, c0, c1, pool, x, sx, o, so, events, ahead):
    """out[e][c] = sum over k of x[e][k] * tile[k][c] for c0 <= c < c1; a tile of bf16 (uint16), e4m3 (int8) or float32.

    The tile that is wanted next lies `ahead` elements further on and has this one's shape: it is fetched meanwhile. 0: none does.
    """
    n, done = c1 - c0, 0
    while done < n:
        c, width = _next(done, n)
        done = c + width
        from_, to = at + c0 + c, o + c0 + c
        e = 0
        while e + 4 <= events:
            _float_columns_4(width, tile, from_, stride, rows, pool, x + e * sx, sx, to + e * so, so, ahead)
            e += 4
        while e < events:
            _float_columns(width, tile, from_, stride, rows, pool, x + e * sx, sx, to + e * so, so, ahead)
            e += 1


@njit(cache=True, error_model="numpy")
def _int8_columns(width, tile, at, stride, pairs, xs, x, sx, pool, o, so, ahead):
    """A block of `width` columns, one event."""
    if width == 64:
        blocks.int8_64(tile, at, stride, pairs, xs, x, sx, pool, o, so, ahead)
    elif width == 32:
        blocks.int8_32(tile, at, stride, pairs, xs, x, sx, pool, o, so, ahead)
    elif width == 16:
        blocks.int8_16(tile, at, stride, pairs, xs, x, sx, pool, o, so, ahead)
    elif width == 8:
        blocks.int8_8(tile, at, stride, pairs, xs, x, sx, pool, o, so, ahead)
    else:
        blocks.int8_1(tile, at, stride, pairs, xs, x, sx, pool, o, so, ahead)


@njit(cache=True, error_model="numpy")
def _int8_columns_4(width, tile, at, stride, pairs, xs, x, sx, pool, o, so, ahead):
    """A block of `width` columns, four events."""
    if width == 64:
        blocks.int8_32x4(tile, at, stride, pairs, xs, x, sx, pool, o, so, ahead)
        blocks.int8_32x4(tile, at + 32, stride, pairs, xs, x, sx, pool, o + 32, so, ahead)
    elif width == 32:
        blocks.int8_32x4(tile, at, stride, pairs, xs, x, sx, pool, o, so, ahead)
    elif width == 16:
        blocks.int8_16x4(tile, at, stride, pairs, xs, x, sx, pool, o, so, ahead)
    else:
        for e in range(4):
            _int8_columns(width, tile, at, stride, pairs, xs, x + e * sx, sx, pool, o + e * so, so, ahead)


@njit(cache=True, error_model="numpy")
def pass_int8(tile, at, stride, rows, c0, c1, pool, x, sx, o, so, events, ahead, xs):
    """As `pass_float` for an int8 tile (row 8): integers, so the order is free; `at`, `stride` in bytes.

    `xs` int16[events * rows] is room for the activations. Every sum is an integer below 2^24, exact in float32.
    """
    n, done, pairs = c1 - c0, 0, rows // 2
    for e in range(events):
        a, z = pool[x + e * sx : x + e * sx + rows], xs[e * rows : (e + 1) * rows]
        for k in range(rows):
            z[k] = np.int16(a[k])
    while done < n:
        c, width = _next(done, n)
        done = c + width
        from_, to = at + c0 + c, o + c0 + c
        e = 0
        while e + 4 <= events:
            _int8_columns_4(
                width, tile, from_, stride, pairs, xs, e * rows, rows, pool, to + e * so, so, ahead
            )
            e += 4
        while e < events:
            _int8_columns(width, tile, from_, stride, pairs, xs, e * rows, rows, pool, to + e * so, so, ahead)
            e += 1
    if rows % 2 == 1:  # the row without a partner
        last = at + c0 + (rows - 1) * stride
        w = tile[last : last + n]
        for e in range(events):
            value = pool[x + e * sx + rows - 1]
            z = pool[o + e * so + c0 : o + e * so + c1]
            for c in range(n):
                z[c] = z[c] + (value * np.float32(w[c]))


@njit(cache=True, error_model="numpy")
def pass_few(tile, at, stride, rows, c0, c1, pool, x, sx, o, so, events, turned, sums):
    """As `pass_float` where columns are few and events many: SIMD lanes are 64 events, k still ascends in each.

    `turned` is float32 scratch of 64 * rows, `sums` of 64.
    """
    for first in range(0, events, 64):
        n = min(64, events - first)
        whole, deep = n // 16 * 16, rows // 16 * 16
        for e in range(0, whole, 16):
            for k in range(0, deep, 16):
                moves.turn(pool, x + (first + e) * sx + k, sx, turned, k * 64 + e, 64)
        for e in range(n):
            begin = x + (first + e) * sx
            row = pool[begin : begin + rows]
            for k in range(deep if e < whole else 0, rows):
                turned[k * 64 + e] = row[k]
        for c in range(c0, c1):
            for e in range(n):
                sums[e] = _ZERO
            for k in range(rows):
                w = tile[at + k * stride + c]
                column = turned[k * 64 : k * 64 + n]
                for e in range(n):
                    sums[e] = sums[e] + (column[e] * w)
            for e in range(n):
                pool[o + (first + e) * so + c] = sums[e]


@njit(cache=True, error_model="numpy")
def pass_ones(pool, rows, x, sx, o, so, events):
    """out[e] = sum over k of x[e][k]: the column of ones."""
    for e in range(events):
        total = _ZERO
        for k in range(rows):
            total += pool[x + e * sx + k]
        pool[o + e * so] = total
