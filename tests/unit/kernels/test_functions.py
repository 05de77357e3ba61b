"""Own functions: within one ulp of `decimal`, exact at their edges, and the same bits for ever."""

import json
import math
import re
import sys
from collections.abc import Callable
from decimal import Decimal, localcontext
from itertools import pairwise
from pathlib import Path

import numba
import numpy as np
import pytest
import ulp

from ticktrue.kernels import functions, tables
from ticktrue.kernels.bits import u32_as_f32

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden"
INF = math.inf
TINY = float(np.float32(1e-45))
LARGEST = float(np.finfo(np.float32).max)


def neighbours(*values: float) -> list[float]:
    """Each value, as a float32, with the float32 below and above it."""
    out = []
    for value in np.array(values, np.float32):
        out += [
            float(np.nextafter(value, np.float32(-INF))),
            float(value),
            float(np.nextafter(value, np.float32(INF))),
        ]
    return out


def random_f32(low: float, high: float, count: int, seed: int) -> list[float]:
    return [float(v) for v in np.random.default_rng(seed).uniform(low, high, count).astype(np.float32)]


def random_log(low: float, high: float, count: int, seed: int) -> list[float]:
    """Random float32 spread evenly in the logarithm."""
    return [float(np.float32(math.exp(v))) for v in random_f32(math.log(low), math.log(high), count, seed)]


def negated(values: list[float]) -> list[float]:
    return [-value for value in values]


EXP_INPUTS = (
    random_f32(-87, 88.72, 1500, 1)
    + random_f32(-0.36, 0.36, 1500, 2)
    + random_log(1e-9, 1, 200, 3)
    + [v for v in neighbours(*(k * math.log(2) / 2 for k in range(-249, 256, 2))) if v >= -87]
    + [-87.0, float(np.float32(88.72)), 0.0, -0.0, TINY, -TINY]
)
LOG_INPUTS = (
    random_log(1e-37, 3e38, 800, 4)
    + random_f32(0.5, 2, 1500, 5)
    + random_f32(0.99, 1.01, 300, 6)
    + neighbours(*(2.0**k * math.sqrt(0.5) for k in range(-20, 20)), 1.0, 2.0**-126)
    + [TINY, 100 * TINY, LARGEST]
)
LOG1P_INPUTS = (
    negated(random_f32(0, 0.5, 900, 7))
    + negated(random_log(1e-10, 0.999, 400, 8))
    + random_log(1e-10, 1e38, 700, 9)
    + random_f32(-0.3, 0.45, 900, 10)
    + neighbours(math.sqrt(0.5) - 1, math.sqrt(2) - 1, 1, 3, -0.5, 2.0**24, -(2.0**-33))
    + [float(np.nextafter(np.float32(-1), np.float32(0))), TINY, LARGEST]
)
TANH_INPUTS = (
    random_f32(-1.1, 1.1, 2000, 11)
    + random_f32(0.6, 1.05, 800, 12)
    + random_f32(-10, 10, 500, 13)
    + random_log(1e-40, 0.1, 200, 14)
    + neighbours(0.625, 1, -0.625, -1, 9, 0.8125)
    + [LARGEST, -LARGEST, TINY]
)
SIGMOID_INPUTS = random_f32(-87, 87, 1000, 15) + random_f32(-5, 5, 1000, 16)
RSQRT_INPUTS = random_log(1e-37, 3e38, 1000, 17) + random_f32(1, 4, 1000, 18)


