"""A number about a machine, with where it comes from, how sure it is, and the range it may lie in."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ticktrue.errors import InputError

Grade = Literal["published", "derived", "assumed"]


@dataclass(frozen=True, slots=True)
class Fact:
    """One machine constant.

    Attributes:
        value: the best figure, in `unit`.
        source: who says so; for an assumption, that it is one.
        date: of the source, as YYYY, YYYY-MM or YYYY-MM-DD.
        grade: published by a source; derived by arithmetic from published figures; or assumed.
        low: the least value still believed possible.
        high: the greatest value still believed possible.
        why: one line of reason, or the arithmetic of a derived figure.

    Raises:
        InputError: if the value does not lie in [low, high].
    """

    name: str
    value: int | float
    unit: str
    source: str
    date: str
    grade: Grade
    low: int | float
    high: int | float
    why: str

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise InputError(
                f"expected low <= value <= high, found {self.low} <= {self.value} <= {self.high}",
                code="T371",
                where=f"fact {self.name}",
                hint="correct the value, or widen the range with a reason",
            )

    def replaced(self, value: float) -> "Fact":
        """This fact with another value, marked as overridden; its range grows to hold the value."""
        return Fact(
            name=self.name,
            value=value,
            unit=self.unit,
            source=f"overridden (the catalog has {self.value}: {self.source})",
            date=self.date,
            grade="assumed",
            low=min(self.low, value),
            high=max(self.high, value),
            why=self.why,
        )


def integer_value(fact: Fact) -> int:
    """The value of a fact that counts something: bytes, cycles, lanes.

    Raises:
        InputError: if the value is not a whole number.
    """
    if isinstance(fact.value, int):
        return fact.value
    raise InputError(
        f"expected a whole number of {fact.unit}, found {fact.value}", code="T371", where=f"fact {fact.name}"
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint that lists the known names most like `name`, or all of them where none is like it."""
    names = sorted(known)
    like = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"did you mean {', '.join(like)}?" if like else f"known: {', '.join(names)}"
