"""The TOML files of the catalog as typed records: the boundary, where every error of form is found.

A fact of grade `assumed` without a range gets half and double its value, a published one its value alone.
"""

import tomllib
from typing import Annotated, Literal, TypeVar

import msgspec

from ticktrue.errors import InputError
from ticktrue.hw.chip import Chip, FormatSupport
from ticktrue.hw.fact import Fact, Grade, nearest
from ticktrue.hw.gpu import Gpu
from ticktrue.hw.system import HopRule, Layout

Text = Annotated[str, msgspec.Meta(min_length=1)]
Date = Annotated[str, msgspec.Meta(pattern=r"^\d{4}(-\d{2}){0,2}$")]


class SourceEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where figures come from: a paper, a page, or ourselves."""

    title: Text
    date: Date
    url: str = ""


class SourcesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All sources of a catalog by key."""

    schema: Literal["ticktrue/sources/v1"]
    source: dict[str, object]


class FactEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fact; `source` is a key of the sources file."""

    value: int | float
    unit: Text
    grade: Grade
    source: Text
    why: Text
    low: int | float | None = None
    high: int | float | None = None


class FormatEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of one number format of the matrix unit."""

    grade: Grade
    source: Text
    why: Text
    absent: bool = False


class ChipFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A chip."""

    schema: Literal["ticktrue/chip/v1"]
    name: Text
    format: dict[str, object]
    fact: dict[str, object]


class HopEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A class of links; its numbers are names of facts of the same file."""

    name: Text
    group: Text
    lanes: Text
    latency: Text
    index: str = ""
    ports: str = ""


class SystemFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A system."""

    schema: Literal["ticktrue/system/v1"]
    name: Text
    title: Text
    chip: Text
    hop: list[HopEntry]
    fact: dict[str, object]
    reserved: list[str] = []
    reference: list[str] = []


class GpuFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A GPU; `curve` names a measured all-reduce curve."""

    schema: Literal["ticktrue/gpu/v1"]
    name: Text
    title: Text
    fact: dict[str, object]
    curve: str = ""


T = TypeVar("T")


def decode(text: str, kind: type[T], where: str) -> T:
    """The text of a catalog file as a record of that kind.

    Raises:
        InputError: not TOML, an unknown or missing key, or a value of a wrong type; the message names it.
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as err:
        raise InputError(f"expected TOML, found: {err}", code="T370", where=where) from err
    return _convert(tree, kind, where)


def chip_of(file: ChipFile, sources: SourcesFile, where: str) -> Chip:
    """The chip that a file describes."""
    formats = tuple(
        _format(name, raw, sources, f"{where}, format {name}") for name, raw in file.format.items()
    )
    return Chip(file.name, _facts(file.fact, sources, where), formats)


def gpu_of(file: GpuFile, sources: SourcesFile, where: str) -> Gpu:
    """The GPU that a file describes."""
    return Gpu(file.name, file.title, file.curve, _facts(file.fact, sources, where))


def layout_of(file: SystemFile, sources: SourcesFile, where: str) -> Layout:
    """The layout that a file describes.

    Raises:
        InputError: a fact that no hop, `chips`, `reserved` or `reference` names, or one that they name and that is missing.
    """
    rules = tuple(
        HopRule(hop.name, hop.group, hop.index, hop.lanes, hop.latency, hop.ports) for hop in file.hop
    )
    used = {"chips", *file.reserved, *file.reference}
    for rule in rules:
        used |= {rule.group, rule.index, rule.lanes, rule.latency, rule.ports} - {""}
    for name in file.fact:
        if name not in used:
            raise InputError(
                f"expected only facts that a hop, `reserved` or `reference` names, found {name!r}",
                code="T370",
                where=where,
                hint=nearest(name, used),
            )
    missing = sorted(used - set(file.fact))
    if missing:
        raise InputError(
            f"expected every fact that a hop, `reserved` or `reference` names, found none for {', '.join(missing)}",
            code="T370",
            where=where,
        )
    return Layout(_facts(file.fact, sources, where), rules, tuple(file.reserved), tuple(file.reference))


def _convert(tree: object, kind: type[T], where: str) -> T:
    """A tree of TOML values as a record."""
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as err:
        raise InputError(f"expected the form of the catalog: {err}", code="T370", where=where) from err


def _format(name: str, raw: object, sources: SourcesFile, where: str) -> FormatSupport:
    """One number format of a chip."""
    entry = _convert(raw, FormatEntry, where)
    citation = _citation(_source(entry.source, sources, where), entry.source)
    return FormatSupport(name, entry.grade, entry.absent, citation, entry.why)


def _facts(entries: dict[str, object], sources: SourcesFile, where: str) -> tuple[Fact, ...]:
    """The facts of a file."""
    return tuple(_fact(name, raw, sources, f"{where}, fact {name}") for name, raw in entries.items())


def _fact(name: str, raw: object, sources: SourcesFile, where: str) -> Fact:
    """One fact, its source spelled out and its range filled in."""
    entry = _convert(raw, FactEntry, where)
    source = _source(entry.source, sources, where)
    low, high = _range(entry, where)
    try:
        return Fact(
            name=name,
            value=entry.value,
            unit=entry.unit,
            source=_citation(source, entry.source),
            date=source.date,
            grade=entry.grade,
            low=low,
            high=high,
            why=entry.why,
        )
    except InputError as err:
        raise InputError(err.message, code=err.code, where=where, hint=err.hint) from err


def _range(entry: FactEntry, where: str) -> tuple[int | float, int | float]:
    """The range of a fact: as given; else half to double if assumed, the value alone if published."""
    if entry.low is not None and entry.high is not None:
        return entry.low, entry.high
    if entry.low is not None or entry.high is not None or entry.grade == "derived":
        raise InputError(
            "expected both low and high (a derived fact needs them), found one or none",
            code="T371",
            where=where,
        )
    if entry.grade == "published":
        return entry.value, entry.value
    half = entry.value // 2 if isinstance(entry.value, int) else entry.value / 2
    return half, 2 * entry.value


def _source(key: str, sources: SourcesFile, where: str) -> SourceEntry:
    """The source of that key."""
    if key not in sources.source:
        raise InputError(
            f"expected a key of sources.toml, found {key!r}",
            code="T370",
            where=where,
            hint=nearest(key, sources.source),
        )
    return _convert(sources.source[key], SourceEntry, f"sources.toml, source {key}")


def _citation(source: SourceEntry, key: str) -> str:
    """The source in one line."""
    return f"{key}: {source.title} {source.url}".rstrip()
