"""Declared ranges of the runtime registers that choose a token: the host sets them at the entry of a step (docs/program.md, 2).

They change values only, never an address, a mask or a cycle; a value outside its range is an input error.
"""

from dataclasses import dataclass

from ticktrue.errors import InputError

TEMPERATURE_LEAST = 2.0**-10
TEMPERATURE_MOST = 2.0**10
SEED_END = 1 << 64
CHOICE_END = 1 << 32


@dataclass(frozen=True, slots=True)
class Draw:
    """Registers of one slot: `temperature` float32, 0 (greedy) or 2^-10 .. 2^10; `seed` 64 bits; `choice` 32 bits.

    Raises:
        InputError: T363 for a value outside its declared range.
    """

    temperature: float = 0.0
    seed: int = 0
    choice: int = 0

    def __post_init__(self) -> None:
        t = self.temperature
        if not (t == 0 or TEMPERATURE_LEAST <= t <= TEMPERATURE_MOST):
            raise InputError(f"expected 0 or {TEMPERATURE_LEAST} to {TEMPERATURE_MOST:g}, found {t}", code="T363",
                             where="temperature")  # fmt: skip
        for name, value, end in (("seed", self.seed, SEED_END), ("choice", self.choice, CHOICE_END)):
            if not 0 <= value < end:
                raise InputError(
                    f"expected a whole number of 0 to {end - 1}, found {value}", code="T363", where=name
                )


GREEDY = Draw()
