"""Periods and offsets of rows within their chains, solved from the op table: the least that streams, planes and ports allow."""

from dataclasses import dataclass

import numpy as np

from ticktrue.isa import Op
from ticktrue.program import Flat
from ticktrue.program import columns as col
from ticktrue.program.types import Int64
from ticktrue.sim.machine import Machine, shape_of, stagger_of
from ticktrue.sim.order import Order, progression
from ticktrue.sim.order_kernel import REUSE
from ticktrue.sim.settle_kernel import settle
from ticktrue.sim.starts import RowTimes, weights
from ticktrue.sim.tie import label_of
from ticktrue.sim.verdict import CODE, Mismatch


@dataclass(frozen=True, slots=True)
class Floors:
    """Least periods to keep, and what is to be added to the least outer period: int64[R] each."""

    p: Int64
    q: Int64
    q_slack: Int64


@dataclass(frozen=True, slots=True)
class Offsets:
    """Periods, and offsets from the chain's start without the stagger of peer copies: int64[R]; whether they exist."""

    p: Int64
    q: Int64
    base: Int64
    exist: bool


def local_pairs(flat: Flat, order: Order, times: RowTimes) -> Int64:
    """Pairs inside chains as int64[pairs, 4] = (chain, x, r, kind), in order of chain.

    Left out: rows that overlap as stated, and rows of one progression that write after they read. Both go event by event (31
    section 8), and their streams keep the distance.
    """
    pairs, rows = order.inside, flat.rows
    alike = pairs.kind == REUSE
    for c in (col.C_N, col.C_P, col.C_M, col.C_Q):
        alike &= rows[pairs.first, c] == rows[pairs.then, c]
    pairs = pairs.where((weights(pairs, times) <= 0) & ~alike)
    chain = rows[pairs.then, col.C_CHAIN]
    table = np.stack([chain, pairs.first, pairs.then, pairs.kind.astype(np.int64)], axis=1)
    return np.ascontiguousarray(table[np.argsort(chain, kind="stable")])


def solve_offsets(flat: Flat, machine: Machine, local: Int64, w: Int64, floors: Floors) -> Offsets:
    """Least periods and offsets on a machine where events hold their ports for `w` cycles."""
    rows = flat.rows
    n, _, m, _, _ = progression(rows)
    s0, s1 = np.ascontiguousarray(rows[:, col.C_S0]), np.ascontiguousarray(rows[:, col.C_S1])
    p, q, base, exist = settle(
        flat.row_of_chain, shape_of(rows), rows[:, col.C_OP] == Op.PASS, s0, s1, n, m, w, machine.arrival(rows),
        int(machine.table.latency[Op.INSTALL]), machine.write_end(rows), stagger_of(flat), local,
        floors.p, floors.q, floors.q_slack,
    )  # fmt: skip
    return Offsets(p, q, base, bool(exist))


def stated_base(flat: Flat) -> Int64:
    """Stated offsets from the chain's start, without the stagger of peer copies: int64[R]."""
    rows = flat.rows
    base: Int64 = rows[:, col.C_ISSUE] - flat.start[rows[:, col.C_CHAIN]] - stagger_of(flat)
    return base


def offset_mismatches(
    flat: Flat, machine: Machine, local: Int64, labels: tuple[str, ...], known: list[Mismatch]
) -> list[Mismatch]:
    """Rows that a chain issues later than its own ties ask for; chains already `known` to be wrong are left out."""
    _, p, _, q, w = progression(flat.rows)
    least = solve_offsets(flat, machine, local, w, Floors(p, q, np.zeros(len(p), dtype=np.int64)))
    if not least.exist:
        return []
    skip, out, chain = {m.chain for m in known}, [], flat.rows[:, col.C_CHAIN]
    issue = flat.rows[:, col.C_ISSUE]
    late = stated_base(flat) - least.base
    for r in np.flatnonzero(late):
        c = int(chain[r])
        if c not in skip:
            skip.add(c)
            stated, row, op = (
                int(issue[r]),
                int(flat.rows[r, col.C_ROW]),
                Op(int(flat.rows[r, col.C_OP])).name,
            )
            text = f"chain {label_of(labels, c)}: row {row} ({op}) is issued at {stated}, its ties allow {stated - int(late[r])}"
            out.append(Mismatch(CODE, c, stated, stated - int(late[r]), text))
    return out
