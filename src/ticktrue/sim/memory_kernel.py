"""Compiled: which row follows which on a vector of memory, exact on every chip."""

import numba as nb
import numpy as np

from ticktrue.sim.order_kernel import READ_AFTER_WRITE, REUSE


@nb.njit(cache=True)
def _note(keys, listed, count, key):
    """Adds a key to the set `keys` and, if it is new, to the list of its members; the members' count."""
    mask = len(keys) - 1
    slot = ((key * np.int64(-7046029254386353131)) >> np.int64(20)) & mask
    while keys[slot] != key:
        if keys[slot] == -1:
            keys[slot], listed[count] = key, key
            return count + 1
        slot = (slot + 1) & mask
    return count


@nb.njit(cache=True)
def _roomier(keys, listed, count):
    """The set and the list of its members with four times the room."""
    wide, more = np.full(4 * len(keys), -1, dtype=np.int64), np.empty(4 * len(listed), dtype=np.int64)
    done = 0
    for k in range(count):
        done = _note(wide, more, done, listed[k])
    return wide, more


@nb.njit(cache=True)
def written(address, write, n, step, m, step2, width, space):
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
def unpacked(keys, rows):
    """(x, r, kind) of each key."""
    count = len(keys)
    xs, rs = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    kinds = np.empty(count, dtype=np.int8)
    for k in range(count):
        kinds[k] = REUSE if keys[k] & 1 else READ_AFTER_WRITE
        pair = keys[k] >> 1
        xs[k], rs[k] = pair // rows, pair % rows
    return xs, rs, kinds


@nb.njit(cache=True)
def _chip_pairs(c, address, hot, columns, rows, members, vectors, nodes_of):
    """Adds the pairs of one chip to a set: its members' count, or -1 where it has no room for them all."""
    row, write, n, step, m, step2, width = columns
    keys, listed, count = members
    stamp, writer, head = vectors
    node_row, node_next = nodes_of
    space, nodes = len(hot), 0
    for h in range(len(address)):
        r, reuse, seen = row[h], np.int64(write[h]), np.int64(-1)
        for e in range(n[h] * m[h]):
            first = address[h] + (e % n[h]) * step[h] + (e // n[h]) * step2[h]
            for a in range(max(first, 0), min(first + width[h], space)):
                if hot[a] == 0:
                    continue
                if stamp[a] != c:
                    stamp[a], writer[a], head[a] = c, -1, -1
                key = (np.int64(writer[a]) * rows + r) * 2 + reuse
                if writer[a] >= 0 and writer[a] != r and key != seen:
                    seen, count = key, _note(keys, listed, count, key)
                if reuse:
                    node = head[a]
                    while node >= 0 and 2 * count < len(keys):
                        if node_row[node] != r:
                            key = (np.int64(node_row[node]) * rows + r) * 2 + 1
                            count = _note(keys, listed, count, key)
                        node = node_next[node]
                    writer[a], head[a] = r, -1
                elif head[a] < 0 or node_row[head[a]] != r:
                    node_row[nodes], node_next[nodes], head[a] = r, head[a], nodes
                    nodes += 1
                if 2 * count >= len(keys):
                    return -1
    return count


@nb.njit(cache=True, nogil=True)
def memory_pairs(address, hot, columns, rows, room):
    """Keys (x * rows + r) * 2 + reuse of rows x, r that touch one vector on some chip, one of them writing: int64[pairs].

    `address` int64[chips, accesses], accesses in stated order; `columns` (row, write, n, step, m, step2, width) of each; `hot`
    uint8[vectors of a chip]: those that are ever written; `rows` the number of rows; `room` a power of two, the first size of
    the set. A read names the last write; a write names the last write and all reads since.
    """
    _, write, n, _, m, _, width = columns
    keys, listed, count = np.full(room, -1, dtype=np.int64), np.empty(room // 2 + 1, dtype=np.int64), 0
    stamp = np.full(len(hot), -1, dtype=np.int32)
    writer, head = np.empty(len(hot), dtype=np.int32), np.empty(len(hot), dtype=np.int32)
    reads = np.int64((np.where(write, 0, n * m * width)).sum())
    nodes_of = (np.empty(reads, dtype=np.int32), np.empty(reads, dtype=np.int32))
    marks = 0
    for c in range(address.shape[0]):
        done = -1
        while done < 0:
            marks += 1
            members = (keys, listed, count)
            done = _chip_pairs(
                marks, address[c], hot, columns, rows, members, (stamp, writer, head), nodes_of
            )
            if done < 0:  # what was added stays, and is found again
                count = np.int64((keys >= 0).sum())
                keys, listed = _roomier(keys, listed, count)
        count = done
    return listed[:count].copy()
