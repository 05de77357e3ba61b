"""The exact test of two nested progressions against brute force."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ticktrue.verify.conflict_kernel import conflict, inner_conflict, sweep


@st.composite
def uses(draw: st.DrawFn) -> tuple[int, ...]:
    """(start, n, p, m, q, w) whose events and rounds do not overlap."""
    n, m, w = draw(st.integers(1, 7)), draw(st.integers(1, 5)), draw(st.integers(1, 6))
    p = w + draw(st.integers(0, 15)) if n > 1 else 0
    q = (n - 1) * p + w + draw(st.integers(0, 25)) if m > 1 else 0
    return draw(st.integers(0, 200)), n, p, m, q, w


def cycles(use: tuple[int, ...]) -> set[int]:
    start, n, p, m, q, w = use
    return {start + i * p + j * q + k for j in range(m) for i in range(n) for k in range(w)}


@settings(max_examples=1500, deadline=None)
@given(uses(), uses())
def test_conflict_is_exact(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    both = cycles(a) & cycles(b)
    found = conflict(np.array(a), np.array(b))
    assert (found >= 0) == bool(both)
    if both:
        assert found in both


@settings(max_examples=800, deadline=None)
@given(uses(), uses())
def test_inner_conflict_gives_the_first_cycle(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    (s1, n1, p1, _, _, w1), (s2, n2, p2, _, _, w2) = a, b
    both = cycles((s1, n1, p1, 1, 0, w1)) & cycles((s2, n2, p2, 1, 0, w2))
    assert inner_conflict(s1, n1, p1, w1, s2, n2, p2, w2) == (min(both) if both else -1)


def test_large_numbers_do_not_overflow() -> None:
    far, wide = 1 << 43, (1 << 31) - 1
    assert inner_conflict(0, 1 << 12, wide, 1, 5, 1 << 12, wide - 1, 1) == 5 * wide
    assert inner_conflict(far, 1 << 12, wide, 1, far + 5, 1 << 12, wide - 1, 1) == far + 5 * wide
    assert inner_conflict(far, 1 << 12, wide, 1, far, 4, 7, 2) == far


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), uses()), min_size=1, max_size=8))
def test_sweep_finds_every_pair(boxes: list[tuple[int, tuple[int, ...]]]) -> None:
    boxes = sorted(boxes, key=lambda b: (b[0], b[1][0]))
    resource, use = np.array([r for r, _ in boxes]), np.array([u for _, u in boxes])
    found, count = sweep(resource, use, 100)
    expected = {
        (a, b)
        for b in range(len(boxes))
        for a in range(b)
        if boxes[a][0] == boxes[b][0] and cycles(boxes[a][1]) & cycles(boxes[b][1])
    }
    assert {(a, b) for a, b, _ in found.tolist()} == expected
    assert count == len(expected)
    short, again = sweep(resource, use, 1)
    assert again == count
    assert len(short) == min(1, count)
