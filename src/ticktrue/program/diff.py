"""What differs between two programs, in the reader's terms; nothing exactly where they have one sha256.

Chains are compared by label and by content, so a template with another number is not a difference, a row that moved is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from ticktrue.program import columns as col
from ticktrue.program.codec import image_digest, program_digest, timetable_digest
from ticktrue.program.text_words import COLUMN_ENUMS, name_of
from ticktrue.program.types import Image, Program, Timetable

T = TypeVar("T")
ABSENT = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same. `section` groups like with like; an empty side does not have the thing at all."""

    section: str
    what: str
    first: str
    second: str

    def __str__(self) -> str:
        """One line."""
        if self.first == ABSENT:
            return f"{self.section} {self.what}: only in the second: {self.second}"
        if self.second == ABSENT:
            return f"{self.section} {self.what}: only in the first: {self.first}"
        return f"{self.section} {self.what}: {self.first} -> {self.second}"


def diff(first: Program, second: Program) -> tuple[Difference, ...]:
    """Every difference, the image's first; empty exactly where both have one sha256."""
    if program_digest(first) == program_digest(second):
        return ()
    found = list(_image(first.image, second.image))
    kinds = {t.kind.label(): t for t in first.timetables}, {t.kind.label(): t for t in second.timetables}
    for label, one, two in _paired(*kinds):
        if one is None or two is None:
            found.append(Difference("timetable", label, _summary(one), _summary(two)))
        elif timetable_digest(one) != timetable_digest(two):
            found += _timetable(label, one, two)
    order = [t.kind.label() for t in first.timetables], [t.kind.label() for t in second.timetables]
    if not found and order[0] != order[1]:
        found.append(Difference("timetables", "order", ", ".join(order[0]), ", ".join(order[1])))
    return tuple(found) or (Difference("program", "sha256", program_digest(first), program_digest(second)),)


def _summary(t: Timetable | None) -> str:
    return ABSENT if t is None else f"{len(t.chains):,} chains, {t.duration:,} cycles"


def _paired(a: Mapping[str, T], b: Mapping[str, T]) -> Iterator[tuple[str, T | None, T | None]]:
    """Things of equal name side by side: in the order of the first, then what only the second has."""
    for name in (*a, *(n for n in b if n not in a)):
        yield name, a.get(name), b.get(name)


def _named(items: Sequence[T]) -> dict[str, T]:
    """Things by name; the second of one name gets a number."""
    out: dict[str, T] = {}
    for item in items:
        name = str(getattr(item, "name", ""))
        number, unique = 1, name
        while unique in out:
            number += 1
            unique = f"{name}({number})"
        out[unique] = item
    return out


def _fields(section: str, what: str, a: object, b: object) -> Iterator[Difference]:
    """Fields of two values of one type that differ."""
    for f in fields(a):  # type: ignore[arg-type]  # a dataclass by construction
        one, two = getattr(a, f.name), getattr(b, f.name)
        if one == two:
            continue
        if is_dataclass(one) and is_dataclass(two):
            yield from _fields(section, f"{what}{f.name}.", one, two)
        else:
            yield Difference(section, f"{what}{f.name}", _shown(one), _shown(two))


def _shown(value: Any) -> str:  # noqa: ANN401 - whatever a field holds
    if isinstance(value, Enum):
        return value.name
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return text or "(empty)"


def _things(section: str, a: Sequence[T], b: Sequence[T]) -> Iterator[Difference]:
    """Named values of two tables, each field that differs; then a changed order."""
    one, two = _named(a), _named(b)
    clean = True
    for name, x, y in _paired(one, two):
        if x is None or y is None:
            clean = False
            yield Difference(section, name, _line(x), _line(y))
        elif x != y:
            clean = False
            yield from _fields(section, f"{name} ", x, y)
    if clean and list(one) != list(two):
        yield Difference(section, "order", ", ".join(one), ", ".join(two))


def _line(thing: object) -> str:
    if thing is None:
        return ABSENT
    return " ".join(f"{f.name}={_shown(getattr(thing, f.name))}" for f in fields(thing) if f.name != "name")  # type: ignore[arg-type]


def _image(a: Image, b: Image) -> Iterator[Difference]:
    if image_digest(a) == image_digest(b):
        return
    yield from _fields("key", "", a.key, b.key)
    yield from _things("tensor", a.tensors, b.tensors)
    yield from _things("region", a.regions, b.regions)
    for i in range(max(len(a.kv_scales), len(b.kv_scales))):
        one, two = (str(x.kv_scales[i]) if i < len(x.kv_scales) else ABSENT for x in (a, b))
        if one != two:
            yield Difference("kv_scale", str(i), one, two)
    if not np.array_equal(a.pieces, b.pieces):
        one, two = a.pieces.tolist(), b.pieces.tolist()
        if len(one) != len(two):
            yield Difference("pieces", "count", f"{len(one):,}", f"{len(two):,}")
        moved = [i for i, (x, y) in enumerate(zip(one, two, strict=False)) if x != y]
        for i in moved:
            changed = [(n, x, y) for n, x, y in zip(col.P_NAMES, one[i], two[i], strict=True) if x != y]
            yield Difference(
                "piece", str(i), _pairs((n, x) for n, x, _ in changed), _pairs((n, y) for n, _, y in changed)
            )