@pytest.mark.parametrize(
    ("function", "reference", "inputs", "bound"),
    [
        (functions.exp_f32, Decimal.exp, EXP_INPUTS, 1.0),
        (functions.log_f32, Decimal.ln, LOG_INPUTS, 1.0),
        (functions.log1p_f32, ulp.log1p, LOG1P_INPUTS, 1.0),
        (functions.tanh_f32, ulp.tanh, TANH_INPUTS, 1.0),
        (functions.sigmoid_f32, ulp.sigmoid, SIGMOID_INPUTS, 2.5),
        (functions.rsqrt_f32, lambda x: 1 / x.sqrt(), RSQRT_INPUTS, 1.51),
    ],
    ids=["exp", "log", "log1p", "tanh", "sigmoid", "rsqrt"],
)
def test_error_against_decimal(function, reference, inputs, bound) -> None:
    with localcontext() as context:
        context.prec = ulp.DIGITS
        errors = [ulp.ulps(function(np.float32(x)), reference(Decimal(x))) for x in inputs]
    worst = int(np.argmax(errors))
    assert errors[worst] <= bound, (inputs[worst], errors[worst])
    assert errors[worst] > 0.45  # the reference is not the function itself


def bits(value: object) -> int:
    return int(np.float32(value).view(np.uint32))


MINUS_ZERO = 0x8000_0000
EDGES = [
    ("exp_f32", 0.0, 1.0),
    ("exp_f32", -0.0, 1.0),
    ("exp_f32", -87.00001, 0.0),
    ("exp_f32", -LARGEST, 0.0),
    ("exp_f32", -INF, 0.0),
    ("exp_f32", 88.7201, INF),
    ("exp_f32", LARGEST, INF),
    ("exp_f32", INF, INF),
    ("log_f32", 1.0, 0.0),
    ("log_f32", 0.0, -INF),
    ("log_f32", -0.0, -INF),
    ("log_f32", INF, INF),
    ("log1p_f32", 0.0, 0.0),
    ("log1p_f32", -0.0, 0.0),
    ("log1p_f32", -1.0, -INF),
    ("log1p_f32", INF, INF),
    ("tanh_f32", 0.0, 0.0),
    ("tanh_f32", -0.0, -0.0),
    ("tanh_f32", INF, 1.0),
    ("tanh_f32", -INF, -1.0),
    ("sigmoid_f32", 0.0, 0.5),
    ("sigmoid_f32", -89.0, 0.0),
    ("sigmoid_f32", INF, 1.0),
    ("sigmoid_f32", -INF, 0.0),
    ("rsqrt_f32", 4.0, 0.5),
]


@pytest.mark.parametrize(("name", "x", "expected"), EDGES)
def test_edges_are_exact_in_every_bit(name: str, x: float, expected: float) -> None:
    assert bits(getattr(functions, name)(np.float32(x))) == bits(expected)


@pytest.mark.parametrize(
    ("name", "x"),
    [(name, math.nan) for name in ("exp_f32", "log_f32", "log1p_f32", "tanh_f32", "sigmoid_f32", "rsqrt_f32")]
    + [
        ("log_f32", -1.0),
        ("log_f32", -INF),
        ("log_f32", -1e-45),
        ("log1p_f32", -1.0001),
        ("log1p_f32", -INF),
    ],
)
def test_nan_goes_through_and_bad_arguments_give_it(name: str, x: float) -> None:
    assert math.isnan(getattr(functions, name)(np.float32(x)))


def test_nan_with_any_payload_stays_nan_in_exp() -> None:
    for pattern in (0x7F80_0001, 0x7FFF_FFFF, 0xFFC0_0000, 0x7F80_0100, 0xFFFF_FFFF):
        assert math.isnan(functions.exp_f32(np.array(pattern, np.uint32).view(np.float32)[()]))


def test_exp_is_monotone_across_its_edges() -> None:
    """Where the integer part changes, and at both ends: 64 neighbours each never fall."""
    centres = [k * math.log(2) / 2 for k in range(-251, 257, 2)] + [-87.0, 88.72, 0.0]
    for centre in centres:
        start = np.array(abs(centre), np.float32).view(np.uint32) + np.arange(65, dtype=np.uint32)
        run = np.maximum(start, np.uint32(32)) - np.uint32(32)
        xs = np.sort(np.copysign(run.view(np.float32), np.float32(centre)))
        ys = [functions.exp_f32(x) for x in xs]
        assert all(a <= b for a, b in pairwise(ys)), centre


