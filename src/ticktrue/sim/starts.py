"""Times of rows within their chains, and the least starts of all chains that an order of rows allows."""

from dataclasses import dataclass

import numpy as np

from ticktrue.isa import Op
from ticktrue.program import Flat
from ticktrue.program import columns as col
from ticktrue.program.types import Int64
from ticktrue.sim.machine import Machine
from ticktrue.sim.order import Order, Pairs, plane_end, progression
from ticktrue.sim.order_kernel import PLANE, READ_AFTER_WRITE, TURN, group_by, longest


@dataclass(frozen=True, slots=True)
class Solution:
    """Earliest starts, and the starts used for what follows (a chain marked late keeps its place): int64[chains] each."""

    earliest: Int64
    start: Int64
    settled: bool


@dataclass(frozen=True, slots=True)
class RowTimes:
    """Row times relative to the start of their chain, int64[R] each.

    `offset` first event; `end` the port is free again; `readable` what a row wrote can be read; `plane_end` the tile of an
    INSTALL is no longer used; `progression` the columns n, p, m, q, w.
    """

    offset: Int64
    end: Int64
    readable: Int64
    plane_end: Int64
    progression: tuple[Int64, Int64, Int64, Int64, Int64]


def stated_times(flat: Flat, machine: Machine) -> RowTimes:
    """Row times as the timetable states them."""
    rows = flat.rows
    begin = flat.start[rows[:, col.C_CHAIN]]
    offset = rows[:, col.C_ISSUE] - begin
    end = offset + rows[:, col.C_SPAN]
    held = plane_end(flat)
    held = np.where(rows[:, col.C_OP] == Op.INSTALL, held - begin, 0)
    return RowTimes(offset, end, end + machine.write_end(rows), held, progression(rows))


def weights(pairs: Pairs, times: RowTimes) -> Int64:
    """Least cycles from the start of the first row's chain to the start of the other's, per pair: int64[E]."""
    end = np.where(pairs.kind == READ_AFTER_WRITE, times.readable[pairs.first], times.end[pairs.first])
    end = np.where(pairs.kind == PLANE, times.plane_end[pairs.first], end)
    n, p, _, _, w = (c[pairs.first] for c in times.progression)
    end = np.where(pairs.kind == TURN, times.offset[pairs.first] + (n - 1) * p + w, end)
    return end - times.offset[pairs.then]


def solve(flat: Flat, order: Order, times: RowTimes, floor: Int64, extra: Int64) -> Solution:
    """Least starts of all chains under the pairs of `order`; marked chains start at max(earliest + extra, floor)."""
    chain = np.ascontiguousarray(flat.rows[:, col.C_CHAIN])
    sequence = np.argsort(flat.start, kind="stable")
    pointer, members = group_by(chain[order.between.then], len(flat.start), sequence)
    source = chain[order.between.first][members]
    weight = weights(order.between, times)[members]
    woven = order.interleaved
    ipointer, imembers = group_by(chain[woven.then], len(flat.start), sequence)
    earliest, start, rounds = longest(
        sequence, pointer, source, weight, ipointer, imembers, woven.first, woven.then, chain, times.offset,
        floor, extra, *times.progression,
    )  # fmt: skip
    return Solution(earliest, start, rounds > 0)


def duration_of(flat: Flat, start: Int64, times: RowTimes) -> int:
    """Cycles until the last row has ended and what it wrote can be read."""
    return int((start[flat.rows[:, col.C_CHAIN]] + times.readable).max(initial=0))
