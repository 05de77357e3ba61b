"""The compiled interpreter: every row of a step on every chip, in issue order, over one memory and one pool of streams.

It knows ops and addresses, never what a model is. The arithmetic is in `ticktrue.kernels`.
"""

import numba as nb
import numpy as np

from ticktrue.execute import lower as lo
from ticktrue.execute import moving_kernel as moving
from ticktrue.isa.ops import Dtype, Op
from ticktrue.kernels import attend, blocks, lanes, matmul, moves, philox, topk
from ticktrue.kernels.atomic import add, claim, load
from ticktrue.kernels.bits import f32_as_u32, u32_as_f32

INT8, E4M3 = int(Dtype.INT8), int(Dtype.E4M3)
(L_OP, L_N, L_M, L_LANES, L_A, L_SA, L_B, L_SB, L_O, L_SO, L_STEP, L_STEP2, L_WIDTH, L_DTYPE, L_REGFN, L_REGSTRIDE,
 L_X0, L_X1, L_A0, L_A1, L_A2, L_A3, L_MODE, L_STRIDE, L_ROWS, L_ROW0, L_C0, L_C1, L_ONES, L_FILL, L_PATTERN,
) = range(31)  # fmt: skip
assert (lo.L_OP, lo.L_PATTERN) == (L_OP, L_PATTERN)  # noqa: S101 - the two lists are one

LOAD, GATHER, STORE, SCATTER = int(Op.LOAD), int(Op.GATHER), int(Op.STORE), int(Op.SCATTER)
PASS = int(Op.PASS)
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
NAMED = lo.MODE_NAMED
ZERO = np.float32(0)
PATIENCE = 20_000  # looks at another thread's progress before the core is offered to others: some 10 us
TOGETHER = (
    8  # chips that do a row one after the other, before the next row: fewer read the list of rows more often
)
FEW = 16  # columns at or below which SIMD lanes are better spent on events


@nb.njit(cache=True, error_model="numpy")
def _fetch(mode, first, words, octets, stride, rows, c0, c1):
    """Asks for the columns of a narrow tile in memory: of the first chip, for of the next ones the one before does."""
    if mode == 0:
        blocks.fetch(words, first * 160 + c0, stride, rows, c1 - c0)
    elif mode == 3 or mode == 4:
        blocks.fetch(octets, first * 320 + c0, stride, rows, c1 - c0)


@nb.njit(cache=True, error_model="numpy")
def _pass(s, base, at, ahead, cold, words, floats, octets, pool, rooms):
    """PASS: one call of the ordered product per tile; tile j for pass j where the INSTALL has several."""
    a0, turned, xs, _, _ = rooms
    c0, c1, sa, so, n, fill = s[L_C0], s[L_C1], s[L_SA], s[L_SO], s[L_N], s[L_FILL]
    stride, rows = s[L_STRIDE], s[L_ROWS]
    for j in range(s[L_M]):
        tile = j if s[L_X1] == 1 else 0
        x = base + s[L_A] + j * n * sa + s[L_ROW0]
        o = base + s[L_O] + j * n * so
        if c0 > 0 or c1 < fill:
            for to in range(o, o + n * so, so):
                moves.fill(pool, to, c0, ZERO)
                moves.fill(pool, to + c1, fill - c1, ZERO)
        first, mode = at + tile * s[L_X0], s[L_MODE]
        if mode >= NAMED:  # the tile that a register named
            first, mode = at + np.int64(pool[base + s[L_B] + tile]), mode - NAMED
        if cold:
            _fetch(mode, first, words, octets, stride, rows, c0, c1)
        if mode == 0:
            begin = first * 160
            matmul.pass_float(words, begin, stride, rows, c0, c1, pool, x, sa, o, so, n, ahead * 160)
        elif mode == 1:
            matmul.pass_float(floats, first * 80, stride, rows, c0, c1, pool, x, sa, o, so, n, ahead * 80)
        elif mode == 3:
            matmul.pass_int8(
                octets, first * 320, stride, rows, c0, c1, pool, x, sa, o, so, n, ahead * 320, xs
            )
        elif mode == 4:
            matmul.pass_float(octets, first * 320, stride, rows, c0, c1, pool, x, sa, o, so, n, ahead * 320)
        elif c1 - c0 <= FEW and n >= FEW:
            begin = base + s[L_B] + tile * s[L_X0]
            matmul.pass_few(pool, begin, stride, rows, c0, c1, pool, x, sa, o, so, n, turned, a0)
        else:
            begin = base + s[L_B] + tile * s[L_X0]
            matmul.pass_float(pool, begin, stride, rows, c0, c1, pool, x, sa, o, so, n, 0)
        if s[L_ONES] >= 0:
            matmul.pass_ones(pool, rows, x, sa, o + s[L_ONES], so, n)


