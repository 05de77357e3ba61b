"""The interpreter of flat rows in the hash algebra: every row on every chip, in the order of issue. Compiled and not typed."""

import numba as nb
import numpy as np

from ticktrue.isa import OPS, Kind
from ticktrue.program import columns as col
from ticktrue.program.hashing import STEP, ZERO, U, leaf, mix, seal
from ticktrue.verify.dataflow_memory_kernel import (
    BLOCK,
    M_BLOCKS,
    M_CHIPS,
    M_CP,
    M_TOKENS,
    N_INPUTS,
    N_OUTPUTS,
    N_SHARD,
    W_PIECE0,
    W_PIECE1,
    W_ROWS,
    finish_gather,
    gather,
    load,
    ordered,
    scatter,
    store,
    tile_at,
    values_of,
)
from ticktrue.verify.dataflow_op_kernel import map_one, narrow, poison, reduce_one, spread, transpose
from ticktrue.verify.dataflow_plan_kernel import (
    BF16,
    GATHER,
    INSTALL,
    LOAD,
    MASK,
    PASS,
    RECEIVE,
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
    TRANSPOSE,
    lanes_of,
    operands,
)

KINDS = np.array([int(i.kind) for i in OPS], dtype=np.int64)
REDUCE = int(Kind.REDUCE)


@nb.njit(cache=True)
def _result(run, stat, chip, r):
    """The buffer of row r on a chip, flat."""
    start = stat[r, S_OFFSET]
    return run.pool[chip, start : start + stat[r, S_EVENTS] * stat[r, S_LANES]]


@nb.njit(cache=True)
def _owner(run, rows, stat, chip, r):
    """(chip, row) that keep the result of row r of a chip: others for a SEND or RECEIVE that passes it on."""
    while stat[r, S_ALIAS] >= 0:
        if rows[r, col.C_OP] == RECEIVE:
            chip = run.peer[chip, r]
        r = stat[r, S_ALIAS]
    return chip, r


@nb.njit(cache=True)
def _view(run, rows, stat, chip, r):
    """(pool of the chip, first word, lanes) of the result of row r."""
    chip, r = _owner(run, rows, stat, chip, r)
    return run.pool[chip], stat[r, S_OFFSET], stat[r, S_LANES]


@nb.njit(cache=True)
def _event(view, e):
    """Event e of a result."""
    pool, start, lanes = view
    return pool[start + e * lanes : start + (e + 1) * lanes]


@nb.njit(cache=True)
def _offset(run, row, r, chip, i, j):
    """Vector within its region of event (i, j), the register's part left out."""
    first = run.address[chip, r] - run.mem.regions[row[col.C_REGION], 2]
    return first + i * row[col.C_STEP] + j * row[col.C_STEP2]


@nb.njit(cache=True)
def _load(run, row, stat, r, chip):
    n = row[col.C_N]
    for j in range(row[col.C_M]):
        for i in range(n):
            where = (chip, row[col.C_REGION], _offset(run, row, r, chip, i, j))
            out = _event(run, stat, chip, r, j * n + i)
            load(run.mem, where, row[col.C_WIDTH], row[col.C_DTYPE], out, run.halves)


@nb.njit(cache=True)
def _gather(run, row, stat, r, chip):
    n, fn = row[col.C_N], row[col.C_REGFN]
    total = run.lane[: stat[r, S_LANES]]
    last = (-1, -1, -1)
    for j in range(row[col.C_M]):
        for i in range(n):
            count, first = values_of(run.mem, fn, 0 if fn == 5 else i)
            out = _event(run, stat, chip, r, j * n + i)
            if count == 0:
                poison(out, r)
                continue
            where = (chip, row[col.C_REGION], _offset(run, row, r, chip, i, j))
            set_first = 0 if fn == 3 and count == 512 else first
            if (count, set_first, where[2]) != last:
                gather(run.mem, where, row, (fn, count, first), total, run.halves)
                last = (count, set_first, where[2])
            finish_gather(run.mem, (fn, count, first), i, total, out)


