"""Attention of the oracle against scalar code: blocks, absent partials, lanes past 256 blocks, traps."""

import numpy as np
import pytest

from ticktrue.graph import oracle_attention as oa
from ticktrue.graph.oracle_format import arithmetic, score_scale
from ticktrue.graph.oracle_math import bf16_round, exp

F = np.float32
BF16, F32 = arithmetic("bf16"), arithmetic("f32")


def plain(head_dim):
    return oa.Scoring(score_scale(head_dim))


def scalar_exp(x):
    return exp(np.array([x], F))[0]


def scalar_combine(x, y):
    if x is None or y is None:
        return y if x is None else x
    (m1, l1, o1), (m2, l2, o2) = x, y
    m = max(m1, m2)
    a1, a2 = scalar_exp(m1 - m), scalar_exp(m2 - m)
    return m, (l1 * a1) + (l2 * a2), [(p * a1) + (q * a2) for p, q in zip(o1, o2, strict=True)]


def scalar_block(q, k, v, first, t, fmt):
    """Rows 14 to 17 for one query row: positions first to min(first + 63, t)."""
    scores = []
    for i in range(first, min(first + 64, t + 1)):
        acc = F(0)
        for start in range(0, len(q), fmt.tile):
            total = F(0)
            for d in range(start, min(start + fmt.tile, len(q))):
                total = total + q[d] * k[i, d]
            acc = acc + total
        scores.append(acc * score_scale(len(q)))
    m = max(scores)
    p = [fmt.round(np.array([scalar_exp(s - m)], F))[0] for s in scores]
    l, o = F(0), [F(0)] * v.shape[1]
    for i, weight in enumerate(p):
        l = l + weight
        o = [total + weight * value for total, value in zip(o, v[first + i], strict=True)]
    return m, l, o


def scalar_tree(partials):
    """Row 19 over block partials in order."""
    lanes = [None] * 256
    for b, partial in enumerate(partials):
        lanes[b % 256] = scalar_combine(lanes[b % 256], partial)
    for h in (128, 64, 32, 16, 8, 4, 2, 1):
        for i in range(h):
            lanes[i] = scalar_combine(lanes[i], lanes[i + h])
    return lanes[0]


def scalar_attention(q, k, v, t, fmt):
    """One query row q[d] at position t."""
    _, l, o = scalar_tree([scalar_block(q, k, v, first, t, fmt) for first in range(0, t + 1, 64)])
    return fmt.round(np.array([total / l for total in o], F))


def operands(n, heads, kv_heads, head_dim, seed=0):
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((n, heads, head_dim)).astype(F) * F(3)
    k, v = rng.standard_normal((2, n, kv_heads, head_dim)).astype(F)
    return bf16_round(q), bf16_round(k), bf16_round(v)


