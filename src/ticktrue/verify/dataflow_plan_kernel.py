"""What is known of every row before any value: lanes, roundness, evaluation order of its buffers. Compiled and not typed.

`rows` are the rows of `program.expand`; `order` lists them by issue cycle. S_* are columns of the static table, int64[R, *].
"""

import numba as nb
import numpy as np

from ticktrue.isa import Op
from ticktrue.program import columns as col

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

inner = nb.njit(cache=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""For functions that only kernels call: wrappers for Python cost more to compile than the functions."""

LANES = 320
HALVES = 160
BF16, F32, INT8, E4M3 = 0, 1, 2, 3

TAG_NAMES = (
    "CONVERT", "SCALE", "LANE_SUM", "MEAN_RSQRT", "CMUL_C", "CMUL_S", "ROPE_1", "ROPE_2", "MASK", "MAX",
    "EXP", "COMBINE", "DIVIDE", "SILU_MUL", "SCATTER", "ARGMAX", "PASS", "NARROW", "NOISE", "SOFTCAP", "GELU_MUL",
    "TILE_SCALE", "QUANTISE", "TOPK", "ACCEPT",
)  # fmt: skip
(
    T_CONVERT,
    T_SCALE,
    T_LANE_SUM,
    T_MEAN_RSQRT,
    T_CMUL_C,
    T_CMUL_S,
    T_ROPE_1,
    T_ROPE_2,
    T_MASK,
    T_MAX,
    T_EXP,
    T_COMBINE,
    T_DIVIDE,
    T_SILU_MUL,
    T_SCATTER,
    T_ARGMAX,
    T_PASS,
    T_NARROW,
    T_NOISE,
    T_SOFTCAP,
    T_GELU_MUL,
    T_TILE_SCALE,
    T_QUANTISE,
    T_TOPK,
    T_ACCEPT,
    T_ONE,
) = range(26)

(
    S_RANK,  # place in the evaluation order
    S_EVENTS,  # events of the result
    S_LANES,  # lanes kept of each event; those beyond are zero or never read
    S_LOW,  # lanes below this one are never read
    S_OFFSET,  # first word of the result in the pool
    S_ROUNDED,  # 1: every element is one that bf16 can hold
    S_BROKEN,  # 1: the row cannot be evaluated; its result is poison
    S_LAZY,  # 1: a weight tile that is made where it is used, never kept
    S_LAST,  # place in the order of the last row that reads the result
    S_PLANE_ROWS,  # INSTALL: rows of the plane that it brings
    S_ACTIVE,  # lanes that can be other than zero
    S_ALIAS,  # row whose result this one's is, on this chip (SEND) or the peer (RECEIVE); -1: it has its own
) = range(12)
S_COLUMNS = 12


@inner
def fill(out, first, last, value):
    """out[first .. last - 1] = value (a slice assignment takes much longer to compile)."""
    for i in range(first, last):
        out[i] = value


@inner
def lanes_of(dtype):
    """Elements of a vector; 0 for a type that does not exist."""
    if dtype == BF16:
        return 160
    if dtype == INT8 or dtype == E4M3:
        return 320
    return 80 if dtype == F32 else 0


@inner
def fits(rounded, dtype):
    """Whether elements that S_ROUNDED says this of are such as `dtype` can hold: 0, or 1 + the type that they were rounded to."""
    return dtype == F32 or rounded == 1 + dtype


@inner
def operands(op):
    """Stream operands of an op (PASS: x and its INSTALL)."""
    if op == LOAD or op == GATHER:
        return 0
    two = op == ADD or op == MUL or op == CMUL or op == ROPE or op == EXP or op == COMBINE
    if two or op == SILU_MUL or op == GELU_MUL or op == QUANTISE or op == INSERT or op == PASS:
        return 2
    return 1


@inner
def _attributes_ok(row):
    """Whether the attributes of a row are within what its op can mean."""
    op, x0, x1 = row[col.C_OP], row[col.C_X0], row[col.C_X1]
    a0, a1, a2, a3 = row[col.C_A0], row[col.C_A1], row[col.C_A2], row[col.C_A3]
    if op <= INSTALL and lanes_of(row[col.C_DTYPE]) == 0:
        return False
    register = op == GATHER or op == SCATTER
    if (row[col.C_REGFN] != 0) != register:
        return False
    if register and (a0 < 0 or a1 < 0):
        return False
    if op <= RECEIVE:
        return 1 <= row[col.C_WIDTH] <= 4096
    if op == INSTALL:
        return 0 <= x0 <= max(row[col.C_WIDTH], 0) and a0 >= 0 and 0 <= a1 < a2 and a2 + (x1 == 1) <= LANES
    if op == TILE_SCALE or op == QUANTISE:
        return row[col.C_DTYPE] == INT8 or row[col.C_DTYPE] == E4M3
    if op == CONVERT:
        return row[col.C_DTYPE] == BF16 or row[col.C_DTYPE] == E4M3
    if op == CMUL:
        return 0 < x0 <= LANES and x0 % 2 == 0
    if op == COMBINE or op == DIVIDE:
        return 0 < x0 <= LANES - 2
    if op == ROPE:
        return x0 > 0 and x0 % 2 == 0 and 0 < x1 <= LANES // x0
    if op == MASK:
        return x0 > 0 and a0 >= 0 and a1 >= 0 and a2 >= 0 and a3 >= 0
    if op == MOVE:
        return 0 <= a0 <= LANES and 0 < a1 <= LANES - a0 and 0 <= a2 <= LANES - a1
    if op == MERGE:
        return x0 > 0 and a0 > 0 and a1 >= 0 and a2 >= 0 and 0 < a3 <= LANES and x1 >= 0
    if op == TRANSPOSE or op == SPREAD:
        return 0 < x0 <= LANES and (row[col.C_N] <= LANES if op == TRANSPOSE else row[col.C_N] == 1)
    if op == INSERT:
        return 0 <= x0 < LANES
    if op == LANE_ARGMAX or op == NOISE:
        return a0 > 0 and a2 >= 0
    if op == TOPK:
        return 0 < x0 <= LANES // 2 and a0 > 0
    if op == LATCH or op == ACCEPT:
        return a0 >= 0
    return True


@inner
def _events(row):
    """Events of a row's result."""
    op, n, m = row[col.C_OP], row[col.C_N], row[col.C_M]
    if op == STORE or op == SCATTER or op == INSTALL or op == LATCH:
        return 0
    reduce = op == MAX or op == FOLD or op == MERGE or op == LANE_SUM or op == LANE_ARGMAX or op == PICK
    reduce = reduce or op == TOPK or op == ACCEPT
    if reduce:
        return m
    return row[col.C_X0] * m if op == TRANSPOSE or op == SPREAD else n * m


@inner
def _broken(rows, stat, r):
    """Whether row r cannot be evaluated: bad attributes, or an operand that is not there yet or of another shape."""
    row = rows[r]
    op, n, m = row[col.C_OP], row[col.C_N], row[col.C_M]
    if n < 1 or m < 1 or not _attributes_ok(row):
        return True
    for i in range(operands(op)):
        s = row[col.C_S0 + i]
        if s < 0 or s >= rows.shape[0] or stat[s, S_RANK] >= stat[r, S_RANK]:
            return True
        if op == PASS and i == 1:
            other = rows[s]
            fits = other[col.C_M] == 1 or other[col.C_M] == m
            if other[col.C_OP] != INSTALL or stat[s, S_BROKEN] or not fits:
                return True
        elif stat[s, S_EVENTS] != n * m:
            return True
        packet = op == INSTALL and row[col.C_X0] > 0
        if packet and (rows[s, col.C_OP] > RECEIVE or rows[s, col.C_WIDTH] != row[col.C_WIDTH]):
            return True
        if op == LATCH and rows[s, col.C_OP] != TOPK:
            return True
        if op == RECEIVE:
            other = rows[s]
            same = other[col.C_DTYPE] == row[col.C_DTYPE] and other[col.C_WIDTH] == row[col.C_WIDTH]
            if other[col.C_OP] != SEND or not same:
                return True
    return False


@inner
def _active(rows, stat, r):
    """Lanes of a result that can be other than zero."""
    row = rows[r]
    op, x0 = row[col.C_OP], row[col.C_X0]
    a = stat[row[col.C_S0], S_ACTIVE] if operands(op) > 0 else 0
    b = stat[row[col.C_S1], S_ACTIVE] if operands(op) > 1 else 0
    packet = row[col.C_WIDTH] * lanes_of(row[col.C_DTYPE])
    if op == LOAD or op == GATHER:
        return packet
    if op == SEND or op == RECEIVE:
        return min(a, packet)
    if op == PASS:
        plane = rows[row[col.C_S1]]
        return plane[col.C_A2] + (plane[col.C_X1] == 1)
    if op == CONVERT or op == SCALE or op == FOLD or op == SOFTCAP or op == QUANTISE:
        return a
    if op == ADD:
        return max(a, b)
    if op == MUL or op == SILU_MUL or op == GELU_MUL:
        return min(a, b)
    if op == INSERT:
        return max(a, x0 + 1)
    if op == COMBINE:
        return x0 + 2
    if op == CMUL or op == DIVIDE:
        return x0
    if op == ROPE:
        return x0 * row[col.C_X1]
    if op == MOVE:
        return row[col.C_A2] + row[col.C_A1]
    if op == MERGE:
        return row[col.C_A3]
    if op == TRANSPOSE:
        return row[col.C_N]
    if op == LANE_SUM or op == TILE_SCALE or op == ACCEPT:
        return 1
    if op == TOPK:
        return 2 * x0
    return 2 if op == LANE_ARGMAX or op == PICK else LANES


@inner
def _rounded(rows, stat, r):
    """The type that every element of a result was rounded to, plus 1; 0 where they can be any float32."""
    row = rows[r]
    op, dtype = row[col.C_OP], row[col.C_DTYPE]
    if op == CONVERT or op == QUANTISE:
        return 1 + dtype
    if op == LOAD or op == GATHER or op == SEND:
        if dtype != F32:
            return 1 + dtype
        return 0 if op != SEND else stat[row[col.C_S0], S_ROUNDED]
    turns = op == TRANSPOSE or op == SPREAD or op == BROADCAST
    if op == RECEIVE or turns or op == MOVE or op == MERGE:
        return stat[row[col.C_S0], S_ROUNDED]
    if op == INSERT and stat[row[col.C_S0], S_ROUNDED] == stat[row[col.C_S1], S_ROUNDED]:
        return stat[row[col.C_S0], S_ROUNDED]
    return 0


@inner
def _need(rows, stat, r, i):
    """(low, high): lanes of operand i that row r reads, given those of its own result that are read."""
    row = rows[r]
    op, x0, x1 = row[col.C_OP], row[col.C_X0], row[col.C_X1]
    low, high = stat[r, S_LOW], stat[r, S_LANES]
    if op == RECEIVE or (op == SEND and stat[r, S_ALIAS] >= 0):
        return low, high
    if op == STORE or op == SCATTER or op == SEND:
        return 0, row[col.C_WIDTH] * lanes_of(row[col.C_DTYPE])
    if op == INSTALL:
        return (0, 1 << 30) if x0 > 0 else (row[col.C_A1], row[col.C_A2])
    if op == PASS:
        plane = row[col.C_S1]
        first = rows[plane, col.C_A0]
        return first, min(first + stat[plane, S_PLANE_ROWS], lanes_of(rows[plane, col.C_DTYPE]))
    if op == COMBINE:
        return 0, x0 + 2
    if op == DIVIDE:
        return 0, x0 + 1
    if op == CMUL:
        return 0, x0
    if op == ROPE:
        return 0, (x0 * x1 if i == 0 else x0)
    if op == MOVE:
        return row[col.C_A0], row[col.C_A0] + row[col.C_A1]
    if op == TRANSPOSE or op == SPREAD:
        return 0, x0
    if op == BROADCAST or (op == QUANTISE and i == 1):
        return 0, 1
    if op == INSERT:
        return (x0, x0 + 1) if i == 1 else (low, high)
    if op == PICK or op == ACCEPT:
        return 0, 2
    if op == LATCH:
        return 0, 2 * rows[row[col.C_S0], col.C_X0]
    if op == MERGE or op == LANE_SUM or op == LANE_ARGMAX or op == TILE_SCALE or op == TOPK:
        return 0, LANES
    return low, high


@inner
def _alias(rows, stat, r):
    """The row whose result a SEND or RECEIVE passes on unchanged; -1 for any other."""
    op, s = rows[r, col.C_OP], rows[r, col.C_S0]
    if op == RECEIVE:
        return s if stat[r, S_ACTIVE] == stat[s, S_ACTIVE] and not stat[s, S_BROKEN] else -1
    if op != SEND or stat[s, S_BROKEN] or stat[r, S_ACTIVE] != stat[s, S_ACTIVE]:
        return -1
    return s if fits(stat[s, S_ROUNDED], rows[r, col.C_DTYPE]) else -1


@nb.njit(cache=True)
def analyse(rows, order, lazy_load):
    """The static table. `lazy_load` int64[R]: vectors per row where a LOAD is exactly one whole weight tile, else 0."""
    count = rows.shape[0]
    stat = np.zeros((count, S_COLUMNS), np.int64)
    for at in range(count):
        stat[order[at], S_RANK] = at
    for at in range(count):
        r = order[at]
        row = rows[r]
        stat[r, S_LAST], stat[r, S_ALIAS] = at, -1
        stat[r, S_BROKEN] = _broken(rows, stat, r)
        if stat[r, S_BROKEN]:
            stat[r, S_ACTIVE] = LANES
            if 1 <= row[col.C_N] * row[col.C_M] < 1 << 20:
                stat[r, S_EVENTS] = min(max(_events(row), 0), 1 << 20)
            continue
        stat[r, S_EVENTS] = _events(row)
        stat[r, S_ROUNDED] = _rounded(rows, stat, r)
        if row[col.C_OP] == INSTALL:
            brought = row[col.C_WIDTH] // row[col.C_X0] if row[col.C_X0] > 0 else 1
            stat[r, S_PLANE_ROWS] = min(
                row[col.C_N] * brought, max(lanes_of(row[col.C_DTYPE]) - row[col.C_A0], 0)
            )
            whole = row[col.C_N] * row[col.C_M] == 1 and row[col.C_X0] > 0 and row[col.C_X1] == 0
            same = row[col.C_WIDTH] == rows[row[col.C_S0], col.C_WIDTH]
            stat[r, S_LAZY] = whole and same and lazy_load[row[col.C_S0]] == row[col.C_X0]
        else:
            stat[r, S_ACTIVE] = _active(rows, stat, r)
            stat[r, S_ALIAS] = _alias(rows, stat, r)
    _needs(rows, order, lazy_load, stat)
    return stat


@inner
def _needs(rows, order, lazy_load, stat):
    """Fills S_LOW, S_LANES, S_LAST and the S_LAZY of LOADs, from the last row to the first."""
    count = rows.shape[0]
    low = np.zeros(count, np.int64)
    fill(low, 0, count, LANES)
    high = np.zeros(count, np.int64)
    kept = np.zeros(count, np.int64)
    for at in range(count - 1, -1, -1):
        r = order[at]
        op = rows[r, col.C_OP]
        stat[r, S_LOW] = low[r]
        stat[r, S_LANES] = min(high[r], stat[r, S_ACTIVE])
        if lazy_load[r] > 0 and not kept[r]:
            stat[r, S_LAZY] = 1
        if stat[r, S_BROKEN]:
            continue
        for i in range(operands(op)):
            s = rows[r, col.C_S0 + i]
            stat[s, S_LAST] = max(stat[s, S_LAST], at if stat[r, S_ALIAS] < 0 else stat[r, S_LAST])
            if op == PASS and i == 1:
                lazy = rows[s, col.C_S0]
                stat[lazy, S_LAST] = max(stat[lazy, S_LAST], at)
                continue
            if not (op == INSTALL and stat[r, S_LAZY]):
                kept[s] = 1
            a, b = _need(rows, stat, r, i)
            low[s] = min(low[s], a)
            high[s] = max(high[s], b)


@nb.njit(cache=True)
def place(rows, order, stat):
    """Gives every result its words of the pool, reused once their last reader has run; the pool's size in words."""
    count = rows.shape[0]
    bins = np.zeros(64, np.int64)  # free blocks by log2 of their size, as linked lists of rows
    link = np.zeros(count, np.int64)
    fill(bins, 0, 64, -1)
    fill(link, 0, count, -1)
    size = np.zeros(count, np.int64)
    start = np.zeros(count + 1, np.int64)
    for at in range(count):
        start[stat[order[at], S_LAST] + 1] += 1
    for at in range(count):
        start[at + 1] += start[at]
    ending, slot = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for at in range(count):
        slot[at] = start[at]
    for at in range(count):
        r = order[at]
        ending[slot[stat[r, S_LAST]]] = r
        slot[stat[r, S_LAST]] += 1
    top = 0
    for at in range(count):
        r = order[at]
        words = stat[r, S_EVENTS] * stat[r, S_LANES]
        if rows[r, col.C_OP] == INSTALL and not stat[r, S_BROKEN]:
            cols = rows[r, col.C_A2] - rows[r, col.C_A1] + (rows[r, col.C_X1] == 1)
            words = rows[r, col.C_M] * cols * stat[r, S_PLANE_ROWS]
        if words > 0 and not stat[r, S_LAZY] and stat[r, S_ALIAS] < 0:
            log = 3
            while (1 << log) < words:
                log += 1
            size[r] = log
            if bins[log] >= 0:
                stat[r, S_OFFSET] = stat[bins[log], S_OFFSET]
                bins[log] = link[bins[log]]
            else:
                stat[r, S_OFFSET] = top
                top += 1 << log
        for e in range(start[at], start[at + 1]):
            done = ending[e]
            if size[done] > 0:
                link[done] = bins[size[done]]
                bins[size[done]] = done
    return top
