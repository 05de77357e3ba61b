"""Rows that move values and compute nothing: between memory and streams, and from lane to lane.

`s` is a row of the interpreter's list (`lower.L_*`). A call does the row on chips (first, end, size): first .. end - 1, the
streams of chip c from float c * size of `pool` on. `octets` int8 is the memory of all chips, `address` int64[chips] a vector.
"""

import numba as nb
import numpy as np

from ticktrue.execute import lower as lo
from ticktrue.isa.ops import Dtype, Op, RegFn
from ticktrue.kernels import moves
from ticktrue.kernels.bits import f32_as_u32, f32_to_e4m3_bits

F32, INT8, E4M3 = int(Dtype.F32), int(Dtype.INT8), int(Dtype.E4M3)
(L_OP, L_N, L_M, L_LANES, L_A, L_SA, L_B, L_SB, L_O, L_SO, L_STEP, L_STEP2, L_WIDTH, L_DTYPE, L_REGFN, L_REGSTRIDE,
 L_X0, L_X1, L_A0, L_A1, L_A2, L_A3, L_MODE, L_STRIDE, L_ROWS, L_ROW0, L_C0, L_C1, L_ONES, L_FILL, L_PATTERN,
) = range(31)  # fmt: skip
assert (lo.L_OP, lo.L_PATTERN) == (L_OP, L_PATTERN)  # noqa: S101 - the two lists are one

TRANSPOSE, SPREAD, BROADCAST = int(Op.TRANSPOSE), int(Op.SPREAD), int(Op.BROADCAST)
TOKEN, P_DIV, P_MOD, KV = int(RegFn.TOKEN), int(RegFn.P_DIV), int(RegFn.P_MOD), int(RegFn.KV)
LAST, EXPERT = int(RegFn.LAST), int(RegFn.EXPERT)
HOME, LOCAL = int(RegFn.EXPERT_HOME), int(RegFn.EXPERT_LOCAL)
ZERO = np.float32(0)


