"""Expert registers: what a GATHER reads was written in this step (V103), and nothing writes it meanwhile (V104).

A LATCH owns the registers of its token rows and ranks from its first event until the last one has arrived in the instruction
queue, a GATHER those it names from its first to its last event. Every chip has registers of its own, and the same rows.
"""

import numpy as np

from ticktrue.isa import Op
from ticktrue.isa.ops import EXPERT_FNS
from ticktrue.program import columns as col
from ticktrue.program.types import Int64
from ticktrue.verify.scope import Scope


def check_registers(scope: Scope) -> None:
    """Finds GATHERs of a register that nothing has written, or that is being written, and LATCHes that overlap others."""
    rows = scope.rows
    latch = rows[:, col.C_OP] == Op.LATCH
    used = np.flatnonzero(latch | np.isin(rows[:, col.C_REGFN], EXPERT_FNS))
    # writes before reads of one cycle, so that what arrives too late is seen as an overlap
    used = used[np.lexsort((used, ~latch[used], rows[used, col.C_ISSUE]))]
    end, visible = _ends(scope)
    writer: dict[tuple[int, int], int] = {}
    reader: dict[tuple[int, int], int] = {}
    for r in used.tolist():
        for register in _registers(rows, r):
            before = writer.get(register, -1)
            if before >= 0 and visible[before] > rows[r, col.C_ISSUE]:
                _overlap(scope, before, r, register)
            elif latch[r] and end[reader.get(register, -1)] > rows[r, col.C_ISSUE]:
                _overlap(scope, reader[register], r, register)
            elif not latch[r] and before < 0:
                _unwritten(scope, r, register)
            else:
                if not latch[r] and end[r] > end[reader.get(register, -1)]:
                    reader[register] = r
                if latch[r]:
                    writer[register] = r
                continue
            break  # one violation a row
        if latch[r]:
            writer |= dict.fromkeys(_registers(rows, r), r)


def _ends(scope: Scope) -> tuple[Int64, Int64]:
    """End of each row's last event, and when what it writes can be read: int64[R + 1], 0 for "no row"."""
    rows = scope.rows
    end = rows[:, col.C_ISSUE] + rows[:, col.C_SPAN]
    visible = end + scope.flat.table.latency[Op.LATCH]
    return np.append(end, 0), np.append(visible, 0)


def _registers(rows: Int64, r: int) -> list[tuple[int, int]]:
    """(token row, rank) of every register that a row writes or reads."""
    row = rows[r]
    first = int(row[col.C_A0])
    if row[col.C_OP] == Op.LATCH:
        ranks, count = range(int(rows[row[col.C_S0], col.C_X0])), int(row[col.C_N] * row[col.C_M])
    else:
        ranks, count = range(int(row[col.C_A1]), int(row[col.C_A1]) + 1), int(row[col.C_M])
    return [(first + i, rank) for i in range(count) for rank in ranks]


def _name(register: tuple[int, int]) -> str:
    return f"expert register of token row {register[0]}, rank {register[1]}"


def _unwritten(scope: Scope, r: int, register: tuple[int, int]) -> None:
    issue = int(scope.rows[r, col.C_ISSUE])
    message = (
        f"cycle {issue:_}: {scope.name(r)} reads the {_name(register)}, which nothing wrote in this step"
    )
    scope.add("V103", r, message, cycle=issue)


def _overlap(scope: Scope, first: int, second: int, register: tuple[int, int]) -> None:
    issue = int(scope.rows[second, col.C_ISSUE])
    message = (f"{scope.name(first)} still holds the {_name(register)} when {scope.name(second)} "
               f"takes it at cycle {issue:_}")  # fmt: skip
    scope.add("V104", first, message, second=second, cycle=issue)
