"""SRAM in the hash algebra: 160 halves per vector, kept where a step writes and made on the fly where it only reads.

An element of two bytes is its hash; one of four bytes has its hash xor WIDE in its first half and 0 in the second, so that
reading one type as the other never gives the element. Compiled and not typed.
"""

import numba as nb
import numpy as np

from ticktrue.program import Packing, RegionClass
from ticktrue.program import columns as col
from ticktrue.program.hashing import BAD, STEP, ZERO, U, leaf, mix, select
from ticktrue.verify.dataflow_plan_kernel import BF16, HALVES, lanes_of

WIDE = U(0x57C3F1A49E6B2D80)
BLOCK = 64

SCRATCH, INBOX, STATE = int(RegionClass.SCRATCH), int(RegionClass.INBOX), int(RegionClass.STATE)
TILES, ROWS, LANES_F32, KV = int(Packing.TILES), int(Packing.ROWS), int(Packing.LANES), int(Packing.KV)
ROPE_A, ROPE_B = int(Packing.ROPE_A), int(Packing.ROPE_B)

# columns of the region table, int64[regions, R_COLUMNS]; `R_CELLS`: first kept vector, `R_KEPT`: how many are kept
R_CLASS, R_PACKING, R_START, R_VECTORS, R_STRIDE, R_TENSOR, R_P0, R_P1, R_CELLS, R_KEPT, R_TILE0, R_TILE1 = range(12)
R_COLUMNS = 12
# columns of the tile table: vector in its region, rows, pieces [first, last)
W_VECTOR, W_ROWS, W_PIECE0, W_PIECE1 = range(4)
# columns of the tensor table
N_OUTPUTS, N_INPUTS, N_SHARD = range(3)
# what the model and the plan fix
(M_CHIPS, M_H, M_CP, M_KV_HEADS, M_HEAD_DIM, M_VOCAB, M_F32, M_TOKENS, M_BLOCKS) = range(9)


