"""SRAM in the hash algebra: elements of each vector, kept where a step writes and made on the fly where it only reads.

A vector remembers the type that it was written in; read as another type it gives other elements. Compiled and not typed.
"""

import numba as nb
import numpy as np

from ticktrue.program import Packing, RegionClass
from ticktrue.program import columns as col
from ticktrue.program.hashing import BAD, ZERO, U, leaf, mix, select
from ticktrue.verify.dataflow_plan_kernel import BF16, F32, HALVES, INT8, fill, inner, lanes_of

BLOCK = 64

SCRATCH, INBOX, STATE = int(RegionClass.SCRATCH), int(RegionClass.INBOX), int(RegionClass.STATE)
TILES, ROWS, LANES_F32, KV = int(Packing.TILES), int(Packing.ROWS), int(Packing.LANES), int(Packing.KV)
SHARD = int(Packing.SHARD)
ROPE_A, ROPE_B = int(Packing.ROPE_A), int(Packing.ROPE_B)
KV_SCALE = int(Packing.KV_SCALE)

# columns of the region table; R_CELLS: first kept vector, R_KEPT: how many are kept, R_BASE: its base hash in `bases`
(
    R_CLASS,
    R_PACKING,
    R_START,
    R_VECTORS,
    R_STRIDE,
    R_TENSOR,
    R_P0,
    R_P1,
    R_CELLS,
    R_KEPT,
    R_TILE0,
    R_TILE1,
    R_BASE,
    R_ELEMENTS,
    R_TOTAL,
    R_LOCAL,
    R_PLACES,
    R_RING,
    R_DIM,
    R_CP,
) = range(20)
R_COLUMNS = 20
# of a state region: R_ELEMENTS of a record, R_TOTAL of a position on all chips, R_LOCAL of it on one; R_PLACES per slot; blocks
# of its R_RING; R_CP, context lanes of its kind of attention. Of a RoPE table: R_DIM, its head size.
# columns of the tile table: vector in its region, rows, pieces [first, last), vectors per row
W_VECTOR, W_ROWS, W_PIECE0, W_PIECE1, W_STRIDE = range(5)
# columns of the tensor table
N_OUTPUTS, N_INPUTS, N_SHARD, N_BASE = range(4)
# what the model, the plan and the step kind fix
(M_CHIPS, M_VOCAB, M_KV_TYPE, M_TOKENS, M_BLOCKS, M_SLOTS) = range(6)
# register functions (docs/program.md section 2)
TOKEN, P_DIV, P_MOD, KV_PLACE, LAST, EXPERT = 1, 2, 3, 4, 5, 6


@inner
def tile_at(mem, region, off):
    """Number of the weight tile that holds vector `off` of the first record of a region; -1 if there is none."""
    lo, hi = mem.regions[region, R_TILE0], mem.regions[region, R_TILE1]
    while lo < hi:
        mid = (lo + hi) // 2
        if mem.tiles[mid, W_VECTOR] <= off:
            lo = mid + 1
        else:
            hi = mid
    t = lo - 1
    if t < mem.regions[region, R_TILE0]:
        return -1
    return t if off < mem.tiles[t, W_VECTOR] + mem.tiles[t, W_STRIDE] * mem.tiles[t, W_ROWS] else -1


@inner
def _type_of(mem, region):
    """Element type of a region of the image."""
    packing = mem.regions[region, R_PACKING]
    if packing == KV:
        return mem.model[M_KV_TYPE]
    if packing == TILES:
        return mem.regions[region, R_P0]
    return BF16 if packing == ROWS else F32


