"""Whether every operand is there at the very cycle it is taken (V105), and every result is taken (V106)."""

import numpy as np

from ticktrue.isa import Op, Unit
from ticktrue.program import columns as col
from ticktrue.program import output_progression
from ticktrue.program.types import Int64
from ticktrue.verify.scope import Scope, link_latency, link_slot
from ticktrue.verify.stored import YIELDS

_PROGRESSION = (col.C_ISSUE, col.C_N, col.C_P, col.C_M, col.C_Q)


def check_arrivals(scope: Scope) -> None:
    """Finds operands that come too early or too late, and results that nobody takes."""
    out = output_progression(scope.flat)
    _operands(scope, out)
    _tiles(scope)
    _unheard(scope)


def _stagger(scope: Scope) -> Int64:
    """Cycles by which each peer's copy is later than its row says: copies share write ports."""
    k = scope.rows[:, col.C_K]
    return np.where(k > 0, (k - 1) // scope.flat.table.ports[Unit.MEM_WRITE], 0)


def _operands(scope: Scope, out: Int64) -> None:
    rows = scope.rows
    op, stagger, link = rows[:, col.C_OP], _stagger(scope), link_latency(scope)
    for column in (col.C_S0, col.C_S1):
        heard = (rows[:, column] >= 0) & ~((op == Op.PASS) & (column == col.C_S1))
        source = np.where(heard, rows[:, column], 0)
        expected = out[source].copy()
        receive = op == Op.RECEIVE
        expected[receive, 0] += link[rows[receive, col.C_PATTERN]] + scope.flat.table.guard
        sent = rows[source[receive]]
        # the link latency holds one slot: a packet of several vectors has arrived when its last one has
        expected[receive, 0] += (sent[:, col.C_WIDTH] - 1) * link_slot(scope)[rows[receive, col.C_PATTERN]]
        # copies that hear one row hear it later and later: each copy at its own transit
        expected[:, 0] += np.where(rows[source, col.C_K] == 0, stagger, 0)
        late = heard & (rows[:, col.C_ISSUE] != expected[:, 0])
        text = "takes its operand at another cycle than {}, at which it arrives from"
        scope.each("V105", late, text, expected[:, 0], rows[:, column])
        other = np.zeros(len(rows), dtype=bool)
        for at, c in enumerate(_PROGRESSION[1:], start=1):
            other |= rows[:, c] != expected[:, at]
        text = "takes its operand in other events (n, p, m, q) than it arrives from"
        scope.each("V105", heard & ~late & other, text, None, rows[:, column])


def _tiles(scope: Scope) -> None:
    """A PASS starts when its tile is installed; with m > 1 tiles, pass (i, j) uses tile j."""
    rows = scope.rows
    is_pass = rows[:, col.C_OP] == Op.PASS
    tile = np.where(is_pass, rows[:, col.C_S1], 0)
    install = rows[tile]
    ready = install[:, col.C_ISSUE] + (install[:, col.C_N] - 1) * install[:, col.C_P] + install[:, col.C_W]
    ready += scope.flat.table.latency[Op.INSTALL]
    early = is_pass & (rows[:, col.C_ISSUE] < ready)
    scope.each("V105", early, "passes before cycle {}, at which its tile is installed by", ready, tile)
    several = is_pass & (install[:, col.C_M] > 1)
    other = (rows[:, col.C_M] != install[:, col.C_M]) | (rows[:, col.C_Q] != install[:, col.C_Q])
    scope.each(
        "V105",
        several & other,
        "passes in other rounds (m, q) than its tiles are installed in by",
        None,
        tile,
    )


def _unheard(scope: Scope) -> None:
    rows = scope.rows
    op = rows[:, col.C_OP]
    heard = np.zeros(len(rows), dtype=np.int64)
    for column in (col.C_S0, col.C_S1):
        source = rows[rows[:, column] >= 0, column]
        np.add.at(heard, source, 1)
    scope.each("V106", (op == Op.SEND) & (heard == 0), "sends a vector that no RECEIVE listens for")
    scope.each("V106", YIELDS[op] & (heard == 0), "has a result that no row takes")
    scope.each("V106", (op == Op.INSTALL) & (heard == 0), "installs a tile that no PASS uses")
    receive = np.flatnonzero(op == Op.RECEIVE)
    order = receive[np.argsort(rows[receive, col.C_S0], kind="stable")]
    again = np.zeros(len(rows), dtype=bool)
    again[order[1:]] = rows[order[1:], col.C_S0] == rows[order[:-1], col.C_S0]
    scope.each(
        "V106", again, "listens for a vector that another RECEIVE takes, sent by", None, rows[:, col.C_S0]
    )