def _pairs(pairs: Iterator[tuple[str, int]]) -> str:
    return " ".join(f"{n}={v}" for n, v in pairs)


def _timetable(label: str, a: Timetable, b: Timetable) -> Iterator[Difference]:
    before = 0
    for found in _parts(label, a, b):
        before += 1
        yield found
    if before == 0:  # the same chains, numbered or shared in another way
        yield Difference(label, "sha256", timetable_digest(a), timetable_digest(b))


def _parts(label: str, a: Timetable, b: Timetable) -> Iterator[Difference]:
    if a.duration != b.duration:
        yield Difference(label, "duration_cycles", f"{a.duration:,}", f"{b.duration:,}")
    if a.deskew != b.deskew:
        yield Difference(label, "deskew_cycles", f"{a.deskew:,}", f"{b.deskew:,}")
    if a.dataflow != b.dataflow:
        yield Difference(label, "dataflow", a.dataflow or "(empty)", b.dataflow or "(empty)")
    yield from _things(f"{label} scratch", a.scratch, b.scratch)
    yield from _things(f"{label} output", a.outputs, b.outputs)
    for i in range(max(len(a.loops), len(b.loops))):
        one, two = (t.loops[i] if i < len(t.loops) else None for t in (a, b))
        if one is None or two is None:
            yield Difference(label, f"loop {i}", _line(one), _line(two))
        elif one != two:
            yield from _fields(label, f"loop {i} ", one, two)
    if len(a.templates) != len(b.templates) or len(a.template_start) != len(b.template_start):
        yield Difference(label, "templates", _templates(a), _templates(b))
    yield from _chains(f"{label} chain", a, b)


def _templates(t: Timetable) -> str:
    return f"{len(t.template_start) - 1:,} of {len(t.templates):,} rows in all"


@dataclass(frozen=True, slots=True)
class _Chain:
    """A chain with its template written out."""

    name: str
    start: int
    late: int
    template: tuple[tuple[int, ...], ...]
    rows: tuple[tuple[int, ...], ...]


def _written_out(t: Timetable) -> list[_Chain]:
    """All chains; a chain whose template does not exist has none, and rows past the end are left out."""
    start, table = t.template_start.tolist(), [tuple(r) for r in t.templates.tolist()]
    values, at, out = [tuple(r) for r in t.rows.tolist()], 0, []
    for c, (k, begin, late) in enumerate(t.chains.tolist()):
        template = tuple(table[start[k] : start[k + 1]]) if 0 <= k < len(start) - 1 else ()
        name = t.labels[c] if c < len(t.labels) else f"#{c}"
        out.append(_Chain(name, begin, late, template, tuple(values[at : at + len(template)])))
        at += len(template)
    return out


def _chains(section: str, a: Timetable, b: Timetable) -> Iterator[Difference]:
    one, two = _named(_written_out(a)), _named(_written_out(b))
    clean = True
    for name, x, y in _paired(one, two):
        if x is None or y is None:
            clean = False
            yield Difference(section, name, _brief(x), _brief(y))
        elif x != y:
            clean = False
            yield from _chain(section, name, x, y)
    if clean and list(one) != list(two):
        first = next(i for i, (x, y) in enumerate(zip(one, two, strict=True)) if x != y)
        yield Difference(section, f"order from chain {first}", list(one)[first], list(two)[first])


def _brief(chain: _Chain | None) -> str:
    return ABSENT if chain is None else f"{len(chain.rows)} rows at cycle {chain.start:,}"


def _chain(section: str, name: str, a: _Chain, b: _Chain) -> Iterator[Difference]:
    if a.start != b.start:
        yield Difference(section, f"{name} start", f"{a.start:,}", f"{b.start:,}")
    if a.late != b.late:
        yield Difference(section, f"{name} late", str(a.late), str(b.late))
    if len(a.template) != len(b.template):
        yield Difference(section, f"{name} rows", str(len(a.template)), str(len(b.template)))
        return
    for i, (x, y) in enumerate(zip(a.template, b.template, strict=True)):
        for c in range(col.T_COLUMNS):
            if x[c] != y[c]:
                kind = COLUMN_ENUMS.get(c)
                shown = (name_of(kind, v) if kind else str(v) for v in (x[c], y[c]))
                yield Difference(section, f"{name} row {i} {col.T_NAMES[c]}", *shown)
    for i, (x, y) in enumerate(zip(a.rows, b.rows, strict=False)):
        for c in range(col.V_COLUMNS):
            if x[c] != y[c]:
                yield Difference(section, f"{name} row {i} {col.V_NAMES[c]}", str(x[c]), str(y[c]))
