"""A chip: its facts by name, and the number formats its matrix unit takes."""

from dataclasses import dataclass, field

from ticktrue.errors import InputError
from ticktrue.hw.chip_facts import CHIP_FACTS, SPEC_OF
from ticktrue.hw.fact import Fact, Grade, integer_value, nearest
from ticktrue.units import Clock, Hertz


@dataclass(frozen=True, slots=True)
class FormatSupport:
    """Whether the matrix unit takes a number format, and how sure that is.

    `absent` means known not to exist; the grade then tells how sure the absence is.
    """

    format: str
    grade: Grade
    absent: bool
    source: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Chip:
    """One chip: exactly the facts of `CHIP_FACTS`, each a whole number within its bounds.

    Raises:
        InputError: a fact is missing, unknown, named twice, in a wrong unit or out of bounds.
    """

    name: str
    facts: tuple[Fact, ...]
    mxm_formats: tuple[FormatSupport, ...]
    _by_name: dict[str, Fact] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {fact.name: fact for fact in self.facts})
        _check_names(self)
        for fact in self.facts:
            _check_fact(self.name, fact)

    @property
    def clock(self) -> Clock:
        """The clock that turns this chip's cycles into seconds."""
        return Clock(Hertz(self.value("clock_hz")))

    def fact(self, name: str) -> Fact:
        """The fact of that name.

        Raises:
            InputError: there is none; the hint names the nearest.
        """
        found = self._by_name.get(name)
        if found is None:
            raise InputError(
                f"expected a fact of chip {self.name}, found {name!r}",
                code="T372",
                hint=nearest(name, self._by_name),
            )
        return found

    def value(self, name: str) -> int:
        """The value of the fact of that name, in the unit that `CHIP_FACTS` gives it."""
        return integer_value(self.fact(name))

    def with_fact(self, name: str, value: int) -> "Chip":
        """This chip with one value replaced: for a sensitivity run or a user's `--set`."""
        new = self.fact(name).replaced(value)
        facts = tuple(new if fact.name == name else fact for fact in self.facts)
        return Chip(self.name, facts, self.mxm_formats)


def formats_allowed(chip: Chip, fmt: str, hypothetical: bool) -> Grade:
    """The grade of a number format on a chip; `assumed` for an absent one under `hypothetical`.

    Raises:
        InputError: the format is absent and `hypothetical` is false, or the chip says nothing about it.
    """
    support = next((item for item in chip.mxm_formats if item.format == fmt), None)
    if support is None:
        raise InputError(
            f"expected a number format that chip {chip.name} describes, found {fmt!r}",
            code="T373",
            hint=nearest(fmt, (item.format for item in chip.mxm_formats)),
        )
    if not support.absent:
        return support.grade
    if hypothetical:
        return "assumed"
    present = ", ".join(item.format for item in chip.mxm_formats if not item.absent)
    raise InputError(
        f"expected a number format that chip {chip.name} has ({present}), found {fmt}, known to be absent",
        code="T373",
        hint="choose another format, or pass --hypothetical; every result then says so",
    )


def _check_names(chip: Chip) -> None:
    """Checks that the chip has every fact of `CHIP_FACTS` once, and no other."""
    names = [fact.name for fact in chip.facts]
    where = f"chip {chip.name}"
    missing = [spec.name for spec in CHIP_FACTS if spec.name not in names]
    if missing:
        raise InputError(
            f"expected every chip fact, found none for {', '.join(missing)}", code="T370", where=where
        )
    unknown = [name for name in names if name not in SPEC_OF]
    if unknown:
        raise InputError(
            f"expected only known chip facts, found {unknown[0]!r}",
            code="T372",
            where=where,
            hint=nearest(unknown[0], SPEC_OF),
        )
    if len(set(names)) != len(names):
        raise InputError("expected each chip fact once, found one twice", code="T370", where=where)
    formats = [item.format for item in chip.mxm_formats]
    if len(set(formats)) != len(formats):
        raise InputError("expected each number format once, found one twice", code="T370", where=where)


def _check_fact(chip_name: str, fact: Fact) -> None:
    """Checks one fact against its specification: unit, whole number, bounds."""
    spec = SPEC_OF[fact.name]
    where = f"chip {chip_name}, fact {fact.name}"
    if fact.unit != spec.unit:
        raise InputError(f"expected the unit {spec.unit}, found {fact.unit}", code="T371", where=where)
    value = integer_value(fact)
    if value < spec.least:
        raise InputError(f"expected at least {spec.least}, found {value}", code="T371", where=where)
    if spec.greatest is not None and value > spec.greatest:
        raise InputError(f"expected at most {spec.greatest}, found {value}", code="T371", where=where)
