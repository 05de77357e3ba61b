"""Compiled sweeps that find, from stated cycles, which row must wait for which: ports, planes, links, memory.

They take the order only. A pair (x, r, kind) says that row r comes after row x; what that costs is decided elsewhere.
"""
# ruff: noqa: ANN001, ANN201, ANN202, PLR0913, PLR0912, PLR0915, C901
# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False, disallow-untyped-calls=False

import numba as nb
import numpy as np

READ_AFTER_WRITE = 0
REUSE = 1
PORT = 2
PLANE = 3
INTERLEAVE = 4


@nb.njit(cache=True)
def _even(d, n1, w1, n2, w2, p):
    """Whether events i1 * p (w1 cycles) and d + i2 * p (w2 cycles) ever overlap, i1 < n1, i2 < n2."""
    low = (d - w1) // p + 1
    high = -((-(d + w2)) // p) - 1
    return max(low, 1 - n2) <= min(high, n1 - 1)


@nb.njit(cache=True)
def _inner(d, n1, p1, w1, n2, p2, w2):
    """As `_even`, for periods that may differ: the events of the first row one by one."""
    if n1 <= 1 or n2 <= 1 or p1 == p2:
        return _even(d, n1, w1, n2, w2, max(p1 if n1 > 1 else p2, 1))
    for i in range(n1):
        if _even(d - i * p1, 1, w1, n2, w2, max(p2, 1)):
            return True
    return False


@nb.njit(cache=True)
def collide(s1, s2, a, b, n, p, m, q, w):
    """Whether row a issued at s1 and row b issued at s2 ever hold one port in the same cycle; exact, any progression.

    Overlap of (s1 + i p) for w cycles: a bound on the difference of the inner indices (31 section 8), per pair of outer ones.
    """
    for ja in range(m[a]):
        t = s1 + ja * q[a]
        # outer events of b that can reach this outer event of a
        size_a = (n[a] - 1) * p[a] + w[a]
        size_b = (n[b] - 1) * p[b] + w[b]
        first, last = 0, m[b] - 1
        if m[b] > 1 and q[b] > 0:
            first = max(first, (t - size_b - s2) // q[b])
            last = min(last, (t + size_a - s2) // q[b] + 1)
        for jb in range(first, last + 1):
            if _inner(s2 + jb * q[b] - t, n[a], p[a], w[a], n[b], p[b], w[b]):
                return True
    return False


@nb.njit(cache=True)
def _grow(a):
    out = np.empty(2 * len(a), dtype=a.dtype)
    out[: len(a)] = a
    return out


@nb.njit(cache=True)
def sweep(resource, row, begin, end, plane, n, p, m, q, w):
    """Pairs (x, r, kind) of rows that share a resource; uses must be sorted by (resource, begin, row).

    A use that ended before another begins is named by the first one that follows it; later ones follow that one. Uses that
    overlap as boxes without colliding are interleaved; boxes that collide (an illegal program) count as ports in order.
    """
    size = max(16, 2 * len(row))
    xs, rs = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    kinds = np.empty(size, dtype=np.int8)
    active = np.empty(len(row) + 1, dtype=np.int64)
    count, live, now = 0, 0, -1
    for u in range(len(row)):
        if resource[u] != now:
            now, live = resource[u], 0
        kept = 0
        for k in range(live):
            x = active[k]
            if count == len(xs):
                xs, rs, kinds = _grow(xs), _grow(rs), _grow(kinds)
            xs[count], rs[count] = row[x], row[u]
            if plane[u]:
                kinds[count] = PLANE
            elif end[x] <= begin[u] or collide(begin[x], begin[u], row[x], row[u], n, p, m, q, w):
                kinds[count] = PORT
            else:
                kinds[count] = INTERLEAVE
                active[kept] = x
                kept += 1
            count += 1
        active[kept] = u
        live = kept + 1
    return xs[:count], rs[:count], kinds[:count]


@nb.njit(cache=True)
def _slot_of(keys, key):
    mask = len(keys) - 1
    h = (key * np.int64(-7046029254386353131)) >> np.int64(20)
    h &= mask
    while keys[h] != -1 and keys[h] != key:
        h = (h + 1) & mask
    return h


@nb.njit(cache=True)
def _rehash(keys):
    out = np.full(2 * len(keys), -1, dtype=np.int64)
    for key in keys:
        if key != -1:
            out[_slot_of(out, key)] = key
    return out


@nb.njit(cache=True)
def _note(keys, listed, count, key):
    """Adds a key to the set and to the list of its members in order of first sight."""
    slot = _slot_of(keys, key)
    if keys[slot] == -1:
        keys[slot] = key
        if count == len(listed):
            listed, keys = _grow(listed), _rehash(keys)
        listed[count] = key
        count += 1
    return keys, listed, count


@nb.njit(cache=True)
def _written(address, write, n, step, m, step2, width, space):
    """Which vectors some row writes on some chip: uint8[space]."""
    hot = np.zeros(space, dtype=np.uint8)
    for c in range(address.shape[0]):
        for h in range(address.shape[1]):
            if write[h]:
                for j in range(m[h]):
                    for i in range(n[h]):
                        a = address[c, h] + i * step[h] + j * step2[h]
                        for v in range(max(a, 0), min(a + width[h], space)):
                            hot[v] = 1
    return hot


@nb.njit(cache=True)
def _unpack(listed, rows):
    count = len(listed)
    xs, rs = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    kinds = np.empty(count, dtype=np.int8)
    for k in range(count):
        kinds[k] = REUSE if listed[k] & 1 else READ_AFTER_WRITE
        pair = listed[k] >> 1
        xs[k], rs[k] = pair // rows, pair % rows
    return xs, rs, kinds


@nb.njit(cache=True)
def memory_pairs(address, row, write, n, step, m, step2, width, space, rows):
    """Pairs (x, r, kind) of rows that touch one vector on some chip, one of them writing; int64[chips, accesses] `address`.

    Accesses must be in stated order. `space` is the number of vectors of a chip, `rows` the number of rows. A read names the
    last write; a write names the last write and all reads since.
    """
    hot = _written(address, write, n, step, m, step2, width, space)
    keys, listed, count = np.full(1 << 16, -1, dtype=np.int64), np.empty(1 << 15, dtype=np.int64), 0
    stamp = np.zeros(space, dtype=np.int32)
    writer, head = np.empty(space, dtype=np.int32), np.empty(space, dtype=np.int32)
    node_row, node_next = np.empty(1 << 16, dtype=np.int32), np.empty(1 << 16, dtype=np.int32)
    for c in range(address.shape[0]):
        nodes = 0
        for h in range(address.shape[1]):
            r, reuse, seen = row[h], np.int64(write[h]), np.int64(-1)
            for e in range(n[h] * m[h]):
                first = address[c, h] + (e % n[h]) * step[h] + (e // n[h]) * step2[h]
                for a in range(max(first, 0), min(first + width[h], space)):
                    if hot[a] == 0:
                        continue
                    if stamp[a] != c + 1:
                        stamp[a], writer[a], head[a] = c + 1, -1, -1
                    key = (np.int64(writer[a]) * rows + r) * 2 + reuse
                    if writer[a] >= 0 and writer[a] != r and key != seen:
                        seen = key
                        keys, listed, count = _note(keys, listed, count, key)
                    if reuse:
                        node = head[a]
                        while node >= 0:
                            if node_row[node] != r:
                                key = (np.int64(node_row[node]) * rows + r) * 2 + 1
                                keys, listed, count = _note(keys, listed, count, key)
                            node = node_next[node]
                        writer[a], head[a] = r, -1
                    elif head[a] < 0 or node_row[head[a]] != r:
                        if nodes == len(node_row):
                            node_row, node_next = _grow(node_row), _grow(node_next)
                        node_row[nodes], node_next[nodes], head[a] = r, head[a], nodes
                        nodes += 1
    return _unpack(listed[:count], rows)
