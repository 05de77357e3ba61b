"""VXM and SXM ops in the hash algebra, one result event at a time. Compiled and not typed.

A beat is an array of its first lanes; lanes beyond its end are exact zeros. `view` is (pool of the chip, first word, lanes).
"""

from ticktrue.program import columns as col
from ticktrue.program.hashing import BAD, SENTINEL, ZERO, U, add, mix, product
from ticktrue.verify.dataflow_plan_kernel import (
    ACCEPT,
    ADD,
    BF16,
    BROADCAST,
    CMUL,
    COMBINE,
    CONVERT,
    DIVIDE,
    EXP,
    FOLD,
    GELU_MUL,
    INSERT,
    LANE_ARGMAX,
    LANE_SUM,
    MASK,
    MAX,
    MEAN_RSQRT,
    MERGE,
    MOVE,
    MUL,
    PICK,
    QUANTISE,
    ROPE,
    SCALE,
    SILU_MUL,
    SOFTCAP,
    T_ACCEPT,
    T_ARGMAX,
    T_CMUL_C,
    T_CMUL_S,
    T_COMBINE,
    T_CONVERT,
    T_DIVIDE,
    T_EXP,
    T_GELU_MUL,
    T_LANE_SUM,
    T_MASK,
    T_MAX,
    T_MEAN_RSQRT,
    T_NOISE,
    T_QUANTISE,
    T_ROPE_1,
    T_ROPE_2,
    T_SCALE,
    T_SILU_MUL,
    T_SOFTCAP,
    T_TILE_SCALE,
    T_TOPK,
    TILE_SCALE,
    TOPK,
    fill,
    inner,
)

LANES = 320
BLOCK = 64


@inner
def at(beat, lane):
    """Lane of a beat, zero beyond its end."""
    return beat[lane] if lane < beat.size else ZERO


@inner
def _combine(tags, a, b, d, out):
    m1, m2 = at(a, d + 1), at(b, d + 1)
    size = min(out.size, d + 2)
    if m1 == SENTINEL or m2 == SENTINEL:
        other = b if m1 == SENTINEL else a
        for lane in range(size):
            out[lane] = at(other, lane)
        return
    m = mix(tags[T_COMBINE], m1 + m2)
    for lane in range(size):
        out[lane] = m if lane == d + 1 else mix(m, mix(m1, at(a, lane)) + mix(m2, at(b, lane)))


@inner
def _rope(tags, x, cs, shape, out):
    d, heads = shape
    half = d // 2
    for h in range(heads):
        for i in range(half):
            lane = h * d + i
            x1, x2 = at(x, lane), at(x, lane + half)
            m = mix(mix(x1, x2), mix(at(cs, i), at(cs, half + i)))
            some = x1 != ZERO or x2 != ZERO
            if lane < out.size:
                out[lane] = mix(tags[T_ROPE_1], m) if some else ZERO
            if lane + half < out.size:
                out[lane + half] = mix(tags[T_ROPE_2], m) if some else ZERO


@inner
def _cmul(tags, a, b, d, out):
    half = d // 2
    for lane in range(min(d, out.size)):
        i = lane % half
        m = mix(mix(at(a, i), at(b, i)), mix(at(a, half + i), at(b, half + i)))
        out[lane] = mix(tags[T_CMUL_C] if lane < half else tags[T_CMUL_S], m)


@inner
def _seen(place, t, last, window, ring):
    """Whether row t sees a place for some position 0 .. last of its slot's first row."""
    if window == 0:
        return place <= last + t
    p = place
    while p <= last + t:
        lowest, highest = max(p - t, 0), min(p + window - 1 - t, last)
        if lowest <= highest:
            return True
        if ring == 0:
            break
        p += ring * BLOCK
    return False


@inner
def _mask(tags, row, s, where, out):
    place, last = where
    tokens, window, ring = row[col.C_X0], row[col.C_A1], row[col.C_A2]
    key = tags[T_MASK]
    if window > 0:
        key = mix(mix(key, U(window)), U(ring))
    key = mix(key, U(place))
    for lane in range(out.size):
        t = lane % tokens
        token_row = row[col.C_A3] * tokens + t
        seen = _seen(place, t, last, window, ring)
        out[lane] = mix(key, mix(U(token_row + 1), at(s, lane))) if seen else SENTINEL


@inner
def noise(tags, row, rank, event, x, out):
    """NOISE of event = (i, j, T): lane by lane the column of the vocabulary, and the row of the step."""
    share, columns = row[col.C_A0], row[col.C_A1]
    i, j, tokens = event
    key = U(j << 32) if row[col.C_X0] == 1 and tokens > 1 else U(j + 1)
    for lane in range(out.size):
        local = row[col.C_A2] + LANES * i + lane
        n = rank * share + local
        exists = local < share and n < columns
        out[lane] = mix(mix(tags[T_NOISE], U(n + 1)), mix(key, at(x, lane))) if exists else ZERO


