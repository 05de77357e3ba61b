"""The stored rows of a timetable side by side with their templates, as int64 columns, and how a row is named to the reader."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ticktrue.hw import System
from ticktrue.isa import Kind, Op, OpTable, Unit
from ticktrue.isa.ops import OPS
from ticktrue.program import Image, Region, Timetable
from ticktrue.program import columns as col
from ticktrue.program.types import Int64
from ticktrue.verify.verdict import Findings, Violation

Mask = npt.NDArray[np.bool_]

KIND = np.array([int(i.kind) for i in OPS], dtype=np.int64)
STREAMS = np.array([i.streams for i in OPS], dtype=np.int64)
UNIT = np.array([int(i.units[0]) for i in OPS], dtype=np.int64)
WRITES = np.array([i.units[0] == Unit.MEM_WRITE for i in OPS])
READS = np.array([i.units[0] == Unit.MEM_READ for i in OPS])
MEMORY = WRITES | READS
LINK = np.array([i.op in {Op.SEND, Op.RECEIVE} for i in OPS])
YIELDS = np.array([i.kind in {Kind.SOURCE, Kind.MAP, Kind.REDUCE, Kind.RESHAPE, Kind.PASS} for i in OPS])
"""Ops whose result lies on streams."""

ELEMENT_BYTES = np.array([2, 4, 1, 1], dtype=np.int64)
"""Bytes of an element by dtype: bf16, float32. Others are not in this version of the format."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Class rows of one timetable before peers are written out.

    `t` int64[V, T_COLUMNS] template fields, `v` int64[V, V_COLUMNS] fields of the row, `chain` int64[V], `local` int64[V] index
    within the template.
    """

    image: Image
    timetable: Timetable
    system: System
    table: OpTable
    regions: tuple[Region, ...]
    t: Int64
    v: Int64
    chain: Int64
    local: Int64

    @property
    def op(self) -> Int64:
        """Op of each row."""
        return self.t[:, col.T_OP]

    @property
    def where(self) -> str:
        """The timetable, as violations name it."""
        return self.timetable.kind.label()

    def name(self, row: int) -> str:
        """A row as violations name it."""
        chain = int(self.chain[row])
        return row_name(self.timetable, chain, int(self.t[row, col.T_OP]), int(self.local[row]))

    def each(self, findings: Findings, code: str, mask: Mask, text: str, values: Int64 | None = None) -> None:
        """One violation for each row of `mask`; `{}` in `text` is the row's value."""
        rows = np.flatnonzero(mask)
        listed = rows[: findings.room].tolist()
        for row in listed:
            found = "" if values is None else f"{int(values[row]):_}"
            message = f"{self.name(row)}: {text.replace('{}', found)}"
            place = f"{self.where}, chain {int(self.chain[row])} row {int(self.local[row])}"
            cycle = int(self.timetable.chains[self.chain[row], 1] + self.t[row, col.T_OFFSET])
            findings.add(Violation(code, message, 0, cycle, self.name(row), "", place))
        findings.count(len(rows) - len(listed))


def row_name(timetable: Timetable, chain: int, op: int, local: int, copy: int = 0) -> str:
    """Label of the chain, op, row within the chain, and which peer's copy."""
    label = timetable.labels[chain] if 0 <= chain < len(timetable.labels) else f"chain {chain}"
    return f"{label} {Op(op).name} row {local}" + (f" copy {copy}" if copy else "")
