"""Finds the coefficients of `docs/numerics.md`, and prints them as hexadecimal floats.

    python tests/golden/find_coefficients.py

Polynomials are minimax fits by Remez exchange on a Chebyshev grid, in float64, of functions computed in
extended precision; then each coefficient is rounded to float32. Taylor coefficients and the parts of pi are
exact arithmetic.
"""

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from math import factorial, floor

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]
Function = Callable[[Reals], Reals]
Wide = np.longdouble


def remez(target: Function, weight: Function, powers: range, low: float, high: float) -> Reals:
    """Coefficients of x^power that minimise the largest |weight * (polynomial - target)| on [low, high]."""
    grid = (low + high) / 2 + (high - low) / 2 * np.cos(np.linspace(np.pi, 0, 4001))
    grid = grid[grid != 0]
    count = len(powers)
    w = weight(grid)
    basis = np.stack([grid**power for power in powers], axis=1) * w[:, None]
    wanted = target(grid) * w
    signs = np.where(np.arange(count + 1) % 2, -1.0, 1.0)
    points = np.round((np.arange(count + 1) + 0.5) / (count + 1) * (len(grid) - 1)).astype(int)
    for _ in range(60):
        system = np.concatenate([basis[points], signs[:, None]], axis=1)
        coefficients = np.linalg.solve(system, wanted[points])[:count]
        error = basis @ coefficients - wanted
        runs = np.split(np.arange(len(grid)), np.flatnonzero(np.diff(np.sign(error))) + 1)
        peaks = [run[np.argmax(np.abs(error[run]))] for run in runs]
        while len(peaks) > count + 1:
            peaks.pop(0 if abs(error[peaks[0]]) < abs(error[peaks[-1]]) else -1)
        if list(peaks) == list(points):
            return coefficients
        points = np.array(peaks)
    raise RuntimeError("the exchange did not settle")


def exp_coefficients() -> Reals:
    """c2..c6: (e^r - 1 - r) / r^2, relative to e^r."""

    def target(r: Reals) -> Reals:
        term = np.full(r.shape, Wide(0.5))
        total = term.copy()
        for k in range(3, 25):
            term = term * r.astype(Wide) / k
            total = total + term
        return total.astype(np.float64)

    edge = float(np.log(2) / 2 * 1.002)
    return remez(target, lambda r: r * r * np.exp(-r), range(5), -edge, edge)


def log_coefficients() -> Reals:
    """k3..k10: (ln(1+f) - f + f^2/2) / f^3, relative to ln(1+f)."""

    def target(f: Reals) -> Reals:
        x = f.astype(Wide)
        series = np.zeros_like(x)
        for k in range(40, 2, -1):
            series = series * x + Wide(1 if k % 2 else -1) / k
        far = (np.log1p(x) - x + x * x / 2) / x**3
        return np.where(np.abs(x) > 0.05, far, series).astype(np.float64)

    return remez(target, lambda f: np.abs(f**3 / np.log1p(f)), range(8), np.sqrt(0.5) - 1, np.sqrt(2) - 1)


def tanh_odd_coefficients() -> Reals:
    """t3, t5 .. t11: (tanh a - a) / a^3 in powers of a^2, relative to tanh a."""

    def target(a: Reals) -> Reals:
        x = a.astype(Wide)
        z = x * x
        near = z * (-Wide(17) / 315 + z * (Wide(62) / 2835 - z * Wide(1382) / 155925))
        near = -Wide(1) / 3 + z * (Wide(2) / 15 + near)
        return np.where(x > 0.02, (np.tanh(x) - x) / x**3, near).astype(np.float64)

    return remez(target, lambda a: a**3 / np.tanh(a), range(0, 10, 2), 1e-3, 0.626)


def tanh_centre() -> tuple[np.float32, np.float32]:
    """X0 and T0: of the 4,000 float32 around 0.8125, the one whose tanh comes closest to a float32."""
    middle = int(np.array(0.8125, np.float32).view(np.uint32))
    candidates = np.arange(middle - 2000, middle + 2000, dtype=np.uint32).view(np.float32)
    with localcontext() as context:
        context.prec = 40
        exact = [1 - 2 / ((2 * Decimal(float(x))).exp() + 1) for x in candidates]
        distance = [abs(value - Decimal(float(np.float32(float(value))))) for value in exact]
    best = distance.index(min(distance))
    return candidates[best], np.float32(float(exact[best]))


def tanh_middle_coefficients(centre: np.float32) -> Reals:
    """a1..a6: (tanh(X0 + d) - tanh X0) / d, absolute error of the product with d."""

    def target(d: Reals) -> Reals:
        at = np.tanh(Wide(centre))
        t = np.tanh(d.astype(Wide))
        return (t / d.astype(Wide) * (1 - at * at) / (1 + at * t)).astype(np.float64)

    return remez(target, np.abs, range(6), -0.1876, 0.1876)


def pi_to_80_digits() -> Fraction:
    """Pi by Machin's formula."""

    def arctan_of_inverse(n: int) -> Fraction:
        total, k = Fraction(0), 0
        while Fraction(1, (2 * k + 1) * n ** (2 * k + 1)) > Fraction(1, 10**82):
            total += Fraction((-1) ** k, (2 * k + 1) * n ** (2 * k + 1))
            k += 1
        return total

    return 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))


def half_pi_parts() -> tuple[float, float, float]:
    """P1, P2, P3: pi/2 cut at 2^-32 and at 2^-65, and the rest, rounded."""
    half = pi_to_80_digits() / 2
    first = Fraction(floor(half * 2**32), 2**32)
    second = Fraction(floor((half - first) * 2**65), 2**65)
    return float(first), float(second), float(half - first - second)


def taylor(orders: range) -> list[float]:
    """(-1)^(n div 2) / n! for each n, rounded once."""
    return [float(Fraction((-1) ** (n // 2), factorial(n))) for n in orders]


def main() -> None:
    centre, value = tanh_centre()
    rows = {
        "exp c2..c6": exp_coefficients(),
        "log k3..k10": log_coefficients(),
        "tanh t3..t11": tanh_odd_coefficients(),
        "tanh X0, T0": [centre, value],
        "tanh a1..a6": tanh_middle_coefficients(centre),
    }
    for name, numbers in rows.items():
        print(name, *(float(np.float32(number)).hex() for number in numbers))  # noqa: T201
    print("pi/2", *(part.hex() for part in half_pi_parts()))  # noqa: T201
    print("2/pi", float(2 / pi_to_80_digits()).hex())  # noqa: T201
    print("sin", *(c.hex() for c in taylor(range(3, 18, 2))))  # noqa: T201
    print("cos", *(c.hex() for c in taylor(range(4, 17, 2))))  # noqa: T201


if __name__ == "__main__":
    main()
