"""What a timetable asks of the whole machine: its end and its code (V100, V109)."""

import numpy as np

from ticktrue.isa import Op, Unit
from ticktrue.isa.ops import VECTOR_BYTES
from ticktrue.program import RegionClass
from ticktrue.program import columns as col
from ticktrue.units import ceil_div
from ticktrue.verify.scope import Scope


def check_machine(scope: Scope) -> None:
    """Finds a duration that is not the end, and code that does not fit."""
    _duration(scope)
    _code(scope)


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
    count = len(scope.rows) + scope.more_rows
    size = count * scope.system.chip.value("code_bytes_per_row")
    if size > held * VECTOR_BYTES:
        where = scope.timetable.kind.label()
        message = f"{count:_} rows need {ceil_div(size, VECTOR_BYTES):_} vectors of code, the image reserves {held:_}"
        scope.findings.field("V109", f"{where}, code", message)
