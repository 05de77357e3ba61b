"""What `ticktrue time` does: replay one timetable and tell all of it, or all of them and a line each."""

import sys

from ticktrue.cli.documents import TimeDocument, encode, header
from ticktrue.cli.hw_show import fact_part
from ticktrue.cli.kernels_watch import watch_kernels
from ticktrue.cli.output import Terminal
from ticktrue.cli.program_file import ProgramFile, machine_of, pick_timetable, read_file, tell_hypothetical
from ticktrue.cli.prove import require_legal
from ticktrue.cli.timing_parts import step_times, time_step
from ticktrue.hw import System
from ticktrue.program import Timetable
from ticktrue.report import timing_table
from ticktrue.sim import Assumed, Timing, simulate

ONE = 1


def perform(file: str, step: str, context: int | None, terminal: Terminal) -> int:
    """Times the program; gives the exit status."""
    source = read_file(file)
    system = machine_of(source)
    chosen = pick_timetable(source, step, context)
    wanted = (chosen,) if chosen else source.program.timetables
    with watch_kernels(terminal), terminal.stage("replaying"):
        require_legal(source.program, wanted, system, source.where)
        timed = [_time(source, t, system, whole=chosen is not None or terminal.json) for t in wanted]
    if terminal.json:
        terminal.document(encode(_document(source, system, timed)))
    else:
        tell_hypothetical(source.program.image.key, terminal)
        if chosen:
            terminal.line(timing_table(*timed[0]))
        else:
            _overview(timed, terminal)
    return 0 if all(t.clean for t, _ in timed) else 1


def _time(
    source: ProgramFile, timetable: Timetable, system: System, *, whole: bool
) -> tuple[Timing, tuple[Assumed, ...]]:
    if whole:
        return time_step(source.program, timetable, system)
    return simulate(source.program, system, timetable), ()


def _overview(timed: list[tuple[Timing, tuple[Assumed, ...]]], terminal: Terminal) -> None:
    rows = []
    for t, _ in timed:
        speed = f"{t.sim_tokens_per_s:,.0f}" if t.kind.tokens == ONE else ""
        rows.append((
            t.kind.label(), "clean" if t.clean else "NOT CLEAN", f"{64 * t.kind.blocks:,}", f"{t.duration_cycles:,}",
            f"{t.sim_duration_us:,.2f}", f"{t.sim_interval_us:,.2f}", speed,
        ))  # fmt: skip
    head = (
        "timetable",
        "replay",
        "reaches context",
        "cycles",
        "sim_us",
        "step to step sim_us",
        "sim tokens/s",
    )
    terminal.table(head, rows, left=2)
    terminal.note("--step LABEL or --context C shows where the cycles go")


def _document(
    source: ProgramFile, system: System, timed: list[tuple[Timing, tuple[Assumed, ...]]]
) -> TimeDocument:
    return TimeDocument(
        **header(sys.argv[1:]),
        file=source.where,
        program_sha256=source.decoded.computed,
        system=system.name,
        chips=system.chips,
        facts_sha256=system.fact_digest(),
        facts=tuple(fact_part(owner, fact) for owner, fact in system.facts()),
        steps=tuple(step_times(t, constants) for t, constants in timed),
    )
