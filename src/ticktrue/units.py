"""Units in the type system: cycles, bytes, hertz and tokens are integers; seconds appear only through a `Clock`."""

from dataclasses import dataclass
from typing import NewType

Cycles = NewType("Cycles", int)
Bytes = NewType("Bytes", int)
Hertz = NewType("Hertz", int)
Tokens = NewType("Tokens", int)


def ceil_div(a: int, b: int) -> int:
    """⌈a / b⌉ in integers, for b > 0."""
    return -(-a // b)


@dataclass(frozen=True, slots=True)
class Clock:
    """The only door from simulated cycles to simulated seconds."""

    hertz: Hertz

    def seconds(self, cycles: Cycles) -> float:
        """Simulated seconds that `cycles` take."""
        return cycles / self.hertz

    def cycles_ceil(self, nanoseconds: int) -> Cycles:
        """Whole cycles that cover `nanoseconds`, rounded up."""
        return Cycles(ceil_div(nanoseconds * self.hertz, 1_000_000_000))