@inner
def _eight_bits(tags, row, a, b, out):
    """TILE_SCALE and QUANTISE."""
    if row[col.C_OP] == QUANTISE:
        key = mix(tags[T_QUANTISE], U(row[col.C_DTYPE]))
        for lane in range(min(out.size, a.size)):
            out[lane] = mix(mix(key, a[lane]), at(b, 0)) if a[lane] != ZERO else ZERO
        return
    total = ZERO
    for lane in range(a.size):
        if a[lane] != ZERO:
            total += mix(a[lane], U(lane))
    if out.size > 0:
        out[0] = mix(mix(tags[T_TILE_SCALE], U(row[col.C_DTYPE])), total)


@inner
def map_one(tags, row, where, a, b, out):
    """One event of a map op with operands a and b. where = (place of MASK, greatest position of row 0)."""
    op = row[col.C_OP]
    fill(out, 0, out.size, ZERO)
    if op == CONVERT:
        key = tags[T_CONVERT] if row[col.C_DTYPE] == BF16 else mix(tags[T_CONVERT], U(row[col.C_DTYPE]))
        for lane in range(min(out.size, a.size)):
            out[lane] = mix(key, a[lane]) if a[lane] != ZERO else ZERO
    elif op == TILE_SCALE or op == QUANTISE:
        _eight_bits(tags, row, a, b, out)
    elif op == ADD:
        for lane in range(out.size):
            out[lane] = add(at(a, lane), at(b, lane))
    elif op == MUL:
        for lane in range(min(out.size, a.size, b.size)):
            out[lane] = product(a[lane], b[lane])
    elif op == SCALE or op == SOFTCAP:
        key = mix(tags[T_SCALE] if op == SCALE else tags[T_SOFTCAP], U(row[col.C_X0] & 0xFFFFFFFF))
        for lane in range(min(out.size, a.size)):
            out[lane] = mix(key, a[lane]) if a[lane] != ZERO else ZERO
    elif op == MEAN_RSQRT:
        key = mix(mix(tags[T_MEAN_RSQRT], U(row[col.C_X0] & 0xFFFFFFFF)), U(row[col.C_X1] & 0xFFFFFFFF))
        for lane in range(out.size):
            out[lane] = mix(key, at(a, lane))
    elif op == EXP:
        for lane in range(out.size):
            s = at(a, lane)
            out[lane] = ZERO if s == SENTINEL else mix(mix(tags[T_EXP], s), at(b, lane))
    elif op == SILU_MUL or op == GELU_MUL:
        key = tags[T_SILU_MUL] if op == SILU_MUL else tags[T_GELU_MUL]
        for lane in range(min(out.size, a.size, b.size)):
            some = a[lane] != ZERO and b[lane] != ZERO
            out[lane] = mix(mix(key, a[lane]), b[lane]) if some else ZERO
    elif op == CMUL:
        _cmul(tags, a, b, row[col.C_X0], out)
    elif op == ROPE:
        _rope(tags, a, b, (row[col.C_X0], row[col.C_X1]), out)
    elif op == MASK:
        _mask(tags, row, a, where, out)
    elif op == COMBINE:
        _combine(tags, a, b, row[col.C_X0], out)
    elif op == DIVIDE:
        d = row[col.C_X0]
        total = at(a, d)
        for lane in range(min(out.size, a.size, d)):
            out[lane] = mix(mix(tags[T_DIVIDE], a[lane]), total) if a[lane] != ZERO else ZERO
    elif op == MOVE:
        first, lanes, to = row[col.C_A0], row[col.C_A1], row[col.C_A2]
        for i in range(min(lanes, out.size - to, a.size - first)):
            out[to + i] = a[first + i]
    elif op == BROADCAST:
        fill(out, 0, out.size, at(a, 0))
    elif op == INSERT:
        for lane in range(min(out.size, a.size)):
            out[lane] = a[lane]
        if row[col.C_X0] < out.size:
            out[row[col.C_X0]] = at(b, row[col.C_X0])


@inner
def _merge(row, view, first, out):
    pool, start, lanes = view
    share, beats = row[col.C_A0], row[col.C_X0]
    half = row[col.C_A3] // 2 if row[col.C_X1] > 0 else row[col.C_A3]
    for lane in range(min(out.size, row[col.C_A3])):
        column = row[col.C_A2] + lane if lane < half else row[col.C_A2] + row[col.C_X1] + lane - half
        rank, inside = divmod(column, share)
        i = rank * beats + inside // LANES - row[col.C_A1]
        out[lane] = ZERO
        if inside // LANES < beats and 0 <= i < row[col.C_N] and inside % LANES < lanes:
            out[lane] = pool[start + (first + i) * lanes + inside % LANES]


