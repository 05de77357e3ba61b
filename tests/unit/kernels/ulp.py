"""Errors in ulp, and functions in `decimal`: the reference of the tests of own functions."""

import math
from decimal import Decimal, localcontext

DIGITS = 50
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")


def ulps(found: float, exact: Decimal, *, bits: int = 24, lowest: int = -149) -> float:
    """|found - exact| in units of the last place that a binary float of `bits` bits has at `exact`."""
    _, exponent = math.frexp(float(exact))
    return float(abs(Decimal(float(found)) - exact) / Decimal(2) ** max(exponent - bits, lowest))


def log1p(x: Decimal) -> Decimal:
    """ln(1 + x), with enough digits for the smallest float32."""
    with localcontext() as context:
        context.prec = 100
        return (1 + x).ln()


def tanh(x: Decimal) -> Decimal:
    if abs(x) > 100:
        return Decimal(1).copy_sign(x)
    with localcontext() as context:
        context.prec = 150
        return 1 - 2 / ((2 * x).exp() + 1)


def sigmoid(x: Decimal) -> Decimal:
    return 1 / (1 + (-x).exp())


def cos_sin(angle: Decimal) -> tuple[Decimal, Decimal]:
    """Cosine and sine by Taylor series of the angle, taken to [-pi/4, pi/4]."""
    with localcontext() as context:
        context.prec = 70
        k = int((angle / (PI / 2)).to_integral_value())
        r = angle - k * (PI / 2)
        sums, term = [Decimal(0), Decimal(0)], Decimal(1)
        for n in range(44):
            sums[n % 2] += term if n % 4 < 2 else -term
            term = term * r / (n + 1)
        c, s = sums
        return ((c, s), (-s, c), (-c, -s), (s, -c))[k % 4]
