"""The compiled interpreter: every row of a step on every chip, in issue order, over one memory and one pool of streams.

It knows ops and addresses, never what a model is. The arithmetic is in `ticktrue.kernels`.
"""

import numba as nb
import numpy as np

from ticktrue.execute import lower as lo
from ticktrue.isa.ops import Dtype, Op, RegFn
from ticktrue.kernels import attend, lanes, matmul, philox, topk
from ticktrue.kernels.bits import (
    bf16_to_f32,
    e4m3_to_f32,
    f32_as_u32,
    f32_to_bf16_bits,
    f32_to_e4m3_bits,
    u32_as_f32,
)

F32, INT8, E4M3 = int(Dtype.F32), int(Dtype.INT8), int(Dtype.E4M3)
(L_OP, L_N, L_M, L_LANES, L_A, L_SA, L_B, L_SB, L_O, L_SO, L_STEP, L_STEP2, L_WIDTH, L_DTYPE, L_REGFN, L_REGSTRIDE,
 L_X0, L_X1, L_A0, L_A1, L_A2, L_A3, L_MODE, L_STRIDE, L_ROWS, L_ROW0, L_C0, L_C1, L_ONES, L_FILL, L_SOURCE, L_ROW,
 L_PATTERN) = range(33)  # fmt: skip
assert (lo.L_OP, lo.L_PATTERN) == (L_OP, L_PATTERN)  # noqa: S101 - the two lists are one

LOAD, GATHER, STORE, SCATTER = int(Op.LOAD), int(Op.GATHER), int(Op.STORE), int(Op.SCATTER)
SEND, RECEIVE, INSTALL, PASS = int(Op.SEND), int(Op.RECEIVE), int(Op.INSTALL), int(Op.PASS)
CONVERT, ADD, MUL, SCALE = int(Op.CONVERT), int(Op.ADD), int(Op.MUL), int(Op.SCALE)
MEAN_RSQRT, CMUL, ROPE, EXP = int(Op.MEAN_RSQRT), int(Op.CMUL), int(Op.ROPE), int(Op.EXP)
MASK, MAX, FOLD, COMBINE = int(Op.MASK), int(Op.MAX), int(Op.FOLD), int(Op.COMBINE)
DIVIDE, SILU_MUL, MOVE, MERGE = int(Op.DIVIDE), int(Op.SILU_MUL), int(Op.MOVE), int(Op.MERGE)
TRANSPOSE, SPREAD, BROADCAST, INSERT = int(Op.TRANSPOSE), int(Op.SPREAD), int(Op.BROADCAST), int(Op.INSERT)
LANE_SUM, LANE_ARGMAX, PICK = int(Op.LANE_SUM), int(Op.LANE_ARGMAX), int(Op.PICK)
SOFTCAP, GELU_MUL = int(Op.SOFTCAP), int(Op.GELU_MUL)
TILE_SCALE, QUANTISE = int(Op.TILE_SCALE), int(Op.QUANTISE)
NOISE, ACCEPT = int(Op.NOISE), int(Op.ACCEPT)
TOPK, LATCH = int(Op.TOPK), int(Op.LATCH)
TOKEN, P_DIV, P_MOD, KV, LAST = (
    int(RegFn.TOKEN),
    int(RegFn.P_DIV),
    int(RegFn.P_MOD),
    int(RegFn.KV),
    int(RegFn.LAST),
)
EXPERT, HOME, LOCAL = int(RegFn.EXPERT), int(RegFn.EXPERT_HOME), int(RegFn.EXPERT_LOCAL)
NAMED = lo.MODE_NAMED
ZERO = np.float32(0)
FEW = 16  # columns at or below which SIMD lanes are better spent on events


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
def _read(words, floats, octets, dtype, at, pool, o, count):
    """`count` lanes at vector `at` into the pool."""
    to = pool[o : o + count]
    if dtype == F32:
        to[:] = floats[at * 80 : at * 80 + count]
    elif dtype == INT8:
        byte = octets[at * 320 : at * 320 + count]
        for c in range(count):
            to[c] = np.float32(byte[c])
    elif dtype == E4M3:
        byte = octets[at * 320 : at * 320 + count]
        for c in range(count):
            to[c] = e4m3_to_f32(np.uint8(byte[c]))
    else:
        half = words[at * 160 : at * 160 + count]
        for c in range(count):
            to[c] = bf16_to_f32(half[c])


