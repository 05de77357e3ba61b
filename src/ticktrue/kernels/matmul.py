"""Ordered products of the matrix unit (numerics rows 7, 14, 17): one K tile, k ascending from +0, never fused.

SIMD lanes are outputs, so every output's own sum keeps its order. `x` rows and results lie in one float32 pool; a tile lies
in memory (bf16 or float32) or in the pool. Offsets are in elements. Loops run over slices from 0: an index that might be
negative keeps LLVM from vectorising (measured: 3.5 against 38 GFLOP/s).
"""

import numpy as np
from numba import njit

from ticktrue.kernels.bits import bf16_to_f32, e4m3_to_f32

_ZERO = np.float32(0)

_F = "float32[::1]"
_I = ", int64"
SIGNATURES: dict[str, tuple[str, ...]] = {
    "_put": (f"void({_F}{_I}, {_F}{_I})",),
    "_four_bf16": (f"void(uint16[::1]{_I * 4}, {_F}{_I * 2}, {_F}, {_F}, {_F}, {_F})",),
    "_one_bf16": (f"void(uint16[::1]{_I * 4}, {_F}{_I}, {_F})",),
    "pass_bf16": (f"void(uint16[::1]{_I * 5}, {_F}{_I * 5}, {_F}, {_F}, {_F}, {_F})",),
    "_one_int8": (f"void(int8[::1]{_I * 4}, {_F}{_I}, int32[::1])",),
    "pass_int8": (f"void(int8[::1]{_I * 5}, {_F}{_I * 5}, int32[::1])",),
    "pass_e4m3": (f"void(int8[::1]{_I * 5}, {_F}{_I * 5}, {_F}, {_F})",),
    "pass_f32": (f"void({_F}{_I * 5}, {_F}{_I * 5}, {_F})",),
    "pass_few": (f"void({_F}{_I * 5}, {_F}{_I * 5}, {_F}, {_F})",),
    "pass_ones": (f"void({_F}{_I * 6})",),
}


@njit(cache=True, error_model="numpy")
def _put(pool, to, row, n):
    """Copies n elements into the pool (a slice assignment would bring in code for its error message, in double)."""
    z = pool[to : to + n]
    for c in range(n):
        z[c] = row[c]


@njit(cache=True, error_model="numpy")
def _four_bf16(tile, at, stride, rows, n, pool, x, sx, b0, b1, b2, b3):
    """Four events through n columns of a tile; two k at once, each sum still in ascending k."""
    for c in range(n):
        b0[c] = _ZERO
        b1[c] = _ZERO
        b2[c] = _ZERO
        b3[c] = _ZERO
    k = 0
    while k + 2 <= rows:
        i0 = x + k
        i1 = i0 + sx
        i2 = i1 + sx
        i3 = i2 + sx
        x00, x01 = pool[i0], pool[i0 + 1]
        x10, x11 = pool[i1], pool[i1 + 1]
        x20, x21 = pool[i2], pool[i2 + 1]
        x30, x31 = pool[i3], pool[i3 + 1]
        s = at + k * stride
        r0 = tile[s : s + n]
        r1 = tile[s + stride : s + stride + n]
        for c in range(n):
            w0 = bf16_to_f32(r0[c])
            w1 = bf16_to_f32(r1[c])
            b0[c] = (b0[c] + (x00 * w0)) + (x01 * w1)
            b1[c] = (b1[c] + (x10 * w0)) + (x11 * w1)
            b2[c] = (b2[c] + (x20 * w0)) + (x21 * w1)
            b3[c] = (b3[c] + (x30 * w0)) + (x31 * w1)
        k += 2
    if k < rows:
        i0 = x + k
        x00, x10, x20, x30 = pool[i0], pool[i0 + sx], pool[i0 + 2 * sx], pool[i0 + 3 * sx]
        s = at + k * stride
        r0 = tile[s : s + n]
        for c in range(n):
            w0 = bf16_to_f32(r0[c])
            b0[c] = b0[c] + (x00 * w0)
            b1[c] = b1[c] + (x10 * w0)
            b2[c] = b2[c] + (x20 * w0)
            b3[c] = b3[c] + (x30 * w0)


@njit(cache=True, error_model="numpy")
def _one_bf16(tile, at, stride, rows, n, pool, x, b0):
    """One event through n columns of a tile; four k at once, each sum still in ascending k."""
    for c in range(n):
        b0[c] = _ZERO
    k = 0
    while k + 4 <= rows:
        x0, x1, x2, x3 = pool[x + k], pool[x + k + 1], pool[x + k + 2], pool[x + k + 3]
        s = at + k * stride
        r0 = tile[s : s + n]
        r1 = tile[s + stride : s + stride + n]
        r2 = tile[s + 2 * stride : s + 2 * stride + n]
        r3 = tile[s + 3 * stride : s + 3 * stride + n]
        for c in range(n):
            t = b0[c] + (x0 * bf16_to_f32(r0[c]))
            t = t + (x1 * bf16_to_f32(r1[c]))
            t = t + (x2 * bf16_to_f32(r2[c]))
            b0[c] = t + (x3 * bf16_to_f32(r3[c]))
        k += 4
    while k < rows:
        x0 = pool[x + k]
        s = at + k * stride
        r0 = tile[s : s + n]
        for c in range(n):
            b0[c] = b0[c] + (x0 * bf16_to_f32(r0[c]))
        k += 1


