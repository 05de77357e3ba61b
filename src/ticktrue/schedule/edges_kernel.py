"""Compiled loop: which chain must follow which, and by how many cycles, from the memory records that rows touch."""

import numba as nb
import numpy as np

from ticktrue.isa.ops import Op
from ticktrue.program import columns as col

C_OP, C_ISSUE, C_SPAN, C_REGION, C_WIDTH = col.C_OP, col.C_ISSUE, col.C_SPAN, col.C_REGION, col.C_WIDTH
C_N, C_M, C_STEP, C_STEP2 = col.C_N, col.C_M, col.C_STEP, col.C_STEP2
LOAD, GATHER, STORE, SCATTER = int(Op.LOAD), int(Op.GATHER), int(Op.STORE), int(Op.SCATTER)


@nb.njit(cache=True)
def _grow(a):
    out = np.empty(2 * len(a), a.dtype)
    out[: len(a)] = a
    return out


@nb.njit(cache=True)
def _records(row, address, base, stride, first, count, out):
    """Record numbers that a row touches, each once where neighbours repeat: how many were written to `out`."""
    k, last = 0, -1
    for j in range(row[C_M]):
        for i in range(row[C_N]):
            at = address - base + i * row[C_STEP] + j * row[C_STEP2]
            for r in range(at // stride, (at + row[C_WIDTH] - 1) // stride + 1):
                if r != last and r < count:
                    if k == len(out):
                        return -1
                    out[k] = first + r
                    last = r
                    k += 1
    return k


@nb.njit(cache=True)
def _note(u, v, cycles, stamp, best, touched, count):
    """Keeps the longest of several edges from u to v; gives the number of chains noted for v."""
    if u == v:
        return count
    if stamp[u] != v:
        stamp[u], best[u] = v, cycles
        touched[count] = u
        return count + 1
    best[u] = max(best[u], cycles)
    return count


@nb.njit(cache=True)
def _touches(rows, r, address, region_base, region_stride, region_first, region_count, buffer):
    """The records of row r into a buffer that grows as it must: (buffer, how many), none where nothing is tracked."""
    op, region = rows[r, C_OP], rows[r, C_REGION]
    if op != LOAD and op != GATHER and op != STORE and op != SCATTER:
        return buffer, 0
    if region_first[region] < 0:
        return buffer, 0
    base, stride = region_base[region], region_stride[region]
    first, count = region_first[region], region_count[region]
    k = _records(rows[r], address, base, stride, first, count, buffer)
    while k < 0:
        buffer = _grow(buffer)
        k = _records(rows[r], address, base, stride, first, count, buffer)
    return buffer, k


@nb.njit(cache=True)
def _taken_over(before, x, v, stamp, best, touched):
    """Notes the edges to v that `before` has from its place x on: (place after them, how many)."""
    eu, ev, ew = before
    count = 0
    while x < len(ev) and ev[x] == v:
        count = _note(eu[x], v, ew[x], stamp, best, touched, count)
        x += 1
    return x, count


@nb.njit(cache=True, nogil=True)
def edges(rows, of_chain, address, regions, records, write_latency, before):
    """Edges (before, after, cycles) between chains in program order on one chip, and those of `before`, sorted by the second.

    `address` int64[rows]; `regions` (base, stride of a record, first record, records) of each: first < 0 where nothing is ever
    written. A read follows a write by the write's span and latency; a write follows reads and writes by their spans. Of two
    edges between the same chains the longer stays.
    """
    chains = len(of_chain) - 1
    region_base, region_stride, region_first, region_count = regions
    writer, head = np.full(records, -1, np.int32), np.full(records, -1, np.int32)
    node_row, node_next, nodes = np.empty(1 << 16, np.int32), np.empty(1 << 16, np.int32), 0
    chain_of = np.empty(rows.shape[0], np.int64)
    best, stamp = np.zeros(chains, np.int64), np.full(chains, -1, np.int64)
    touched, buffer, taken = np.empty(chains, np.int64), np.empty(1 << 12, np.int64), 0
    eu, ev, ew, ne = np.empty(1 << 14, np.int64), np.empty(1 << 14, np.int64), np.empty(1 << 14, np.int64), 0
    for v in range(chains):
        chain_of[of_chain[v] : of_chain[v + 1]] = v
        taken, nt = _taken_over(before, taken, v, stamp, best, touched)
        for r in range(of_chain[v], of_chain[v + 1]):
            buffer, k = _touches(
                rows, r, address[r], region_base, region_stride, region_first, region_count, buffer
            )
            write = rows[r, C_OP] == STORE or rows[r, C_OP] == SCATTER
            for x in range(k):
                rec = buffer[x]
                w = writer[rec]
                if w >= 0:
                    cycles = rows[w, C_ISSUE] + rows[w, C_SPAN] - rows[r, C_ISSUE]
                    nt = _note(
                        chain_of[w], v, cycles + (0 if write else write_latency), stamp, best, touched, nt
                    )
                if write:
                    node = head[rec]
                    while node >= 0:
                        q = node_row[node]
                        cycles = rows[q, C_ISSUE] + rows[q, C_SPAN] - rows[r, C_ISSUE]
                        nt = _note(chain_of[q], v, cycles, stamp, best, touched, nt)
                        node = node_next[node]
                    head[rec], writer[rec] = -1, r
                else:
                    if nodes == len(node_row):
                        node_row, node_next = _grow(node_row), _grow(node_next)
                    node_row[nodes], node_next[nodes] = r, head[rec]
                    head[rec] = nodes
                    nodes += 1
        while ne + nt > len(eu):
            eu, ev, ew = _grow(eu), _grow(ev), _grow(ew)
        for x in range(nt):
            eu[ne], ev[ne], ew[ne] = touched[x], v, best[touched[x]]
            ne += 1
    return eu[:ne].copy(), ev[:ne].copy(), ew[:ne].copy()


@nb.njit(cache=True)
def earliest(chains, eu, ev, ew):
    """Earliest start of each chain by data alone, and a key that orders chains and never puts one before what it needs."""
    start, key = np.zeros(chains, np.int64), np.zeros(chains, np.int64)
    for e in range(len(eu)):  # edges come sorted by their second chain
        start[ev[e]] = max(start[ev[e]], start[eu[e]] + ew[e])
        key[ev[e]] = max(max(key[ev[e]], key[eu[e]]), start[ev[e]])
    return start, key
