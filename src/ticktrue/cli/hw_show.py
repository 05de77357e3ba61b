"""One system in full: every number, where it comes from and how sure it is."""

import sys

from ticktrue.cli.documents import FactPart, FormatPart, SystemDocument, encode, header
from ticktrue.cli.output import Terminal
from ticktrue.hw import Fact, System


def fact_part(owner: str, fact: Fact) -> FactPart:
    """A fact as a part of a document."""
    return FactPart(
        owner=owner, name=fact.name, value=fact.value, unit=fact.unit, grade=fact.grade, low=fact.low, high=fact.high,
        source=fact.source, date=fact.date, why=fact.why,
    )  # fmt: skip


def tell(system: System, terminal: Terminal) -> None:
    """Prints the system."""
    formats = system.chip.mxm_formats
    if terminal.json:
        parts = tuple(FormatPart(format=f.format, grade=f.grade, absent=f.absent, why=f.why) for f in formats)
        document = SystemDocument(
            **header(sys.argv[1:]), name=system.name, title=system.title, chip=system.chip.name, chips=system.chips,
            facts_sha256=system.fact_digest(), hops=system.hop_classes, formats=parts,
            facts=tuple(fact_part(owner, fact) for owner, fact in system.facts()),
        )  # fmt: skip
        terminal.document(encode(document))
        return
    terminal.line(f"{system.name}: {system.title}")
    terminal.line(
        f"{system.chips} chips {system.chip.name}, links: {', '.join(system.hop_classes) or 'none'}"
    )
    terminal.line(f"facts sha256 {system.fact_digest()}")
    terminal.line()
    facts = system.facts()
    sources = {_short(f.source): f.source for _, f in facts if _short(f.source) != f.source}
    rows = [
        (owner, f.name, f.unit, f.grade, _short(f.source), _number(f.value), _range(f)) for owner, f in facts
    ]
    terminal.table(("of", "number", "unit", "grade", "source", "value", "range"), rows, left=5)
    terminal.line()
    has = [(f.format, "absent" if f.absent else "yes", f.grade, f.why) for f in formats]
    terminal.table(("matrix format", "has it", "grade", "why"), has, left=4)
    terminal.line()
    for short, source in sorted(sources.items()):
        terminal.line(f"{short:6s} {source.partition(': ')[2]}")
    terminal.note("--json adds the date of each source and the reason for each number")


def _short(source: str) -> str:
    """The key of a source, e.g. NVB1 of "NVB1: title url"."""
    key, colon, _ = source.partition(":")
    return key if colon and key.isalnum() else source


def _number(value: float) -> str:
    return f"{value:,}"


def _range(fact: Fact) -> str:
    return "" if fact.low == fact.high else f"{_number(fact.low)} .. {_number(fact.high)}"
