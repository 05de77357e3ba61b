"""How busy each unit is: busy cycles of its ports against ports x duration."""

import numpy as np

from ticktrue.isa import Op, Unit
from ticktrue.program import Flat
from ticktrue.program import columns as col
from ticktrue.program.types import Int64
from ticktrue.sim.result import UnitUse
from ticktrue.units import Cycles

_NAMES = {
    Unit.MEM_WIDE: "MEM wide read",
    Unit.MEM_READ: "MEM read",
    Unit.MEM_WRITE: "MEM write",
    Unit.MXM_LOAD: "MXM weight load",
    Unit.MXM_PLANE: "MXM pass",
    Unit.VXM: "VXM",
    Unit.SXM: "SXM",
    Unit.C2C_SEND: "C2C send",
    Unit.C2C_RECV: "C2C receive",
}
_MEMORY = (Unit.MEM_WIDE, Unit.MEM_READ, Unit.MEM_WRITE)
_DTYPE_BYTES = np.array([2, 4, 1, 1], dtype=np.int64)


def unit_name(unit: Unit) -> str:
    """What a reader calls a unit."""
    return _NAMES[unit]


def ports_of(flat: Flat, unit: Unit) -> int:
    """Ports of a unit on one chip: over all bank groups for memory, byte planes for the MXM, joined chips for links."""
    if unit in _MEMORY:
        return int(flat.table.ports[unit]) * flat.table.mem_groups
    if unit in {Unit.C2C_SEND, Unit.C2C_RECV}:
        tray = flat.plan.tray or flat.plan.chips
        return tray - 1 + flat.plan.chips // tray - 1
    return int(flat.table.ports[unit])


def row_busy(flat: Flat) -> Int64:
    """Port cycles that each row takes: events x w, and for a PASS the byte planes that it drives: int64[R]."""
    rows = flat.rows
    busy = rows[:, col.C_N] * rows[:, col.C_M] * rows[:, col.C_W]
    is_pass = (rows[:, col.C_OP] == Op.PASS) & (rows[:, col.C_S1] >= 0)
    install = np.where(is_pass, rows[:, col.C_S1], 0)
    out: Int64 = np.where(is_pass, busy * _DTYPE_BYTES[rows[install, col.C_DTYPE]], busy)
    return out


def unit_use(flat: Flat, duration: Cycles) -> tuple[UnitUse, ...]:
    """Use of every unit that the plan has ports of. Rows are the same on all chips, so one chip stands for all."""
    busy = np.bincount(flat.rows[:, col.C_UNIT], weights=row_busy(flat), minlength=len(Unit)).astype(np.int64)
    out = []
    for unit in Unit:
        ports, cycles = ports_of(flat, unit), int(busy[unit])
        if ports:
            out.append(UnitUse(unit_name(unit), ports, Cycles(cycles), cycles / max(ports * duration, 1)))
    return tuple(out)
