"""Noise for sampling: the counter-based generator Philox4x32-10 and Gumbel noise made from it (numerics rows 24 and 25).

Philox: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011); the test has its known answers.
A draw depends on (seed, choice, position, column) and nothing else.
"""

import numpy as np
from numba import njit

from ticktrue.kernels.functions import log1p_f32, log_f32

_M0 = np.uint64(0xD251_1F53)
_M1 = np.uint64(0xCD9E_8D57)
_W0 = np.uint32(0x9E37_79B9)
_W1 = np.uint32(0xBB67_AE85)
_HIGH = np.uint64(32)
_WORDS = np.uint32(4)
_HALF_RANGE = np.uint32(0x8000_0000)
_ALL_ONES = np.uint32(0xFFFF_FFFF)
_NOTHING = np.uint32(0)
_ZERO = np.float32(0)
_HALF = np.float32(0.5)
_TWO_TO_MINUS_32 = np.float32(float.fromhex("0x1p-32"))
_F = "float32[::1]"
_U = "uint32[::1]"

SIGNATURES: dict[str, tuple[str, ...]] = {
    "philox": ("UniTuple(uint32, 4)(uint32, uint32, uint32, uint32, uint32, uint32)",),
    "gumbel": ("float32(uint32)",),
    "draw": ("float32(uint32, uint32, uint32, uint32, uint32)",),
    "noise": (f"void({_F}{', int64' * 9}, float32, uint32, uint32, uint32, uint32)",),
    "draws": (f"void(int64[::1], uint32, uint32, uint32, uint32, {_F})",),
}
"""What each kernel is compiled for when the IR test reads its code (see `tests/unit/kernels/ir_check.py`)."""


@njit(cache=True, error_model="numpy")
def philox(c0, c1, c2, c3, k0, k1):
    """Four random words (uint32) of counter (c0, c1, c2, c3) and key (k0, k1): ten rounds."""
    for _ in range(10):
        p0 = np.uint64(c0) * _M0
        p1 = np.uint64(c2) * _M1
        c0, c1, c2, c3 = (
            np.uint32(np.uint32(p1 >> _HIGH) ^ c1 ^ k0),
            np.uint32(p1),
            np.uint32(np.uint32(p0 >> _HIGH) ^ c3 ^ k1),
            np.uint32(p0),
        )
        k0 = np.uint32(k0 + _W0)
        k1 = np.uint32(k1 + _W1)
    return c0, c1, c2, c3


@njit(cache=True, error_model="numpy")
def gumbel(b):
    """Gumbel noise -log(-log(1 - u)), u = (b + 1/2) / 2^32, of a random word; both ends of the range keep their low bits."""
    u = (np.float32(b) + _HALF) * _TWO_TO_MINUS_32
    v = (np.float32(np.uint32(_ALL_ONES - b)) + _HALF) * _TWO_TO_MINUS_32
    e = -log1p_f32(-u) if b < _HALF_RANGE else -log_f32(v)
    return -log_f32(e)


@njit(cache=True, error_model="numpy")
def draw(column, position, choice, k0, k1):
    """The noise of one vocabulary column (row 24)."""
    words = philox(np.uint32(column // _WORDS), position, choice, _NOTHING, k0, k1)
    word = np.uint32(column % _WORDS)
    b = words[0]
    b = words[1] if word == np.uint32(1) else b
    b = words[2] if word == np.uint32(2) else b
    b = words[3] if word == np.uint32(3) else b
    return gumbel(b)


@njit(cache=True, error_model="numpy")
def noise(pool, a, sa, o, so, n, lanes, first, valid, base, temperature, position, choice, k0, k1):
    """Of n beats of one row, z = a / temperature + noise; z = a where temperature is 0; +0 where a lane is no column.

    Lane of beat i is local column first + 320 i + lane, global column base + that; local columns below `valid` exist.
    """
    for i in range(n):
        x = pool[a + i * sa : a + i * sa + lanes]
        z = pool[o + i * so : o + i * so + lanes]
        for lane in range(lanes):
            column = first + 320 * i + lane
            if column >= valid:
                z[lane] = _ZERO
            elif temperature == _ZERO:
                z[lane] = x[lane]
            else:
                z[lane] = (x[lane] / temperature) + draw(np.uint32(base + column), position, choice, k0, k1)


@njit(cache=True, error_model="numpy")
def draws(columns, position, choice, k0, k1, out):
    """The noise of every column: out[i] of columns[i]."""
    for i in range(len(columns)):
        out[i] = draw(np.uint32(columns[i]), position, choice, k0, k1)
