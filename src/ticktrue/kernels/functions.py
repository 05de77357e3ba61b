"""The transcendental functions of ticktrue, in float32: our own, so that every machine gives the same bits.

Scalar numba functions, meant to be inlined into kernels. `docs/numerics.md` ("Own functions in float32")
defines every rounding; this module spells it out. `tests/golden/find_coefficients.py` found the coefficients.
All numbers are module constants of type float32, because numba widens `float32 * literal` to float64.
Selections come last, so that LLVM turns them into blends and the loops around them vectorise.
"""

import numpy as np
from numba import njit

from ticktrue.kernels.bits import absolute_f32, copy_sign_f32, f32_as_u32, u32_as_f32


def _f32(text: str) -> np.float32:
    """The float32 written as a hexadecimal float (a test checks that none needs rounding)."""
    return np.float32(float.fromhex(text))


_ZERO = np.float32(0)
_HALF = np.float32(0.5)
_ONE = np.float32(1)
_TWO = np.float32(2)
_INF = np.float32(np.inf)
_NAN = np.float32(np.nan)

# exp: adding 0x1.8p23 rounds to an integer, which then stands in the low bits of the sum
_ROUND_TO_INTEGER = _f32("0x1.8p+23")
_LOG2_E = _f32("0x1.715476p+0")
_LN2_HIGH = _f32("0x1.63p-1")  # 355/512: nine bits, so n * _LN2_HIGH is exact
_LN2_LOW = _f32("-0x1.bd0106p-13")  # ln 2 - 355/512
_EXP_LOWEST = _f32("-0x1.5cp+6")  # -87
_EXP_HIGHEST = _f32("0x1.62e148p+6")  # 88.72
_MANTISSA_BITS = np.uint32(23)
# minimax of (e^r - 1 - r) / r^2, relative to e^r, on |r| <= 1.002 * ln(2)/2
_E2 = _f32("0x1.fffffcp-2")
_E3 = _f32("0x1.55549p-3")
_E4 = _f32("0x1.5558f8p-5")
_E5 = _f32("0x1.123b02p-7")
_E6 = _f32("0x1.6a2256p-10")

# log, log1p: minimax of (ln(1+f) - f + f^2/2) / f^3, relative to ln(1+f), on [sqrt(1/2) - 1, sqrt(2) - 1]
_L3 = _f32("0x1.555554p-2")
_L4 = _f32("-0x1.000226p-2")
_L5 = _f32("0x1.99a008p-3")
_L6 = _f32("-0x1.547244p-3")
_L7 = _f32("0x1.22da1cp-3")
_L8 = _f32("-0x1.0d8542p-3")
_L9 = _f32("0x1.055b6cp-3")
_L10 = _f32("-0x1.38b584p-4")
_SMALLEST_NORMAL = _f32("0x1p-126")
_TWO_TO_23 = _f32("0x1p+23")
_SQRT_HALF_BITS = np.int32(0x3F35_04F3)
_SHIFT_23 = np.int32(23)
_EXPONENT_OF_TWO_TO_23 = np.int32(23)
_NO_EXPONENT = np.int32(0)

# tanh below 0.625: minimax of (tanh a - a) / a^3 in a^2, relative to tanh a
_TANH_ODD_BELOW = _f32("0x1.4p-1")  # 0.625
_T3 = _f32("-0x1.555532p-2")
_T5 = _f32("0x1.11070ap-3")
_T7 = _f32("-0x1.b83854p-5")
_T9 = _f32("0x1.520b2cp-6")
_T11 = _f32("-0x1.75623ep-8")
# tanh on [0.625, 1): tanh(X0 + d) - tanh(X0), minimax in absolute error; X0 is the float32 near 0.8125 whose
# tanh comes closest to a float32
_TANH_X0 = _f32("0x1.a004fp-1")
_TANH_T0 = _f32("0x1.578bb6p-1")
_A1 = _f32("0x1.197c2cp-1")
_A2 = _f32("-0x1.79bf04p-2")
_A3 = _f32("0x1.072778p-4")
_A4 = _f32("0x1.471f08p-4")
_A5 = _f32("-0x1.fa1d0cp-5")
_A6 = _f32("0x1.a9583p-8")

_GELU_SCALE = _f32("0x1.988454p-1")  # sqrt(2/pi)
_GELU_CUBE = _f32("0x1.6e4e26p-5")  # 0.044715

SIGNATURES: dict[str, tuple[str, ...]] = {
    "exp_f32": ("float32(float32)",),
    "log_f32": ("float32(float32)",),
    "log1p_f32": ("float32(float32)",),
    "tanh_f32": ("float32(float32)",),
    "sigmoid_f32": ("float32(float32)",),
    "rsqrt_f32": ("float32(float32)",),
    "silu_gate_f32": ("float32(float32, float32)",),
    "gelu_tanh_gate_f32": ("float32(float32, float32)",),
    "_log_tail": ("float32(float32, float32, float32)",),
}
"""What each kernel is compiled for when the IR test reads its code (see `tests/unit/kernels/ir_check.py`)."""


