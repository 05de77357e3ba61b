"""The router and the experts of the oracle by hand."""

import numpy as np
import pytest

from ticktrue.graph.oracle_experts import chosen, gated, mixed
from ticktrue.graph.oracle_format import arithmetic
from ticktrue.graph.oracle_math import bf16_round, exp
from ticktrue.graph.oracle_weights import Gated, Linear, Mixture
from ticktrue.model import Activation

F = np.float32
F32 = arithmetic("f32")


def test_ranks_are_by_value_then_by_index():
    ids, weights = chosen(np.array([[1, 3, 3, 0, 3], [0, 0, 0, 0, 0], [-1, -2, 5, 4, 5]], F), 3)
    assert ids.tolist() == [[1, 2, 4], [0, 1, 2], [2, 4, 3]]
    assert weights[1].tolist() == [F(1) / F(3)] * 3


def test_weights_are_summed_in_rank_order(equal_bits):
    """total = ((e0 + e1) + e2) + e3, and each weight is one division."""
    logits = np.random.default_rng(0).standard_normal((500, 8)).astype(F)
    ids, weights = chosen(logits, 4)
    backwards = 0
    for row, of_row, w in zip(logits, ids, weights, strict=True):
        e = exp(row[of_row] - row[of_row[0]])
        total = ((e[0] + e[1]) + e[2]) + e[3]
        assert equal_bits(w, e / total)
        backwards += total != ((e[3] + e[2]) + e[1]) + e[0]
    assert backwards > 10


def expert(scale):
    """2 -> 1 -> 2: gate and up take the first value, down spreads it."""
    return Gated(
        Linear(np.array([[1], [0]], F)),
        Linear(np.array([[1], [0]], F)),
        Linear(np.array([[scale, 2 * scale]], F)),
    )


@pytest.fixture
def two():
    """Three experts of which each row takes two; the router looks at the second value."""
    return Mixture(Linear(np.array([[0, 0, 0], [1, 2, -9]], F)), (expert(1), expert(10), expert(100)), 2)


def test_two_of_three_experts_by_hand(two, equal_bits):
    """h = (2, 1): logits 1, 2, -9; ranks are experts 1, then 0."""
    h = np.array([[2, 1], [2, -1]], F)
    got = mixed(two, h, Activation.SILU, F32)
    inner = (F(2) * (F(1) / (F(1) + exp(np.array([-2], F))[0]))) * F(2)
    e = exp(np.array([-1], F))[0]
    w0, w1 = F(1) / (F(1) + e), e / (F(1) + e)
    assert equal_bits(
        got[0], [(w0 * (F(10) * inner)) + (w1 * inner), (w0 * (F(20) * inner)) + (w1 * (F(2) * inner))]
    )
    e = exp(np.array([-1 - 9], F))[0]  # the second row: logits -1, -2, 9, ranks are experts 2, then 0
    w0, w1 = F(1) / (F(1) + e), e / (F(1) + e)
    assert equal_bits(got[1, :1], [(w0 * (F(100) * inner)) + (w1 * inner)])


def test_rows_do_not_see_each_other(two, equal_bits):
    h = np.random.default_rng(1).standard_normal((40, 2)).astype(F)
    whole = mixed(two, h, Activation.GELU_TANH, F32)
    for i in range(40):
        assert equal_bits(mixed(two, h[i : i + 1], Activation.GELU_TANH, F32), whole[i : i + 1])


def test_the_gate_is_rounded_and_the_expert_is_not(equal_bits):
    """In bf16 the gated value is on the grid, the y of an expert is not until all are added (row 28)."""
    bf16, h = arithmetic("bf16"), np.array([[1.3, 0]], F)
    h = bf16_round(h)
    y = gated(expert(F(1.0078125)), h, Activation.SILU, bf16)
    g = bf16_round((h[:, :1] * (F(1) / (F(1) + exp(-h[:, :1])))) * h[:, :1])
    assert equal_bits(y[:, :1], g * F(1.0078125))
    assert not equal_bits(bf16_round(y), y)
