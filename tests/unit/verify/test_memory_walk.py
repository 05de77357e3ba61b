"""The walk over vectors against a comparison of every access with every other."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ticktrue.verify import memory_kernel as k

VECTORS, LATENCY = 12, 3
MARK = 1
"""Vector v has its written mark at v + 1."""


@st.composite
def accesses(draw: st.DrawFn) -> np.ndarray:
    """Accesses to a few vectors, as `memory` hands them over."""
    out = []
    for row in range(draw(st.integers(1, 6))):
        a = np.zeros(k.A_COLUMNS, dtype=np.int64)
        n, p, w = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(1, 2))
        p = max(p, w) if n > 1 else 0
        step = draw(st.integers(0, 2)) if n > 1 else 0
        start, first = draw(st.integers(0, 30)), draw(st.integers(0, 3))
        a[[k.A_ROW, k.A_WRITE, k.A_FIRST, k.A_N, k.A_STEP]] = row, draw(st.booleans()), first, n, step
        a[[k.A_M, k.A_VALUES, k.A_STRIDE, k.A_WIDTH, k.A_W]] = (
            1,
            draw(st.integers(1, 2)),
            draw(st.integers(0, 1)),
            1,
            w,
        )
        a[[k.A_START, k.A_END]] = start, start + (n - 1) * p + w
        a[[k.A_VISIBLE, k.A_REGION, k.A_OFFSET]] = (
            a[k.A_END] + LATENCY,
            0,
            MARK if draw(st.booleans()) else -1,
        )
        alone = (n == 1 or step >= 1) and a[k.A_STRIDE] == 0
        # the number says chain, addresses and progression: equal here means the same for both rows
        chain = draw(st.integers(0, 1))
        a[k.A_SIGNATURE] = (((chain * 9 + first) * 9 + n) * 9 + p) * 9 + step if alone else -2
        out.append(a)
    table = np.array(out)
    return table[np.lexsort((table[:, k.A_ROW], 1 - table[:, k.A_WRITE], table[:, k.A_START]))]


def vectors(a: np.ndarray) -> set[int]:
    return {
        int(a[k.A_FIRST] + i * a[k.A_STEP] + f * a[k.A_STRIDE])
        for i in range(a[k.A_N])
        for f in range(a[k.A_VALUES])
    }


def clash(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two accesses, the first one earlier in order, of a common vector may not be as they are."""
    if a[k.A_WRITE]:
        return bool(b[k.A_START] < (a[k.A_END] if b[k.A_WRITE] else a[k.A_VISIBLE]))
    if not b[k.A_WRITE] or b[k.A_START] >= a[k.A_END]:
        return False
    follows = a[k.A_SIGNATURE] >= 0 and a[k.A_SIGNATURE] == b[k.A_SIGNATURE]
    return not (follows and b[k.A_START] >= a[k.A_START] + a[k.A_W])


@settings(max_examples=1000, deadline=None)
@given(accesses())
def test_walk_finds_a_fault_where_there_is_one(table: np.ndarray) -> None:
    found = np.zeros((100, 4), dtype=np.int64)
    count = k.walk(table, VECTORS, VECTORS + 1, found)
    kinds = {int(kind) for kind in found[:count, 0]}
    overlap = any(clash(a, b) for a, b in itertools.combinations(table, 2) if vectors(a) & vectors(b))
    written: set[int] = set()
    never = False
    for a in table:
        if a[k.A_WRITE]:
            written |= vectors(a) if a[k.A_OFFSET] != -1 else set()
        elif a[k.A_OFFSET] != -1 and vectors(a) - written:
            never = True
    assert (k.NEVER_WRITTEN in kinds) == never
    if not never:
        assert (k.OVERLAP in kinds) == overlap
    else:
        # a read of what was never written is not looked at further: it cannot add an overlap that is not there
        assert overlap or k.OVERLAP not in kinds


def test_overlap_names_both_rows() -> None:
    table = np.zeros((2, k.A_COLUMNS), dtype=np.int64)
    table[:, [k.A_N, k.A_M, k.A_VALUES, k.A_WIDTH, k.A_W]] = 1
    table[:, k.A_OFFSET], table[:, k.A_SIGNATURE] = -1, -2
    table[0, [k.A_ROW, k.A_WRITE, k.A_START, k.A_END, k.A_VISIBLE]] = 7, 1, 0, 1, 4
    table[1, [k.A_ROW, k.A_START, k.A_END]] = 9, 3, 4
    found = np.zeros((4, 4), dtype=np.int64)
    assert k.walk(table, 1, 1, found) == 1
    assert found[0].tolist() == [k.OVERLAP, 7, 9, 0]
    table[1, [k.A_START, k.A_END]] = 4, 5
    assert k.walk(table, 1, 1, found) == 0