def test_tanh_is_odd_in_every_bit() -> None:
    for x in random_f32(0, 3, 200, 20):
        assert (
            bits(functions.tanh_f32(np.float32(-x))) == bits(functions.tanh_f32(np.float32(x))) ^ MINUS_ZERO
        )


def test_gates_are_the_written_compositions() -> None:
    one, half = np.float32(1), np.float32(0.5)
    scale, cube = functions._GELU_SCALE, functions._GELU_CUBE
    for g, u in zip(random_f32(-12, 12, 300, 21), random_f32(-9, 9, 300, 22), strict=True):
        g32, u32 = np.float32(g), np.float32(u)
        silu = (g32 * np.float32(functions.sigmoid_f32(g32))) * u32
        assert bits(functions.silu_gate_f32(g32, u32)) == bits(silu)
        t = np.float32(functions.tanh_f32(scale * (g32 + (cube * ((g32 * g32) * g32)))))
        assert bits(functions.gelu_tanh_gate_f32(g32, u32)) == bits(((half * g32) * (one + t)) * u32)


def test_golden_bits() -> None:
    sys.path.insert(0, str(GOLDEN))
    try:
        import functions_make
    finally:
        sys.path.remove(str(GOLDEN))
    expected = json.loads(functions_make.GOLDEN.read_text())
    found = {name: functions_make.summary(values) for name, values in functions_make.golden_bits().items()}
    assert found == expected


@pytest.mark.parametrize("module", [functions, tables])
def test_every_constant_is_exact_and_stands_in_the_page(module) -> None:
    page = (ROOT / "docs" / "numerics.md").read_text()
    constants = re.findall(r'"(-?0x1[.p][0-9a-fp.+-]*)"', Path(module.__file__).read_text())
    assert len(constants) > 15
    for text in constants:
        exact = float.fromhex(text)
        assert module is tables or float(np.float32(exact)) == exact, text
        assert text in page or exact == 0.625, text


def test_a_loop_over_a_function_gives_the_bits_of_single_calls() -> None:
    """The vectorised code and the scalar code agree."""

    @numba.njit(error_model="numpy")
    def loop(x, y):
        for i in range(x.size):
            y[i] = functions.tanh_f32(x[i]) + functions.log_f32(x[i])

    x = np.abs(np.array(TANH_INPUTS, np.float32))
    y = np.empty_like(x)
    loop(x, y)
    single = [np.float32(functions.tanh_f32(v)) + np.float32(functions.log_f32(v)) for v in x]
    assert np.array_equal(y.view(np.uint32), np.array(single, np.float32).view(np.uint32))


WHOLE_RANGE = [
    ("exp_f32", math.exp, 0x0000_0000, bits(88.72), 1.0),
    ("exp_f32", math.exp, 0x8000_0000, bits(-87.0), 1.0),
    ("log_f32", math.log, 0x0000_0001, 0x7F7F_FFFF, 1.0),
    ("log1p_f32", math.log1p, 0x0000_0000, 0x7F7F_FFFF, 1.0),
    ("log1p_f32", math.log1p, 0x8000_0000, bits(-1.0) - 1, 1.0),
    ("tanh_f32", math.tanh, 0x0000_0000, 0x7F7F_FFFF, 1.0),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "reference", "first", "last", "bound"), WHOLE_RANGE)
def test_every_input_against_the_double_library(
    name: str, reference: Callable, first: int, last: int, bound
) -> None:
    """Every float32 of the range against float64 libm, whose own error (1e-8 ulp) does not matter."""
    kernel = getattr(functions, name)

    @numba.njit(error_model="numpy")
    def worst(low, high):
        largest = 0.0
        for i in range(low, high + 1):
            x = u32_as_f32(np.uint32(i))
            exact = reference(np.float64(x))
            exponent = max(math.frexp(exact)[1] - 24, -149)
            error = abs(np.float64(kernel(x)) - exact) / math.ldexp(1.0, exponent)
            if not error <= largest:
                largest = error
        return largest

    assert worst(first, last) <= bound
