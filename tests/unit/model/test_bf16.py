"""bfloat16 rounding: nearest even on every kind of value; NaN, infinity and overflow are refused by place."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticktrue.errors import InputError
from ticktrue.model.bf16 import check_bf16, check_float32, from_bf16, to_bf16

MAX_BF16 = 0x7F7F


def exact(bits: int) -> Fraction:
    return Fraction(float(from_bf16(np.array([bits], np.uint16))[0]))


@given(st.integers(0, 0x7F7F7FFF), st.booleans())
def test_rounds_to_nearest_and_ties_to_even(magnitude: int, negative: bool) -> None:
    pattern = magnitude | (0x80000000 if negative else 0)
    value = np.array([pattern], np.uint32).view(np.float32)
    bits = int(to_bf16(value, "t")[0])
    assert bits >> 15 == negative
    found, want = abs(exact(bits)), abs(Fraction(float(value[0])))
    for neighbour in (max((bits & 0x7FFF) - 1, 0), min((bits & 0x7FFF) + 1, MAX_BF16)):
        distance, other = abs(found - want), abs(exact(neighbour) - want)
        assert distance < other or (distance == other and (bits % 2 == 0 or neighbour == bits & 0x7FFF))


@pytest.mark.parametrize(
    ("pattern", "bits"),
    [
        (0x3F808000, 0x3F80),  # tie to even, down
        (0x3F818000, 0x3F82),  # tie to even, up
        (0x00000001, 0x0000),  # the smallest subnormal
        (0x00008001, 0x0001),  # a subnormal is kept
        (0x80000000, 0x8000),  # -0
        (0x7F7F7FFF, 0x7F7F),  # the largest that stays finite
    ],
)
def test_edges(pattern: int, bits: int) -> None:
    assert int(to_bf16(np.array([pattern], np.uint32).view(np.float32), "t")[0]) == bits


@pytest.mark.parametrize("pattern", [0x7F7F8000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF])
def test_what_is_not_finite_is_refused_with_name_and_index(pattern: int) -> None:
    values = np.zeros((3, 4), np.float32)
    values.view(np.uint32)[1, 2] = pattern
    with pytest.raises(InputError) as refusal:
        to_bf16(values, "layers.0.q", first=100)
    assert (refusal.value.code, refusal.value.where) == ("T346", "layers.0.q[106]")


@pytest.mark.parametrize("bits", [0x7F80, 0xFF80, 0x7FC0, 0xFFFF])
def test_stored_bfloat16_is_checked(bits: int) -> None:
    check_bf16(np.array([0x7F7F, 0xFF7F, 0], np.uint16), "t")
    with pytest.raises(InputError) as refusal:
        check_bf16(np.array([0, bits], np.uint16), "embed")
    assert (refusal.value.code, refusal.value.where) == ("T346", "embed[1]")


def test_float32_vectors_are_checked() -> None:
    check_float32(np.array([3e38], np.float32), "t")
    with pytest.raises(InputError) as refusal:
        check_float32(np.array([1, np.nan], np.float32), "final_norm")
    assert (refusal.value.code, refusal.value.where) == ("T346", "final_norm[1]")
