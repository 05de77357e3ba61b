"""What the replay holds against a program: stated cycles that differ from the earliest ones. Values, not exceptions."""

from dataclasses import dataclass

CODE = "V130"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A stated cycle that is not the one which the order of the program gives.

    `chain` is -1 where the whole timetable is meant (its duration). `stated` and `earliest` are cycles of the step.
    """

    code: str
    chain: int
    stated: int
    earliest: int
    message: str

    @property
    def late_cycles(self) -> int:
        """Cycles by which the stated time lies after the earliest (negative: before it, so it cannot be kept)."""
        return self.stated - self.earliest