@nb.njit(cache=True, error_model="numpy")
def _register(s, i, token, position, last, cp):
    """Value of a declared register function for event i: token row A0 + i. last[slot] is the last valid token of a slot."""
    fn, row = s[L_REGFN], s[L_A0] + i
    if fn == TOKEN:
        return token[row]
    if fn == P_DIV:
        return position[row] // 512
    if fn == P_MOD:
        return position[row] % 512
    if fn == KV:
        return (_block(position[row], s[L_A1]) // cp) * 64 + position[row] % 64
    return last[s[L_A0] * last.size // token.size]


@nb.njit(cache=True, error_model="numpy")
def _block(position, ring):
    """Block of a position, or its place in a ring of blocks."""
    return position // 64 % ring if ring > 0 else position // 64


@nb.njit(cache=True, error_model="numpy")
def _read(octets, dtype, vector, pool, o, count):
    """`count` lanes at a vector into the pool."""
    if dtype == F32:
        moves.copy(octets, vector * 320, pool, o, count)
    elif dtype == INT8:
        moves.widen_int8(octets, vector * 320, pool, o, count)
    elif dtype == E4M3:
        moves.widen_e4m3(octets, vector * 320, pool, o, count)
    else:
        moves.widen(octets, vector * 320, pool, o, count)


@nb.njit(cache=True, error_model="numpy")
def _write(octets, dtype, vector, pool, a, count):
    """`count` lanes of the pool to a vector."""
    if dtype == F32:
        moves.put(pool, a, octets, vector * 320, count)
    elif dtype == INT8:
        moves.narrow_int8(pool, a, octets, vector * 320, count)
    elif dtype == E4M3:
        x, byte = pool[a : a + count], octets[vector * 320 : vector * 320 + count]
        for c in range(count):
            byte[c] = np.int8(f32_to_e4m3_bits(x[c]))
    else:
        moves.narrow(pool, a, octets, vector * 320, count)


@nb.njit(cache=True, error_model="numpy")
def load(s, address, chips, octets, pool):
    """LOAD whose addresses no register names: on chip c from vector address[c] on."""
    first, end, size = chips
    n, m, step, step2, dtype, count, fill, so = (
        s[L_N], s[L_M], s[L_STEP], s[L_STEP2], s[L_DTYPE], s[L_LANES], s[L_FILL], s[L_SO],
    )  # fmt: skip
    for chip in range(first, end):
        o = s[L_O] + chip * size
        for j in range(m):
            v = address[chip] + j * step2
            for _ in range(n):
                _read(octets, dtype, v, pool, o, count)
                if count < fill:
                    moves.fill(pool, o + count, fill - count, ZERO)
                v += step
                o += so


@nb.njit(cache=True, error_model="numpy")
def _expert(s, experts, chip, j):
    """Value of a function of the expert register of round j: the expert, the chip that holds it, its number there."""
    e = experts[chip, s[L_A0] + j, s[L_A1]]
    if s[L_REGFN] == HOME:
        return e // s[L_A2]
    return e % s[L_A2] if s[L_REGFN] == LOCAL else e


@nb.njit(cache=True, error_model="numpy")
def gather(s, address, chips, octets, pool, token, position, last, cp, experts):
    """LOAD or GATHER at addresses that a register names."""
    first, end, size = chips
    count, fill, fn, n = s[L_LANES], s[L_FILL], s[L_REGFN], s[L_N]
    for chip in range(first, end):
        o = s[L_O] + chip * size
        for j in range(s[L_M]):
            for i in range(n):
                v = address[chip] + i * s[L_STEP] + j * s[L_STEP2]
                if fn >= EXPERT:
                    v += _expert(s, experts, chip, j) * s[L_REGSTRIDE]
                else:
                    v += _register(s, 0 if fn == LAST else i, token, position, last, cp) * s[L_REGSTRIDE]
                _read(octets, s[L_DTYPE], v, pool, o, count)
                if count < fill:
                    moves.fill(pool, o + count, fill - count, ZERO)
                o += s[L_SO]


@nb.njit(cache=True, error_model="numpy")
def name(s, chips, pool, experts):
    """A wide GATHER, whose tiles are read in place: of each round the vectors between its address and its tile."""
    first, end, size = chips
    for chip in range(first, end):
        for j in range(s[L_M]):
            named = _expert(s, experts, chip, j) * s[L_REGSTRIDE]
            pool[s[L_O] + chip * size + j] = np.float32(named + j * s[L_STEP2])


@nb.njit(cache=True, error_model="numpy")
def latch(s, chips, pool, experts):
    """Expert registers of token rows A0, A0 + 1, ...: the k ids of each event, which follow its k weights."""
    first, end, size = chips
    k = s[L_X0]
    for chip in range(first, end):
        for i in range(s[L_N] * s[L_M]):
            for rank in range(k):
                a = s[L_A] + chip * size + i * s[L_SA] + k + rank
                experts[chip, s[L_A0] + i, rank] = np.int64(f32_as_u32(pool[a]))


@nb.njit(cache=True, error_model="numpy")
def _stored(s):
    """Lanes of each event that a STORE or SCATTER writes."""
    dtype = s[L_DTYPE]
    return s[L_WIDTH] * (80 if dtype == F32 else 320 if dtype >= INT8 else 160)


@nb.njit(cache=True, error_model="numpy")
def store(s, address, source, chips, octets, pool):
    """STORE whose addresses no register names, of the streams of chip source[c]."""
    first, end, size = chips
    n, m, step, step2, dtype, sa, count = (
        s[L_N], s[L_M], s[L_STEP], s[L_STEP2], s[L_DTYPE], s[L_SA], _stored(s),
    )  # fmt: skip
    for chip in range(first, end):
        a = s[L_A] + source[chip] * size
        for j in range(m):
            v = address[chip] + j * step2
            for _ in range(n):
                _write(octets, dtype, v, pool, a, count)
                v += step
                a += sa


@nb.njit(cache=True, error_model="numpy")
def scatter(s, address, source, chips, octets, pool, token, position, last, cp, lane):
    """STORE or SCATTER at addresses that a register names; context lane lane[c] of cp keeps its own blocks of the cache."""
    first, end, size = chips
    n, fn, count = s[L_N], s[L_REGFN], _stored(s)
    for chip in range(first, end):
        for j in range(s[L_M]):
            for i in range(n):
                if fn == KV and _block(position[s[L_A0] + i], s[L_A1]) % cp != lane[chip]:
                    continue
                v = address[chip] + i * s[L_STEP] + j * s[L_STEP2]
                v += _register(s, i, token, position, last, cp) * s[L_REGSTRIDE]
                a = s[L_A] + source[chip] * size + (j * n + i) * s[L_SA]
                _write(octets, s[L_DTYPE], v, pool, a, count)


@nb.njit(cache=True, error_model="numpy")
def merge(s, chips, pool):
    """MERGE: columns col0 .. col0 + count - 1 of beats that lie rank by rank, `cols` columns in each rank."""
    first, end, size = chips
    for chip in range(first, end):
        _merge(s, chip * size, pool)


@nb.njit(cache=True, error_model="numpy")
def _merge(s, base, pool):
    cols, beats, begin, col0, count = s[L_A0], s[L_X0], s[L_A1], s[L_A2], s[L_A3]
    n, fill, sa, far = s[L_N], s[L_FILL], s[L_SA], s[L_X1]
    half = count // 2 if far > 0 else count
    for j in range(s[L_M]):
        o = base + s[L_O] + j * s[L_SO]
        moves.fill(pool, o, fill, ZERO)
        for i in range(n):
            r, v = (begin + i) // beats, (begin + i) % beats
            start = r * cols + v * 320
            end = min(start + 320, (r + 1) * cols)
            a = base + s[L_A] + (j * n + i) * sa
            lo_, hi = max(start, col0), min(end, col0 + min(half, fill))
            moves.shift(pool, a + lo_ - start, pool, o + lo_ - col0, hi - lo_)
            if half < count:  # the second half starts X1 columns after the first
                lo_, hi = max(start, col0 + far), min(end, col0 + far + min(count, fill) - half)
                moves.shift(pool, a + lo_ - start, pool, o + half + lo_ - col0 - far, hi - lo_)


@nb.njit(cache=True, error_model="numpy")
def move(s, chips, pool):
    """MOVE: lanes A0 .. A0 + A1 - 1 to lane A2 on."""
    first, end, size = chips
    fill, to, sa, so, events = s[L_FILL], s[L_A2], s[L_SA], s[L_SO], s[L_N] * s[L_M]
    n, before = max(0, min(s[L_A1], fill - to)), min(to, fill)
    for chip in range(first, end):
        o, a = s[L_O] + chip * size, s[L_A] + s[L_A0] + chip * size
        for _ in range(events):
            if to > 0:
                moves.fill(pool, o, before, ZERO)
            moves.shift(pool, a, pool, o + to, n)
            if to + n < fill:
                moves.fill(pool, o + to + n, fill - to - n, ZERO)
            o += so
            a += sa


@nb.njit(cache=True, error_model="numpy")
def reshape(s, chips, pool):
    """TRANSPOSE, SPREAD, BROADCAST, INSERT."""
    first, end, size = chips
    for chip in range(first, end):
        _reshape(s, chip * size, pool)


@nb.njit(cache=True, error_model="numpy")
def _reshape(s, base, pool):
    op, n, m, x0, sa, so, fill = s[L_OP], s[L_N], s[L_M], s[L_X0], s[L_SA], s[L_SO], s[L_FILL]
    a, o = base + s[L_A], base + s[L_O]
    if op == TRANSPOSE:
        used = min(n, fill)
        for j in range(m):
            for k in range(x0):
                moves.strided(pool, a + j * n * sa + k, sa, pool, o, used)
                moves.fill(pool, o + used, fill - used, ZERO)
                o += so
    elif op == SPREAD:
        for j in range(m):
            for k in range(x0):
                moves.fill(pool, o, fill, pool[a + j * sa + k])
                o += so
    elif op == BROADCAST:
        for e in range(n * m):
            moves.fill(pool, o + e * so, fill, pool[a + e * sa])
    else:
        b = base + s[L_B]
        for e in range(n * m):
            moves.shift(pool, a + e * sa, pool, o + e * so, fill)
            if x0 < fill:
                pool[o + e * so + x0] = pool[b + e * s[L_SB] + x0]
