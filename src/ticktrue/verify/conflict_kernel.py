"""Compiled exact test whether two rows hold one port in the same cycle, and the sweep that finds such pairs.

Event (i, j) of a row holds its port from start + i p + j q for w cycles, i < n, j < m, and rounds do not overlap:
(n - 1) p + w <= q.
"""

import numba as nb
import numpy as np


@nb.njit(cache=True)
def _coefficient(a, b):
    """(g, x) with x * a = g modulo b, g = gcd(a, b), 0 <= x < b / g."""
    r0, r1, x0, x1 = a, b, 1, 0
    while r1:
        k = r0 // r1
        r0, r1 = r1, r0 - k * r1
        x0, x1 = x1, x0 - k * x1
    return r0, x0 % (b // r0)


@nb.njit(cache=True)
def inner_conflict(s1, n1, p1, w1, s2, n2, p2, w2):
    """First cycle that events s1 + i p1 and s2 + j p2 both hold, i < n1, j < n2; -1 if there is none.

    c = i p1 - j p2 runs over the multiples of gcd(p1, p2) for which the two events overlap; all solutions of one c are
    i0 + t p2 / g, j0 + t p1 / g, so the least t that keeps both in range gives its first overlap.
    """
    if s1 + (n1 - 1) * p1 + w1 <= s2 or s2 + (n2 - 1) * p2 + w2 <= s1:
        return -1
    if n1 == 1 and n2 == 1:
        return max(s1, s2)
    if n1 == 1:
        p1 = p2
    if n2 == 1:
        p2 = p1
    g, x = _coefficient(p1, p2)
    a1, a2 = p1 // g, p2 // g
    high = s2 - s1 + w2 - 1
    k = -((s1 - s2 + w1 - 1) // g)
    best = -1
    while k * g <= high:
        i = (x * (k % a2)) % a2
        j = (i * a1 - k) // a2
        t = max(0, -(j // a1))
        i, j = i + t * a2, j + t * a1
        if i < n1 and j < n2:
            cycle = max(s1 + i * p1, s2 + j * p2)
            if best < 0 or cycle < best:
                best = cycle
        k += 1
    return best


@nb.njit(cache=True)
def conflict(a, b):
    """First cycle that two rows (start, n, p, m, q, w) hold at once, -1 for none: rounds that overlap as boxes are tested."""
    if a[3] > b[3]:
        a, b = b, a
    span_a, span_b = (a[1] - 1) * a[2] + a[5], (b[1] - 1) * b[2] + b[5]
    for ja in range(a[3]):
        start = a[0] + ja * a[4]
        first, last = 0, b[3] - 1
        if b[3] > 1:
            first = max(first, (start - b[0] - span_b) // b[4] + 1)
            last = min(last, (start + span_a - 1 - b[0]) // b[4])
        for jb in range(first, last + 1):
            cycle = inner_conflict(start, a[1], a[2], a[5], b[0] + jb * b[4], b[1], b[2], b[5])
            if cycle >= 0:
                return cycle
    return -1


@nb.njit(cache=True)
def sweep(resource, uses, limit):
    """Pairs of uses of one resource that conflict: int64[found, 3] = (first, second, cycle), and how many there are.

    `uses` int64[U, 6] = (start, n, p, m, q, w), sorted by (resource, start). At most `limit` pairs are listed.
    """
    found = np.empty((limit, 3), np.int64)
    count, live, now = 0, 0, -1
    active = np.empty(len(resource) + 1, np.int64)
    end = np.empty(len(resource), np.int64)
    for u in range(len(resource)):
        if resource[u] != now:
            now, live = resource[u], 0
        start = uses[u, 0]
        end[u] = start + (uses[u, 1] - 1) * uses[u, 2] + (uses[u, 3] - 1) * uses[u, 4] + uses[u, 5]
        kept = 0
        for x in range(live):
            other = active[x]
            if end[other] <= start:
                continue
            active[kept] = other
            kept += 1
            cycle = conflict(uses[other], uses[u])
            if cycle >= 0:
                if count < limit:
                    found[count, 0], found[count, 1], found[count, 2] = other, u, cycle
                count += 1
        active[kept] = u
        live = kept + 1
    return found[: min(count, limit)].copy(), count
