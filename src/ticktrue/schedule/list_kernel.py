"""Compiled loop: list scheduling of rigid chains on ports with gaps, one cycle-exact reservation per row."""

import numba as nb
import numpy as np

REACH = 16
"""Cycles: ports idle for longer are alike, and the first of them is taken, so that equal layers take equal ports."""


@nb.njit(cache=True)
def _blocked_until(busy_a, busy_b, count, res, a, b):
    """End of the reservation of `res` that overlaps [a, b), or -1."""
    i = count[res] - 1
    while i >= 0 and busy_a[res, i] >= b:
        i -= 1
    if i >= 0 and busy_b[res, i] > a:
        return busy_b[res, i]
    return -1


@nb.njit(cache=True)
def _insert(busy_a, busy_b, owner, count, res, a, b, chain):
    i = count[res]
    while i > 0 and busy_a[res, i - 1] > a:
        busy_a[res, i], busy_b[res, i] = busy_a[res, i - 1], busy_b[res, i - 1]
        owner[res, i] = owner[res, i - 1]
        i -= 1
    busy_a[res, i], busy_b[res, i], owner[res, i] = a, b, chain
    count[res] += 1


@nb.njit(cache=True)
def _grow(a):
    out = np.empty((a.shape[0], 2 * a.shape[1]), a.dtype)
    out[:, : a.shape[1]] = a
    return out


@nb.njit(cache=True)
def _interleave(a1, p1, w1, a2, p2, w2):
    """Whether two rows of one chain with equal periods never hold the port in the same cycle (p = 0: not periodic)."""
    if p1 != p2 or p1 == 0:
        return False
    d = (a2 - a1) % p1
    return d >= w1 and p1 - d >= w2


@nb.njit(cache=True)
def _try(u0, u1, start, use_a, use_b, use_first, use_count, use_p, use_w, busy_a, busy_b, count, pick):
    """Places the uses [u0, u1) at `start`: -1 if all fit (picks filled), the next start to try, or -2 if never."""
    for u in range(u0, u1):
        a, b = start + use_a[u], start + use_b[u]
        chosen, soonest, latest = -1, np.int64(1) << 60, np.int64(-1)
        for c in range(use_count[u]):
            res = use_first[u] + c
            own = False
            for w in range(u0, u):
                if pick[w] == res and use_a[w] < use_b[u] and use_a[u] < use_b[w]:
                    own = own or not _interleave(use_a[u], use_p[u], use_w[u], use_a[w], use_p[w], use_w[w])
            if own:
                continue
            until = _blocked_until(busy_a, busy_b, count, res, a, b)
            if until >= 0:
                soonest = min(soonest, until)
            else:
                i = count[res] - 1
                while i >= 0 and busy_a[res, i] >= b:
                    i -= 1
                before = max(busy_b[res, i] if i >= 0 else np.int64(0), a - REACH)
                if before > latest:
                    latest, chosen = before, res
        if chosen < 0:
            if soonest == np.int64(1) << 60:
                return np.int64(-2)
            return soonest - use_a[u]
        pick[u] = chosen
    return np.int64(-1)


@nb.njit(cache=True)
def _tight(chain, u0, u1, at, use_a, pick, busy_a, busy_b, owner, count, queues):
    """Whether some port was freed just as it is taken: then it, and not streams or a FIFO, decided the start."""
    for u in range(u0, u1):
        res, a = pick[u], at + use_a[u]
        if res >= queues:
            continue
        i = count[res] - 1
        while i >= 0 and busy_a[res, i] >= a:
            i -= 1
        if i >= 0 and busy_b[res, i] == a and owner[res, i] != chain:
            return True
    return False


@nb.njit(cache=True)
def _queued(u0, u1, pick, queues):
    """Whether a chain takes room in a FIFO that limits its pace."""
    found = False
    for u in range(u0, u1):
        found = found or pick[u] >= queues
    return found


@nb.njit(cache=True)
def _own_streams(s0, s1, stream_a, stream_b, stream_width):
    """Streams that a chain keeps alive in each cycle from its start."""
    length = np.int64(0)
    for s in range(s0, s1):
        length = max(length, stream_b[s])
    own = np.zeros(length, np.int32)
    for s in range(s0, s1):
        for t in range(stream_a[s], stream_b[s]):
            own[t] += stream_width[s]
    return own


@nb.njit(cache=True)
def _room(live, own, at, streams):
    """0 if the streams of a chain fit at `at`, 1 if they do not yet, 2 if they never will."""
    for t in range(len(own)):
        if own[t] > streams:
            return 2
        if live[at + t] + own[t] > streams:
            return 1
    return 0


@nb.njit(cache=True)
def _longer(live, need):
    """`live` with at least `need` cycles."""
    size = len(live)
    while size < need:
        size *= 2
    if size == len(live):
        return live
    out = np.zeros(size, np.int32)
    out[: len(live)] = live
    return out


@nb.njit(cache=True)
def place(
    order, pred_of, pred_from, pred_cycles, use_of, use_a, use_b, use_first, use_count, use_p, use_w,
    stream_of, stream_a, stream_b, stream_width, resources, queues, streams,
):  # fmt: skip
    """Start of each chain, the resource picked for each use, a late mark per chain, and the chain that failed or -1.

    Marks: 1 streams, 2 a FIFO. Chains come in `order`; the predecessors of chain v are pred_of[v] .. pred_of[v+1]. Uses are
    reservations relative to the chain's start, each with `use_count` alternative resources from `use_first`; those from `queues`
    on are FIFOs, which no port's order shows.
    """
    chains = len(order)
    start, late = np.zeros(chains, np.int64), np.zeros(chains, np.int64)
    pick = np.full(len(use_a), -1, np.int64)
    busy_a, busy_b = np.empty((resources, 1024), np.int64), np.empty((resources, 1024), np.int64)
    owner = np.empty((resources, 1024), np.int64)
    count, live = np.zeros(resources, np.int64), np.zeros(1 << 18, np.int32)
    for v in order:
        at = np.int64(0)
        for e in range(pred_of[v], pred_of[v + 1]):
            at = max(at, start[pred_from[e]] + pred_cycles[e])
        ready = at
        u0, u1 = use_of[v], use_of[v + 1]
        own = _own_streams(stream_of[v], stream_of[v + 1], stream_a, stream_b, stream_width)
        while True:
            nxt = _try(
                u0, u1, at, use_a, use_b, use_first, use_count, use_p, use_w, busy_a, busy_b, count, pick
            )
            if nxt == -2:
                return start, pick, late, v
            if nxt >= 0:
                at = nxt
                continue
            live = _longer(live, at + len(own) + 1)
            room = _room(live, own, at, streams)
            if room == 2:
                return start, pick, late, v
            if room == 0:
                break
            late[v] = 1
            at += 1
        if late[v] == 0 and at > ready and _queued(u0, u1, pick, queues):
            late[v] = 2
        start[v] = at
        live[at : at + len(own)] += own
        for u in range(u0, u1):
            if count[pick[u]] == busy_a.shape[1]:
                busy_a, busy_b, owner = _grow(busy_a), _grow(busy_b), _grow(owner)
            _insert(busy_a, busy_b, owner, count, pick[u], at + use_a[u], at + use_b[u], v)
    for v in range(
        chains
    ):  # at the end, for a chain placed later may have taken the gap before an earlier one
        u0, u1 = use_of[v], use_of[v + 1]
        if late[v] > 0 and _tight(v, u0, u1, start[v], use_a, pick, busy_a, busy_b, owner, count, queues):
            late[v] = 0
    return start, pick, late, np.int64(-1)
