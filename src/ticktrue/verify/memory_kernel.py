"""Compiled walk over every vector that rows read and write, in the order of their first events.

Per vector it keeps the last write and two reads: the one that ends last, and the one that ends last among all others of another
signature. A signature is (chain, addresses, progression): only a read of the writer's own signature is excepted from the rule, so
the second slot holds whatever the exception could hide.
"""

import numba as nb
import numpy as np

(
    A_ROW,
    A_WRITE,
    A_FIRST,
    A_N,
    A_STEP,
    A_M,
    A_STEP2,
    A_VALUES,
    A_STRIDE,
    A_WIDTH,
    A_START,
    A_END,
    A_VISIBLE,
    A_W,
    A_SIGNATURE,
    A_REGION,
    A_OFFSET,
) = range(17)
A_COLUMNS = 17
"""An access: row, whether it writes; first vector, and how events and register values move it; when it starts and ends, from when
a write can be read, cycles of one event; signature (-1: nothing is excepted); region, and where the region's written marks begin
(-1: its vectors need not be written in this step)."""

NEVER_WRITTEN, OVERLAP, OVERWRITTEN = range(3)
_NONE = -1


@nb.njit(cache=True)
def _report(found, count, kind, first, second, vector):
    """Notes a pair unless it is the pair noted last; gives the new count."""
    listed = min(count, len(found))
    if (
        listed
        and found[listed - 1, 0] == kind
        and found[listed - 1, 1] == first
        and found[listed - 1, 2] == second
    ):
        return count
    if count < len(found):
        found[count, 0], found[count, 1], found[count, 2], found[count, 3] = kind, first, second, vector
    return count + 1


@nb.njit(cache=True)
def _note_read(reads, v, end, row, signature, w, start):
    """Keeps the read in the two slots of a vector: columns (end, row, signature, first cycle after its first event)."""
    free = start + w
    if reads[v, 0, 2] == signature and reads[v, 0, 1] != _NONE:
        if end >= reads[v, 0, 0]:
            reads[v, 0, 0], reads[v, 0, 1], reads[v, 0, 3] = end, row, free
    elif end > reads[v, 0, 0]:
        for c in range(4):
            reads[v, 1, c] = reads[v, 0, c]
        reads[v, 0, 0], reads[v, 0, 1], reads[v, 0, 2], reads[v, 0, 3] = end, row, signature, free
    elif end > reads[v, 1, 0]:
        reads[v, 1, 0], reads[v, 1, 1], reads[v, 1, 2], reads[v, 1, 3] = end, row, signature, free


@nb.njit(cache=True)
def _clashing_read(reads, v, start, signature):
    """The slot of a read that a write starting at `start` may not overlap but does; -1 for none."""
    for slot in range(2):
        if reads[v, slot, 1] != _NONE and reads[v, slot, 0] > start:
            excepted = signature >= 0 and reads[v, slot, 2] == signature and start >= reads[v, slot, 3]
            if not excepted:
                return slot
    return -1


@nb.njit(cache=True)
def walk(access, vectors, marks, found):
    """How many pairs (kind, first row, second row, vector) break a rule; the first of them are put into `found`.

    `access` int64[A, A_COLUMNS] sorted by start, writes before reads of one cycle; `vectors` and `marks` are how many vectors
    and written marks there are.
    """
    writes = np.full((vectors, 4), _NONE, np.int64)  # row, end, visible, region
    reads = np.zeros((vectors, 2, 4), np.int64)
    reads[:, :, 1] = _NONE
    written = np.zeros(marks, np.bool_)
    count = 0
    for x in range(len(access)):
        a = access[x]
        row, start, end, region = a[A_ROW], a[A_START], a[A_END], a[A_REGION]
        n = a[A_N] if a[A_STEP] != 0 else 1
        m = a[A_M] if a[A_STEP2] != 0 else 1
        values = a[A_VALUES] if a[A_STRIDE] != 0 else 1
        for j in range(m):
            for i in range(n):
                for f in range(values):
                    at = a[A_FIRST] + i * a[A_STEP] + j * a[A_STEP2] + f * a[A_STRIDE]
                    for v in range(at, at + a[A_WIDTH]):
                        mark = v + a[A_OFFSET]
                        if a[A_WRITE]:
                            slot = _clashing_read(reads, v, start, a[A_SIGNATURE])
                            if slot >= 0:
                                count = _report(found, count, OVERLAP, reads[v, slot, 1], row, v)
                            other = writes[v, 0]
                            if other != _NONE and other != row and writes[v, 1] > start:
                                count = _report(found, count, OVERLAP, other, row, v)
                            writes[v, 0], writes[v, 3] = row, region
                            writes[v, 1], writes[v, 2] = (
                                max(writes[v, 1], end),
                                max(writes[v, 2], a[A_VISIBLE]),
                            )
                            if a[A_OFFSET] != _NONE:
                                written[mark] = True
                            continue
                        if a[A_OFFSET] != _NONE and not written[mark]:
                            count = _report(found, count, NEVER_WRITTEN, row, _NONE, v)
                            continue
                        if writes[v, 0] != _NONE:
                            if writes[v, 2] > start:
                                count = _report(found, count, OVERLAP, writes[v, 0], row, v)
                            elif a[A_OFFSET] != _NONE and writes[v, 3] != region:
                                count = _report(found, count, OVERWRITTEN, row, writes[v, 0], v)
                        _note_read(reads, v, end, row, a[A_SIGNATURE], a[A_W], start)
    return count