@nb.njit(cache=True, error_model="numpy")
def _write(words, floats, octets, dtype, at, pool, a, count):
    """`count` lanes of the pool to vector `at`."""
    x = pool[a : a + count]
    if dtype == F32:
        floats[at * 80 : at * 80 + count] = x
    elif dtype == INT8:
        byte = octets[at * 320 : at * 320 + count]
        for c in range(count):
            byte[c] = np.int8(x[c])
    elif dtype == E4M3:
        byte = octets[at * 320 : at * 320 + count]
        for c in range(count):
            byte[c] = np.int8(f32_to_e4m3_bits(x[c]))
    else:
        half = words[at * 160 : at * 160 + count]
        for c in range(count):
            half[c] = f32_to_bf16_bits(x[c])


@nb.njit(cache=True, error_model="numpy")
def _expert(s, expert, j):
    """Value of a function of the expert register of round j: the expert, the chip that holds it, its number there."""
    e = expert[s[L_A0] + j, s[L_A1]]
    if s[L_REGFN] == HOME:
        return e // s[L_A2]
    return e % s[L_A2] if s[L_REGFN] == LOCAL else e


@nb.njit(cache=True, error_model="numpy")
def _load(s, at, words, floats, octets, pool, token, position, last, cp, expert):
    lanes_ = s[L_LANES]
    for j in range(s[L_M]):
        for i in range(s[L_N]):
            v = at + i * s[L_STEP] + j * s[L_STEP2]
            if s[L_REGFN] >= EXPERT:
                v += _expert(s, expert, j) * s[L_REGSTRIDE]
            elif s[L_REGFN] != 0:
                at_row = 0 if s[L_REGFN] == LAST else i
                v += _register(s, at_row, token, position, last, cp) * s[L_REGSTRIDE]
            o = s[L_O] + (j * s[L_N] + i) * s[L_SO]
            _read(words, floats, octets, s[L_DTYPE], v, pool, o, lanes_)
            pool[o + lanes_ : o + s[L_FILL]] = ZERO


@nb.njit(cache=True, error_model="numpy")
def _name(s, pool, expert):
    """A wide GATHER, whose tiles are read in place: of each round the vectors between its address and its tile."""
    for j in range(s[L_M]):
        named = _expert(s, expert, j) * s[L_REGSTRIDE]
        pool[s[L_O] + j] = np.float32(named + j * s[L_STEP2])


@nb.njit(cache=True, error_model="numpy")
def _registers(steps, chips, rows):
    """Room for the expert registers that a step writes: [chips, token rows, ranks]."""
    ranks = 0
    for x in range(steps.shape[0]):
        if steps[x, L_OP] == LATCH:
            ranks = max(ranks, steps[x, L_X0])
    return np.zeros((chips, rows, ranks), np.int64)


@nb.njit(cache=True, error_model="numpy")
def _latch(s, pool, expert):
    """Expert registers of token rows A0, A0 + 1, ...: the k ids of each event, which follow its k weights."""
    k = s[L_X0]
    for i in range(s[L_N] * s[L_M]):
        for rank in range(k):
            expert[s[L_A0] + i, rank] = np.int64(f32_as_u32(pool[s[L_A] + i * s[L_SA] + k + rank]))


@nb.njit(cache=True, error_model="numpy")
def _store(s, at, words, floats, octets, pool, token, position, last, cp, c):
    dtype = s[L_DTYPE]
    count = s[L_WIDTH] * (80 if dtype == F32 else 320 if dtype >= INT8 else 160)
    for j in range(s[L_M]):
        for i in range(s[L_N]):
            v = at + i * s[L_STEP] + j * s[L_STEP2]
            if s[L_REGFN] != 0:
                if s[L_REGFN] == KV and _block(position[s[L_A0] + i], s[L_A1]) % cp != c:
                    continue
                v += _register(s, i, token, position, last, cp) * s[L_REGSTRIDE]
            _write(words, floats, octets, dtype, v, pool, s[L_A] + (j * s[L_N] + i) * s[L_SA], count)


@nb.njit(cache=True, error_model="numpy")
def _touch(words, at, count, scratch):
    """Reads one element of every cache line of a tile in order: pieces that are narrow would else miss line by line."""
    total = 0
    for i in range(at, at + count, 32):
        total += words[i]
    scratch[0] = np.float32(total & 1)