@nb.njit(cache=True)
def _kv_leaves(mem, chip, region, off, out):
    """State before the step: record = local position, lanes = the heads of the vector group side by side."""
    model = mem.model
    d, cp = model[M_HEAD_DIM], model[M_CP]
    local_heads = model[M_KV_HEADS] // model[M_H]
    wide = model[M_F32] == 1
    ka = 80 if wide else 160
    r = mem.regions[region]
    heads = min(max(1, ka // d), local_heads - r[R_P1])
    local, v = off // r[R_STRIDE], off % r[R_STRIDE]
    p = (local // BLOCK * cp + chip % cp) * BLOCK + local % BLOCK
    head = chip // cp * local_heads + r[R_P1]
    first = (p * model[M_KV_HEADS] + head) * d
    base = mem.kv_base[r[R_P0]]
    for lane in range(v * ka, min((v + 1) * ka, heads * d)):
        h = leaf(base, U(first + lane))
        if wide:
            out[2 * (lane - v * ka)] = h ^ WIDE
        else:
            out[lane - v * ka] = h


@nb.njit(cache=True)
def tile_at(mem, region, off):
    """Number of the weight tile that holds vector `off` of a region; -1 if there is none."""
    lo, hi = mem.regions[region, R_TILE0], mem.regions[region, R_TILE1]
    while lo < hi:
        mid = (lo + hi) // 2
        if mem.tiles[mid, W_VECTOR] <= off:
            lo = mid + 1
        else:
            hi = mid
    t = lo - 1
    if t < mem.regions[region, R_TILE0] or off >= mem.tiles[t, W_VECTOR] + 2 * mem.tiles[t, W_ROWS]:
        return -1
    return t


@nb.njit(cache=True)
def _tile_leaves(mem, chip, region, off, out):
    """One vector of a weight tile: row k of the tile is two vectors, its lanes those of the pieces."""
    t = tile_at(mem, region, off)
    if t < 0:
        return
    inside = off - mem.tiles[t, W_VECTOR]
    k, shift = inside // 2, inside % 2 * HALVES
    for i in range(mem.tiles[t, W_PIECE0], mem.tiles[t, W_PIECE1]):
        piece = mem.pieces[i]
        tensor = piece[col.P_TENSOR]
        outputs, inputs = mem.tensors[tensor, N_OUTPUTS], mem.tensors[tensor, N_INPUTS]
        first = chip * mem.tensors[tensor, N_SHARD] + piece[col.P_COL0] - piece[col.P_LANE]
        kk = piece[col.P_K0] + k
        if kk >= inputs:
            continue
        lanes = min(piece[col.P_LANE] + piece[col.P_COLS], outputs - first, shift + HALVES)
        for lane in range(max(piece[col.P_LANE], shift), lanes):
            out[lane - shift] = leaf(mem.tensor_base[tensor], U((first + lane) * inputs + kk))


@nb.njit(cache=True)
def _const_leaves(mem, chip, region, off, out):
    """A vector of an embedding row, a norm weight or a rope table."""
    r = mem.regions[region]
    packing = r[R_PACKING]
    record, v = off // r[R_STRIDE], off % r[R_STRIDE]
    if packing == ROWS:
        tensor = r[R_TENSOR]
        inputs, shard = mem.tensors[tensor, N_INPUTS], mem.tensors[tensor, N_SHARD]
        first = v * HALVES
        count = min(HALVES, shard - first, inputs - chip * shard - first)
        start = record * inputs + chip * shard + first
        for i in range(count):
            out[i] = leaf(mem.tensor_base[tensor], U(start + i))
        return
    if packing == LANES_F32:
        base, start, limit = mem.tensor_base[r[R_TENSOR]], off * 80, mem.tensors[r[R_TENSOR], N_INPUTS]
        count = min(80, limit - start)
    else:
        base, d = mem.rope_base[0 if packing == ROPE_A else 1], r[R_P0]
        start, count = record * d + v * 80, min(80, d - v * 80)
    for i in range(count):
        out[2 * i] = leaf(base, U(start + i)) ^ WIDE


@nb.njit(cache=True)
def fetch(mem, chip, region, off, out):
    """The 160 halves of vector `off` of a region on a chip; poison where nothing is or nothing was written."""
    r = mem.regions[region]
    if 0 <= off < r[R_KEPT] and mem.seen[chip, r[R_CELLS] + off]:
        out[:] = mem.cells[chip, r[R_CELLS] + off]
        return
    packing = r[R_PACKING]
    if 0 <= off < r[R_VECTORS] and packing != 0:
        out[:] = ZERO
        if packing == KV:
            _kv_leaves(mem, chip, region, off, out)
        elif packing == TILES:
            _tile_leaves(mem, chip, region, off, out)
        else:
            _const_leaves(mem, chip, region, off, out)
        return
    where = (chip << 40) + r[R_START] + off
    for i in range(HALVES):
        out[i] = mix(mix(BAD, U(where)), U(i))


@nb.njit(cache=True)
def element(halves, lane, dtype):
    """Element `lane` of a vector read as `dtype`."""
    if dtype == BF16:
        return halves[lane]
    first, second = halves[2 * lane], halves[2 * lane + 1]
    if second != ZERO:
        return mix(mix(BAD, first), second)
    return first ^ WIDE if first != ZERO else ZERO


@nb.njit(cache=True)
def load(mem, where, width, dtype, out, halves):
    """Consecutive vectors of a region as lanes of `dtype` into out[lanes]. where = (chip, region, first vector)."""
    chip, region, off = where
    ka = lanes_of(dtype)
    for v in range(width):
        first = v * ka
        if first >= out.size:
            return
        fetch(mem, chip, region, off + v, halves)
        for lane in range(first, min(first + ka, out.size)):
            out[lane] = element(halves, lane - first, dtype)


@nb.njit(cache=True)
def _put(halves, lane, dtype, value):
    if dtype == BF16:
        halves[lane] = value
    else:
        halves[2 * lane] = value ^ WIDE if value != ZERO else ZERO
        halves[2 * lane + 1] = ZERO


@nb.njit(cache=True)
def store(mem, where, width, dtype, values):
    """Writes values (zero beyond their end) as `dtype`; what may not be written there counts as stray."""
    chip, region, off = where
    r = mem.regions[region]
    ka = lanes_of(dtype)
    for v in range(width):
        o = off + v
        if not (r[R_CLASS] == SCRATCH or r[R_CLASS] == INBOX) or o < 0 or o >= r[R_KEPT]:
            mem.stray[0] += 1
            continue
        halves = mem.cells[chip, r[R_CELLS] + o]
        for lane in range(ka):
            value = values[v * ka + lane] if v * ka + lane < values.size else ZERO
            _put(halves, lane, dtype, value)
        mem.seen[chip, r[R_CELLS] + o] = 1


@nb.njit(cache=True)
def scatter(mem, where, width, dtype, values, key):
    """State after a register may have named this place: every element is old or new. where as for `load`."""
    chip, region, off = where
    r = mem.regions[region]
    ka = lanes_of(dtype)
    for v in range(width):
        o = off + v
        if r[R_CLASS] != STATE or o < 0 or o >= r[R_KEPT]:
            mem.stray[0] += 1
            continue
        cell = mem.cells[chip, r[R_CELLS] + o]
        if mem.seen[chip, r[R_CELLS] + o] == 0:
            fetch(mem, chip, region, o, cell)
            mem.seen[chip, r[R_CELLS] + o] = 1
        for lane in range(ka):
            value = values[v * ka + lane] if v * ka + lane < values.size else ZERO
            _put(cell, lane, dtype, select(element(cell, lane, dtype), value, key))


@nb.njit(cache=True)
def values_of(mem, fn, t):
    """(count, first) of the values of a register function of token row t; count 0: not one that an address may use."""
    model = mem.model
    last = BLOCK * model[M_BLOCKS] - model[M_TOKENS]
    if fn == 1:
        return model[M_VOCAB], 0
    if fn == 2:
        return (last + t) // 512 - t // 512 + 1, t // 512
    if fn == 3:
        return min(last + 1, 512), t % 512
    return (model[M_TOKENS], 0) if fn == 5 else (0, 0)


@nb.njit(cache=True)
def gather(mem, where, row, span, out, halves):
    """The element that a register names, over all its values, each with its own key. span = (function, count, first)."""
    chip, region, off = where
    fn, count, first = span
    width, dtype, stride = row[col.C_WIDTH], row[col.C_DTYPE], row[col.C_REGSTRIDE]
    if count == 1:
        load(mem, (chip, region, off + first * stride), width, dtype, out, halves)
        return
    ka = lanes_of(dtype)
    out[:] = ZERO
    tagged = mix(mem.tag_gather, U(fn))
    for x in range(count):
        a = (first + x) % 512 if fn == 3 else first + x
        key = mix(tagged, U(a))
        for v in range(width):
            if v * ka >= out.size:
                break
            fetch(mem, chip, region, off + a * stride + v, halves)
            for lane in range(v * ka, min((v + 1) * ka, out.size)):
                out[lane] += key * element(halves, lane - v * ka, dtype)


@nb.njit(cache=True)
def finish_gather(mem, span, t, total, out):
    """The sum of `gather` for row t: the same sum serves every row that names the same values."""
    fn, count, _ = span
    if count == 1:
        out[:] = total
        return
    key = mix(mix(mem.tag_gather, U(fn)), U(0 if fn == 5 else t))
    for lane in range(out.size):
        out[lane] = mix(key, total[lane]) if total[lane] != ZERO else ZERO


@nb.njit(cache=True)
def ordered(xs, w):
    """Ordered sum of xs[k] * w[k] over the k where neither is zero: the slow, general form."""
    total = ZERO
    for k in range(xs.size):
        if xs[k] != ZERO and w[k] != ZERO:
            total = total * STEP + xs[k] * w[k]
    return total
