"""All rules of the machine in order: tables, fields, then rows in time. Each stage relies on what the one before has shown."""

from dataclasses import replace
from itertools import pairwise

from ticktrue.hw import System
from ticktrue.program import Flat, Image, Program, Timetable, expand, unroll
from ticktrue.verify.arrival import check_arrivals
from ticktrue.verify.clocks import check_clocks
from ticktrue.verify.fields import check_fields
from ticktrue.verify.image import check_image
from ticktrue.verify.indirect import check_addresses
from ticktrue.verify.kinds import check_kinds
from ticktrue.verify.links import check_links
from ticktrue.verify.loops import check_spans, shorten
from ticktrue.verify.machine import check_machine
from ticktrue.verify.memory import check_memory
from ticktrue.verify.operands import check_operands
from ticktrue.verify.ports import check_pace, check_ports, check_streams
from ticktrue.verify.registers import check_registers
from ticktrue.verify.scope import Scope
from ticktrue.verify.shape import stored_rows
from ticktrue.verify.verdict import Findings, Verdict


def verify(program: Program, system: System) -> Verdict:
    """Whether every timetable of a program is legal on `system`; all violations as values, none as an exception.

    Whatever integers stand in the tables, there is a verdict. What is legal holds for every input: registers are looked at over
    their whole range. A program that is legal expands, replays and executes without an error.
    """
    findings = Findings()
    rows = 0
    if check_image(program.image, system, findings):
        _kinds(program, findings)
        for timetable in program.timetables:
            rows += _timetable(program, timetable, system, findings)
    return Verdict(findings.kept, findings.total, len(program.timetables), rows, program.image.key.plan.chips)


def _kinds(program: Program, findings: Findings) -> None:
    kinds = [t.kind for t in program.timetables]
    for a, b in pairwise(kinds):
        if not a < b:
            findings.field(
                "V100",
                f"{b.label()}, kind",
                f"expected timetables in the order of their kinds, found it after {a.label()}",
            )


def _timetable(program: Program, timetable: Timetable, system: System, findings: Findings) -> int:
    """Checks one timetable; gives the number of its class rows, 0 where they could not be expanded."""
    before = findings.total
    stored = stored_rows(program.image, timetable, system, findings)
    if stored is None:
        return 0
    check_fields(stored, findings)
    check_operands(stored, findings)
    if findings.total == before:
        check_addresses(stored, findings)
    if findings.total == before:
        check_kinds(stored, findings)
    if findings.total > before:
        return 0
    if not timetable.loops:
        return check_rows(
            Scope(program.image, timetable, system, expand(program.image, timetable, system), findings)
        )
    once = expand(program.image, replace(timetable, loops=()), system)
    check_spans(timetable, once, findings)
    if findings.total > before:
        return 0
    # few iterations tell whether all are legal; which rows break a rule, and when, is told of all of them
    short = compact_scope(program.image, timetable, system, once)
    if short is not None:
        rows = check_rows(short)
        if short.findings.total == 0:
            return rows + short.more_rows
    flat = expand(program.image, timetable, system)
    return check_rows(Scope(program.image, unroll(timetable), system, flat, findings))


def compact_scope(image: Image, timetable: Timetable, system: System, once: Flat) -> Scope | None:
    """What stands for all iterations of a timetable's loops, with findings of its own; None where nothing can be left out.

    `once` holds every stored chain one time.
    """
    short = shorten(timetable, once)
    if not short.rows:
        return None
    flat = expand(image, short.timetable, system)
    return Scope(image, unroll(short.timetable), system, flat, Findings(), short.rows, short.cycles)


def check_rows(scope: Scope) -> int:
    """Checks the rows of a timetable in time; gives their number."""
    findings, before = scope.findings, scope.findings.total
    if not len(scope.rows):
        findings.field(
            "V112",
            f"{scope.timetable.kind.label()}, chains",
            "expected rows, found chains that only speak to peers",
        )
        return 0
    check_pace(scope)
    if findings.total == before:
        for check in (
            check_machine,
            check_clocks,
            check_arrivals,
            check_ports,
            check_streams,
            check_links,
            check_memory,
            check_registers,
        ):
            check(scope)
    return len(scope.rows)