@inner
def _lane_sum(tags, beats, out):
    total = ZERO
    for lane in range(min(LANES, beats.shape[1])):
        s = ZERO
        for i in range(beats.shape[0]):
            s = add(s, beats[i, lane])
        if s != ZERO:
            total += mix(s, U(lane))
    out[0] = mix(tags[T_LANE_SUM], total)


@inner
def _argmax(tags, row, rank, beats, out):
    share, columns, first = row[col.C_A0], row[col.C_A1], row[col.C_A2]
    total = ZERO
    for i in range(row[col.C_N]):
        for lane in range(LANES):
            local = first + LANES * i + lane
            n = rank * share + local
            if local < share and n < columns:
                value = beats[i, lane] if lane < beats.shape[1] else ZERO
                total += mix(U(n + 1), value)
    out[0] = total
    if out.size > 1:
        out[1] = mix(tags[T_ARGMAX], total)


@inner
def _topk(tags, row, beats, out):
    total = ZERO
    for n in range(row[col.C_A0]):
        i, lane = n // LANES, n % LANES
        x = beats[i, lane] if i < beats.shape[0] and lane < beats.shape[1] else ZERO
        total += mix(U(n + 1), x)
    key = mix(mix(tags[T_TOPK], U(row[col.C_X0])), total)
    for lane in range(min(out.size, 2 * row[col.C_X0])):
        out[lane] = mix(key, U(lane + 1))


@inner
def _pick(tags, beats, out):
    total, bad = ZERO, False
    for i in range(beats.shape[0]):
        value = beats[i, 0] if beats.shape[1] > 0 else ZERO
        index = beats[i, 1] if beats.shape[1] > 1 else ZERO
        total += value
        bad = bad or index != mix(tags[T_ARGMAX], value)
    if bad:
        total = mix(total, BAD)
    out[0] = total
    if out.size > 1:
        out[1] = mix(tags[T_ARGMAX], total)


@inner
def _accept(tags, slot, beats, out):
    """Row t of a slot against the token that row t + 1 brings: the register has no value, the row names it."""
    total, tokens = ZERO, beats.shape[0]
    for t in range(tokens - 1):
        chosen = beats[t, 1] if beats.shape[1] > 1 else ZERO
        total += mix(U(slot * tokens + t + 1), chosen)
    if tokens > 1:
        out[0] = mix(tags[T_ACCEPT], total)


@inner
def reduce_one(tags, row, rank, view, j, out):
    """Result j of an op that folds i: its n events follow each other in the operand's buffer."""
    pool, start, lanes = view
    op, n = row[col.C_OP], row[col.C_N]
    beats = pool[start + j * n * lanes : start + (j + 1) * n * lanes].reshape(n, lanes)
    fill(out, 0, out.size, ZERO)
    if out.size == 0:
        return
    if op == FOLD:
        for i in range(n):
            for lane in range(min(out.size, lanes)):
                out[lane] = add(out[lane], beats[i, lane])
    elif op == MAX:
        for lane in range(out.size):
            total, some = ZERO, False
            for i in range(n):
                x = beats[i, lane] if lane < lanes else ZERO
                if x != SENTINEL:
                    total += mix(tags[T_MAX], x)
                    some = True
            out[lane] = total if some else SENTINEL
    elif op == MERGE:
        _merge(row, view, j * n, out)
    elif op == LANE_SUM:
        _lane_sum(tags, beats, out)
    elif op == LANE_ARGMAX:
        _argmax(tags, row, rank, beats, out)
    elif op == PICK:
        _pick(tags, beats, out)
    elif op == TOPK:
        _topk(tags, row, beats, out)
    elif op == ACCEPT:
        _accept(tags, row[col.C_A0] + j, beats, out)


@inner
def transpose(row, view, out):
    """out[m][x0][lanes]: lane i of result k is lane k of event i."""
    pool, start, lanes = view
    n = row[col.C_N]
    for j in range(out.shape[0]):
        for k in range(out.shape[1]):
            for i in range(min(n, out.shape[2])):
                out[j, k, i] = pool[start + (j * n + i) * lanes + k] if k < lanes else ZERO


@inner
def spread(view, out):
    """out[m][x0][lanes]: every lane of result k is lane k of the one event."""
    pool, start, lanes = view
    for j in range(out.shape[0]):
        for k in range(out.shape[1]):
            value = pool[start + j * lanes + k] if k < lanes else ZERO
            for lane in range(out.shape[2]):
                out[j, k, lane] = value


@inner
def poison(out, r):
    """Fills a result that no rule gives."""
    for i in range(out.size):
        out[i] = mix(mix(BAD, U(r)), U(i))


@inner
def narrow(out, tag_narrow):
    """What becomes of elements that bf16 cannot hold where bf16 is written: not the same elements."""
    for i in range(out.size):
        out[i] = mix(tag_narrow, out[i]) if out[i] != ZERO else ZERO
