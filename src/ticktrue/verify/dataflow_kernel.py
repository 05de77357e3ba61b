"""The interpreter of flat rows in the hash algebra: every row on every chip, in the order of issue. Compiled and not typed."""

import numba as nb
import numpy as np

from ticktrue.isa import OPS, Kind
from ticktrue.program import columns as col
from ticktrue.program.hashing import STEP, ZERO, U, leaf, mix, seal
from ticktrue.verify.dataflow_memory_kernel import (
    BLOCK,
    EXPERT,
    KV_PLACE,
    LAST,
    M_BLOCKS,
    M_CHIPS,
    M_SLOTS,
    M_TOKENS,
    N_BASE,
    N_INPUTS,
    N_OUTPUTS,
    N_SHARD,
    R_START,
    W_PIECE0,
    W_PIECE1,
    finish_gather,
    gather,
    load_row,
    scatter,
    store_row,
    tile_at,
    values_of,
)
from ticktrue.verify.dataflow_op_kernel import map_one, narrow, noise, poison, reduce_one, spread, transpose
from ticktrue.verify.dataflow_plan_kernel import (
    GATHER,
    INSTALL,
    LATCH,
    LOAD,
    MASK,
    NOISE,
    PASS,
    RECEIVE,
    S_ALIAS,
    S_BROKEN,
    S_EVENTS,
    S_LANES,
    S_LAZY,
    S_LOW,
    S_OFFSET,
    S_PLANE_ROWS,
    S_ROUNDED,
    SCATTER,
    SEND,
    SPREAD,
    STORE,
    T_NARROW,
    T_ONE,
    T_PASS,
    T_SCATTER,
    TRANSPOSE,
    fill,
    fits,
    inner,
    lanes_of,
    operands,
)

FOLDS = np.array([i.kind in {Kind.REDUCE, Kind.RESHAPE} for i in OPS])


@inner
def _result(run, stat, chip, r):
    """The buffer of row r on a chip, flat."""
    start = stat[r, S_OFFSET]
    return run.pool[chip, start : start + stat[r, S_EVENTS] * stat[r, S_LANES]]


@inner
def _owner(run, rows, stat, chip, r):
    """(chip, row) that keep the result of row r of a chip: others for a SEND or RECEIVE that passes it on."""
    while stat[r, S_ALIAS] >= 0:
        if rows[r, col.C_OP] == RECEIVE:
            chip = run.peer[chip, r]
        r = stat[r, S_ALIAS]
    return chip, r


@inner
def _view(run, rows, stat, chip, r):
    """(pool of the chip, first word, lanes) of the result of row r."""
    chip, r = _owner(run, rows, stat, chip, r)
    return run.pool[chip], stat[r, S_OFFSET], stat[r, S_LANES]


@inner
def _event(view, e):
    """Event e of a result."""
    pool, start, lanes = view
    return pool[start + e * lanes : start + (e + 1) * lanes]


@inner
def _offset(run, row, r, chip, i, j):
    """Vector within its region of event (i, j), the register's part left out."""
    first = run.address[chip, r] - run.mem.regions[row[col.C_REGION], R_START]
    return first + i * row[col.C_STEP] + j * row[col.C_STEP2]


@inner
def _gather(run, rows, stat, r, chip):
    row, view = rows[r], _view(run, rows, stat, chip, r)
    n, fn = row[col.C_N], row[col.C_REGFN]
    total = run.lane[: stat[r, S_LANES]]
    last = (-1, -1, -1)
    for j in range(row[col.C_M]):
        for i in range(n):
            token_row = row[col.C_A0] + (0 if fn == LAST else i)
            count, first = values_of(run.mem, fn, token_row % run.mem.model[M_TOKENS])
            out = _event(view, j * n + i)
            if count == 0 or token_row >= run.mem.model[M_TOKENS] * run.mem.model[M_SLOTS]:
                poison(out, r)
                continue
            where = (chip, row[col.C_REGION], _offset(run, row, r, chip, i, j))
            if (count, first, where[2]) != last:
                gather(run.mem, where, row, (fn, count, first), total, run.spare)
                last = (count, first, where[2])
            named = token_row // run.mem.model[M_TOKENS] if fn == LAST else token_row
            finish_gather(run.mem, (fn, count, first), named, total, out)


