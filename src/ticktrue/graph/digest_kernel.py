"""Hashes of whole tensors, one function per row of numerics.md: what the model's step means, before any chip exists.

Compiled and not typed. Tiles are `tile` deep in k, blocks are 64 positions, a lane sum has 320 lanes, a combine 256.
"""

import numba as nb
import numpy as np

from ticktrue.program.hashing import SENTINEL, STEP, ZERO, U, add, leaf, mix, product, seal, select

BLOCK = 64
COMBINE_LANES = 256
LANES = 320


@nb.njit(cache=True)
def scaled(x, tile):
    """x[T, K] with the j-th of a tile's n nonzero elements times STEP^(n - 1 - j): a dot product is then the ordered sum."""
    out = np.zeros_like(x)
    rows, inputs = x.shape
    for t in range(rows):
        for k0 in range(0, inputs, tile):
            power = U(1)
            for k in range(min(k0 + tile, inputs) - 1, k0 - 1, -1):
                if x[t, k] != ZERO:
                    out[t, k] = x[t, k] * power
                    power *= STEP
    return out


@nb.njit(cache=True)
def linear(x, base, outputs, tile, tag_pass):
    """Rows 7 and 10: out[T, N] = x[T, K] . W[N, K], tiles of k ascending, each an ordered sum of products."""
    rows, inputs = x.shape
    xs = scaled(x, tile)
    out = np.zeros((rows, outputs), np.uint64)
    if rows == 1:
        row = xs[0]
        for n in range(outputs):
            acc = ZERO
            for k0 in range(0, inputs, tile):
                total = ZERO
                for k in range(k0, min(k0 + tile, inputs)):
                    total += row[k] * leaf(base, U(n * inputs + k))
                acc = add(acc, seal(tag_pass, total))
            out[0, n] = acc
        return out
    w = np.empty((4, tile), np.uint64)
    for n0 in range(0, outputs, 4):
        cols = min(4, outputs - n0)
        for k0 in range(0, inputs, tile):
            depth = min(tile, inputs - k0)
            for c in range(4):
                n = min(n0 + c, outputs - 1)
                for k in range(depth):
                    w[c, k] = leaf(base, U(n * inputs + k0 + k))
            for t in range(rows):
                s0 = s1 = s2 = s3 = ZERO
                for k in range(depth):
                    v = xs[t, k0 + k]
                    s0 += v * w[0, k]
                    s1 += v * w[1, k]
                    s2 += v * w[2, k]
                    s3 += v * w[3, k]
                out[t, n0] = add(out[t, n0], seal(tag_pass, s0))
                if cols > 1:
                    out[t, n0 + 1] = add(out[t, n0 + 1], seal(tag_pass, s1))
                if cols > 2:
                    out[t, n0 + 2] = add(out[t, n0 + 2], seal(tag_pass, s2))
                if cols > 3:
                    out[t, n0 + 3] = add(out[t, n0 + 3], seal(tag_pass, s3))
    return out


