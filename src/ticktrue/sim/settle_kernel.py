"""Compiled: least offsets and periods of the rows of each chain that its ties allow, for a machine other than the stated one."""

import numba as nb
import numpy as np

from ticktrue.sim.order_kernel import PLANE, READ_AFTER_WRITE, TURN

MAP, REDUCE, RESHAPE = range(3)
ROUNDS = 64


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
def settle(
    row_of_chain,
    shape,
    is_pass,
    s0,
    s1,
    n,
    m,
    w,
    arrival,
    ready,
    write_end,
    stagger,
    local,
    p_floor,
    q_floor,
    q_slack,
):
    """(p, q, base offset, whether every chain settled): least periods and offsets that all ties of a chain allow.

    `shape` MAP, REDUCE or RESHAPE; `arrival` cycles from a row's first (folds: last) event to its result at the consumer;
    `ready` cycles from the last weight to the first pass; `local` int64[pairs, 4] = (chain, x, r, kind) in order of chain.
    """
    p, q, b, plane_end = np.zeros_like(n), np.zeros_like(n), np.zeros_like(n), np.zeros_like(n)
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
                cover = max((n[r] - 1) * p[r] + w[r] + q_slack[r], q_floor[r])
                if m[r] > 1 and q[r] < cover:
                    q[r], moved = cover, True
                if s0[r] >= 0:
                    moved |= _tie(r, s0[r], shape, arrival, n, p, m, q, b)
                if s1[r] >= 0 and not is_pass[r]:
                    moved |= _tie(r, s1[r], shape, arrival, n, p, m, q, b)
                if s1[r] >= 0 and is_pass[r]:
                    moved |= _pass_tie(r, s1[r], ready, n, p, m, q, w, b, plane_end)
            for e in range(at, last):
                x, r, kind = local[e, 1], local[e, 2], local[e, 3]
                others = 0 if kind == TURN else m[x] - 1  # PASSes of a tile per round take turns in each
                end = b[x] + stagger[x] + (n[x] - 1) * p[x] + others * q[x] + w[x]
                if kind == READ_AFTER_WRITE:
                    end += write_end[x]
                elif kind == PLANE:
                    end = plane_end[x]
                if b[r] + stagger[r] < end:
                    b[r], moved = end - stagger[r], True
        good = good and not moved
        at = last
    return p, q, b, good