@inner
def _gather_expert(run, rows, stat, r, chip):
    """A GATHER by an expert register, one a round: its sum over all experts, closed with what the register holds."""
    row, view = rows[r], _view(run, rows, stat, chip, r)
    n, rank = row[col.C_N], row[col.C_A1]
    total = run.lane[: stat[r, S_LANES]]
    last = (-1, -1)
    for j in range(row[col.C_M]):
        token_row = row[col.C_A0] + j
        known = token_row < run.columns.shape[1] and rank < run.columns.shape[2]
        count = run.columns[chip, token_row, rank] if known else 0
        for i in range(n):
            out = _event(view, j * n + i)
            if count == 0:
                poison(out, r)
                continue
            off = _offset(run, row, r, chip, i, j)
            if (count, off) != last:
                gather(run.mem, (chip, row[col.C_REGION], off), row, (EXPERT, count, 0), total, run.spare)
                last = (count, off)
            finish_gather(run.mem, (EXPERT, count, 0), run.register[chip, token_row, rank], total, out)


@inner
def _latch(run, rows, stat, r, chip):
    """The ids of a TOPK, and how many values they may have, into the registers of its token rows."""
    row, s = rows[r], rows[r, col.C_S0]
    k = rows[s, col.C_X0]
    view = _view(run, rows, stat, chip, s)
    for e in range(row[col.C_N] * row[col.C_M]):
        token_row, x = row[col.C_A0] + e, _event(view, e)
        if token_row >= run.columns.shape[1] or k > run.columns.shape[2]:
            run.mem.stray[0] += 1
            continue
        for rank in range(k):
            run.register[chip, token_row, rank] = x[k + rank] if k + rank < x.size else ZERO
            run.columns[chip, token_row, rank] = rows[s, col.C_A0]


@inner
def _narrowed(run, x, dtype, rounded):
    """A stream event as elements of `dtype` can hold it."""
    if not fits(rounded, dtype):
        y = run.lane[: x.size]
        for lane in range(x.size):
            y[lane] = x[lane]
        narrow(y, run.tags[T_NARROW])
        return y
    return x


@inner
def _written(run, rows, stat, r, chip):
    """View of the stream that a row writes, as its type can hold it: the stream itself or a narrowed copy."""
    s, dtype = rows[r, col.C_S0], rows[r, col.C_DTYPE]
    pool, begin, lanes = _view(run, rows, stat, chip, s)
    if fits(stat[s, S_ROUNDED], dtype):
        return pool, begin, lanes
    copy = pool[begin : begin + rows[r, col.C_N] * rows[r, col.C_M] * lanes].copy()
    narrow(copy, run.tags[T_NARROW])
    return copy, 0, lanes


@inner
def _scatter(run, rows, stat, r, chip):
    """Token row i may lie at every position p = pos + i that this chip owns; one place of a slot after the other."""
    row, model = rows[r], run.mem.model
    pool, begin, lanes = _written(run, rows, stat, r, chip)
    n, ring = row[col.C_N], row[col.C_A1]
    cp, lane = run.size[row[col.C_PATTERN]], run.rank[row[col.C_PATTERN], chip]
    last, first_row = BLOCK * model[M_BLOCKS] - model[M_TOKENS], row[col.C_A0]
    t0 = first_row % model[M_TOKENS]
    one_slot = t0 + n <= model[M_TOKENS] and first_row < model[M_TOKENS] * model[M_SLOTS]
    if row[col.C_REGFN] != KV_PLACE or not one_slot:
        run.mem.stray[0] += 1
        return
    places = last + t0 + n
    if ring > 0:
        places = min(places, BLOCK * ring)
    for p in range(places):
        if p // BLOCK % cp != lane:
            continue
        local = p // BLOCK // cp * BLOCK + p % BLOCK
        key_p = mix(run.tags[T_SCATTER], U(p))
        for i in range(n):
            past = p - t0 - i
            if ring > 0:
                past = past % (BLOCK * ring)
            if past < 0 or past > last:
                continue  # no value of the register brings row i here
            run.keys[0] = mix(key_p, U(first_row + i + 1))
            for j in range(row[col.C_M]):
                off = _offset(run, row, r, chip, i, j) + local * row[col.C_REGSTRIDE]
                view = (pool, begin + (j * n + i) * lanes, lanes)
                scatter(run.mem, (chip, row[col.C_REGION], off), row, view, run.keys[:1], run.spare[1])