@nb.njit(cache=True)
def quantised(x, keys):
    """Row 6: (x in 8 bits, scale of each tile of 320). keys = (of TILE_SCALE, of QUANTISE), the type mixed in."""
    rows, inputs = x.shape
    q = np.zeros_like(x)
    scales = np.empty((rows, (inputs + LANES - 1) // LANES), np.uint64)
    for t in range(rows):
        for k0 in range(0, inputs, LANES):
            total = ZERO
            for k in range(k0, min(k0 + LANES, inputs)):
                if x[t, k] != ZERO:
                    total += mix(x[t, k], U(k - k0))
            s = mix(keys[0], total)
            scales[t, k0 // LANES] = s
            for k in range(k0, min(k0 + LANES, inputs)):
                if x[t, k] != ZERO:
                    q[t, k] = mix(mix(keys[1], x[t, k]), s)
    return q, scales


@nb.njit(cache=True)
def linear8(q, scales, base, outputs, tag_pass):
    """Rows 8 and 9, not yet times the weights' scales: each tile's sum times the scale of that tile of x."""
    rows, inputs = q.shape
    xs = scaled(q, LANES)
    out = np.zeros((rows, outputs), np.uint64)
    w = np.empty(LANES, np.uint64)
    for n in range(outputs):
        for k0 in range(0, inputs, LANES):
            depth = min(LANES, inputs - k0)
            for k in range(depth):
                w[k] = leaf(base, U(n * inputs + k0 + k))
            for t in range(rows):
                total = ZERO
                for k in range(depth):
                    total += xs[t, k0 + k] * w[k]
                out[t, n] = add(out[t, n], product(seal(tag_pass, total), scales[t, k0 // LANES]))
    return out


@nb.njit(cache=True)
def times_vector(x, base):
    """Row 10: x[row, n] * leaf n."""
    for t in range(x.shape[0]):
        for i in range(x.shape[1]):
            x[t, i] = product(x[t, i], leaf(base, U(i)))


@nb.njit(cache=True)
def convert(x, tag_convert):
    """Rounding to bf16, in place."""
    flat = x.reshape(-1)
    for i in range(flat.size):
        if flat[i] != ZERO:
            flat[i] = mix(tag_convert, flat[i])


@nb.njit(cache=True)
def scale_heads(x, base, record, head_dim):
    """Each element times factor `record` of its KV head, leaf record * heads + head of a cache's scales, in place."""
    rows, width = x.shape
    heads = width // head_dim
    for t in range(rows):
        for e in range(width):
            x[t, e] = product(x[t, e], leaf(base, U(record * heads + e // head_dim)))


@nb.njit(cache=True)
def norm(x, base, tags, size_bits, eps_bits):
    """Row 5, unrounded: (x * r) * g with r from the lane sum; base 0: no g. tags = (LANE_SUM, MEAN_RSQRT)."""
    rows, width = x.shape
    out = np.empty_like(x)
    for t in range(rows):
        total = ZERO
        for lane in range(min(LANES, width)):
            s = ZERO
            for i in range(lane, width, LANES):
                s = add(s, product(x[t, i], x[t, i]))
            if s != ZERO:
                total += mix(s, U(lane))
        r = mix(mix(mix(tags[1], size_bits), eps_bits), mix(tags[0], total))
        for i in range(width):
            y = product(x[t, i], r)
            out[t, i] = product(y, leaf(base, U(i))) if base != ZERO else y
    return out


@nb.njit(cache=True)
def gather_leaves(base, stride, width, tag_f, values):
    """out[width]: the element `e` of the record that a register names, over all its values: leaf(base, value * stride + e)."""
    out = np.zeros(width, np.uint64)
    if values.size == 1:
        for e in range(width):
            out[e] = leaf(base, U(values[0] * stride + e))
        return out
    for a in values:
        key = mix(tag_f, U(a))
        for e in range(width):
            out[e] += key * leaf(base, U(a * stride + e))
    return out


@nb.njit(cache=True)
def gather_rows(x, tag_f):
    """As `gather_leaves`, of x[values, width] with values 0, 1, ..."""
    count, width = x.shape
    if count == 1:
        return x[0].copy()
    out = np.zeros(width, np.uint64)
    for a in range(count):
        key = mix(tag_f, U(a))
        for e in range(width):
            out[e] += key * x[a, e]
    return out


@nb.njit(cache=True)
def rope_table(a, b, tags):
    """Row 12, the angle: (c | s)[d] of a row from its two table rows. tags = (CMUL_C, CMUL_S)."""
    d = a.size
    half = d // 2
    out = np.empty(d, np.uint64)
    for i in range(half):
        m = mix(mix(a[i], b[i]), mix(a[half + i], b[half + i]))
        out[i] = mix(tags[0], m)
        out[half + i] = mix(tags[1], m)
    return out


@nb.njit(cache=True)
def rope(x, table, head_dim, tags):
    """Row 12, the turn: pairs (i, i + d/2) of every head. tags = (ROPE_1, ROPE_2)."""
    rows, width = x.shape
    half = head_dim // 2
    out = np.zeros_like(x)
    for t in range(rows):
        for h in range(0, width, head_dim):
            for i in range(half):
                x1, x2 = x[t, h + i], x[t, h + half + i]
                if x1 != ZERO or x2 != ZERO:
                    m = mix(mix(x1, x2), mix(table[t, i], table[t, half + i]))
                    out[t, h + i] = mix(tags[0], m)
                    out[t, h + half + i] = mix(tags[1], m)
    return out


@nb.njit(cache=True)
def append(base, new, span, first_row, tag_scatter):
    """Row 13: state[places, width] of a slot after the step: at every place, each token row may be the one that lies there.

    span = (places, positions): a position lies at its remainder by the places. new[T, width]; `first_row`: row of new[0].
    """
    places, positions = span
    tokens, width = new.shape
    state = np.empty((places, width), np.uint64)
    for p in range(places):
        key_p = mix(tag_scatter, U(p))
        row = state[p]
        for i in range(width):
            row[i] = leaf(base, U(p * width + i))
        for t in range(tokens):
            if (p - t) % places <= positions - tokens:
                key = mix(key_p, U(first_row + t + 1))
                n = new[t]
                for i in range(width):
                    row[i] = select(row[i], n[i], key)
    return state


@nb.njit(cache=True)
def _visible(p, t, last, window, ring):
    """Whether row t sees place p for some position 0 .. last of its slot's first row."""
    if window == 0:
        return p <= last + t
    while p <= last + t:
        if max(p - t, 0) <= min(p + window - 1 - t, last):
            return True
        if ring == 0:
            return False
        p += 64 * ring
    return False


@nb.njit(cache=True)
def combine(m1, e1, m2, e2, tag_combine, out):
    """Row 18 on e = (o, l): (m1, e1) + (m2, e2) into out; gives m."""
    if m1 == SENTINEL:
        out[:] = e2
        return m2
    if m2 == SENTINEL:
        out[:] = e1
        return m1
    m = mix(tag_combine, m1 + m2)
    for i in range(out.size):
        out[i] = mix(m, mix(m1, e1[i]) + mix(m2, e2[i]))
    return m


@nb.njit(cache=True)
def _tree(m, e, blocks, tag_combine):
    """Row 19: blocks ascending inside lanes, then h = 128, ..., 1; the result is left in block 0."""
    for b in range(COMBINE_LANES, blocks):
        lane = b % COMBINE_LANES
        m[lane] = combine(m[lane], e[lane], m[b], e[b], tag_combine, e[lane])
    present = min(blocks, COMBINE_LANES)
    h = COMBINE_LANES // 2
    while h > 0:
        for i in range(min(h, max(present - h, 0))):
            m[i] = combine(m[i], e[i], m[i + h], e[i + h], tag_combine, e[i])
        present = min(present, h)
        h //= 2


@nb.njit(cache=True)
def _block(qs, keys, vals, key_tile, where, tags, p_row, e):
    """Rows 14 to 17 of one row and block: fills e = (o | l), gives m.

    where = (first place, t, row, greatest position of row 0, window, ring).
    """
    first, t, row, last, window, ring = where
    d = keys.shape[1]
    tag_mask = tags.MASK
    if window > 0:
        tag_mask = mix(mix(tag_mask, U(window)), U(ring))
    m = ZERO
    visible = False
    for i in range(BLOCK):
        k = keys[i]
        score = ZERO
        for k0 in range(0, d, key_tile):
            total = ZERO
            for j in range(k0, min(k0 + key_tile, d)):
                total += qs[j] * k[j]
            score = add(score, seal(tags.PASS, total))
        if score != ZERO:
            score = mix(tags.SCALED, score)
        if tags.CAPPED != ZERO and score != ZERO:
            score = mix(tags.CAPPED, score)
        s = SENTINEL
        if _visible(first + i, t, last, window, ring):
            s = mix(mix(tag_mask, U(first + i)), mix(U(row + 1), score))
        p_row[i] = s
        if s != SENTINEL:
            m += mix(tags.MAX, s)
            visible = True
    if not visible:
        m = SENTINEL
    power = U(1)
    e[:] = ZERO
    for i in range(BLOCK - 1, -1, -1):
        if p_row[i] == SENTINEL:
            continue
        p = mix(mix(tags.EXP, p_row[i]), m)
        if tags.CONVERT != ZERO:
            p = mix(tags.CONVERT, p)
        p *= power
        power *= STEP
        v = vals[i]
        for j in range(d):
            e[j] += p * v[j]
        e[d] += p * tags.ONE
    for j in range(d + 1):
        e[j] = seal(tags.PASS, e[j])
    return m


@nb.njit(cache=True)
def attention(q, keys, vals, shape, span, tags):
    """Rows 14 to 20 of a slot, unrounded: out[T, heads * d]; keys, vals [places, KV heads * d].

    shape = (heads, KV heads, d, key tile); span = (row of q[0], positions, window, ring).
    """
    heads, kv_heads, d, key_tile = shape
    first_row, positions, window, ring = span
    tokens, places = q.shape[0], keys.shape[0]
    blocks, group = places // BLOCK, heads // kv_heads
    out = np.empty((tokens, heads * d), np.uint64)
    m = np.empty(blocks, np.uint64)
    e = np.empty((blocks, d + 1), np.uint64)
    p_row = np.empty(BLOCK, np.uint64)
    for kv in range(kv_heads):
        k = keys[:, kv * d : (kv + 1) * d].copy()
        v = vals[:, kv * d : (kv + 1) * d].copy()
        for h in range(kv * group, (kv + 1) * group):
            qs = scaled(q[:, h * d : (h + 1) * d].copy(), key_tile)
            for t in range(tokens):
                for b in range(blocks):
                    at = slice(b * BLOCK, (b + 1) * BLOCK)
                    where = (b * BLOCK, t, first_row + t, positions - tokens, window, ring)
                    m[b] = _block(qs[t], k[at], v[at], key_tile, where, tags, p_row, e[b])
                _tree(m, e, blocks, tags.COMBINE)
                for j in range(d):
                    o = e[0, j]
                    out[t, h * d + j] = mix(mix(tags.DIVIDE, o), e[0, d]) if o != ZERO else ZERO
    return out


@nb.njit(cache=True)
def keyed(x, key):
    """A constant's op on every element that is not zero."""
    flat = x.reshape(-1)
    for i in range(flat.size):
        if flat[i] != ZERO:
            flat[i] = mix(key, flat[i])


@nb.njit(cache=True)
def add_vector(x, base):
    """Row 10: x[row, n] + leaf n."""
    for t in range(x.shape[0]):
        for i in range(x.shape[1]):
            x[t, i] = add(x[t, i], leaf(base, U(i)))


@nb.njit(cache=True)
def times(x, scalar):
    """Row 4b: every element times one."""
    out = np.empty_like(x)
    for t in range(x.shape[0]):
        for i in range(x.shape[1]):
            out[t, i] = product(x[t, i], scalar)
    return out


@nb.njit(cache=True)
def residual(x, y):
    """Row 4: x + y."""
    out = np.empty_like(x)
    for t in range(x.shape[0]):
        for i in range(x.shape[1]):
            out[t, i] = add(x[t, i], y[t, i])
    return out


@nb.njit(cache=True)
def gate(g, u, tag_gate):
    """Row 21, unrounded."""
    out = np.zeros_like(g)
    for t in range(g.shape[0]):
        for i in range(g.shape[1]):
            if g[t, i] != ZERO and u[t, i] != ZERO:
                out[t, i] = mix(mix(tag_gate, g[t, i]), u[t, i])
    return out


@nb.njit(cache=True)
def greedy(logits, tag_argmax):
    """Row 23: next_token[rows]."""
    out = np.empty(logits.shape[0], np.uint64)
    for t in range(logits.shape[0]):
        total = ZERO
        for n in range(logits.shape[1]):
            total += mix(U(n + 1), logits[t, n])
        out[t] = mix(tag_argmax, total)
    return out


@nb.njit(cache=True)
def accept(chosen, tag_accept):
    """accept[S] of chosen[S, T], against tokens that have no value; 0 where a slot has one token and nothing to compare."""
    slots, tokens = chosen.shape
    out = np.zeros(slots, np.uint64)
    for s in range(slots):
        total = ZERO
        for t in range(tokens - 1):
            total += mix(U(s * tokens + t + 1), chosen[s, t])
        if tokens > 1:
            out[s] = mix(tag_accept, total)
    return out


@nb.njit(cache=True)
def noise(logits, one_of_many, tag_noise):
    """Row 24: z[rows, vocab]; row t is named t + 1, or t * 2^32 where any of several tokens may be the last valid one."""
    out = np.empty_like(logits)
    for t in range(logits.shape[0]):
        key = U(t << 32) if one_of_many else U(t + 1)
        for n in range(logits.shape[1]):
            out[t, n] = mix(mix(tag_noise, U(n + 1)), mix(key, logits[t, n]))
    return out
