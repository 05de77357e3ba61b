"""Compiled solvers of the replay: earliest starts of chains by longest path, and offsets and periods within a chain.

Both solve systems of differences to their least solution; neither knows where a constraint comes from.
"""
# ruff: noqa: ANN001, ANN201, ANN202, PLR0913, PLR0912, PLR0915, C901
# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False, disallow-untyped-calls=False

import numba as nb
import numpy as np

from ticktrue.sim.order_kernel import PLANE, READ_AFTER_WRITE, collide

MAP, REDUCE, RESHAPE = range(3)
ROUNDS = 256


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
            while collide(begin, s + offset[r], x, r, n, p, m, q, w):
                s, moved = s + 1, True
    return s


@nb.njit(cache=True)
def longest(sequence, pointer, source, weight, ipointer, imembers, ix, ir, chain, offset, floor, extra, n, p, m, q, w):
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
                s = _free(s, ipointer[k], ipointer[k + 1], imembers, ix, ir, chain, start, offset, n, p, m, q, w)
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


@nb.njit(cache=True)
def _tie(r, src, shape, arrival, n, p, m, q, b):
    """Makes row r hear its source just in time and in its rhythm; whether anything moved."""
    moved = False
    if shape[src] == REDUCE:
        if n[r] > 1 and p[r] != q[src]:
            p[r] = q[src] = max(p[r], q[src])
            moved = True
    else:
        if shape[src] == MAP and n[r] > 1 and p[r] != p[src]:
            p[r] = p[src] = max(p[r], p[src])
            moved = True
        if m[r] > 1 and q[r] != q[src]:
            q[r] = q[src] = max(q[r], q[src])
            moved = True
    heard = b[src] + arrival[src] + ((n[src] - 1) * p[src] if shape[src] != MAP else 0)
    if heard > b[r]:
        b[r], moved = heard, True
    elif heard < b[r]:
        b[src] += b[r] - heard
        moved = True
    return moved


@nb.njit(cache=True)
def _pass_tie(r, i, ready, n, p, m, q, w, b, plane_end):
    """Keeps a PASS behind its INSTALL, tile by tile; whether anything moved."""
    moved = False
    if m[i] > 1:
        cover = max(q[i], q[r], b[r] + (n[r] - 1) * p[r] + w[r] - b[i])
        if q[i] != cover or q[r] != cover:
            q[i] = q[r] = cover
            moved = True
    least = b[i] + (n[i] - 1) * p[i] + w[i] + ready
    if b[r] < least:
        b[r], moved = least, True
    plane_end[i] = max(plane_end[i], b[r] + (n[r] - 1) * p[r] + (m[r] - 1) * q[r] + w[r])
    return moved


@nb.njit(cache=True)
def settle(row_of_chain, shape, is_pass, s0, s1, n, m, w, arrival, ready, write_end, stagger, local, p_floor, q_slack):
    """(p, q, base offset, whether every chain settled): least periods and offsets that all ties of a chain allow.

    `shape` MAP, REDUCE or RESHAPE; `arrival` cycles from a row's first (folds: last) event to its result at the consumer;
    `ready` cycles from the last weight to the first pass; `local` int64[pairs, 4] = (chain, x, r, kind) in order of chain.
    """
    rows = len(n)
    p, q, b = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
    plane_end = np.zeros(rows, dtype=np.int64)
    at, good = 0, True
    for c in range(len(row_of_chain) - 1):
        low, high = row_of_chain[c], row_of_chain[c + 1]
        last = at
        while last < len(local) and local[last, 0] == c:
            last += 1
        moved, rounds = True, 0
        while moved and rounds < ROUNDS:
            moved = False
            rounds += 1
            for r in range(low, high):
                if n[r] > 1 and p[r] < max(w[r], p_floor[r]):
                    p[r], moved = max(w[r], p_floor[r]), True
                if m[r] > 1 and q[r] < (n[r] - 1) * p[r] + w[r] + q_slack[r]:
                    q[r], moved = (n[r] - 1) * p[r] + w[r] + q_slack[r], True
                if s0[r] >= 0:
                    moved |= _tie(r, s0[r], shape, arrival, n, p, m, q, b)
                if s1[r] >= 0 and not is_pass[r]:
                    moved |= _tie(r, s1[r], shape, arrival, n, p, m, q, b)
                if s1[r] >= 0 and is_pass[r]:
                    moved |= _pass_tie(r, s1[r], ready, n, p, m, q, w, b, plane_end)
            for e in range(at, last):
                x, r = local[e, 1], local[e, 2]
                end = b[x] + stagger[x] + (n[x] - 1) * p[x] + (m[x] - 1) * q[x] + w[x]
                if local[e, 3] == READ_AFTER_WRITE:
                    end += write_end[x]
                elif local[e, 3] == PLANE:
                    end = plane_end[x]
                if b[r] + stagger[r] < end:
                    b[r], moved = end - stagger[r], True
        good = good and not moved
        at = last
    return p, q, b, good
