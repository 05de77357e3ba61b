"""Timing -> document parts and lines: shared by `run` and `time`."""

from ticktrue.cli.documents import AssumedPart, MismatchPart, SharePart, StepTimes, UsePart
from ticktrue.hw import System
from ticktrue.program import Program, Timetable
from ticktrue.sim import Assumed, Timing, assumed_constants, movers, simulate


def time_step(program: Program, timetable: Timetable, system: System) -> tuple[Timing, tuple[Assumed, ...]]:
    """Times of one timetable, and the assumed constants that move them by more than 2 %."""
    timing = simulate(program, system, timetable)
    constants = movers(assumed_constants(program, system, timing, timetable)) if timing.clean else ()
    return timing, constants


def step_times(timing: Timing, constants: tuple[Assumed, ...]) -> StepTimes:
    """The times of one step kind as a part of a document."""
    return StepTimes(
        kind=timing.kind.label(),
        replay_clean=timing.clean,
        mismatches=tuple(
            MismatchPart(code=m.code, message=m.message, stated_cycle=m.stated, earliest_cycle=m.earliest)
            for m in timing.mismatches[:100]
        ),
        sim_cycles=timing.duration_cycles,
        sim_us=timing.sim_duration_us,
        sim_deskew_cycles=timing.deskew_cycles,
        sim_gap_cycles=timing.gap_cycles,
        sim_host_cycles=timing.host_cycles,
        sim_interval_cycles=timing.interval_cycles,
        sim_interval_us=timing.sim_interval_us,
        causes=tuple(
            SharePart(name=s.name, sim_cycles=s.cycles, ratio=_ratio(s.cycles, timing)) for s in timing.causes
        ),
        utilization=tuple(
            UsePart(
                unit=u.unit,
                ports=u.ports,
                busy_cycles=u.busy_cycles,
                utilization_ratio=round(u.utilization, 6),
            )
            for u in timing.use
        ),
        assumed=tuple(assumed_part(a) for a in constants),
    )


def _ratio(cycles: int, timing: Timing) -> float:
    return round(cycles / max(timing.duration_cycles, 1), 6)


def assumed_part(a: Assumed) -> AssumedPart:
    """An assumed constant as a part of a document."""
    return AssumedPart(
        owner=a.owner, name=a.name, unit=a.unit, grade=a.grade, low=a.low, best=a.best, high=a.high,
        sim_time_at_low_ratio=a.time_low, sim_time_at_high_ratio=a.time_high, high_is_a_bound=a.bound,
    )  # fmt: skip


def causes_line(timing: Timing, least: float = 0.01) -> str:
    """Where the cycles go, in percent of the step, largest first; what is below `least` is summed up."""
    total = max(timing.duration_cycles, 1)
    shares = sorted((s for s in timing.causes if s.cycles > 0), key=lambda s: (-s.cycles, s.name))
    large = [s for s in shares if s.cycles / total >= least]
    rest = sum(s.cycles for s in shares) - sum(s.cycles for s in large)
    words = [f"{s.name} {100 * s.cycles / total:.0f} %" for s in large]
    if rest / total >= least / 2:
        words.append(f"other {100 * rest / total:.0f} %")
    return ", ".join(words)