@njit(cache=True, error_model="numpy")
def exp_f32(x):
    """e^x, within one ulp on [-87, 88.72]; +0 below, +Inf above; exactly 1 at 0."""
    t = (x * _LOG2_E) + _ROUND_TO_INTEGER
    n = t - _ROUND_TO_INTEGER
    r = (x - (n * _LN2_HIGH)) - (n * _LN2_LOW)
    p = (((((((_E6 * r) + _E5) * r) + _E4) * r) + _E3) * r) + _E2
    y = ((p * (r * r)) + r) + _ONE
    v = u32_as_f32(np.uint32(f32_as_u32(y) + np.uint32(f32_as_u32(t) << _MANTISSA_BITS)))
    v = _ZERO if x < _EXP_LOWEST else v
    v = _INF if x > _EXP_HIGHEST else v
    return x if x != x else v  # noqa: PLR0124 - NaN is the value that differs from itself


@njit(cache=True, error_model="numpy")
def _log_tail(f, exponent, correction):
    """Natural logarithm of (2^exponent * (1 + f)) + correction, for f in [sqrt(1/2) - 1, sqrt(2) - 1]."""
    z = f * f
    p = (((((((_L10 * f) + _L9) * f) + _L8) * f) + _L7) * f) + _L6
    p = (((((p * f) + _L5) * f) + _L4) * f) + _L3
    y = (p * f) * z
    y = y + ((exponent * _LN2_LOW) + correction)
    y = y - (_HALF * z)
    return (f + y) + (exponent * _LN2_HIGH)


@njit(cache=True, error_model="numpy")
def log_f32(x):
    """Natural logarithm of x, within one ulp for every positive x; -Inf at 0, NaN below."""
    subnormal = x < _SMALLEST_NORMAL
    w = (x * _TWO_TO_23) if subnormal else x
    i = np.int32(f32_as_u32(w))
    e = np.int32(np.int32(i - _SQRT_HALF_BITS) >> _SHIFT_23)
    m = u32_as_f32(np.uint32(i - np.int32(e << _SHIFT_23)))
    shift = _EXPONENT_OF_TWO_TO_23 if subnormal else _NO_EXPONENT
    v = _log_tail(m - _ONE, np.float32(np.int32(e - shift)), _ZERO)
    v = -_INF if x == _ZERO else v
    v = _NAN if x < _ZERO else v
    v = _INF if x == _INF else v
    return x if x != x else v  # noqa: PLR0124


@njit(cache=True, error_model="numpy")
def log1p_f32(x):
    """Natural logarithm of 1 + x, within one ulp for every x > -1; -Inf at -1, NaN below."""
    u = _ONE + x
    i = np.int32(f32_as_u32(u))
    e = np.int32(np.int32(i - _SQRT_HALF_BITS) >> _SHIFT_23)
    m = u32_as_f32(np.uint32(i - np.int32(e << _SHIFT_23)))
    lost = (_ONE - (u - x)) if x >= _ONE else (x - (u - _ONE))
    near_one = e == _NO_EXPONENT
    f = x if near_one else (m - _ONE)
    correction = _ZERO if near_one else (lost / u)
    v = _log_tail(f, np.float32(e), correction)
    v = -_INF if x == -_ONE else v
    v = _NAN if x < -_ONE else v
    v = _INF if x == _INF else v
    return x if x != x else v  # noqa: PLR0124


@njit(cache=True, error_model="numpy")
def tanh_f32(x):
    """Hyperbolic tangent of x, within one ulp for every x; odd in every bit."""
    a = absolute_f32(x)
    z = a * a
    p = (((((((_T11 * z) + _T9) * z) + _T7) * z) + _T5) * z) + _T3
    odd = a + ((a * z) * p)
    d = a - _TANH_X0
    q = (((((((((_A6 * d) + _A5) * d) + _A4) * d) + _A3) * d) + _A2) * d) + _A1
    middle = _TANH_T0 + (d * q)
    v = _ONE - (_TWO / (exp_f32(_TWO * a) + _ONE))
    v = middle if a < _ONE else v
    v = odd if a < _TANH_ODD_BELOW else v
    return copy_sign_f32(v, x)


@njit(cache=True, error_model="numpy")
def sigmoid_f32(x):
    """1 / (1 + e^-x) as written (three roundings and those of exp); +0 below -88.72."""
    return _ONE / (_ONE + exp_f32(-x))


@njit(cache=True, error_model="numpy")
def rsqrt_f32(x):
    """1 / sqrt(x): two correctly rounded operations."""
    return _ONE / np.sqrt(x)


@njit(cache=True, error_model="numpy")
def silu_gate_f32(g, u):
    """(g * sigmoid(g)) * u: the gate of Llama, Qwen and others (row 21)."""
    return (g * sigmoid_f32(g)) * u


@njit(cache=True, error_model="numpy")
def gelu_tanh_gate_f32(g, u):
    """((0.5 g) * (1 + tanh(c0 (g + c1 g^3)))) * u: the gate of Gemma (row 21)."""
    inner = _GELU_SCALE * (g + (_GELU_CUBE * ((g * g) * g)))
    return ((_HALF * g) * (_ONE + tanh_f32(inner))) * u