@nb.njit(cache=True, error_model="numpy")
def _pass(s, at, words, floats, octets, pool, a0, turned, xs, wide):
    """PASS: one call of the ordered product per tile; tile j for pass j where the INSTALL has several."""
    for j in range(s[L_M]):
        tile = j if s[L_X1] == 1 else 0
        x = s[L_A] + j * s[L_N] * s[L_SA] + s[L_ROW0]
        o = s[L_O] + j * s[L_N] * s[L_SO]
        for e in range(s[L_N]):
            to = o + e * s[L_SO]
            pool[to : to + s[L_C0]] = ZERO
            pool[to + s[L_C1] : to + s[L_FILL]] = ZERO
        c0, c1, sa, so, n = s[L_C0], s[L_C1], s[L_SA], s[L_SO], s[L_N]
        stride, rows = s[L_STRIDE], s[L_ROWS]
        first, mode = at + tile * s[L_X0], s[L_MODE]
        if mode >= NAMED:  # the tile that a register named
            first, mode = at + np.int64(pool[s[L_B] + tile]), mode - NAMED
        if mode == 0:
            begin = first * 160
            _touch(words, begin, stride * rows, turned)
            matmul.pass_bf16(words, begin, stride, rows, c0, c1, pool, x, sa, o, so, n)
        elif mode == 1:
            matmul.pass_f32(floats, first * 80, stride, rows, c0, c1, pool, x, sa, o, so, n)
        elif mode == 3:
            matmul.pass_int8(octets, first * 320, stride, rows, c0, c1, pool, x, sa, o, so, n, xs)
        elif mode == 4:
            matmul.pass_e4m3(octets, first * 320, stride, rows, c0, c1, pool, x, sa, o, so, n, wide)
        elif c1 - c0 <= FEW and n >= FEW:
            begin = s[L_B] + tile * s[L_X0]
            matmul.pass_few(pool, begin, stride, rows, c0, c1, pool, x, sa, o, so, n, turned, a0)
        else:
            begin = s[L_B] + tile * s[L_X0]
            matmul.pass_f32(pool, begin, stride, rows, c0, c1, pool, x, sa, o, so, n)
        if s[L_ONES] >= 0:
            matmul.pass_ones(pool, s[L_ROWS], x, s[L_SA], o + s[L_ONES], s[L_SO], s[L_N])


@nb.njit(cache=True, error_model="numpy")
def _merge(s, pool):
    cols, beats, first, col0, count = s[L_A0], s[L_X0], s[L_A1], s[L_A2], s[L_A3]
    half = count // 2 if s[L_X1] > 0 else count
    for j in range(s[L_M]):
        o = s[L_O] + j * s[L_SO]
        pool[o : o + s[L_FILL]] = ZERO
        for i in range(s[L_N]):
            r, v = (first + i) // beats, (first + i) % beats
            start = r * cols + v * 320
            end = min(start + 320, (r + 1) * cols)
            a = s[L_A] + (j * s[L_N] + i) * s[L_SA]
            lo_, hi = max(start, col0), min(end, col0 + min(half, s[L_FILL]))
            if lo_ < hi:
                pool[o + lo_ - col0 : o + hi - col0] = pool[a + lo_ - start : a + hi - start]
            if half < count:  # the second half starts X1 columns after the first
                far = col0 + s[L_X1]
                lo_, hi = max(start, far), min(end, far + min(count, s[L_FILL]) - half)
                if lo_ < hi:
                    pool[o + half + lo_ - far : o + half + hi - far] = pool[a + lo_ - start : a + hi - start]


@nb.njit(cache=True, error_model="numpy")
def _move(s, pool):
    for e in range(s[L_N] * s[L_M]):
        o, a = s[L_O] + e * s[L_SO], s[L_A] + e * s[L_SA]
        n = max(0, min(s[L_A1], s[L_FILL] - s[L_A2]))
        pool[o : o + min(s[L_A2], s[L_FILL])] = ZERO
        pool[o + s[L_A2] : o + s[L_A2] + n] = pool[a + s[L_A0] : a + s[L_A0] + n]
        pool[o + s[L_A2] + n : o + s[L_FILL]] = ZERO


