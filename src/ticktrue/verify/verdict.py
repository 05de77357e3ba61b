"""What `verify` answers: every violation as a value, and how much was looked at."""

from dataclasses import dataclass

LIMIT = 100
"""Violations that a verdict lists; it counts all of them."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule.

    `chip` and `cycle` are -1 where the rule is not about one; what does not depend on a chip's rank holds on all
    chips, and chip 0 is named. `first` and `second` name the culprits (label of the chain,
    op, row); `second` is empty where there is only one. `where` names the timetable and the field or row.
    """

    code: str
    message: str
    chip: int
    cycle: int
    first: str
    second: str
    where: str

    def __str__(self) -> str:
        """One line: code, message, place."""
        return f"{self.code}: {self.message} [{self.where}]"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a program is legal.

    `violations` holds the first `LIMIT` of `total`. `rows` counts class rows of all timetables that were expanded, `chips` the
    chips of the plan.
    """

    violations: tuple[Violation, ...]
    total: int
    timetables: int
    rows: int
    chips: int

    @property
    def clean(self) -> bool:
        """Whether no rule is broken."""
        return self.total == 0

    @property
    def codes(self) -> tuple[str, ...]:
        """Codes of the listed violations, each once, ascending."""
        return tuple(sorted({v.code for v in self.violations}))


class Findings:
    """Violations as they are found; keeps the first `limit`, counts all."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._kept: list[Violation] = []
        self.total = 0

    @property
    def room(self) -> int:
        """How many more will be kept."""
        return self._limit - len(self._kept)

    @property
    def kept(self) -> tuple[Violation, ...]:
        """The violations kept so far, in the order found."""
        return tuple(self._kept)

    def add(self, violation: Violation) -> None:
        """Takes one violation."""
        self.total += 1
        if self.room > 0:
            self._kept.append(violation)

    def count(self, more: int) -> None:
        """Counts violations that are not listed."""
        self.total += more

    def field(self, code: str, where: str, message: str) -> None:
        """A violation of a field: no chip, no cycle, the field is the culprit."""
        self.add(Violation(code, message, -1, -1, where, "", where))
