"""Arrivals within a chain, re-derived from the op table: a row that does not hear its operand just in time is a V130."""

import numpy as np

from ticktrue.isa import Op
from ticktrue.program import Flat
from ticktrue.program import columns as col
from ticktrue.program.types import Int64
from ticktrue.sim.machine import Machine, shape_of, stagger_of
from ticktrue.sim.settle_kernel import MAP
from ticktrue.sim.verdict import CODE, Mismatch


def heard_at(flat: Flat, machine: Machine, source: Int64) -> Int64:
    """Cycle at which the result of `source` (row per row, -1: none) arrives, peer copies at their own time: int64[R]."""
    rows, stagger = flat.rows, stagger_of(flat)
    src = np.where(source >= 0, source, 0)
    fold = (rows[:, col.C_N] - 1) * rows[:, col.C_P] * (shape_of(rows) != MAP)
    first = rows[:, col.C_ISSUE] - stagger + fold + machine.arrival(rows)
    return np.where(source >= 0, first[src] + stagger, -1)


def plane_ready(flat: Flat, machine: Machine) -> Int64:
    """First cycle at which a PASS may use the tile of its INSTALL; -1 for other rows: int64[R]."""
    rows = flat.rows
    install = np.where(rows[:, col.C_OP] == Op.PASS, rows[:, col.C_S1], -1)
    i = np.where(install >= 0, install, 0)
    last = rows[i, col.C_ISSUE] + (rows[i, col.C_N] - 1) * rows[i, col.C_P] + rows[i, col.C_W]
    return np.where(install >= 0, last + int(machine.table.latency[Op.INSTALL]), -1)


def tie_mismatches(flat: Flat, machine: Machine, labels: tuple[str, ...]) -> list[Mismatch]:
    """Rows whose stated cycle is not the arrival of their operand, or that use a plane before it is ready."""
    rows, out = flat.rows, []
    issue, op = rows[:, col.C_ISSUE], rows[:, col.C_OP]
    for column in (col.C_S0, col.C_S1):
        source = np.where((column == col.C_S1) & (op == Op.PASS), -1, rows[:, column])
        heard = heard_at(flat, machine, source)
        for r in np.flatnonzero((heard >= 0) & (heard != issue)):
            src, now, then = int(source[r]), int(issue[r]), int(heard[r])
            text = f"row {rows[r, col.C_ROW]} ({Op(int(op[r])).name}) is issued at {now}"
            text += f", but hears row {rows[src, col.C_ROW]} ({Op(int(op[src])).name}) at {then}"
            out.append(_mismatch(int(rows[r, col.C_CHAIN]), now, then, text, labels))
    ready = plane_ready(flat, machine)
    for r in np.flatnonzero((ready >= 0) & (issue < ready)):
        now, then = int(issue[r]), int(ready[r])
        text = f"row {rows[r, col.C_ROW]} (PASS) is issued at {now}, but its plane is ready at {then}"
        out.append(_mismatch(int(rows[r, col.C_CHAIN]), now, then, text, labels))
    return out


def _mismatch(chain: int, stated: int, earliest: int, text: str, labels: tuple[str, ...]) -> Mismatch:
    return Mismatch(CODE, chain, stated, earliest, f"chain {label_of(labels, chain)}: {text}")


def label_of(labels: tuple[str, ...], chain: int) -> str:
    """The label of a chain, or its number where the timetable has none."""
    return labels[chain] if chain < len(labels) and labels[chain] else f"#{chain}"
