"""bf16: rounding agrees with integer arithmetic, widening is exact, bits survive."""

import math

import numpy as np
import pytest
from numba import TypingError, njit

from ticktrue.kernels import bits


def rne_by_integers(pattern: int) -> int:
    """Nearest bf16, ties to even, of a finite float32, by comparing the remainder with one half."""
    quotient, remainder = divmod(pattern, 1 << 16)
    up = remainder > 0x8000 or (remainder == 0x8000 and quotient % 2 == 1)
    return quotient + up


@njit
def round_all(patterns, out):
    for i in range(patterns.size):
        out[i] = bits.f32_to_bf16_bits(bits.u32_as_f32(patterns[i]))


def test_rounding_on_every_bf16_and_the_patterns_around_its_ties() -> None:
    high = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)
    tails = (0x0000, 0x0001, 0x4000, 0x7FFF, 0x8000, 0x8001, 0xC000, 0xFFFF)
    patterns = np.concatenate([high | np.uint32(tail) for tail in tails])
    patterns = patterns[(patterns & 0x7FFF_FFFF) <= 0x7F80_0000]
    found = np.empty(patterns.size, np.uint16)
    round_all(patterns, found)
    expected = np.array([rne_by_integers(int(p)) for p in patterns], np.uint16)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("pattern", [0x7F80_0001, 0x7FFF_FFFF, 0xFF80_0001, 0xFFFF_FFFF, 0x7FC0_0000])
def test_nan_stays_nan(pattern: int) -> None:
    out = np.empty(1, np.uint16)
    round_all(np.array([pattern], np.uint32), out)
    assert (out[0] & 0x7FFF) > 0x7F80


def test_overflow_gives_infinity() -> None:
    assert bits.f32_to_bf16_bits(np.float32(3.4e38)) == 0x7F80
    assert bits.f32_to_bf16_bits(np.float32(-3.4e38)) == 0xFF80
    assert bits.f32_to_bf16_bits(np.float32(3.38e38)) == 0x7F7E


@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, 2.0**-133, -(2.0**-126), 3.38953139e38, math.inf])
def test_widening_gives_back_every_bf16(value: float) -> None:
    assert bits.bf16_to_f32(np.uint16(bits.f32_to_bf16_bits(np.float32(value)))) == np.float32(value)
    assert bits.round_to_bf16(np.float32(value)) == np.float32(value)


def test_signs() -> None:
    assert math.copysign(1, bits.bf16_to_f32(np.uint16(0x8000))) == -1
    assert math.copysign(1, bits.absolute_f32(np.float32(-0.0))) == 1
    assert bits.copy_sign_f32(np.float32(-3), np.float32(2)) == 3
    assert bits.copy_sign_f32(np.float32(3), np.float32(-0.0)) == -3


@pytest.mark.parametrize("intrinsic", [bits.f32_as_u32, bits.u32_as_f32])
def test_bitcasts_refuse_other_types(intrinsic) -> None:
    @njit
    def wrong(x):
        return intrinsic(x)

    with pytest.raises(TypingError):
        wrong(np.float64(1))
