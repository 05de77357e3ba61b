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


def nested(rng: np.random.Generator) -> tuple[int, ...]:
    """A nested progression (start, n, p, m, q, w) of up to 12 x 8 events, often of the periods that rows share."""
    n, m, w = int(rng.integers(1, 13)), int(rng.integers(1, 9)), int(rng.integers(1, 7))
    p = max(w, int(rng.choice([w + rng.integers(0, 40), 9, 16, 18, 64]))) if n > 1 else 0
    inner = (n - 1) * p + w
    q = max(inner, int(rng.choice([inner + rng.integers(0, 200), 64, 128, 600]))) if m > 1 else 0
    return int(rng.integers(0, 1_000)), n, p, m, q, w


def held(use: tuple[int, ...], size: int) -> np.ndarray:
    """Which of `size` cycles an event of the use holds, one event after the other."""
    start, n, p, m, q, w = use
    out = np.zeros(size, dtype=bool)
    for j in range(m):
        for i in range(n):
            out[start + i * p + j * q : start + i * p + j * q + w] = True
    return out


def test_20_000_pairs_of_nested_progressions_against_brute_force() -> None:
    """31 section 8: no difference, where a third to two thirds of the pairs conflict."""
    rng, conflicts, woven = np.random.default_rng(31), 0, 0
    for _ in range(20_000):
        a, b = nested(rng), nested(rng)
        ends = [u[0] + (u[1] - 1) * u[2] + (u[3] - 1) * u[4] + u[5] for u in (a, b)]
        both = held(a, max(ends)) & held(b, max(ends))
        found = conflict(np.array(a), np.array(b))
        assert (found >= 0) == both.any(), (a, b)
        assert found < 0 or both[found], (a, b)
        conflicts += bool(both.any())
        woven += found < 0 and max(a[0], b[0]) < min(ends)
    assert 0.33 < conflicts / 20_000 < 0.67
    assert woven > 2_000  # boxes overlap, events do not: what boxes alone would get wrong


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
