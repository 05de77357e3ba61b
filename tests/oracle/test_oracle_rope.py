"""Rotary tables of the oracle against `decimal`, the polynomials of the page and the model reader."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from ticktrue.graph import oracle_rope as rope
from ticktrue.model import (
    FactorScaling,
    Family,
    LayerKind,
    LinearScaling,
    Llama3Scaling,
    SlidingAttention,
    rope_inv_freq,
)

F = np.float32
S = [
    -1 / 6,
    1 / 120,
    -1 / 5040,
    1 / 362880,
    *[(-1) ** (n // 2) / math.factorial(n) for n in (11, 13, 15, 17)],
]
C = [(-1) ** (n // 2) / math.factorial(n) for n in (4, 6, 8, 10, 12, 14, 16)]


def page_sin_cos(x):
    """docs/numerics.md, sin and cos in float64, for an array x >= 0: float32 (sin, cos)."""
    h = float.fromhex
    t = x * h("0x1.45f306dc9c883p-1") + h("0x1.8p+52")
    k = t - h("0x1.8p+52")
    r = ((x - k * h("0x1.921fb544p+0")) - k * h("0x1.0b4611a6p-34")) - k * h("0x1.3198a2e037073p-69")
    z = r * r
    s, c = np.full_like(z, S[-1]), np.full_like(z, C[-1])
    for term in S[-2::-1]:
        s = s * z + term
    for term in C[-2::-1]:
        c = c * z + term
    sn, cs = r + (r * z) * s, (1 - 0.5 * z) + (z * z) * c
    quadrant = k.astype(np.int64) % 4
    sin = np.choose(quadrant, [sn, cs, -sn, -cs])
    cos = np.choose(quadrant, [cs, -sn, -cs, sn])
    return sin.astype(F), cos.astype(F)


def test_coefficients_of_the_page_are_the_ones_above():
    assert S[-1] == float.fromhex("0x1.952c77030ad4ap-49")
    assert C[-1] == float.fromhex("0x1.ae7f3e733b81fp-45")
    assert S[0] == float.fromhex("-0x1.5555555555555p-3")


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("theta", [10_000.0, 100_000.0])
def test_tables_equal_the_polynomials_of_the_page(theta, head_dim, random_model, equal_bits):
    """Both tables up to position 32,768: the oracle rounds correctly, the page almost always does."""
    inv_freq = rope.inverse_frequencies(random_model(head_dim=head_dim, rope_theta=theta, layers=1)[0])
    positions = np.concatenate([np.arange(512), np.arange(0, 32_768, 512)])
    angles = positions[:, None] * np.array(inv_freq)[None, :]
    table = rope._table(positions, inv_freq)
    sin, cos = page_sin_cos(angles)
    assert equal_bits(table.sin, sin)
    assert equal_bits(table.cos, cos)


def test_sin_and_cos_are_the_nearest_float32():
    rng = np.random.default_rng(1)
    for angle in [*rng.uniform(0, 7, 40), *rng.uniform(0, 262_144, 40), 0.0]:
        assert rope.sin_float32(angle) == rope.nearest_float32(rope.sin_decimal(angle))
        assert rope.cos_float32(angle) == rope.nearest_float32(rope.cos_decimal(angle))
        assert float(rope.sin_decimal(angle)) == pytest.approx(math.sin(angle), rel=1e-14, abs=1e-16)
        assert float(rope.cos_decimal(angle)) == pytest.approx(math.cos(angle), rel=1e-14, abs=1e-16)


def test_doubtful_values_go_to_decimal():
    """Next to a rounding boundary of float32 the library's float64 alone may not decide."""
    boundary = float(F(0.5)) + 2.0**-25
    assert not rope._is_clear(boundary)
    assert rope._is_clear(0.5)
    assert rope.cos_float32(2.0**-13) == rope.nearest_float32(rope.cos_decimal(2.0**-13))


