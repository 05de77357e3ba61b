"""Which assumed machine constants move a result: the timetable's order re-timed with each at its low and its high value.

Not a first-order estimate along one path: periods and offsets of every chain are solved again for the changed machine, then all
starts, in the same order on every port. What a scheduler would reorder, it does not see.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ticktrue.errors import InputError
from ticktrue.hw import Fact, System
from ticktrue.hw.fact import Grade
from ticktrue.isa import Op, Unit
from ticktrue.program import Flat, Program, StepKind, Timetable, expand
from ticktrue.program import columns as col
from ticktrue.program.expand import hold_cycles
from ticktrue.program.types import Int64
from ticktrue.sim.clock import deskew_cycles
from ticktrue.sim.machine import Machine, stagger_of
from ticktrue.sim.offset import Floors, local_pairs, solve_offsets, stated_base
from ticktrue.sim.order import Order, order_of, progression
from ticktrue.sim.order_kernel import PLANE, PORT, READ_AFTER_WRITE
from ticktrue.sim.queue import overflow
from ticktrue.sim.replay import host_cycles, pick
from ticktrue.sim.result import Timing
from ticktrue.sim.starts import RowTimes, duration_of, solve, stated_times
from ticktrue.units import Cycles

MOVES = 0.02  # a constant that moves a result by more is named beside it (issue 8, `ticktrue run`)

# How many there are of a thing decides which rows share it. Fewer ports: rows share them in the stated order. Fewer of the rest
# need another timetable. More of anything can at best end all waiting for it.
_PORTS = {
    "mem_groups": (Unit.MEM_WIDE, Unit.MEM_READ, Unit.MEM_WRITE),
    "mem_narrow_read_ports": (Unit.MEM_READ,),
    "mem_write_ports": (Unit.MEM_WRITE,),
    "vxm_ports": (Unit.VXM,),
    "sxm_ports": (Unit.SXM,),
}
_PLANES = frozenset({"mxm_byte_planes", "mxm_double_buffer"})
_STREAMS = "streams"
_SHAPES = frozenset({"chips", "vector_bytes", "mxm_rows_8bit", "mxm_cols"})
_STRUCTURE = _SHAPES | _PLANES | frozenset(_PORTS) | {_STREAMS}


@dataclass(frozen=True, slots=True)
class Assumed:
    """An assumed fact and the interval from step to step with it at its low and high value.

    `cycles_low`, `cycles_high` are None where that value needs another timetable (or cannot be). `bound` says that `cycles_high`
    is only a lower bound: nothing waits for this thing any more. `time_low`, `time_high` are simulated time against the best.
    """

    owner: str
    name: str
    unit: str
    grade: Grade
    low: float
    best: float
    high: float
    cycles_low: Cycles | None
    cycles_best: Cycles
    cycles_high: Cycles | None
    time_low: float | None
    time_high: float | None
    bound: bool

    @property
    def moves_ratio(self) -> float:
        """Largest relative change of the simulated time that is known."""
        return max((abs(t - 1) for t in (self.time_low, self.time_high) if t is not None), default=0.0)


@dataclass(frozen=True, slots=True)
class _Base:
    """What stays when the machine changes: rows, order, and what the timetable adds to least periods and offsets."""

    flat: Flat
    order: Order
    kind: StepKind
    local: Int64
    floors: Floors
    slack: Int64
    late: Int64
    machine: Machine
    duration: int
    overflow: int


def _base(flat: Flat, timing: Timing, system: System) -> _Base | None:
    """What the timetable states beyond the least, on its own machine; None if its chains have no solution."""
    machine, order = Machine.of(system, flat.plan), order_of(flat)
    local = local_pairs(flat, order, stated_times(flat, machine))
    zero = np.zeros(len(flat.rows), dtype=np.int64)
    _, p, _, q, w = progression(flat.rows)
    least = solve_offsets(flat, machine, local, w, Floors(zero, zero, zero))
    floors = Floors(np.where(p > least.p, p, 0), zero, q - least.q)
    again = solve_offsets(flat, machine, local, w, floors)
    if not (least.exist and again.exist):
        return None
    slack = stated_base(flat) - again.base
    late = np.where(timing.chains.marked, timing.chains.late, 0)
    return _Base(
        flat,
        order,
        timing.kind,
        local,
        floors,
        slack,
        late,
        machine,
        timing.duration_cycles,
        overflow(flat, machine, system),
    )


def _times(base: _Base, machine: Machine) -> RowTimes | None:
    """Row times on another machine, None if some chain cannot hang together there."""
    rows = base.flat.rows
    w = hold_cycles(machine.table, rows, machine.slots(rows))
    found = solve_offsets(base.flat, machine, base.local, w, base.floors)
    if (
        not found.exist
    ):  # two rows of one stream would meet on a port: a scheduler would take another port for one
        unit = rows[base.local[:, 1], col.C_UNIT]
        fixed = (base.local[:, 3] != PORT) | (unit == Unit.MXM_LOAD) | (unit == Unit.MXM_PLANE)
        found = solve_offsets(base.flat, machine, base.local[fixed], w, base.floors)
    if not found.exist:
        return None
    n, _, m, _, _ = progression(rows)
    offset = found.base + base.slack + stagger_of(replace(base.flat, table=machine.table))
    end = offset + (n - 1) * found.p + (m - 1) * found.q + w
    held = np.where(rows[:, col.C_OP] == Op.INSTALL, end, 0)
    passes = np.flatnonzero((rows[:, col.C_OP] == Op.PASS) & (rows[:, col.C_S1] >= 0))
    np.maximum.at(held, rows[passes, col.C_S1], end[passes])
    return RowTimes(offset, end, end + machine.write_end(rows), held, (n, found.p, m, found.q, w))


def _interval(base: _Base, system: System, order: Order, late: Int64) -> Cycles | None:
    """Cycles from step to step on `system`, in the given order; None if it needs another timetable."""
    machine = Machine.of(system, base.flat.plan)
    if overflow(base.flat, machine, system) > max(base.overflow, 0):
        return None
    if order is base.order and late is base.late and machine.same_as(base.machine):
        duration: int | None = base.duration
    else:
        duration = _duration(base, machine, order, late)
    if duration is None:
        return None
    gap = system.chip.value("step_gap_cycles")
    held = deskew_cycles(Cycles(duration), system, base.flat.plan.chips)
    return Cycles(duration + held + gap + host_cycles(system, base.kind))


def _duration(base: _Base, machine: Machine, order: Order, late: Int64) -> int | None:
    """Cycles of the step on another machine."""
    times = _times(base, machine)
    if times is None:
        return None
    zero = np.zeros(len(late), dtype=np.int64)
    solution = solve(base.flat, order, times, zero, late)
    if not solution.settled:
        solution = solve(base.flat, _forward(base.flat, order), times, zero, late)
    return duration_of(base.flat, solution.start, times) if solution.settled else None


def _forward(flat: Flat, order: Order) -> Order:
    """The order without pairs in which an earlier chain waits for a later one at a port.

    Such a weave of two rigid chains may not exist with other latencies. What is left underestimates the waiting.
    """
    chain, pairs = flat.rows[:, col.C_CHAIN], order.between
    place = np.empty(len(flat.start), dtype=np.int64)
    place[np.argsort(flat.start, kind="stable")] = np.arange(len(place))
    back = place[chain[pairs.first]] > place[chain[pairs.then]]
    return Order(pairs.where(~back | (pairs.kind == READ_AFTER_WRITE)), order.inside, order.interleaved)


def _without(base: _Base, name: str) -> Order:
    """The order without the pairs that exist only because there are not more of what `name` counts."""
    order = base.order

    def keep(kind: npt.NDArray[np.int8], first: Int64) -> npt.NDArray[np.bool_]:
        if name in _PLANES:
            return np.asarray(kind != PLANE)
        unit = base.flat.rows[first, col.C_UNIT]
        return np.asarray((kind != PORT) | ~np.isin(unit, [int(u) for u in _PORTS.get(name, ())]))

    between = order.between.where(keep(order.between.kind, order.between.first))
    return Order(between, order.inside, order.interleaved)


def _fewer(base: _Base, name: str, ports: int) -> Order:
    """The order with every row on port number modulo `ports`: rows that thereby meet follow each other as stated."""
    rows, table = base.flat.rows.copy(), base.flat.table
    for unit in _PORTS[name]:
        of = np.flatnonzero(rows[:, col.C_UNIT] == unit)
        group = np.where(unit <= Unit.MEM_WRITE, rows[of, col.C_GROUP], 0)
        inside = rows[of, col.C_PORT] - group * table.ports[unit]
        rows[of, col.C_PORT] = group * ports + inside % ports
    return order_of(replace(base.flat, rows=rows))


def _at(base: _Base, system: System, fact: Fact, value: float) -> tuple[Cycles | None, float | None]:
    """(cycles from step to step, seconds) with one fact at `value`."""
    if value == fact.value:
        cycles = _interval(base, system, base.order, base.late)
    elif fact.name in _PORTS and value < fact.value and fact.name != "mem_groups":
        fewer = system.with_fact(fact.name, int(value))
        cycles = _interval(base, fewer, _fewer(base, fact.name, int(value)), base.late)
    elif fact.name in _STRUCTURE:
        if value < fact.value or fact.name in _SHAPES:
            return None, None
        late = np.zeros_like(base.late) if fact.name == _STREAMS else base.late
        cycles = _interval(base, system, _without(base, fact.name), late)
    else:
        try:
            system = system.with_fact(fact.name, int(value))
        except InputError:
            return None, None
        cycles = _interval(base, system, base.order, base.late)
    return cycles, None if cycles is None else system.clock.seconds(cycles)


def assumed_constants(
    program: Program, system: System, timing: Timing, kind: StepKind | Timetable | None = None
) -> tuple[Assumed, ...]:
    """Every assumed fact of the machine with a range, those that move the time most first.

    Each value means one re-timing of the whole timetable (about 10 ms for 24,000 class rows), in the order stated: see the
    module. `timing` is the clean result for the same timetable.
    """
    timetable = pick(program, kind or timing.kind)
    flat = expand(program.image, timetable, system)
    base = _base(flat, timing, system)
    best = timing.interval_cycles
    seconds = system.clock.seconds(best)
    out = []
    for owner, fact in system.facts():
        if fact.grade != "assumed" or fact.low == fact.high:
            continue
        nothing: tuple[Cycles | None, float | None] = (None, None)
        low = _at(base, system, fact, fact.low) if base else nothing
        high = _at(base, system, fact, fact.high) if base else nothing
        out.append(Assumed(
            owner, fact.name, fact.unit, fact.grade, fact.low, fact.value, fact.high, low[0], best, high[0],
            _ratio(low[1], seconds), _ratio(high[1], seconds), fact.name in _STRUCTURE - _SHAPES,
        ))  # fmt: skip
    return tuple(sorted(out, key=lambda a: (-a.moves_ratio, a.owner, a.name)))


def movers(constants: tuple[Assumed, ...], least: float = MOVES) -> tuple[Assumed, ...]:
    """Those that move the simulated time by more than `least`, as a ratio."""
    return tuple(a for a in constants if a.moves_ratio > least)


def _ratio(seconds: float | None, best: float) -> float | None:
    return None if seconds is None else seconds / best