@nb.njit(cache=True)
def _narrowed(run, row, stat, chip, e):
    """Event e of the stream that a row writes or sends, as what its type can hold."""
    s = row[col.C_S0]
    x = _event(run, stat, chip, s, e)
    if row[col.C_DTYPE] == BF16 and stat[s, S_ROUNDED] == 0:
        y = run.lane[: x.size]
        y[:] = x
        narrow(y, run.tags.NARROW)
        return y
    return x


@nb.njit(cache=True)
def _store(run, row, stat, r, chip):
    n = row[col.C_N]
    for j in range(row[col.C_M]):
        for i in range(n):
            where = (chip, row[col.C_REGION], _offset(run, row, r, chip, i, j))
            values = _narrowed(run, row, stat, chip, j * n + i)
            store(run.mem, where, row[col.C_WIDTH], row[col.C_DTYPE], values)


@nb.njit(cache=True)
def _scatter(run, row, stat, r, chip):
    """Token row i may lie at every position p = pos + i that this chip owns; one position after the other."""
    n, m, model = row[col.C_N], row[col.C_M], run.mem.model
    last = BLOCK * model[M_BLOCKS] - model[M_TOKENS]
    cp = model[M_CP]
    if row[col.C_REGFN] != 4 or stat[row[col.C_S0], S_EVENTS] == 0:
        run.mem.stray[0] += 1
        return
    bf16 = row[col.C_DTYPE] == BF16 and stat[row[col.C_S0], S_ROUNDED] == 0
    for p in range(last + n):
        if p // BLOCK % cp != chip % cp:
            continue
        local = p // BLOCK // cp * BLOCK + p % BLOCK
        key_p = mix(run.tags.SCATTER, U(p))
        for j in range(m):
            for i in range(max(0, p - last), min(n, p + 1)):
                off = _offset(run, row, r, chip, i, j) + local * row[col.C_REGSTRIDE]
                x = _event(run, stat, chip, row[col.C_S0], j * n + i)
                if bf16:
                    x = _narrowed(run, row, stat, chip, j * n + i)
                where = (chip, row[col.C_REGION], off)
                scatter(run.mem, where, row[col.C_WIDTH], row[col.C_DTYPE], x, mix(key_p, U(i + 1)))


@nb.njit(cache=True)
def _move(run, row, stat, r, chip):
    """SEND into its own buffer, RECEIVE from that of the peer."""
    send = row[col.C_OP] == SEND
    peer = chip if send else run.peer[chip, r]
    for e in range(stat[r, S_EVENTS]):
        out = _event(run, stat, chip, r, e)
        x = _narrowed(run, row, stat, chip, e) if send else _event(run, stat, peer, row[col.C_S0], e)
        lanes = min(out.size, x.size)
        out[:lanes] = x[:lanes]
        out[lanes:] = ZERO


