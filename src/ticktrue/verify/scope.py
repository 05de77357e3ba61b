"""One timetable as it is checked: its expanded rows, the machine, and how a culprit is named."""

from dataclasses import dataclass

import numpy as np

from ticktrue.hw import System
from ticktrue.isa import Op, Unit
from ticktrue.program import Flat, Image, Timetable
from ticktrue.program import columns as col
from ticktrue.program.types import Int64
from ticktrue.verify.stored import Mask, row_name
from ticktrue.verify.verdict import Findings, Violation

_UNIT_NAMES = {
    Unit.MEM_WIDE: "wide read port",
    Unit.MEM_READ: "read port",
    Unit.MEM_WRITE: "write port",
    Unit.MXM_LOAD: "MXM weight load",
    Unit.MXM_PLANE: "MXM byte plane ",
    Unit.VXM: "VXM",
    Unit.SXM: "SXM",
    Unit.C2C_SEND: "link",
    Unit.C2C_RECV: "link",
}


@dataclass(frozen=True, slots=True)
class Scope:
    """A timetable whose stored rows are sound, and its class rows on all chips.

    `timetable` has no loops. Where it stands for one with more iterations, these have `more_rows` class rows and take
    `more_cycles`.
    """

    image: Image
    timetable: Timetable
    system: System
    flat: Flat
    findings: Findings
    more_rows: int = 0
    more_cycles: int = 0

    @property
    def rows(self) -> Int64:
        """Class rows with every field resolved: int64[R, C_COLUMNS]."""
        return self.flat.rows

    def name(self, row: int) -> str:
        """A class row as violations name it; rows past the last are the outputs, read by the host."""
        if row >= len(self.rows):
            return f"host reading output {self.timetable.outputs[row - len(self.rows)].name}"
        r = self.rows[row]
        return row_name(
            self.timetable, int(r[col.C_CHAIN]), int(r[col.C_OP]), int(r[col.C_ROW]), int(r[col.C_K])
        )

    def port(self, row: int) -> str:
        """The port of a class row: VXM2, read port 1 of bank group 3."""
        unit, port = Unit(int(self.rows[row, col.C_UNIT])), int(self.rows[row, col.C_PORT])
        name = _UNIT_NAMES[unit]
        if unit <= Unit.MEM_WRITE:
            ports = int(self.flat.table.ports[unit])
            return f"{name} {port % ports} of bank group {port // ports}"
        return name if unit == Unit.MXM_LOAD else f"{name}{port}"

    def add(
        self, code: str, row: int, message: str, *, second: int = -1, chip: int = 0, cycle: int = -1
    ) -> None:
        """One violation whose first culprit is a class row."""
        at = int(self.rows[min(row, len(self.rows) - 1), col.C_ISSUE]) if cycle < 0 else cycle
        where = self.timetable.kind.label()
        if row < len(self.rows):
            where += f", chain {int(self.rows[row, col.C_CHAIN])} row {int(self.rows[row, col.C_ROW])}"
        other = self.name(second) if second >= 0 else ""
        self.findings.add(Violation(code, message, chip, at, self.name(row), other, where))

    def each(
        self, code: str, mask: Mask, text: str, values: Int64 | None = None, second: Int64 | None = None
    ) -> None:
        """One violation for each class row of `mask`; `{}` in `text` is the row's value, `second` names the other culprit."""
        rows = np.flatnonzero(mask)
        listed = rows[: self.findings.room].tolist()
        for row in listed:
            found = "" if values is None else f"{int(values[row]):_}"
            other = -1 if second is None else int(second[row])
            of = f" {self.name(other)}" if other >= 0 else ""
            cycle = int(self.rows[row, col.C_ISSUE])
            message = f"chip 0, cycle {cycle:_}: {self.name(row)} {text.replace('{}', found)}{of}"
            self.add(code, row, message, second=other, cycle=cycle)
        self.findings.count(len(rows) - len(listed))


def link_latency(scope: Scope) -> Int64:
    """Greatest latency in the tiers of each pattern's links, which all its RECEIVEs keep to: int64[patterns].

    One tier are the links inside trays, another those between them. As all messages on a link are then received equally long
    after they were sent, none overtakes another.
    """
    plan = scope.flat.plan
    matrix = scope.system.latency_matrix()[: plan.chips, : plan.chips].astype(np.int64)
    tray = np.arange(plan.chips) // (plan.tray or plan.chips)
    tier = (tray[:, None] != tray[None, :]).astype(np.int64)
    slowest = np.array([matrix[tier == t].max(initial=0) for t in (0, 1)], dtype=np.int64)
    return _slowest(scope, slowest[tier])


def link_slot(scope: Scope) -> Int64:
    """Longest slot of any link of each pattern: int64[patterns]."""
    return _slowest(scope, scope.system.slot_matrix())


def _slowest(scope: Scope, matrix: np.ndarray) -> Int64:
    plan = scope.flat.plan
    out = np.zeros(plan.patterns, dtype=np.int64)
    for pattern in range(plan.patterns):
        peers = plan.reach(pattern)[:, 1:]
        out[pattern] = matrix[np.arange(plan.chips)[:, None], peers].max(initial=0)
    return out


def sends(scope: Scope) -> Int64:
    """Class rows that SEND."""
    return np.flatnonzero(scope.rows[:, col.C_OP] == Op.SEND)