@inner
def _tile_leaves(mem, chip, where, lanes, out):
    """Lanes of a vector of a weight tile, in any record: row k of it is one or two vectors, its lanes those of the pieces."""
    region, off = where
    record, off = off // mem.regions[region, R_STRIDE], off % mem.regions[region, R_STRIDE]
    t = tile_at(mem, region, off)
    if t < 0:
        return
    inside = off - mem.tiles[t, W_VECTOR]
    stride = mem.tiles[t, W_STRIDE]
    k, shift = inside // stride, inside % stride * lanes_of(_type_of(mem, region))
    for i in range(mem.tiles[t, W_PIECE0], mem.tiles[t, W_PIECE1]):
        piece = mem.pieces[i]
        tensor = piece[col.P_TENSOR]
        outputs, inputs = mem.tensors[tensor, N_OUTPUTS], mem.tensors[tensor, N_INPUTS]
        first = chip * mem.tensors[tensor, N_SHARD] + piece[col.P_COL0] - piece[col.P_LANE]
        kk = piece[col.P_K0] + k
        if kk >= inputs or k >= piece[col.P_ROWS]:
            continue
        end = min(piece[col.P_LANE] + piece[col.P_COLS], outputs - first, shift + lanes[1])
        for lane in range(max(piece[col.P_LANE], shift + lanes[0]), end):
            row = record * outputs + first + lane  # record e holds matrix e of a stack
            out[lane - shift] = leaf(mem.bases[mem.tensors[tensor, N_BASE]], U(row * inputs + kk))