@nb.njit(cache=True, error_model="numpy")
def _zero_rest(s, base, pool, events, used):
    rest = s[L_FILL] - used
    if rest > 0:
        for e in range(events):
            moves.fill(pool, base + s[L_O] + e * s[L_SO] + used, rest, ZERO)


@nb.njit(cache=True, error_model="numpy")
def _lane_by_lane(s, base, pool):
    """Rows whose lane c of event e reads but lane c of event e; whether this is one."""
    op, events, width = s[L_OP], s[L_N] * s[L_M], s[L_LANES]
    a, sa, b, sb, o, so = base + s[L_A], s[L_SA], base + s[L_B], s[L_SB], base + s[L_O], s[L_SO]
    one = op == CONVERT or op == SCALE or op == SOFTCAP
    if not (one or op == ADD or op == MUL or op == EXP or op == SILU_MUL or op == GELU_MUL):
        return False
    used = width
    if sa == width and so == width and (one or sb == width):  # no gaps: as if one event
        events, width = 1, events * width
    if op == CONVERT and s[L_DTYPE] == E4M3:
        lanes.convert_e4m3(pool, a, sa, o, so, events, width)
    elif op == CONVERT:
        lanes.convert(pool, a, sa, o, so, events, width)
    elif op == SCALE:
        lanes.scale(pool, a, sa, o, so, events, width, u32_as_f32(np.uint32(s[L_X0])))
    elif op == SOFTCAP:
        lanes.softcap(pool, a, sa, o, so, events, width, u32_as_f32(np.uint32(s[L_X0])))
    elif op == ADD:
        lanes.add(pool, a, sa, b, sb, o, so, events, width)
    elif op == MUL:
        lanes.mul(pool, a, sa, b, sb, o, so, events, width)
    elif op == EXP:
        lanes.exp_sub(pool, a, sa, b, sb, o, so, events, width)
    elif op == SILU_MUL:
        lanes.silu_mul(pool, a, sa, b, sb, o, so, events, width)
    else:
        lanes.gelu_mul(pool, a, sa, b, sb, o, so, events, width)
    _zero_rest(s, base, pool, s[L_N] * s[L_M], used)
    return True


@nb.njit(cache=True, error_model="numpy")
def _vxm(s, base, pool, rank, cp, position, scratch, ids):
    if _lane_by_lane(s, base, pool):
        return
    op, events, width = s[L_OP], s[L_N] * s[L_M], s[L_LANES]
    a, sa, b, sb, o, so = base + s[L_A], s[L_SA], base + s[L_B], s[L_SB], base + s[L_O], s[L_SO]
    if op == TILE_SCALE:
        lanes.tile_scale(pool, a, sa, o, so, events, min(s[L_SA], 320), s[L_DTYPE] - INT8)
    elif op == QUANTISE:
        lanes.quantise(pool, a, sa, b, sb, o, so, events, width, s[L_DTYPE] - INT8)
    elif op == MASK:
        pos = position[s[L_A3] * s[L_X0]]
        attend.mask(
            pool, a, sa, o, so, s[L_N], s[L_M], width, s[L_X0], s[L_A0], cp, rank, pos, s[L_A1], s[L_A2]
        )
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
    _zero_rest(s, base, pool, events, width)