@njit(cache=True, error_model="numpy")
def pass_bf16(tile, at, stride, rows, c0, c1, pool, x, sx, o, so, events, a0, a1, a2, a3):
    """out[e][c] = sum over k of x[e][k] * tile[k][c] for c0 <= c < c1, bf16 tile in memory.

    a0..a3 are float32 scratch of 320 lanes: four events share one pass over the tile.
    """
    n = c1 - c0
    if n <= 0:
        return
    b0, b1, b2, b3 = a0[:n], a1[:n], a2[:n], a3[:n]
    e = 0
    while e + 4 <= events:
        _four_bf16(tile, at + c0, stride, rows, n, pool, x + e * sx, sx, b0, b1, b2, b3)
        to = o + e * so + c0
        _put(pool, to, b0, n)
        _put(pool, to + so, b1, n)
        _put(pool, to + 2 * so, b2, n)
        _put(pool, to + 3 * so, b3, n)
        e += 4
    while e < events:
        _one_bf16(tile, at + c0, stride, rows, n, pool, x + e * sx, b0)
        to = o + e * so + c0
        _put(pool, to, b0, n)
        e += 1


@njit(cache=True, error_model="numpy")
def _one_int8(tile, at, stride, rows, n, pool, x, b0):
    """One event through n columns of an int8 tile: exact int32 sums, two k at a time in 16 bits (at most 2 * 127 * 127)."""
    for c in range(n):
        b0[c] = np.int32(0)
    k = 0
    while k + 4 <= rows:
        x0, x1 = np.int16(pool[x + k]), np.int16(pool[x + k + 1])
        x2, x3 = np.int16(pool[x + k + 2]), np.int16(pool[x + k + 3])
        s = at + k * stride
        r0 = tile[s : s + n]
        r1 = tile[s + stride : s + stride + n]
        r2 = tile[s + 2 * stride : s + 2 * stride + n]
        r3 = tile[s + 3 * stride : s + 3 * stride + n]
        for c in range(n):
            t = np.int16(np.int16(x0 * r0[c]) + np.int16(x1 * r1[c]))
            u = np.int16(np.int16(x2 * r2[c]) + np.int16(x3 * r3[c]))
            b0[c] = np.int32(b0[c] + np.int32(np.int32(t) + np.int32(u)))
        k += 4
    while k < rows:
        x0 = np.int16(pool[x + k])
        s = at + k * stride
        r0 = tile[s : s + n]
        for c in range(n):
            b0[c] = np.int32(b0[c] + np.int32(np.int16(x0 * r0[c])))
        k += 1


@njit(cache=True, error_model="numpy")
def pass_int8(tile, at, stride, rows, c0, c1, pool, x, sx, o, so, events, sums):
    """As `pass_bf16` for an int8 tile (row 8): integers, so the order is free; `at`, `stride` in bytes, sums int32[320]."""
    n = c1 - c0
    if n <= 0:
        return
    b0 = sums[:n]
    for e in range(events):
        _one_int8(tile, at + c0, stride, rows, n, pool, x + e * sx, b0)
        to = o + e * so + c0
        z = pool[to : to + n]
        for c in range(n):
            z[c] = np.float32(b0[c])


@njit(cache=True, error_model="numpy")
def pass_e4m3(tile, at, stride, rows, c0, c1, pool, x, sx, o, so, events, wide, a0):
    """As `pass_bf16` for an e4m3 tile (row 9), widened row by row into `wide` float32[rows * 320] first."""
    n = c1 - c0
    if n <= 0:
        return
    for k in range(rows):
        s = at + c0 + k * stride
        r = tile[s : s + n]
        w = wide[k * 320 : k * 320 + n]
        for c in range(n):
            w[c] = e4m3_to_f32(np.uint8(r[c]))
    pass_f32(wide, 0, 320, rows, 0, n, pool, x, sx, o + c0, so, events, a0)


@njit(cache=True, error_model="numpy")
def pass_f32(tile, at, stride, rows, c0, c1, pool, x, sx, o, so, events, a0):
    """As `pass_bf16` for a float32 tile (in memory or in the pool)."""
    n = c1 - c0
    if n <= 0:
        return
    b0 = a0[:n]
    for e in range(events):
        for c in range(n):
            b0[c] = _ZERO
        k = 0
        xe = x + e * sx
        while k + 4 <= rows:
            x0, x1, x2, x3 = pool[xe + k], pool[xe + k + 1], pool[xe + k + 2], pool[xe + k + 3]
            s = at + c0 + k * stride
            r0 = tile[s : s + n]
            r1 = tile[s + stride : s + stride + n]
            r2 = tile[s + 2 * stride : s + 2 * stride + n]
            r3 = tile[s + 3 * stride : s + 3 * stride + n]
            for c in range(n):
                t = b0[c] + (x0 * r0[c])
                t = t + (x1 * r1[c])
                t = t + (x2 * r2[c])
                b0[c] = t + (x3 * r3[c])
            k += 4
        while k < rows:
            x0 = pool[xe + k]
            s = at + c0 + k * stride
            r0 = tile[s : s + n]
            for c in range(n):
                b0[c] = b0[c] + (x0 * r0[c])
            k += 1
        to = o + e * so + c0
        _put(pool, to, b0, n)


@njit(cache=True, error_model="numpy")
def pass_few(tile, at, stride, rows, c0, c1, pool, x, sx, o, so, events, turned, sums):
    """As `pass_f32` where columns are few and events many: SIMD lanes are 64 events, k still ascends in each.

    `turned` is float32 scratch of 64 * rows, `sums` of 64.
    """
    for first in range(0, events, 64):
        n = min(64, events - first)
        for e in range(n):
            begin = x + (first + e) * sx
            row = pool[begin : begin + rows]
            for k in range(rows):
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