@pytest.mark.parametrize("fmt", [BF16, F32], ids=["bf16", "f32"])
@pytest.mark.parametrize("t", [0, 62, 63, 64, 65, 200])
def test_attention_is_the_scalar_attention(t, fmt, equal_bits):
    q, k, v = operands(t + 1, 4, 2, 6)
    got = oa.attend(q, k, v, fmt, plain(6)).reshape(t + 1, 4, 6)
    for head in range(4):
        expected = scalar_attention(q[t, head], k[:, head // 2], v[:, head // 2], t, fmt)
        assert equal_bits(got[t, head], expected)


def test_head_dim_past_one_tile(equal_bits):
    """128 values of float32 are tiles of 80 and 48."""
    q, k, v = operands(3, 1, 1, 128)
    got = oa.attend(q, k, v, F32, plain(128))
    assert equal_bits(got[2], scalar_attention(q[2, 0], k[:, 0], v[:, 0], 2, F32))


def test_lanes_wrap_at_256_blocks(equal_bits):
    """16,600 positions are 260 blocks: blocks 256 to 259 join lanes 0 to 3 before the tree."""
    n, head_dim = 16_600, 4
    _, k, v = operands(n, 1, 1, head_dim)
    q = bf16_round(np.random.default_rng(9).standard_normal((1, 1, head_dim)).astype(F))
    got = oa.attend(q, k, v, BF16, plain(4))
    at = np.array([n - 1])
    partials = []
    for first in range(0, n, 64):
        block = oa.KeyValueBlock(first, k[first : first + 64, 0], v[first : first + 64, 0])
        part = oa.block_partial(np.ascontiguousarray(q[0].T), block, at, BF16, plain(4))
        partials.append((part.top[0], part.weight[0], list(part.out[:, 0])))
    _, l, o = scalar_tree(partials)
    assert equal_bits(got[0], bf16_round(np.array([total / l for total in o], F)))
    unrounded = np.array([total / l for total in o], F)
    ascending = partials[0]
    for partial in partials[1:]:
        ascending = scalar_combine(ascending, partial)
    assert not equal_bits(np.array([total / ascending[1] for total in ascending[2]], F), unrounded)


def brute_force(q, k, v, visible, scale):
    """Float64 softmax attention of one row over the positions in `visible`, of any order."""
    s = np.array([scale * float(np.dot(q.astype(np.float64), k[i].astype(np.float64))) for i in visible])
    p = np.exp(s - s.max())
    return (p[:, None] * v[visible].astype(np.float64)).sum(axis=0) / p.sum()


@pytest.mark.parametrize("window", [1, 2, 5, 63, 64, 65, 100, 128, 129, 400])
def test_a_window_sees_exactly_the_last_positions(window):
    """Brute force at every position to 200: t - W + 1 to t, whatever the blocks; one more or fewer is seen."""
    q, k, v = operands(201, 1, 1, 6)
    got = oa.attend(q, k, v, F32, oa.Scoring(F(0.125), window))
    differs = 0
    for t in range(201):
        visible = [i for i in range(t + 1) if t - i < window]
        right = brute_force(q[t, 0], k[:, 0], v[:, 0], visible, 0.125)
        assert np.abs(got[t] - right).max() < 1e-5
        if window <= t:
            more = brute_force(q[t, 0], k[:, 0], v[:, 0], [t - window, *visible], 0.125)
            differs += np.abs(got[t] - more).max() > 1e-4
    assert differs == max(0, 201 - window)


@pytest.mark.parametrize("fmt", [BF16, F32], ids=["bf16", "f32"])
def test_a_window_forgets_bit_for_bit(fmt, equal_bits):
    """What lies before the window changes no bit, even in a block the window starts in."""
    q, k, v = operands(300, 2, 1, 8)
    scoring = oa.Scoring(F(0.5), 70)
    whole = oa.attend(q[-1:], k, v, fmt, scoring)
    other_k, other_v = k.copy(), v.copy()
    other_k[: 300 - 70] *= F(7)
    other_v[: 300 - 70] -= F(3)
    assert equal_bits(oa.attend(q[-1:], other_k, other_v, fmt, scoring), whole)
    other_v[300 - 70] -= F(3)
    assert not equal_bits(oa.attend(q[-1:], other_k, other_v, fmt, scoring), whole)


def test_a_window_keeps_absolute_blocks_and_lanes(equal_bits):
    """At position 16,500 a window of 200 is blocks 254 to 257, in lanes 254, 255, 0 and 1."""
    t, window, head_dim = 16_500, 200, 4
    _, k, v = operands(t + 1, 1, 1, head_dim)
    q = bf16_round(np.random.default_rng(9).standard_normal((1, 1, head_dim)).astype(F))
    got = oa.attend(q, k, v, BF16, oa.Scoring(F(1), window))
    partials = []
    for first in range(254 * 64, t + 1, 64):
        at = slice(max(first, t - window + 1), first + 64)
        block = oa.KeyValueBlock(at.start, k[at, 0], v[at, 0])
        part = oa.block_partial(
            np.ascontiguousarray(q[0].T), block, np.array([t]), BF16, oa.Scoring(F(1), window)
        )
        partials.append((part.top[0], part.weight[0], list(part.out[:, 0])))
    b254, b255, b256, b257 = partials
    # level 128 meets no pair; level 1 of the tree is reached by lanes 0 and 1 after 254 and 255 came down
    left = scalar_combine(b256, b254)
    right = scalar_combine(b257, b255)
    _, l, o = scalar_combine(left, right)
    assert equal_bits(got[0], bf16_round(np.array([total / l for total in o], F)))


def test_a_sink_by_hand(equal_bits):
    """One position of score 0, value 3 and a sink of 0: half the weight is the sink's."""
    q, k, v = np.zeros((1, 1, 2), F), np.zeros((1, 1, 2), F), np.full((1, 1, 2), 3, F)
    got = oa.attend(q, k, v, F32, oa.Scoring(F(1), sinks=np.zeros(1, F)))
    assert equal_bits(got, [[1.5, 1.5]])


def test_each_head_has_its_own_sink(equal_bits):
    """The sink is combined last, with weight 1 and no value."""
    q, k, v = operands(5, 4, 2, 6)
    sinks = np.array([-1, 0, 1, 2], F)
    got = oa.attend(q, k, v, F32, oa.Scoring(score_scale(6), sinks=sinks)).reshape(5, 4, 6)
    for head, sink in enumerate(sinks):
        block = scalar_block(q[4, head], k[:, head // 2], v[:, head // 2], 0, 4, F32)
        _, l, o = scalar_combine(block, (sink, F(1), [F(0)] * 6))
        assert equal_bits(got[4, head], np.array([total / l for total in o], F))


def test_a_score_softcap_limits_scores():
    """Two scores of 1,000 and 0 under a cap of 1: weights e and 1."""
    q = np.array([[[1000.0, 0.0]]], F)
    k = np.array([[[1.0, 0.0]], [[0.0, 0.0]]], F)
    v = np.array([[[1.0, 1.0]], [[0.0, 0.0]]], F)
    got = oa.attend(q, k, v, F32, oa.Scoring(F(1), cap=F(1)))
    assert np.abs(got - np.e / (np.e + 1)).max() < 1e-6


def partial(seed, rows=200, head_dim=3, present=True):
    rng = np.random.default_rng(seed)
    return oa.Partial(
        present=np.full(rows, present),
        top=rng.standard_normal(rows).astype(F),
        weight=(1 + rng.random(rows)).astype(F),
        out=rng.standard_normal((head_dim, rows)).astype(F),
    )


def same(a, b, equal_bits):
    fields = ("top", "weight", "out")
    return all(equal_bits(getattr(a, field), getattr(b, field)) for field in fields)


def test_combine_commutes_and_does_not_associate(equal_bits):
    a, b, c = partial(1), partial(2), partial(3)
    assert same(oa.combine(a, b), oa.combine(b, a), equal_bits)
    left, right = oa.combine(oa.combine(a, b), c), oa.combine(a, oa.combine(b, c))
    assert not same(left, right, equal_bits)


def test_an_absent_side_copies_the_other_bit_for_bit(equal_bits):
    """Even a value of -0, which a sum with +0 would lose."""
    a, nothing = partial(1), partial(2, present=False)
    a.out[:] = F(-0.0)
    for combined in (oa.combine(a, nothing), oa.combine(nothing, a)):
        assert combined.present.all()
        assert same(combined, a, equal_bits)
    assert not oa.combine(nothing, nothing).present.any()


def test_order_of_lanes_is_a_tree(equal_bits):
    """Three lanes: h = 2 adds lane 2 to lane 0 before h = 1 adds lane 1."""
    lanes = dict(enumerate(partial(seed) for seed in (1, 2, 3)))
    expected = oa.combine(oa.combine(lanes[0], lanes[2]), lanes[1])
    assert same(oa.combine_lanes(lanes), expected, equal_bits)
    assert not same(oa.combine(oa.combine(lanes[0], lanes[1]), lanes[2]), expected, equal_bits)


def test_blocks_are_absolute(equal_bits):
    """A row depends on where block edges lie: the same keys shifted by one position give other bits."""
    q, k, v = operands(130, 1, 1, 16)
    whole = oa.attend(q[-1:], k, v, F32, plain(16))
    shifted = oa.attend(q[-1:], np.roll(k, 1, axis=0), np.roll(v, 1, axis=0), F32, plain(16))
    assert not equal_bits(whole, shifted)


def test_query_chunks_change_nothing(equal_bits):
    q, k, v = operands(600, 2, 1, 8)
    whole = oa.attend(q, k, v, BF16, plain(8))
    assert equal_bits(oa.attend(q[-1:], k, v, BF16, plain(8)), whole[-1:])
    assert equal_bits(oa.attend(q[100:101], k[:101], v[:101], BF16, plain(8)), whole[100:101])
    assert equal_bits(oa.attend(q[250:300], k[:300], v[:300], BF16, plain(8)), whole[250:300])


@pytest.mark.parametrize("head_dim", [32, 64, 128, 6])
def test_score_scale_is_rounded_once(head_dim):
    assert score_scale(head_dim) == F(head_dim**-0.5)


def test_score_scale_of_32_is_not_the_float32_quotient_of_a_rounded_root():
    """The two readings of 1 / sqrt(d) differ for some d; the page rounds the real number once."""
    two_roundings = [d for d in range(2, 513, 2) if F(1) / np.sqrt(F(d)) != score_scale(d)]
    assert two_roundings