@nb.njit(cache=True)
def _install(run, rows, stat, r, chip):
    """The tiles of an INSTALL, column by column: pool[m][columns][rows]."""
    row = rows[r]
    source = row[col.C_S0]
    brought = row[col.C_WIDTH] // row[col.C_X0] if row[col.C_X0] > 0 else 1
    row_lanes = row[col.C_X0] * lanes_of(rows[source, col.C_DTYPE]) if row[col.C_X0] > 0 else 0
    depth, cols = stat[r, S_PLANE_ROWS], row[col.C_A2] - row[col.C_A1]
    ones = row[col.C_X1] == 1
    size = (cols + ones) * depth
    rounding = row[col.C_DTYPE] == BF16 and stat[source, S_ROUNDED] == 0
    for j in range(row[col.C_M]):
        start = stat[r, S_OFFSET] + j * size
        tile = run.pool[chip, start : start + size].reshape(cols + ones, depth)
        for k in range(depth):
            x = _event(run, stat, chip, source, j * row[col.C_N] + k // brought)
            first = k % brought * row_lanes + row[col.C_A1]
            limit = x.size if row_lanes == 0 else min(x.size, (k % brought + 1) * row_lanes)
            for c in range(cols):
                tile[c, k] = x[first + c] if first + c < limit else ZERO
            if ones:
                tile[cols, k] = run.tags.ONE
        if rounding:
            for c in range(cols):
                narrow(tile[c], run.tags.NARROW)


@nb.njit(cache=True)
def _scaled(x, first, present, out):
    """out[k] = x[first + k] times STEP to the number of later elements that count; elements count where present and not zero."""
    power = U(1)
    for k in range(out.size - 1, -1, -1):
        value = x[first + k] if present[k] and first + k < x.size else ZERO
        out[k] = value * power
        if value != ZERO:
            power *= STEP


@nb.njit(cache=True)
def _weight_tile(run, rows, stat, r, chip):
    """The whole weight tile that a lazy INSTALL names: its number."""
    load_row = rows[rows[r, col.C_S1], col.C_S0]
    source = rows[load_row]
    return tile_at(run.mem, source[col.C_REGION], _offset(run, source, load_row, chip, 0, 0))


@nb.njit(cache=True)
def _pass_weights(run, rows, stat, r, chip):
    """PASS through a weight tile whose leaves are made here, for the columns that are read only."""
    row, mem = rows[r], run.mem
    plane = rows[row[col.C_S1]]
    depth = min(stat[row[col.C_S1], S_PLANE_ROWS], 160)
    low = max(stat[r, S_LOW], plane[col.C_A1])
    high = min(stat[r, S_LANES], plane[col.C_A2])
    events = stat[r, S_EVENTS]
    result = _result(run, stat, chip, r)
    result[:] = ZERO
    t = _weight_tile(run, rows, stat, r, chip)
    w = run.column[:depth]
    xs = run.scaled[: events * depth].reshape(events, depth)
    lanes = stat[r, S_LANES]
    counted = -1
    for q in range(mem.tiles[t, W_PIECE0], mem.tiles[t, W_PIECE1]):
        piece = mem.pieces[q]
        tensor = piece[col.P_TENSOR]
        outputs, inputs = mem.tensors[tensor, N_OUTPUTS], mem.tensors[tensor, N_INPUTS]
        first = chip * mem.tensors[tensor, N_SHARD] + piece[col.P_COL0] - piece[col.P_LANE]
        c0 = max(low, piece[col.P_LANE])
        c1 = min(high, piece[col.P_LANE] + piece[col.P_COLS], outputs - first)
        count = min(depth, mem.tiles[t, W_ROWS], inputs - piece[col.P_K0])
        if c0 >= c1 or count <= 0:
            continue
        if count != counted:
            run.present[:] = False
            run.present[:count] = True
            for e in range(events):
                _scaled(_activation(run, rows, stat, r, chip, e), plane[col.C_A0], run.present, xs[e])
            counted = count
        base = mem.tensor_base[tensor]
        for c in range(c0, c1):
            start = (first + c) * inputs + piece[col.P_K0]
            if events == 1:
                total = ZERO
                for k in range(count):
                    total += xs[0, k] * leaf(base, U(start + k))
                result[c] = seal(run.tags.PASS, total)
                continue
            for k in range(count):
                w[k] = leaf(base, U(start + k))
            for e in range(events):
                total = ZERO
                for k in range(count):
                    total += xs[e, k] * w[k]
                result[e * lanes + c] = seal(run.tags.PASS, total)


@nb.njit(cache=True)
def _activation(run, rows, stat, r, chip, e):
    """Event e of the activations of a PASS, as what its plane can take."""
    s, plane = rows[r, col.C_S0], rows[rows[r, col.C_S1]]
    x = _event(run, stat, chip, s, e)
    if plane[col.C_DTYPE] == BF16 and stat[s, S_ROUNDED] == 0:
        y = run.lane[: x.size]
        y[:] = x
        narrow(y, run.tags.NARROW)
        return y
    return x


@nb.njit(cache=True)
def _patterns(tile, present, regular):
    """Which rows count (those of the first column with any), and which columns have exactly those or none."""
    cols, depth = tile.shape
    present[:] = False
    found = False
    for c in range(cols):
        some = False
        for k in range(depth):
            some = some or tile[c, k] != ZERO
        if some and not found:
            for k in range(depth):
                present[k] = tile[c, k] != ZERO
            found = True
        regular[c] = True
        for k in range(depth):
            if some and (tile[c, k] != ZERO) != present[k]:
                regular[c] = False


@nb.njit(cache=True)
def _pass(run, rows, stat, r, chip):
    """PASS through tiles that an INSTALL keeps."""
    row, s = rows[r], rows[r, col.C_S1]
    plane = rows[s]
    n, depth = row[col.C_N], stat[s, S_PLANE_ROWS]
    cols = plane[col.C_A2] - plane[col.C_A1] + (plane[col.C_X1] == 1)
    present, regular = run.present[:depth], run.regular[:cols]
    xs = run.column[:depth]
    low, high = stat[r, S_LOW], stat[r, S_LANES]
    for j in range(row[col.C_M]):
        start = stat[s, S_OFFSET] + (j if plane[col.C_M] > 1 else 0) * cols * depth
        tile = run.pool[chip, start : start + cols * depth].reshape(cols, depth)
        _patterns(tile, present, regular)
        for i in range(n):
            out = _event(run, stat, chip, r, j * n + i)
            out[:] = ZERO
            x = _activation(run, rows, stat, r, chip, j * n + i)
            _scaled(x, plane[col.C_A0], present, xs)
            for c in range(max(0, low - plane[col.C_A1]), min(cols, high - plane[col.C_A1])):
                total = ZERO
                if regular[c]:
                    for k in range(depth):
                        total += xs[k] * tile[c, k]
                else:
                    y = run.spare[:depth]
                    y[:] = ZERO
                    for k in range(depth):
                        if plane[col.C_A0] + k < x.size:
                            y[k] = x[plane[col.C_A0] + k]
                    total = ordered(y, tile[c])
                out[plane[col.C_A1] + c] = seal(run.tags.PASS, total)


@nb.njit(cache=True)
def _map(run, row, stat, r, chip):
    n, two = row[col.C_N], operands(row[col.C_OP]) == 2
    model = run.mem.model
    bound = BLOCK * model[M_BLOCKS] - model[M_TOKENS]
    position = 0
    for e in range(stat[r, S_EVENTS]):
        a = _event(run, stat, chip, row[col.C_S0], e)
        b = _event(run, stat, chip, row[col.C_S1], e) if two else a
        if row[col.C_OP] == MASK:
            block = (row[col.C_A0] + e // n) * model[M_CP] + chip % model[M_CP]
            position = block * BLOCK + e % n
        map_one(run.tags, row, (position, bound), a, b, _event(run, stat, chip, r, e))


@nb.njit(cache=True)
def _row(run, rows, stat, r, chip):
    """Evaluates row r on one chip."""
    row = rows[r]
    op = row[col.C_OP]
    if op == LOAD:
        _load(run, row, stat, r, chip)
    elif op == GATHER:
        _gather(run, row, stat, r, chip)
    elif op == STORE:
        _store(run, row, stat, r, chip)
    elif op == SCATTER:
        _scatter(run, row, stat, r, chip)
    elif op == SEND or op == RECEIVE:
        _move(run, row, stat, r, chip)
    elif op == INSTALL:
        _install(run, rows, stat, r, chip)
    elif op == PASS:
        if stat[row[col.C_S1], S_LAZY]:
            _pass_weights(run, rows, stat, r, chip)
        else:
            _pass(run, rows, stat, r, chip)
    elif op == TRANSPOSE or op == SPREAD:
        view = (run.pool[chip], stat[row[col.C_S0], S_OFFSET], stat[row[col.C_S0], S_LANES])
        out = _result(run, stat, chip, r).reshape(row[col.C_M], row[col.C_X0], stat[r, S_LANES])
        if op == TRANSPOSE:
            transpose(row, view, out)
        else:
            spread(view, out)
    elif KINDS[op] == REDUCE:
        view = (run.pool[chip], stat[row[col.C_S0], S_OFFSET], stat[row[col.C_S0], S_LANES])
        for j in range(row[col.C_M]):
            reduce_one(run.tags, row, run.rank[row[col.C_PATTERN], chip], view, j, _event(run, stat, chip, r, j))
    else:
        _map(run, row, stat, r, chip)


@nb.njit(cache=True)
def evaluate(run, rows, order, stat):
    """All rows on all chips, in order."""
    for at in range(order.size):
        r = order[at]
        op = rows[r, col.C_OP]
        for chip in range(run.mem.model[M_CHIPS]):
            if stat[r, S_BROKEN]:
                poison(_result(run, stat, chip, r), r)
                run.mem.stray[0] += 1
            elif op == STORE or op == SCATTER or not stat[r, S_LAZY]:
                _row(run, rows, stat, r, chip)
