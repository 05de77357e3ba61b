"""The oracle's functions and lane sums against scalar code and `decimal`."""

import hashlib
import json
import math
import runpy
from decimal import Decimal, localcontext
from pathlib import Path

import numpy as np
import pytest

from ticktrue.graph import oracle_math as om

F = np.float32
GOLDEN = Path(__file__).parents[1] / "golden"


def scalar_exp(x):
    """The page's exp, one np.float32 operation at a time; rounding to an integer by Python's round."""
    if x < -87:
        return F(0)
    if x > F(88.72):
        return F(np.inf)
    n = F(round(float(x * F(float.fromhex("0x1.715476p+0")))))
    r = (x - n * F(0.693359375)) - n * F(float.fromhex("-0x1.bd0106p-13"))
    p = F(float.fromhex("0x1.6a2256p-10"))
    for c in ("0x1.123b02p-7", "0x1.5558f8p-5", "0x1.55549p-3", "0x1.fffffcp-2"):
        p = p * r + F(float.fromhex(c))
    y = (p * (r * r) + r) + F(1)
    return F(math.ldexp(float(y), int(n)))


def exp_inputs():
    rng = np.random.default_rng(1)
    wide = rng.uniform(-88, 89, 3000)
    ties = (np.arange(-125, 128) + 0.5) * math.log(2)
    edges = [0.0, -0.0, -87.0, np.nextafter(F(-87), F(-100)), 88.72, np.nextafter(F(88.72), F(100)), 1e-30]
    return np.concatenate([wide, ties, rng.uniform(-1e-3, 1e-3, 200), edges]).astype(F)


def test_exp_is_the_scalar_exp_bit_for_bit(equal_bits):
    x = exp_inputs()
    assert equal_bits(om.exp(x), np.array([scalar_exp(v) for v in x], F))


def test_exp_is_within_one_ulp():
    x = exp_inputs()
    x = x[(x >= -87) & (x <= F(88.72))]
    with localcontext() as context:
        context.prec = 40
        for value, result in zip(x, om.exp(x), strict=True):
            true = Decimal(float(value)).exp()
            assert abs(Decimal(float(result)) - true) <= Decimal(float(np.spacing(F(true))))


@pytest.mark.parametrize(
    ("x", "expected"), [(0.0, 1.0), (-0.0, 1.0), (-87.5, 0.0), (-np.inf, 0.0), (89.0, np.inf), (-3.4e38, 0.0)]
)
def test_exp_of_special_values(x, expected):
    result = om.exp(np.array([x], F))[0]
    assert result == F(expected)
    assert not np.signbit(result)


def test_sigmoid_ends_at_zero_and_one():
    assert om.sigmoid(np.array([-100, 0, 100], F)).tolist() == [0.0, 0.5, 1.0]


def test_gate_multiplies_in_the_order_of_the_page(equal_bits):
    rng = np.random.default_rng(3)
    g, u = rng.standard_normal((2, 500)).astype(F)
    expected = np.array([(a * (F(1) / (F(1) + scalar_exp(-a)))) * b for a, b in zip(g, u, strict=True)], F)
    assert equal_bits(om.gated_silu(g, u), expected)
    assert not equal_bits(om.gated_silu(g, u), g * (om.sigmoid(g) * u))


def scalar_tanh(x):
    """The page's tanh in scalars; no value of a branch that is not taken."""
    a = abs(x)

    def horner(at, coefficients):
        value = F(float.fromhex(coefficients[0]))
        for c in coefficients[1:]:
            value = (value * at) + F(float.fromhex(c))
        return value

    if a < F(0.625):
        z = a * a
        odd = ("-0x1.75623ep-8", "0x1.520b2cp-6", "-0x1.b83854p-5", "0x1.11070ap-3", "-0x1.555532p-2")
        v = a + ((a * z) * horner(z, odd))
    elif a < 1:
        d = a - F(float.fromhex("0x1.a004fp-1"))
        middle = (
            "0x1.a9583p-8", "-0x1.fa1d0cp-5", "0x1.471f08p-4", "0x1.072778p-4", "-0x1.79bf04p-2", "0x1.197c2cp-1",
        )  # fmt: skip
        v = F(float.fromhex("0x1.578bb6p-1")) + (d * horner(d, middle))
    else:
        v = F(1) - (F(2) / (scalar_exp(F(2) * a) + F(1)))
    return np.copysign(v, x)


def tanh_inputs():
    rng = np.random.default_rng(6)
    edges = np.array([0.0, 0.625, 1.0, 44.36, 45.0, 1e-30, 3e38, np.inf], F)
    edges = np.concatenate([edges, np.nextafter(edges[1:3], F(0))])
    points = np.concatenate([edges, rng.uniform(0, 2, 2000).astype(F), rng.uniform(0, 60, 500).astype(F)])
    return np.concatenate([points, -points])


def test_tanh_is_the_scalar_tanh_bit_for_bit(equal_bits):
    x = tanh_inputs()
    with np.errstate(over="ignore"):
        assert equal_bits(om.tanh(x), np.array([scalar_tanh(v) for v in x], F))


def test_tanh_is_within_one_ulp():
    x = tanh_inputs()
    true = np.tanh(x.astype(np.float64))
    error = np.abs(om.tanh(x).astype(np.float64) - true)
    assert (error <= np.spacing(np.abs(true).astype(F)).astype(np.float64)).all()


