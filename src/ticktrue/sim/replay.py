"""The replay: earliest starts of all chains from the order of a timetable, held against the stated ones."""

import numpy as np

from ticktrue.errors import UsageError
from ticktrue.hw import System
from ticktrue.program import Flat, Program, StepKind, Timetable, expand, unroll
from ticktrue.program import columns as col
from ticktrue.sim.clock import deskew_cycles, deskew_mismatches
from ticktrue.sim.critical import critical_path, shares
from ticktrue.sim.machine import Machine
from ticktrue.sim.offset import local_pairs, offset_mismatches
from ticktrue.sim.order import Order, order_of
from ticktrue.sim.order_kernel import READ_AFTER_WRITE
from ticktrue.sim.result import ChainTimes, Timing
from ticktrue.sim.starts import RowTimes, duration_of, solve, stated_times
from ticktrue.sim.tie import label_of, tie_mismatches
from ticktrue.sim.use import unit_use
from ticktrue.sim.verdict import CODE, Mismatch
from ticktrue.sim.wellformed import check_rows
from ticktrue.units import Cycles, ceil_div


def pick(program: Program, kind: StepKind | Timetable | None) -> Timetable:
    """The timetable that is meant; without a kind, the only one.

    Raises:
        UsageError: T130 the program has none of that kind, or several and none is named.
    """
    if isinstance(kind, Timetable):
        return kind
    if kind is None and len(program.timetables) == 1:
        return program.timetables[0]
    found = program.timetable(kind) if kind else None
    if found is None:
        names = ", ".join(t.kind.label() for t in program.timetables)
        wanted = kind.label() if kind else "one of several"
        raise UsageError(
            f"expected a step kind of the program ({names}), found {wanted}", code="T130", where="kind"
        )
    return found


def simulate(program: Program, system: System, kind: StepKind | Timetable | None = None) -> Timing:
    """Times of one timetable, replayed cycle by cycle from the order of its rows alone.

    From the stated cycles only the order on each port, plane, link and vector is taken; every start is recomputed by longest
    path and compared. Cost grows with rows and touched vectors, not with cycles.

    Raises:
        UsageError: T130 the program has no such step kind.
        InputError: T361 a row that is none; `verify` says all that is wrong with it.
    """
    timetable = pick(program, kind)
    flat = expand(program.image, timetable, system)
    return replay(timetable, system, flat)


def replay(timetable: Timetable, system: System, flat: Flat) -> Timing:
    """As `simulate`, for rows already expanded."""
    timetable = unroll(timetable)
    check_rows(flat)
    machine = Machine.of(system, flat.plan)
    order = order_of(flat)
    times = stated_times(flat, machine)
    marked = timetable.chains[:, 2] != col.ON_TIME
    stated, none = flat.start, np.zeros(len(flat.start), dtype=np.int64)
    solution = solve(flat, order, times, np.where(marked, stated, none), none)
    chains = ChainTimes(stated, solution.earliest, marked)
    recomputed = duration_of(flat, solution.start, times)
    mismatches = tie_mismatches(flat, machine, timetable.labels)
    local = local_pairs(flat, order, times)
    mismatches += offset_mismatches(flat, machine, local, timetable.labels, mismatches)
    mismatches += _mismatches(timetable, chains, solution.settled, recomputed)
    mismatches += deskew_mismatches(timetable, system, flat.plan.chips)
    path = critical_path(flat, machine, order, times, timetable)
    causes, phases = shares(path)
    duration = Cycles(timetable.duration)
    return Timing(
        kind=timetable.kind,
        system=system.name,
        chips=flat.plan.chips,
        clock=system.clock,
        duration_cycles=duration,
        recomputed_cycles=Cycles(recomputed),
        unbound_cycles=_unbound(flat, order, times),
        deskew_cycles=deskew_cycles(duration, system, flat.plan.chips),
        gap_cycles=Cycles(system.chip.value("step_gap_cycles")),
        host_cycles=host_cycles(system, timetable.kind),
        rows=len(flat.rows),
        chains=chains,
        mismatches=tuple(mismatches),
        use=unit_use(flat, duration),
        causes=causes,
        phases=phases,
        path=path,
    )


def host_cycles(system: System, kind: StepKind) -> Cycles:
    """Cycles of the host's round trip between two steps: none where the chips choose the token."""
    if kind.sampler != "host":
        return Cycles(0)
    return Cycles(
        ceil_div(system.chip.value("host_round_trip_ns") * system.chip.value("clock_hz"), 1_000_000_000)
    )


def _unbound(flat: Flat, order: Order, times: RowTimes) -> Cycles:
    """Duration if chains waited for their data alone: no port, plane, link or vector is ever taken."""
    none = np.zeros(len(flat.start), dtype=np.int64)
    data = order.between.where(order.between.kind == READ_AFTER_WRITE)
    free = Order(
        data, order.inside, order.interleaved.where(np.zeros(len(order.interleaved.kind), dtype=np.bool_))
    )
    return Cycles(duration_of(flat, solve(flat, free, times, none, none).start, times))


def _mismatches(timetable: Timetable, chains: ChainTimes, settled: bool, recomputed: int) -> list[Mismatch]:
    """Chains off their earliest start, in order of stated start (the first is a cause), and a duration that differs."""
    out = []
    late, labels = chains.late, timetable.labels
    wrong = np.where(chains.marked, late <= 0, late != 0)
    for c in sorted(np.flatnonzero(wrong), key=lambda c: (int(chains.stated[c]), int(c))):
        stated, earliest = int(chains.stated[c]), int(chains.earliest[c])
        text = (
            f"chain {label_of(labels, int(c))} is stated at cycle {stated}, its earliest start is {earliest}"
        )
        text += ", yet it is marked late" if chains.marked[c] else ""
        out.append(Mismatch(CODE, int(c), stated, earliest, text))
    if not settled:
        text = "the stated order ties chains in a ring: no start satisfies it"
        out.append(Mismatch(CODE, -1, timetable.duration, recomputed, text))
    elif timetable.duration != recomputed:
        text = f"the duration is stated as {timetable.duration} cycles and recomputed as {recomputed}"
        out.append(Mismatch(CODE, -1, timetable.duration, recomputed, text))
    return out
