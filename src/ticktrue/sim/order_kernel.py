"""Compiled: which row follows which on a port or plane, and the least starts of chains that a list of such pairs allows.

A sweep takes only the order from stated cycles: a pair (x, r, kind) says that row r comes after row x. What that costs is decided
elsewhere. All that compiled code calls lies in this file: numba's cache does not see a change in another one.
"""

import numba as nb
import numpy as np

READ_AFTER_WRITE = 0
REUSE = 1
PORT = 2
PLANE = 3
INTERLEAVE = 4
TURN = 5

ROUNDS = 64
WEAVE = 1 << 14  # events of a row up to which an exact overlap test is made


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
    met = False
    for i in range(n1):
        met = met or _even(d - i * p1, 1, w1, n2, w2, max(p2, 1))
    return met


@nb.njit(cache=True)
def collide(s1, s2, a, b, n, p, m, q, w):
    """Whether row a issued at s1 and row b issued at s2 ever hold one port in the same cycle; exact, any progression.

    Overlap of (s1 + i p) for w cycles: a bound on the difference of the inner indices, per pair of outer ones.
    Rows of more events than any program has are taken to hold the port throughout.
    """
    if max(m[a], m[b]) > WEAVE or (p[a] != p[b] and n[a] > WEAVE):
        return True
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
def group_by(target, groups, sequence):
    """(pointer, members): the indices of `target` grouped by value in the order of `sequence`, int64[groups + 1], int64[E]."""
    place = np.empty(groups, dtype=np.int64)
    for k in range(groups):
        place[sequence[k]] = k
    pointer = np.zeros(groups + 1, dtype=np.int64)
    for e in range(len(target)):
        pointer[place[target[e]] + 1] += 1
    for k in range(groups):
        pointer[k + 1] += pointer[k]
    fill = pointer[:-1].copy()
    members = np.empty(len(target), dtype=np.int64)
    for e in range(len(target)):
        k = place[target[e]]
        members[fill[k]] = e
        fill[k] += 1
    return pointer, members


@nb.njit(cache=True)
def _free(s, low, high, members, ix, ir, chain, start, offset, n, p, m, q, w):
    """First start >= s at which no interleaved row of the chain collides with the row it follows."""
    moved = True
    while moved:
        moved = False
        for k in range(low, high):
            x, r = ix[members[k]], ir[members[k]]
            begin = start[chain[x]] + offset[x]
            least = begin + 1 - offset[r]
            if s < least:
                s, moved = least, True
            tried = 0
            while collide(begin, s + offset[r], x, r, n, p, m, q, w):
                s, moved, tried = s + 1, True, tried + 1
                if tried > WEAVE:
                    s = begin + (n[x] - 1) * p[x] + (m[x] - 1) * q[x] + w[x] - offset[r]
    return s


@nb.njit(cache=True)
def longest(
    sequence, pointer, source, weight, ipointer, imembers, ix, ir, chain, offset, floor, extra, n, p, m, q, w
):
    """(earliest, start, rounds) of every chain, swept in `sequence` until nothing moves; rounds = -1 if it never settles.

    `source`, `weight` are grouped by target chain (`pointer`, in the order of `sequence`). A chain starts at
    max(earliest + extra, floor): how a chain marked late keeps its place.
    """
    chains = len(sequence)
    earliest, start = np.zeros(chains, dtype=np.int64), np.zeros(chains, dtype=np.int64)
    for k in range(chains):
        v = sequence[k]
        start[v] = max(extra[v], floor[v])
    for rounds in range(ROUNDS):
        moved = False
        for k in range(chains):
            v, s = sequence[k], np.int64(0)
            for e in range(pointer[k], pointer[k + 1]):
                s = max(s, start[source[e]] + weight[e])
            if ipointer[k + 1] > ipointer[k]:
                s = _free(
                    s, ipointer[k], ipointer[k + 1], imembers, ix, ir, chain, start, offset, n, p, m, q, w
                )
            earliest[v] = s
            s = max(s + extra[v], floor[v])
            if s != start[v]:
                start[v], moved = s, True
        if not moved:
            return earliest, start, rounds + 1
    return earliest, start, -1


@nb.njit(cache=True)
def binding(sequence, pointer, source, weight, kind, start):
    """Per chain the index of the pair that binds its start, and of the one that brings its last data; -1: none.

    Int64[chains] each; ties go to the first, data before everything else.
    """
    bind, data = np.full(len(sequence), -1, dtype=np.int64), np.full(len(sequence), -1, dtype=np.int64)
    for k in range(len(sequence)):
        v, best, fed = sequence[k], np.int64(-1), np.int64(-(1 << 62))
        for e in range(pointer[k], pointer[k + 1]):
            s = start[source[e]] + weight[e]
            if s > best or (s == best and kind[e] == READ_AFTER_WRITE and kind[bind[v]] != READ_AFTER_WRITE):
                best, bind[v] = s, e
            if kind[e] == READ_AFTER_WRITE and s > fed:
                fed, data[v] = s, e
    return bind, data
