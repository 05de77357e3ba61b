"""Refuses rows that are no rows at all (counts below 1, operands out of range), so that compiled loops stay within bounds.

What such a program does wrong, `verify` says field by field; a replay of it would mean nothing.
"""

import numpy as np

from ticktrue.errors import InputError
from ticktrue.isa import Dtype, Op
from ticktrue.program import Flat
from ticktrue.program import columns as col

LONGEST = 1 << 40  # cycles, vectors: far beyond any step, far below where sums of int64 wrap
_BOUNDS = (
    (col.C_N, "n", 1, LONGEST), (col.C_M, "m", 1, LONGEST), (col.C_P, "p", 0, LONGEST), (col.C_Q, "q", 0, LONGEST),
    (col.C_W, "w", 1, LONGEST), (col.C_WIDTH, "width", 0, LONGEST), (col.C_X0, "x0", -LONGEST, LONGEST),
    (col.C_ISSUE, "issue", -LONGEST, LONGEST), (col.C_ABS, "address", -LONGEST, LONGEST),
    (col.C_STEP, "step", -LONGEST, LONGEST), (col.C_STEP2, "step2", -LONGEST, LONGEST),
    (col.C_PORT, "port", -LONGEST, LONGEST), (col.C_DTYPE, "dtype", 0, len(Dtype) - 1),
    (col.C_OP, "op", 0, len(Op) - 1),
)  # fmt: skip


def check_rows(flat: Flat) -> None:
    """Passes where a replay is possible.

    Raises:
        InputError: T361 a count, operand or number type is out of range.
    """
    rows = flat.rows
    bounds = (*_BOUNDS, (col.C_PATTERN, "pattern", 0, flat.plan.patterns - 1), (col.C_S0, "s0", -1, len(rows) - 1),
              (col.C_S1, "s1", -1, len(rows) - 1))  # fmt: skip
    for column, name, least, most in bounds:
        wrong = np.flatnonzero((rows[:, column] < least) | (rows[:, column] > most))
        if len(wrong):
            _refuse(flat, int(wrong[0]), f"{name} from {least} to {most}", str(rows[wrong[0], column]))
    span = (rows[:, col.C_N] - 1.0) * rows[:, col.C_P] + (rows[:, col.C_M] - 1.0) * rows[:, col.C_Q]
    reach = abs((rows[:, col.C_N] - 1.0) * rows[:, col.C_STEP]) + abs(
        (rows[:, col.C_M] - 1.0) * rows[:, col.C_STEP2]
    )
    wrong = np.flatnonzero((span > LONGEST) | (reach > LONGEST))
    if len(wrong):
        _refuse(flat, int(wrong[0]), "events within a step", "a span that has no end")


def _refuse(flat: Flat, row: int, expected: str, found: str) -> None:
    where = f"chain {flat.rows[row, col.C_CHAIN]}, row {flat.rows[row, col.C_ROW]}"
    raise InputError(
        f"expected {expected}, found {found}",
        code="T361",
        where=where,
        hint="`ticktrue verify` names every such field",
    )