@nb.njit(cache=True, error_model="numpy")
def _reshape(s, pool):
    n, m, x0 = s[L_N], s[L_M], s[L_X0]
    if s[L_OP] == TRANSPOSE:
        for j in range(m):
            for k in range(x0):
                o = s[L_O] + (j * x0 + k) * s[L_SO]
                for c in range(min(n, s[L_FILL])):
                    pool[o + c] = pool[s[L_A] + (j * n + c) * s[L_SA] + k]
                for c in range(n, s[L_FILL]):
                    pool[o + c] = ZERO
    elif s[L_OP] == SPREAD:
        for j in range(m):
            for k in range(x0):
                o = s[L_O] + (j * x0 + k) * s[L_SO]
                pool[o : o + s[L_FILL]] = pool[s[L_A] + j * s[L_SA] + k]
    elif s[L_OP] == BROADCAST:
        for e in range(n * m):
            o = s[L_O] + e * s[L_SO]
            pool[o : o + s[L_FILL]] = pool[s[L_A] + e * s[L_SA]]
    else:
        for e in range(n * m):
            o = s[L_O] + e * s[L_SO]
            a = s[L_A] + e * s[L_SA]
            pool[o : o + s[L_FILL]] = pool[a : a + s[L_FILL]]
            if x0 < s[L_FILL]:
                pool[o + x0] = pool[s[L_B] + e * s[L_SB] + x0]


@nb.njit(cache=True, error_model="numpy")
def _zero_rest(s, pool, events, used):
    for e in range(events):
        o = s[L_O] + e * s[L_SO]
        pool[o + used : o + s[L_FILL]] = ZERO


@nb.njit(cache=True, error_model="numpy")
def _vxm(s, pool, rank, cp, c, position, scratch, ids):
    op, events, width = s[L_OP], s[L_N] * s[L_M], s[L_LANES]
    a, sa, b, sb, o, so = s[L_A], s[L_SA], s[L_B], s[L_SB], s[L_O], s[L_SO]
    if op == CONVERT and s[L_DTYPE] == E4M3:
        lanes.convert_e4m3(pool, a, sa, o, so, events, width)
    elif op == CONVERT:
        lanes.convert(pool, a, sa, o, so, events, width)
    elif op == TILE_SCALE:
        lanes.tile_scale(pool, a, sa, o, so, events, min(s[L_SA], 320), s[L_DTYPE] - INT8)
    elif op == QUANTISE:
        lanes.quantise(pool, a, sa, b, sb, o, so, events, width, s[L_DTYPE] - INT8)
    elif op == ADD:
        lanes.add(pool, a, sa, b, sb, o, so, events, width)
    elif op == MUL:
        lanes.mul(pool, a, sa, b, sb, o, so, events, width)
    elif op == SCALE:
        lanes.scale(pool, a, sa, o, so, events, width, u32_as_f32(np.uint32(s[L_X0])))
    elif op == EXP:
        lanes.exp_sub(pool, a, sa, b, sb, o, so, events, width)
    elif op == SILU_MUL:
        lanes.silu_mul(pool, a, sa, b, sb, o, so, events, width)
    elif op == GELU_MUL:
        lanes.gelu_mul(pool, a, sa, b, sb, o, so, events, width)
    elif op == SOFTCAP:
        lanes.softcap(pool, a, sa, o, so, events, width, u32_as_f32(np.uint32(s[L_X0])))
    elif op == MASK:
        pos = position[s[L_A3] * s[L_X0]]
        attend.mask(pool, a, sa, o, so, s[L_N], s[L_M], width, s[L_X0], s[L_A0], cp, c, pos, s[L_A1], s[L_A2])
    elif op == COMBINE:
        attend.combine(pool, a, sa, b, sb, o, so, events, s[L_X0])
    elif op == DIVIDE:
        lanes.divide(pool, a, sa, o, so, events, s[L_X0])
    elif op == ROPE:
        lanes.rope(pool, a, sa, b, sb, o, so, events, s[L_X0], s[L_X1])
    elif op == CMUL:
        lanes.complex_mul(pool, a, sa, b, sb, o, so, events, s[L_X0])
    elif op == MEAN_RSQRT:
        lanes.mean_rsqrt(
            pool, a, sa, o, so, events, u32_as_f32(np.uint32(s[L_X0])), u32_as_f32(np.uint32(s[L_X1]))
        )
    else:
        events = s[L_M]
        if op == FOLD:
            lanes.fold(pool, a, sa, o, so, s[L_N], s[L_M], width)
        elif op == MAX:
            lanes.maximum(pool, a, sa, o, so, s[L_N], s[L_M], width)
        elif op == TOPK:
            topk.topk(pool, a, sa, o, so, s[L_N], s[L_M], s[L_A0], s[L_X0], width, ids, scratch)
        elif op == LANE_SUM:
            lanes.lane_sum(pool, a, sa, o, so, s[L_N], s[L_M], scratch)
        elif op == LANE_ARGMAX:
            valid = min(s[L_A0], s[L_A1] - rank * s[L_A0])
            lanes.lane_argmax(pool, a, sa, o, so, s[L_N], s[L_M], s[L_A2], valid, rank * s[L_A0])
        else:
            lanes.pick(pool, a, sa, o, so, s[L_N], s[L_M])
    _zero_rest(s, pool, events, width)