@inner
def _scale_leaves(mem, chip, where, lanes, out):
    """Lanes of a vector of scales of a cache: each is that of the KV head whose element lies in this lane of a record."""
    region, off = where
    r = mem.regions[region]
    record, v = off // r[R_STRIDE], off % r[R_STRIDE]
    first = chip // r[R_CP] * r[R_LOCAL] + r[R_P1] + v * 80
    base, heads = mem.bases[r[R_BASE]], r[R_TOTAL] // r[R_DIM]
    for lane in range(lanes[0], min(lanes[1], r[R_ELEMENTS] - v * 80)):
        out[lane] = leaf(base, U(record * heads + (first + lane) // r[R_DIM]))


@inner
def _run_of(mem, chip, region, off):
    """(base, index of lane 0, lanes) of a vector whose elements follow each other in one tensor."""
    r = mem.regions[region]
    packing, base = r[R_PACKING], mem.bases[r[R_BASE]]
    record, v = off // r[R_STRIDE], off % r[R_STRIDE]
    if packing == KV:
        cp = r[R_CP]
        ka = lanes_of(mem.model[M_KV_TYPE])
        slot, place = record // r[R_PLACES], record % r[R_PLACES]
        p = (place // BLOCK * cp + chip % cp) * BLOCK + place % BLOCK
        start = p * r[R_TOTAL] + chip // cp * r[R_LOCAL] + r[R_P1] + v * ka
        return mem.bases[r[R_BASE] + slot], start, min(ka, r[R_ELEMENTS] - v * ka)
    if packing == ROWS:
        inputs, shard = mem.tensors[r[R_TENSOR], N_INPUTS], mem.tensors[r[R_TENSOR], N_SHARD]
        first = v * HALVES
        count = min(HALVES, shard - first, inputs - chip * shard - first)
        return base, record * inputs + chip * shard + first, count
    if packing == LANES_F32:
        return base, off * 80, min(80, mem.tensors[r[R_TENSOR], N_INPUTS] - off * 80)
    if packing == SHARD:
        shard, outputs = mem.tensors[r[R_TENSOR], N_SHARD], mem.tensors[r[R_TENSOR], N_OUTPUTS]
        return base, chip * shard + off * 80, min(80, shard - off * 80, outputs - chip * shard - off * 80)
    return base, record * r[R_DIM] + v * 80, min(80, r[R_DIM] - v * 80)


@inner
def _natural(mem, chip, where, lanes, out):
    """Lanes of a vector as the type it holds into out; the type, or -1 where nothing is or nothing was written."""
    region, off = where
    r = mem.regions[region]
    if 0 <= off < r[R_KEPT] and mem.kind[chip, r[R_CELLS] + off] >= 0:
        cell = r[R_CELLS] + off
        end = min(lanes[1], mem.filled[chip, cell])
        for lane in range(lanes[0], end):
            out[lane] = mem.cells[chip, cell, lane]
        for lane in range(max(lanes[0], end), lanes[1]):
            out[lane] = ZERO
        return mem.kind[chip, cell]
    packing = r[R_PACKING]
    if packing == 0 or not 0 <= off < r[R_VECTORS]:
        return -1
    if packing == TILES:
        fill(out, lanes[0], lanes[1], ZERO)
        _tile_leaves(mem, chip, where, lanes, out)
        return _type_of(mem, region)
    if packing == KV_SCALE:
        fill(out, lanes[0], lanes[1], ZERO)
        _scale_leaves(mem, chip, where, lanes, out)
        return F32
    base, start, count = _run_of(mem, chip, region, off)
    end = max(lanes[0], min(lanes[1], count))
    for lane in range(lanes[0], end):
        out[lane] = leaf(base, U(start + lane))
    for lane in range(end, lanes[1]):
        out[lane] = ZERO
    return _type_of(mem, region)


@inner
def _mistaken(mem, chip, where, lanes, out, spare):
    """Lanes of a vector read as a type it does not hold: hashes of the parts that fall together; zeros stay zero."""
    held = _natural(mem, chip, where, (0, HALVES), spare)
    for lane in range(lanes[0], lanes[1]):
        if held < 0 or held >= INT8 or lanes[1] > HALVES:  # nothing, or 8 bits on either side
            place = (chip << 40) + mem.regions[where[0], R_START] + where[1]
            out[lane] = mix(mix(BAD, U(place)), U(lane))
        elif held == F32:
            e = spare[lane // 2] if lane < HALVES else ZERO
            out[lane] = mix(mix(BAD, U(lane % 2)), e) if e != ZERO else ZERO
        else:
            a, b = spare[2 * lane], spare[2 * lane + 1]
            out[lane] = mix(mix(BAD, a), b) if a != ZERO or b != ZERO else ZERO


@inner
def read(mem, chip, where, dtype, lanes, out, spare):
    """Lanes [first, last) of a vector, where = (region, vector), as `dtype` into the same lanes of out."""
    held = _natural(mem, chip, where, lanes, out)
    if held != dtype:
        _mistaken(mem, chip, where, lanes, out, spare)


@nb.njit(cache=True)
def load(mem, where, width, dtype, first, out, spare):
    """Lanes from `first` on of consecutive vectors, as `dtype`, into out[lanes]. where = (chip, region, first vector)."""
    chip, region, off = where
    ka = lanes_of(dtype)
    for v in range(first // ka, width):
        size = min(ka, out.size - v * ka)
        if size <= 0:
            return
        read(mem, chip, (region, off + v), dtype, (max(0, first - v * ka), size), out[v * ka :], spare)


@inner
def copy(out, x):
    """x, then zeros, into out. Both start at index 0, so that the loop becomes vector code."""
    for i in range(x.size):
        out[i] = x[i]
    for i in range(x.size, out.size):
        out[i] = ZERO


@inner
def load_row(mem, row, chip, address, low, view, spare):
    """Every event of a LOAD into its result; lanes below `low` are not read. address = vector of event (0, 0) in its region."""
    pool, begin, lanes = view
    n, m, width, dtype = row[col.C_N], row[col.C_M], row[col.C_WIDTH], row[col.C_DTYPE]
    region, step, step2 = row[col.C_REGION], row[col.C_STEP], row[col.C_STEP2]
    ka = lanes_of(dtype)
    cells, kinds, counts = mem.cells, mem.kind, mem.filled
    first_cell, kept = mem.regions[region, R_CELLS], mem.regions[region, R_KEPT]
    for e in range(n * m):
        off, to = address + e % n * step + e // n * step2, begin + e * lanes
        for v in range(low // ka, width):
            a, size = max(0, low - v * ka), min(ka, lanes - v * ka)
            if a >= size:
                continue
            o = off + v
            if 0 <= o < kept and kinds[chip, first_cell + o] == dtype:
                end = max(a, min(size, np.int64(counts[chip, first_cell + o])))
                copy(pool[to + v * ka + a : to + v * ka + size], cells[chip, first_cell + o, a:end])
            else:
                read(mem, chip, (region, o), dtype, (a, size), pool[to + v * ka : to + v * ka + size], spare)


@inner
def store_row(mem, row, chip, address, view):
    """Every event of a STORE (zero beyond its lanes); what may not be written there counts as stray."""
    pool, begin, lanes = view
    n, m, width, dtype = row[col.C_N], row[col.C_M], row[col.C_WIDTH], row[col.C_DTYPE]
    r = mem.regions[row[col.C_REGION]]
    writable = r[R_CLASS] == SCRATCH or r[R_CLASS] == INBOX
    ka = lanes_of(dtype)
    cells, kinds, counts = mem.cells, mem.kind, mem.filled
    for e in range(n * m):
        off, at = address + e % n * row[col.C_STEP] + e // n * row[col.C_STEP2], begin + e * lanes
        for v in range(width):
            if not writable or off + v < 0 or off + v >= r[R_KEPT]:
                mem.stray[0] += 1
                continue
            cell = r[R_CELLS] + off + v
            count = min(max(lanes - v * ka, 0), ka)
            copy(cells[chip, cell, :count], pool[at + v * ka : at + v * ka + count])
            counts[chip, cell], kinds[chip, cell] = count, dtype


@inner
def _touch(mem, chip, where, dtype, spare):
    """Keeps a vector of state before it is first changed: its elements as `dtype`; how many there are."""
    region, off = where
    r = mem.regions[region]
    cell = r[R_CELLS] + off
    count = lanes_of(dtype)
    if mem.kind[chip, cell] < 0 and r[R_PACKING] == KV and _type_of(mem, region) == dtype:
        base, start, count = _run_of(mem, chip, region, off)
        for lane in range(count):
            mem.cells[chip, cell, lane] = leaf(base, U(start + lane))
    else:
        read(mem, chip, where, dtype, (0, count), mem.cells[chip, cell], spare)
    mem.kind[chip, cell] = dtype
    return max(count, 0)


@inner
def scatter(mem, where, row, view, keys, spare):
    """State after registers may have named this place: each element is old or new, by token row i from rows[0] on.

    where = (chip, region, vector); view = (pool, word of the first row's event, lanes of an event); keys[i] of row i.
    """
    chip, region, off = where
    pool, begin, lanes = view
    r, dtype = mem.regions[region], row[col.C_DTYPE]
    ka = lanes_of(dtype)
    cells, kinds, counts = mem.cells, mem.kind, mem.filled
    for v in range(row[col.C_WIDTH]):
        if r[R_CLASS] != STATE or off + v < 0 or off + v >= r[R_KEPT]:
            mem.stray[0] += 1
            continue
        cell = r[R_CELLS] + off + v
        count = np.int64(counts[chip, cell])
        if kinds[chip, cell] != dtype:
            count = _touch(mem, chip, (region, off + v), dtype, spare)
        size = min(max(lanes - v * ka, 0), ka)
        for i in range(keys.size):
            key, at = keys[i], begin + i * lanes + v * ka
            old, new = cells[chip, cell], pool[at : at + size]
            for lane in range(min(count, size)):
                old[lane] = select(old[lane], new[lane], key)
            for lane in range(size, count):
                old[lane] = select(old[lane], ZERO, key)
            top = count
            for lane in range(count, size):
                old[lane] = select(ZERO, new[lane], key)
                top = lane + 1 if new[lane] != ZERO else top
            count = top
        counts[chip, cell] = count


@inner
def values_of(mem, fn, t):
    """(count, first) of the values of a register function of token row t; count 0: not one that an address may use."""
    model = mem.model
    last = BLOCK * model[M_BLOCKS] - model[M_TOKENS]
    if fn == TOKEN:
        return model[M_VOCAB], 0
    if fn == P_DIV:
        return (last + t) // 512 - t // 512 + 1, t // 512
    if fn == P_MOD:
        return (512, 0) if last >= 511 else (last + 1, t % 512)
    return (model[M_TOKENS], 0) if fn == LAST else (0, 0)


@inner
def gather(mem, where, row, span, out, spare):
    """The element that a register names, over all its values, each with its own key. span = (function, count, first)."""
    chip, region, off = where
    fn, count, first = span
    width, dtype, stride = row[col.C_WIDTH], row[col.C_DTYPE], row[col.C_REGSTRIDE]
    if count == 1:
        load(mem, (chip, region, off + first * stride), width, dtype, 0, out, spare[1])
        return
    ka = lanes_of(dtype)
    fill(out, 0, out.size, ZERO)
    tagged = mix(mem.tag_gather, U(fn))
    for v in range(min(width, (out.size + ka - 1) // ka)):
        size = min(ka, out.size - v * ka)
        if first == 0 and fn != P_MOD and _is_table(mem, region, dtype, off + v, (stride, count)):
            base, start, lanes = _run_of(mem, chip, region, off + v)
            step = (
                stride // mem.regions[region, R_STRIDE] * mem.tensors[mem.regions[region, R_TENSOR], N_INPUTS]
            )
            _gather_table(tagged, base, start, (count, step), out[v * ka : v * ka + max(0, min(size, lanes))])
            continue
        for x in range(count):
            a = (first + x) % 512 if fn == P_MOD else first + x
            key = mix(tagged, U(a))
            read(mem, chip, (region, off + a * stride + v), dtype, (0, size), spare[0], spare[1])
            for lane in range(size):
                out[v * ka + lane] += key * spare[0, lane]


@inner
def _is_table(mem, region, dtype, off, span):
    """Whether values 0 .. count - 1 name whole records of an embedding; span = (vectors between two of them, count)."""
    r = mem.regions[region]
    stride, count = span
    whole = stride > 0 and stride % r[R_STRIDE] == 0 and r[R_PACKING] == ROWS and dtype == BF16
    return whole and off >= 0 and off + (count - 1) * stride < r[R_VECTORS]


@inner
def _gather_table(tagged, base, start, span, out):
    """The sum of `gather` over values 0 .. count - 1 whose elements lie `step` leaves apart; span = (count, step)."""
    count, step = span
    for a in range(count):
        key, at = mix(tagged, U(a)), start + a * step
        for lane in range(out.size):
            out[lane] += key * leaf(base, U(at + lane))


@inner
def finish_gather(mem, span, t, total, out):
    """The sum of `gather` for token row t (for LAST: slot t): the same sum serves every row that names the same values."""
    fn, count, _ = span
    if count == 1:
        for lane in range(out.size):
            out[lane] = total[lane]
        return
    key = mix(mix(mem.tag_gather, U(fn)), U(t))
    for lane in range(out.size):
        out[lane] = mix(key, total[lane]) if total[lane] != ZERO else ZERO


@nb.njit(cache=True)
def state(mem, region, out, spare):
    """K or V of one vector group into out[slots, places, elements]; what is written elsewhere in it counts as stray."""
    model, r = mem.model, mem.regions[region]
    cp = r[R_CP]
    dtype = mem.model[M_KV_TYPE]
    ka = lanes_of(dtype)
    for chip in range(model[M_CHIPS]):
        first = chip // cp * r[R_LOCAL] + r[R_P1]
        for off in range(r[R_KEPT]):
            record, v = off // r[R_STRIDE], off % r[R_STRIDE]
            slot, place = record // r[R_PLACES], record % r[R_PLACES]
            p = (place // BLOCK * cp + chip % cp) * BLOCK + place % BLOCK
            cell = r[R_CELLS] + off
            if p >= out.shape[1] or slot >= out.shape[0]:
                mem.stray[0] += mem.kind[chip, cell] >= 0
                continue
            _, _, lanes = _run_of(mem, chip, region, off)
            start = first + v * ka
            if lanes > 0:
                read(mem, chip, (region, off), dtype, (0, lanes), out[slot, p, start : start + lanes], spare)
            if mem.kind[chip, cell] >= 0:
                for lane in range(max(0, lanes), mem.filled[chip, cell]):
                    mem.stray[0] += mem.cells[chip, cell, lane] != ZERO