@nb.njit(cache=True, error_model="numpy")
def _noise(s, base, pool, rank, position, last, temperature, draw):
    """NOISE: row j of the step takes the registers of its own slot, and the position of the token that it chooses."""
    column = rank * s[L_A0]
    columns = min(s[L_A0], s[L_A1] - column)
    for j in range(s[L_M]):
        row = j * (position.size // last.size) + last[j] if s[L_X0] == 1 else j
        at = np.uint32(position[row] + 1)
        a, o = base + s[L_A] + j * s[L_N] * s[L_SA], base + s[L_O] + j * s[L_N] * s[L_SO]
        k0, k1, choice = draw[j, 0], draw[j, 1], draw[j, 2]
        philox.noise(pool, a, s[L_SA], o, s[L_SO], s[L_N], s[L_LANES], s[L_A2], columns, column, temperature[j], at, choice,
                     k0, k1)  # fmt: skip
    _zero_rest(s, base, pool, s[L_N] * s[L_M], s[L_LANES])


@nb.njit(cache=True, error_model="numpy")
def _accept(s, base, pool, token, last):
    """ACCEPT: how many leading rows of slot A0 + j chose the token that the slot's next row brings."""
    tokens = token.size // last.size
    for j in range(s[L_M]):
        first, slot, a = (s[L_A0] + j) * tokens, s[L_A0] + j, base + s[L_A] + j * s[L_N] * s[L_SA]
        count = 0
        while count < last[slot] and f32_as_u32(pool[a + count * s[L_SA] + 1]) == np.uint32(
            token[first + count + 1]
        ):
            count += 1
        pool[base + s[L_O] + j * s[L_SO]] = u32_as_f32(np.uint32(count))
    _zero_rest(s, base, pool, s[L_M], s[L_LANES])


@nb.njit(cache=True, error_model="numpy")
def _compute(s, address, chips, state, memory, registers):
    """A row that computes, on chips (first, end, floats of a chip's streams)."""
    table, pool, rooms = state
    words, floats, octets = memory
    token, position, last, sizes, temperature, draw = registers
    op, (first, end, size) = s[L_OP], chips
    for chip in range(first, end):
        base = chip * size
        if op == PASS:
            ahead = address[chip + 1] - address[chip] if chip + 1 < end else 0
            _pass(s, base, address[chip], ahead, chip == first, words, floats, octets, pool, rooms)
        elif op == NOISE:
            _noise(s, base, pool, table[s[L_PATTERN], chip], position, last, temperature, draw)
        elif op == ACCEPT:
            _accept(s, base, pool, token, last)
        else:
            rank, cp = table[s[L_PATTERN], chip], sizes[s[L_PATTERN]]
            _vxm(s, base, pool, rank, cp, position, rooms[3], rooms[4])


@nb.njit(cache=True, error_model="numpy")
def _rows(begin, end, listed, chips, state, memory, registers):
    """Rows begin .. end - 1 of the list on chips (first, end, floats of a chip's streams), each row on all of them in turn."""
    steps, address, source = listed
    table, pool, rooms, experts = state
    octets = memory[2]
    token, position, last, sizes, _temperature, _draw = registers
    for x in range(begin, end):
        s, at = steps[x], address[x]
        op, cp = s[L_OP], sizes[s[L_PATTERN]]
        if op == LOAD or op == GATHER:
            if s[L_SO] <= 0:
                moving.name(s, chips, pool, experts)
            elif s[L_REGFN] == 0:
                moving.load(s, at, chips, octets, pool)
            else:
                moving.gather(s, at, chips, octets, pool, token, position, last, cp, experts)
        elif op == STORE or op == SCATTER:
            if s[L_REGFN] == 0:
                moving.store(s, at, source[x], chips, octets, pool)
            else:
                lane = table[s[L_PATTERN]]
                moving.scatter(s, at, source[x], chips, octets, pool, token, position, last, cp, lane)
        elif op == MERGE:
            moving.merge(s, chips, pool)
        elif op == MOVE:
            moving.move(s, chips, pool)
        elif op == TRANSPOSE or op == SPREAD or op == BROADCAST or op == INSERT:
            moving.reshape(s, chips, pool)
        elif op == LATCH:
            moving.latch(s, chips, pool, experts)
        else:
            _compute(s, at, chips, (table, pool, rooms), memory, registers)


@nb.njit(cache=True, error_model="numpy", nogil=True)
def run(
    steps, address, source, table, words, floats, octets, pools, token, position, last, sizes, temperature, draw, experts, bounds,
    claimed, done, first, begin,
):  # fmt: skip
    """A step, or one thread's part of it. `pools` float32[chips * floats], the streams of one chip after another's.

    `address`, `source` int64[rows, chips]: the vector of memory where a row reads or writes, the chip whose streams it reads;
    `table` int64[patterns, chips]: a chip's index in each pattern, of `sizes` int64[patterns] chips.

    `token`, `position` int64[S * T]; `last` int64[S]: a slot's last valid token. `temperature` float32[rows] and `draw`
    uint32[rows, 3] (seed low, seed high, choice): registers by row of logits. `experts` int64[chips, token rows, ranks].

    Segment g is rows bounds[g] .. bounds[g + 1] - 1; the chips of a segment are claimed in shares. `claimed` int64[segments *
    shares] and `done` int64[segments], zeros before the step, are shared by its threads; this one tries share `first` first. It
    starts at segment `begin` and returns the segment whose end it would have to wait for long, or the number of segments.
    """
    a0, scratch = np.empty(320, np.float32), np.empty(512, np.float32)
    ids = np.empty(160, np.int64)
    turned = np.empty(max(64, token.size) * 320, np.float32)
    xs = np.empty(max(64, token.size) * 320, np.int16)
    state = (table, pools, (a0, turned, xs, scratch, ids), experts)
    listed = (steps, address, source)
    memory, registers = (words, floats, octets), (token, position, last, sizes, temperature, draw)
    number, shares = table.shape[1], claimed.size // done.size
    for g in range(begin, done.size):
        for i in range(shares):
            share = (first + i) % shares
            if load(claimed, g * shares + share) != 0 or claim(claimed, g * shares + share) != 0:
                continue
            end = (share + 1) * number // shares
            for chip in range(share * number // shares, end, TOGETHER):
                chips = (chip, min(chip + TOGETHER, end), pools.size // number)
                _rows(bounds[g], bounds[g + 1], listed, chips, state, memory, registers)
            add(done, g)
        for _ in range(PATIENCE):
            if load(done, g) == shares:
                break
        if load(done, g) != shares:
            return g
    return done.size
