"""Simulated times as text: the step, where its cycles go, how busy the units are, which assumptions matter."""

from collections.abc import Sequence

from ticktrue.report.columns import count, percent, table
from ticktrue.report.verdict import verdict_table
from ticktrue.sim import Assumed, Share, Timing, UnitUse

PHASES = 12


def timing_table(timing: Timing, constants: Sequence[Assumed] = ()) -> str:
    """All that is known of one timetable's time; of a program that is not clean only what is wrong with it.

    `constants` are the assumed facts to be named with the result.
    """
    head = f"{timing.kind.label()} on {timing.chips} chip{'s' * (timing.chips != 1)} of {timing.system}"
    if not timing.clean:
        return f"{head}\n{verdict_table(timing.mismatches)}"
    parts = [
        head,
        _times(timing),
        share_table("where the cycles go", timing.causes, timing.duration_cycles),
        share_table("by phase", timing.phases, timing.duration_cycles, PHASES),
        use_table(timing.use),
    ]
    if constants:
        parts.append(assumed_table(constants))
    return "\n\n".join(parts)


def _times(timing: Timing) -> str:
    rows = [("duration", timing.duration_cycles), ("clock alignment", timing.deskew_cycles)]
    rows += [("gap between steps", timing.gap_cycles), ("host round trip", timing.host_cycles)]
    rows += [("step to step", timing.interval_cycles), ("data alone, nothing shared", timing.unbound_cycles)]
    shown = [(n, count(c), f"{timing.clock.seconds(c) * 1e6:,.2f}") for n, c in rows if c]
    text = table(("simulated time", "cycles", "sim_us"), shown)
    if timing.kind.tokens == 1:
        text += f"\n{timing.sim_tokens_per_s:,.1f} simulated tokens/s for one sequence"
    return text


def share_table(title: str, shares: Sequence[Share], duration: int, most: int = 0) -> str:
    """Shares of the critical path; those beyond the first `most` (0: none) in one line."""
    shown = list(shares if not most else shares[:most])
    rows = [(s.name, count(s.cycles), percent(s.cycles / max(duration, 1))) for s in shown]
    rest = sum(s.cycles for s in shares) - sum(s.cycles for s in shown)
    if rest:
        rows.append((f"{len(shares) - len(shown)} others", count(rest), percent(rest / max(duration, 1))))
    return table((f"{title} (critical path)", "cycles", "share"), rows)


def use_table(use: Sequence[UnitUse]) -> str:
    """Busy cycles of each unit's ports on one chip, and what part of the step that is."""
    rows = [(u.unit, count(u.ports), count(u.busy_cycles), percent(u.utilization)) for u in use]
    return table(("unit", "ports", "busy cycles", "utilization"), rows)


def assumed_table(constants: Sequence[Assumed]) -> str:
    """Assumed facts, each with its range and the cycles from step to step at both ends of it."""
    rows = []
    for a in constants:
        low, high = _cycles(a.cycles_low), _cycles(a.cycles_high)
        scale = f"{a.low:,} .. {a.best:,} .. {a.high:,} {a.unit}"
        rows.append((a.name, a.grade, scale, low, f"{'≥ ' * (a.bound and high != '?')}{high}"))
    head = ("constant", "grade", "low .. best .. high", "step at low", "step at high")
    return table(head, rows, left=3)


def _cycles(cycles: int | None) -> str:
    return "?" if cycles is None else count(cycles)
