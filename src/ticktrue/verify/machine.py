"""What a timetable asks of the whole machine: its end, its code, and clocks that stay close enough (V100, V109, V113, V114)."""

import numpy as np

from ticktrue.isa import Op, Unit
from ticktrue.isa.ops import VECTOR_BYTES
from ticktrue.program import RegionClass
from ticktrue.program import columns as col
from ticktrue.units import ceil_div
from ticktrue.verify.scope import Scope, sends

MILLION = 1_000_000


def check_machine(scope: Scope) -> None:
    """Finds a duration that is not the end, code that does not fit, and clocks that may drift apart."""
    _duration(scope)
    _code(scope)
    if len(sends(scope)):
        _clocks(scope)


def _duration(scope: Scope) -> None:
    rows = scope.rows
    end = rows[:, col.C_ISSUE] + rows[:, col.C_SPAN]
    end = end + np.where(rows[:, col.C_UNIT] == Unit.MEM_WRITE, scope.flat.table.latency[Op.STORE], 0)
    end = end + np.where(rows[:, col.C_OP] == Op.LATCH, scope.flat.table.latency[Op.LATCH], 0)
    last = int(np.argmax(end))
    if scope.timetable.duration != end[last]:
        found = scope.timetable.duration
        message = f"expected a duration of {int(end[last]):_} cycles, the end of {scope.name(last)}, found {found:_}"
        scope.add("V100", last, message)


def _code(scope: Scope) -> None:
    """Each class row is one instruction on every chip."""
    held = sum(r.vectors for r in scope.image.regions if r.cls == RegionClass.CODE)
    size = len(scope.rows) * scope.system.chip.value("code_bytes_per_row")
    if size > held * VECTOR_BYTES:
        where = scope.timetable.kind.label()
        message = f"{len(scope.rows):_} rows need {ceil_div(size, VECTOR_BYTES):_} vectors of code, the image reserves {held:_}"
        scope.findings.field("V109", f"{where}, code", message)


def _clocks(scope: Scope) -> None:
    """Steps start aligned, and the queues align again each epoch: clocks drift for the shorter of step and epoch."""
    chip = scope.system.chip
    epoch, hold, guard = chip.value("epoch_cycles"), chip.value("deskew_hold_cycles"), scope.flat.table.guard
    duration, first = scope.timetable.duration, int(sends(scope)[0])
    if duration > epoch and hold >= epoch:
        scope.add(
            "V114",
            first,
            f"a step of {duration:_} cycles is aligned every {epoch:_} cycles, but an alignment holds for {hold:_}",
        )
    drift = 2 * chip.value("drift_ppm") * min(duration, epoch)
    spare = (guard - chip.value("skew0_cycles")) * MILLION
    if drift > spare:
        bound = chip.value("skew0_cycles") + ceil_div(drift, MILLION)
        after = f"{min(duration, epoch):_} cycles after an alignment"
        message = f"clocks may differ by {bound} cycles, {after}; the guard of links is {guard}"
        scope.add("V113", first, message)
