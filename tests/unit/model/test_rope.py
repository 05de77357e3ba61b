"""RoPE frequencies are the correctly rounded values, for every scaling."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.models import SPEC

from ticktrue.model import FactorScaling, LinearScaling, Llama3Scaling, rope_inv_freq


def correctly_rounded(value: float, index: int, theta: float, head_dim: int) -> bool:
    """value = theta^(-2i/d) to half a unit, in exact fractions: (value -+ half ulp)^d encloses theta^-2i."""
    half = Fraction(math.ulp(value)) / 2
    exact = 1 / Fraction(theta) ** (2 * index)
    return (Fraction(value) - half) ** head_dim <= exact <= (Fraction(value) + half) ** head_dim


@pytest.mark.parametrize("theta", [10_000.0, 100_000.0, 500_000.0, 1_000_000.0, 130_000.5])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_every_frequency_is_correctly_rounded(theta: float, head_dim: int) -> None:
    table = rope_inv_freq(replace(SPEC, rope_theta=theta, head_dim=head_dim))
    assert table.dtype == np.float64
    assert table.shape == (head_dim // 2,)
    assert all(correctly_rounded(float(v), i, theta, head_dim) for i, v in enumerate(table))


def test_float64_power_is_not_good_enough() -> None:
    """Why `decimal`: the usual float64 expression misses the last bit somewhere."""
    usual = np.array([1.0 / 100_000.0 ** (2 * i / 64) for i in range(32)])
    assert (usual != rope_inv_freq(replace(SPEC, rope_theta=100_000.0))).any()


def test_linear_and_factor_scaling_divide() -> None:
    plain = rope_inv_freq(SPEC)
    assert np.array_equal(rope_inv_freq(replace(SPEC, rope_scaling=LinearScaling(4.0))), plain / 4)
    factors = FactorScaling((1.0,) * 16 + (8.0,) * 16)
    scaled = rope_inv_freq(replace(SPEC, rope_scaling=factors))
    assert np.array_equal(scaled, plain / np.array(factors.factors))


def test_llama3_scaling_keeps_short_waves_divides_long_ones_and_blends_between() -> None:
    scaling = Llama3Scaling(8.0, 1.0, 4.0, 8_192)
    spec = replace(SPEC, rope_theta=500_000.0, head_dim=128)
    plain, scaled = rope_inv_freq(spec), rope_inv_freq(replace(spec, rope_scaling=scaling))
    turns = 8_192 * plain / (2 * math.pi)
    assert np.array_equal(scaled[turns > 4], plain[turns > 4])
    assert np.array_equal(scaled[turns < 1], plain[turns < 1] / 8)
    between = (turns > 1) & (turns < 4)
    keep = (turns[between] - 1) / 3
    assert between.sum() > 3
    assert np.allclose(
        scaled[between], (1 - keep) * plain[between] / 8 + keep * plain[between], rtol=1e-14, atol=0
    )


def test_table_is_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        rope_inv_freq(SPEC)[0] = 1.0