@inner
def _send(run, rows, stat, r, chip):
    """A SEND or RECEIVE that does not pass on its operand unchanged: cut to its width, narrowed to its type."""
    row, s = rows[r], rows[r, col.C_S0]
    view = _view(run, rows, stat, run.peer[chip, r] if row[col.C_OP] == RECEIVE else chip, s)
    to = _view(run, rows, stat, chip, r)
    for e in range(stat[r, S_EVENTS]):
        out = _event(to, e)
        x = _narrowed(run, _event(view, e), row[col.C_DTYPE], stat[s, S_ROUNDED])
        lanes = min(out.size, x.size)
        for lane in range(lanes):
            out[lane] = x[lane]
        fill(out, lanes, out.size, ZERO)


@inner
def _install(run, rows, stat, r, chip):
    """The tiles of an INSTALL, column by column: pool[m][columns][rows]."""
    row, s = rows[r], rows[r, col.C_S0]
    view = _view(run, rows, stat, chip, s)
    brought = row[col.C_WIDTH] // row[col.C_X0] if row[col.C_X0] > 0 else 1
    row_lanes = row[col.C_X0] * lanes_of(rows[s, col.C_DTYPE]) if row[col.C_X0] > 0 else 0
    depth, cols = stat[r, S_PLANE_ROWS], row[col.C_A2] - row[col.C_A1]
    ones = row[col.C_X1] == 1
    size = (cols + ones) * depth
    rounding = not fits(stat[s, S_ROUNDED], row[col.C_DTYPE])
    for j in range(row[col.C_M]):
        start = stat[r, S_OFFSET] + j * size
        tile = run.pool[chip, start : start + size].reshape(cols + ones, depth)
        for k in range(depth):
            x = _event(view, j * row[col.C_N] + k // brought)
            first = k % brought * row_lanes + row[col.C_A1]
            limit = x.size if row_lanes == 0 else min(x.size, (k % brought + 1) * row_lanes)
            for c in range(cols):
                tile[c, k] = x[first + c] if first + c < limit else ZERO
            if ones:
                tile[cols, k] = run.tags[T_ONE]
        if rounding:
            for c in range(cols):
                narrow(tile[c], run.tags[T_NARROW])


@inner
def _scaled(x, first, present, out):
    """out[k] = x[first + k] times STEP to the number of later elements that count: those present and not zero."""
    power = U(1)
    for k in range(out.size - 1, -1, -1):
        value = x[first + k] if present[k] and first + k < x.size else ZERO
        out[k] = value * power
        if value != ZERO:
            power *= STEP


@inner
def _activations(run, rows, stat, r, chip, count):
    """Activations of every event of a PASS as its plane takes them, scaled for the first `count` rows of the INSTALL."""
    s, plane = rows[r, col.C_S0], rows[rows[r, col.C_S1]]
    view = _view(run, rows, stat, chip, s)
    fill(run.present, 0, count, True)
    xs = run.scaled[: stat[r, S_EVENTS] * count].reshape(stat[r, S_EVENTS], count)
    for e in range(stat[r, S_EVENTS]):
        x = _narrowed(run, _event(view, e), plane[col.C_DTYPE], stat[s, S_ROUNDED])
        _scaled(x, plane[col.C_A0], run.present, xs[e])
    return xs


@inner
def _column(tag_pass, base, start, xs, w, out):
    """Ordered sums of every xs[e] with one weight column, its leaves from index `start` on, into out[e]; `w` is room for it."""
    events, count = xs.shape
    if events == 1:
        total = ZERO
        for k in range(count):
            total += xs[0, k] * leaf(base, U(start + k))
        out[0] = seal(tag_pass, total)
        return
    for k in range(count):
        w[k] = leaf(base, U(start + k))
    for e in range(events):
        total = ZERO
        for k in range(count):
            total += xs[e, k] * w[k]
        out[e] = seal(tag_pass, total)


@inner
def _pass_weights(run, rows, stat, r, chip):
    """PASS through a whole weight tile whose leaves are made here, and only for the columns that are read."""
    mem, s = run.mem, rows[r, col.C_S1]
    plane, at = rows[s], rows[s, col.C_S0]
    low, high = max(stat[r, S_LOW], plane[col.C_A1]), min(stat[r, S_LANES], plane[col.C_A2])
    pool, begin, lanes = _view(run, rows, stat, chip, r)
    result = pool[begin : begin + stat[r, S_EVENTS] * lanes].reshape(stat[r, S_EVENTS], lanes)
    fill(pool, begin, begin + stat[r, S_EVENTS] * lanes, ZERO)
    tile = tile_at(mem, rows[at, col.C_REGION], _offset(run, rows[at], at, chip, 0, 0))
    xs, counted = run.scaled[:0].reshape(0, 0), -1
    for q in range(mem.tiles[tile, W_PIECE0], mem.tiles[tile, W_PIECE1]):
        piece = mem.pieces[q]
        tensor = piece[col.P_TENSOR]
        outputs, inputs = mem.tensors[tensor, N_OUTPUTS], mem.tensors[tensor, N_INPUTS]
        first = chip * mem.tensors[tensor, N_SHARD] + piece[col.P_COL0] - piece[col.P_LANE]
        c0 = max(low, piece[col.P_LANE])
        c1 = min(high, piece[col.P_LANE] + piece[col.P_COLS], outputs - first)
        count = min(stat[s, S_PLANE_ROWS], inputs - piece[col.P_K0], piece[col.P_ROWS])
        if c0 >= c1 or count <= 0:
            continue
        if count != counted:
            xs, counted = _activations(run, rows, stat, r, chip, count), count
        base, start = mem.bases[mem.tensors[tensor, N_BASE]], first * inputs + piece[col.P_K0]
        for c in range(c0, c1):
            _column(run.tags[T_PASS], base, start + c * inputs, xs, run.column, result[:, c])


@inner
def _patterns(tile, present, regular):
    """Which rows count (those of the first column with any), and which columns have exactly those or none."""
    cols, depth = tile.shape
    fill(present, 0, depth, False)
    found = False
    for c in range(cols):
        some, same = False, True
        for k in range(depth):
            some = some or tile[c, k] != ZERO
        if some and not found:
            for k in range(depth):
                present[k] = tile[c, k] != ZERO
            found = True
        for k in range(depth):
            same = same and (tile[c, k] != ZERO) == present[k]
        regular[c] = same or not some


@inner
def _irregular(x, first, w):
    """Ordered sum over the k where neither x[first + k] nor w[k] is zero: the general form."""
    total = ZERO
    for k in range(min(w.size, x.size - first)):
        if x[first + k] != ZERO and w[k] != ZERO:
            total = total * STEP + x[first + k] * w[k]
    return total


@inner
def _pass(run, rows, stat, r, chip):
    """PASS through tiles that an INSTALL keeps."""
    row, s = rows[r], rows[r, col.C_S1]
    plane, source = rows[s], row[col.C_S0]
    view, to = _view(run, rows, stat, chip, source), _view(run, rows, stat, chip, r)
    n, depth, left = row[col.C_N], stat[s, S_PLANE_ROWS], plane[col.C_A1]
    cols = plane[col.C_A2] - left + (plane[col.C_X1] == 1)
    present, regular, xs = run.present[:depth], run.regular[:cols], run.column[:depth]
    for j in range(row[col.C_M]):
        start = stat[s, S_OFFSET] + (j if plane[col.C_M] > 1 else 0) * cols * depth
        tile = run.pool[chip, start : start + cols * depth].reshape(cols, depth)
        _patterns(tile, present, regular)
        for i in range(n):
            out = _event(to, j * n + i)
            fill(out, 0, out.size, ZERO)
            x = _narrowed(run, _event(view, j * n + i), plane[col.C_DTYPE], stat[source, S_ROUNDED])
            _scaled(x, plane[col.C_A0], present, xs)
            for c in range(max(0, stat[r, S_LOW] - left), min(cols, stat[r, S_LANES] - left)):
                total = ZERO
                if regular[c]:
                    for k in range(depth):
                        total += xs[k] * tile[c, k]
                else:
                    total = _irregular(x, plane[col.C_A0], tile[c])
                out[left + c] = seal(run.tags[T_PASS], total)


@inner
def _map(run, rows, stat, r, chip):
    row, model = rows[r], run.mem.model
    n, two = row[col.C_N], operands(row[col.C_OP]) == 2
    first = _view(run, rows, stat, chip, row[col.C_S0])
    second = _view(run, rows, stat, chip, row[col.C_S1]) if two else first
    to = _view(run, rows, stat, chip, r)
    bound = BLOCK * model[M_BLOCKS] - model[M_TOKENS]
    position, rank = 0, run.rank[row[col.C_PATTERN], chip]
    for e in range(stat[r, S_EVENTS]):
        if row[col.C_OP] == MASK:
            block = (row[col.C_A0] + e // n) * run.size[row[col.C_PATTERN]] + rank
            position = block * BLOCK + e % n
        elif row[col.C_OP] == NOISE:
            noise(run.tags, row, rank, (e % n, e // n, model[M_TOKENS]), _event(first, e), _event(to, e))
            continue
        map_one(run.tags, row, (position, bound), _event(first, e), _event(second, e), _event(to, e))


@inner
def _fold(run, rows, stat, r, chip):
    """A reduce or reshape op."""
    row, op = rows[r], rows[r, col.C_OP]
    view, to = _view(run, rows, stat, chip, row[col.C_S0]), _view(run, rows, stat, chip, r)
    if op == TRANSPOSE or op == SPREAD:
        pool, start, lanes = to
        size = row[col.C_M] * row[col.C_X0] * lanes
        out = pool[start : start + size].reshape(row[col.C_M], row[col.C_X0], lanes)
        if op == TRANSPOSE:
            transpose(row, view, out)
        else:
            spread(view, out)
        return
    for j in range(row[col.C_M]):
        reduce_one(run.tags, row, run.rank[row[col.C_PATTERN], chip], view, j, _event(to, j))


@nb.njit(cache=True)
def evaluate(run, rows, order, stat):
    """All rows on all chips, in order."""
    for at in range(order.size):
        r = order[at]
        op = rows[r, col.C_OP]
        if stat[r, S_LAZY] or stat[r, S_ALIAS] >= 0:
            continue
        for chip in range(run.mem.model[M_CHIPS]):
            if stat[r, S_BROKEN]:
                poison(_result(run, stat, chip, r), r)
                run.mem.stray[0] += 1
                continue
            if op == LOAD:
                first, view = _offset(run, rows[r], r, chip, 0, 0), _view(run, rows, stat, chip, r)
                load_row(run.mem, rows[r], chip, first, stat[r, S_LOW], view, run.spare[1])
            elif op == GATHER and rows[r, col.C_REGFN] == EXPERT:
                _gather_expert(run, rows, stat, r, chip)
            elif op == GATHER:
                _gather(run, rows, stat, r, chip)
            elif op == LATCH:
                _latch(run, rows, stat, r, chip)
            elif op == STORE:
                first, view = _offset(run, rows[r], r, chip, 0, 0), _written(run, rows, stat, r, chip)
                store_row(run.mem, rows[r], chip, first, view)
            elif op == SCATTER:
                _scatter(run, rows, stat, r, chip)
            elif op == SEND or op == RECEIVE:
                _send(run, rows, stat, r, chip)
            elif op == INSTALL:
                _install(run, rows, stat, r, chip)
            elif op == PASS and stat[rows[r, col.C_S1], S_LAZY]:
                _pass_weights(run, rows, stat, r, chip)
            elif op == PASS:
                _pass(run, rows, stat, r, chip)
            elif FOLDS[op]:
                _fold(run, rows, stat, r, chip)
            else:
                _map(run, rows, stat, r, chip)