def test_nearest_float32_rounds_once_and_ties_to_even():
    tie = Decimal(1) + Decimal(2) ** -24
    assert rope.nearest_float32(tie) == F(1)
    assert rope.nearest_float32(tie + Decimal(2) ** -70) == np.nextafter(F(1), F(2))
    assert rope.nearest_float32(tie + Decimal(2) ** -23) == F(1 + 2**-22)


def test_positions_split_at_512(random_model, equal_bits):
    """Position 1,300 = 2 · 512 + 276: float32 products of the two tables, not a cosine of the whole angle."""
    inv_freq = rope.inverse_frequencies(random_model(layers=1)[0])
    got = rope.rope_tables(inv_freq, np.array([1300], np.int64))
    a, b = rope._table(np.array([1024]), inv_freq), rope._table(np.array([276]), inv_freq)
    assert equal_bits(got.cos, (a.cos * b.cos) - (a.sin * b.sin))
    assert equal_bits(got.sin, (a.sin * b.cos) + (a.cos * b.sin))
    assert not equal_bits(got.cos, rope._table(np.array([1300]), inv_freq).cos)


def test_pairs_are_halves_apart(equal_bits):
    x = np.random.default_rng(2).standard_normal((1, 1, 6)).astype(F)
    c, s = (np.random.default_rng(n).standard_normal((1, 3)).astype(F) for n in (3, 4))
    got = rope.rotate(x, rope.RopeTables(c, s))[0, 0]
    for i in range(3):
        x1, x2 = x[0, 0, i], x[0, 0, i + 3]
        assert equal_bits(got[i], (x1 * c[0, i]) - (x2 * s[0, i]))
        assert equal_bits(got[i + 3], (x2 * c[0, i]) + (x1 * s[0, i]))


@pytest.mark.parametrize(
    "scaling",
    [
        None,
        LinearScaling(4.0),
        Llama3Scaling(8.0, 1.0, 4.0, 8192),
        FactorScaling(tuple(1.0 + i for i in range(32))),
    ],
)
def test_frequencies_equal_the_model_reader(scaling, random_model):
    """Two independent pieces of code, the same correctly rounded float64."""
    spec, _ = random_model(rope_theta=500_000.0, rope_scaling=scaling, layers=1)
    assert list(rope.inverse_frequencies(spec)) == rope_inv_freq(spec).tolist()


@pytest.mark.parametrize("kind", LayerKind)
def test_frequencies_of_each_kind_equal_the_model_reader(kind, random_model):
    spec, _ = random_model(
        family=Family.GEMMA4,
        head_dim=128,
        rope_theta=1_000_000.0,
        rotary_fraction=0.25,
        sliding=SlidingAttention(window=9, kv_heads=3, head_dim=64, rope_theta=10_000.0),
        layer_kinds=tuple(LayerKind),
    )
    attention = spec.attention_of(kind)
    assert list(rope.inverse_frequencies(attention)) == rope_inv_freq(attention).tolist()


def test_a_part_of_the_pairs_turns_by_the_whole_head_dim(random_model, equal_bits):
    """A quarter of 8: one pair of four, by theta^0; three stay, with c = 1 and s = +0 through the formula."""
    spec, _ = random_model(layers=1, head_dim=8, rotary_fraction=0.25, rope_theta=100.0)
    assert rope.inverse_frequencies(spec) == (1.0, 0.0, 0.0, 0.0)
    half = random_model(layers=1, head_dim=8, rotary_fraction=0.5, rope_theta=100.0)[0]
    assert rope.inverse_frequencies(half) == (1.0, float(Decimal(100) ** Decimal("-0.25")), 0.0, 0.0)
    tables = rope.rope_tables((1.0, 0.0), np.array([0, 7, 1_300]))
    assert equal_bits(tables.cos[:, 1], [1, 1, 1])
    assert equal_bits(tables.sin[:, 1], [0, 0, 0])


def test_pi_is_pi():
    with localcontext() as context:
        context.prec = 60
        assert str(rope._pi()).startswith("3.14159265358979323846264338327950288419716939937510582")