def test_softcap_by_hand(equal_bits):
    """30 · tanh(s / 30): 0 stays, the cap is reached, and the quotient is rounded before tanh."""
    x = np.array([0, 1e6, -1e6, 7], F)
    expected = F(30) * scalar_tanh(F(7) / F(30))
    assert equal_bits(om.softcap(x, F(30)), [0, 30, -30, expected])


def test_gelu_gate_multiplies_in_the_order_of_the_page(equal_bits):
    rng = np.random.default_rng(3)
    g, u = (3 * rng.standard_normal((2, 500))).astype(F)
    root, cube = F(math.sqrt(2 / math.pi)), F(0.044715)
    expected = [
        ((F(0.5) * a) * (F(1) + scalar_tanh(root * (a + (cube * ((a * a) * a)))))) * b
        for a, b in zip(g, u, strict=True)
    ]
    assert equal_bits(om.gated_gelu(g, u), np.array(expected, F))
    assert om.gated_gelu(np.array([1e20, -1e20], F), np.ones(2, F)).tolist() == [F(1e20), 0.0]


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("exp_f32", om.exp),
        ("tanh_f32", om.tanh),
        ("sigmoid_f32", om.sigmoid),
        ("silu_gate_f32", om.gated_silu),
        ("gelu_tanh_gate_f32", om.gated_gelu),
    ],
)
def test_functions_have_the_golden_bits(name, function):
    """The 4,096 inputs whose bits `functions_golden.json` pins, made from the kernels."""
    inputs = runpy.run_path(str(GOLDEN / "functions_make.py"))["INPUTS"][name]
    bits = np.asarray(function(*inputs), F).view(np.uint32).astype("<u4")
    golden = json.loads((GOLDEN / "functions_golden.json").read_text(encoding="utf-8"))[name]
    assert hashlib.sha256(bits.tobytes()).hexdigest() == golden["sha256"]


def test_a_head_norm_is_row_5_on_each_head(equal_bits):
    x = np.random.default_rng(2).standard_normal((3, 2, 6)).astype(F)
    g, eps = np.arange(1, 7).astype(F), F(1e-6)
    for n, head in np.ndindex(3, 2):
        row = x[n : n + 1, head]
        assert equal_bits(om.head_norm(x, g, eps)[n, head], om.rms_norm(row, g, eps)[0])
        without = om.head_norm(x, None, eps)[n, head]
        assert equal_bits(without, om.rms_norm(row, np.ones(6, F), eps)[0])


def test_bf16_rounds_to_nearest_even():
    rng = np.random.default_rng(4)
    bits = rng.integers(0, 0x7F7F0000, 2000, dtype=np.uint32)
    bits[:400] = (bits[:400] & np.uint32(0xFFFF0000)) | np.uint32(0x8000)
    for b, r in zip(bits, om.bf16_round(bits.view(F)).view(np.uint32), strict=True):
        low, rest = int(b) >> 16, int(b) & 0xFFFF
        up = rest > 0x8000 or (rest == 0x8000 and low % 2 == 1)
        assert int(r) == (low + up) << 16


def test_bf16_keeps_bf16_values_and_signs():
    bits = np.arange(0, 0x7F80, dtype=np.uint16)
    values = om.bf16_widen(np.concatenate([bits, bits | np.uint16(0x8000)]))
    assert (om.bf16_round(values).view(np.uint32) == values.view(np.uint32)).all()


def scalar_lane_sum(a):
    s = [F(0)] * 320
    for i, value in enumerate(a):
        s[i % 320] = s[i % 320] + value
    for h in (256, 128, 64, 32, 16, 8, 4, 2, 1):
        for lane in range(h):
            if lane + h < 320:
                s[lane] = s[lane] + s[lane + h]
    return s[0]


@pytest.mark.parametrize("n", [1, 64, 218, 319, 320, 321, 576, 1000])
def test_lane_sum_is_the_scalar_lane_sum(n, equal_bits):
    a = np.random.default_rng(n).standard_normal((5, n)).astype(F) ** 2
    assert equal_bits(om.lane_sum(a), np.array([scalar_lane_sum(row) for row in a], F))


def test_lane_sum_is_not_an_ascending_sum(equal_bits):
    """The trap: a plain ascending sum of 576 squares has other bits in most rows."""
    a = np.random.default_rng(7).standard_normal((50, 576)).astype(F) ** 2
    ascending = np.array([sum(row, start=F(0)) for row in a], F)
    assert np.count_nonzero(om.lane_sum(a) != ascending) > 25
    assert not equal_bits(om.lane_sum(a), om.lane_sum(np.ascontiguousarray(a[:, ::-1])))


def test_rms_norm_multiplies_in_the_order_of_the_page(equal_bits):
    rng = np.random.default_rng(8)
    x, g, eps = rng.standard_normal((4, 218)).astype(F), rng.standard_normal(218).astype(F), F(1e-5)
    rows = []
    for row in x:
        r = F(1) / np.sqrt(scalar_lane_sum(row * row) / F(218) + eps)
        rows.append([(v * r) * w for v, w in zip(row, g, strict=True)])
    assert equal_bits(om.rms_norm(x, g, eps), np.array(rows, F))


def test_constants_must_be_float32():
    with pytest.raises(ValueError, match="is not a float32"):
        om._hex("0x1.00000001p+0")