@nb.njit(cache=True, error_model="numpy")
def _noise(s, pool, rank, position, last, temperature, draw):
    """NOISE: row j of the step takes the registers of its own slot, and the position of the token that it chooses."""
    base = rank * s[L_A0]
    columns = min(s[L_A0], s[L_A1] - base)
    for j in range(s[L_M]):
        row = j * (position.size // last.size) + last[j] if s[L_X0] == 1 else j
        at = np.uint32(position[row] + 1)
        a, o = s[L_A] + j * s[L_N] * s[L_SA], s[L_O] + j * s[L_N] * s[L_SO]
        k0, k1, choice = draw[j, 0], draw[j, 1], draw[j, 2]
        philox.noise(pool, a, s[L_SA], o, s[L_SO], s[L_N], s[L_LANES], s[L_A2], columns, base, temperature[j], at, choice,
                     k0, k1)  # fmt: skip
    _zero_rest(s, pool, s[L_N] * s[L_M], s[L_LANES])


@nb.njit(cache=True, error_model="numpy")
def _accept(s, pool, token, last):
    """ACCEPT: how many leading rows of slot A0 + j chose the token that the slot's next row brings."""
    tokens = token.size // last.size
    for j in range(s[L_M]):
        first, slot, a = (s[L_A0] + j) * tokens, s[L_A0] + j, s[L_A] + j * s[L_N] * s[L_SA]
        count = 0
        while count < last[slot] and f32_as_u32(pool[a + count * s[L_SA] + 1]) == np.uint32(
            token[first + count + 1]
        ):
            count += 1
        pool[s[L_O] + j * s[L_SO]] = u32_as_f32(np.uint32(count))
    _zero_rest(s, pool, s[L_M], s[L_LANES])


@nb.njit(cache=True, error_model="numpy", nogil=True)
def run(
    steps, address, peer, table, words, floats, octets, pools, token, position, last, cp, temperature, draw
):
    """One step. `pools` float32[chips, floats]; `table` int64[chips, 3]: a chip's index in each pattern.

    `token`, `position` int64[S * T]; `last` int64[S]: a slot's last valid token. `temperature` float32[rows] and `draw`
    uint32[rows, 3] (seed low, seed high, choice): registers by row of logits.
    """
    a0, scratch = np.empty(320, np.float32), np.empty(512, np.float32)
    ids = np.empty(160, np.int64)
    expert = _registers(steps, pools.shape[0], token.size)
    turned = np.empty(max(64, token.size) * 320, np.float32)
    xs, wide = np.empty(max(64, token.size) * 320, np.int16), np.empty(320 * 320, np.float32)
    for x in range(steps.shape[0]):
        s = steps[x]
        op = s[L_OP]
        if op == SEND or op == RECEIVE or op == INSTALL:
            continue
        for chip in range(pools.shape[0]):
            pool = pools[chip]
            c = table[chip, 1]
            if op == LOAD or op == GATHER:
                if s[L_SO] > 0:
                    _load(
                        s,
                        address[chip, x],
                        words,
                        floats,
                        octets,
                        pool,
                        token,
                        position,
                        last,
                        cp,
                        expert[chip],
                    )
                elif op == GATHER:
                    _name(s, pool, expert[chip])
            elif op == LATCH:
                _latch(s, pool, expert[chip])
            elif op == STORE or op == SCATTER:
                source = pool
                if s[L_SOURCE] >= 0:
                    source = pools[peer[chip, s[L_SOURCE]]]
                _store(s, address[chip, x], words, floats, octets, source, token, position, last, cp, c)
            elif op == PASS:
                at = address[chip, s[L_SOURCE]] if s[L_MODE] != 2 else 0
                _pass(s, at, words, floats, octets, pool, a0, turned, xs, wide)
            elif op == MERGE:
                _merge(s, pool)
            elif op == MOVE:
                _move(s, pool)
            elif op == TRANSPOSE or op == SPREAD or op == BROADCAST or op == INSERT:
                _reshape(s, pool)
            elif op == NOISE:
                _noise(s, pool, table[chip, s[L_PATTERN]], position, last, temperature, draw)
            elif op == ACCEPT:
                _accept(s, pool, token, last)
            else:
                _vxm(s, pool, table[chip, s[L_PATTERN]], cp, c, position, scratch, ids)
