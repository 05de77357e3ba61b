"""Clocks that stay close enough: an alignment each epoch (V114), and a guard above the skew of every message (V113).

All chips align at cycle 0 and then every `deskew` cycles. g cycles later two clocks may differ by skew0 + 2 * ppm * 1e-6 * g.
Cycle numbers do not count the cycles that an alignment holds.
"""

import numpy as np

from ticktrue.isa import Op
from ticktrue.program import columns as col
from ticktrue.program.types import Int64
from ticktrue.units import ceil_div
from ticktrue.verify.scope import Scope, sends

MILLION = 1_000_000
CHUNK = 1 << 20
"""Events looked at together."""


def check_clocks(scope: Scope) -> None:
    """Finds alignments that come too late or cannot be made, and messages that clocks may miss by more than the guard."""
    deskew, where = scope.timetable.deskew, f"{scope.timetable.kind.label()}, deskew"
    if deskew and scope.timetable.duration + scope.more_cycles < deskew:
        scope.findings.field(
            "V100", where, f"expected 0, for the step ends before cycle {deskew:_}, found {deskew:_}"
        )
    elif deskew and scope.flat.plan.chips == 1:
        scope.findings.field(
            "V100", where, f"expected 0, for one chip has nothing to align, found {deskew:_}"
        )
    elif len(sends(scope)):
        _alignments(scope)
        _skew(scope)


def _alignments(scope: Scope) -> None:
    """V114: from one alignment to the next, or to the end of the step, at most an epoch; an alignment ends before the next."""
    chip, deskew, duration = scope.system.chip, scope.timetable.deskew, scope.timetable.duration
    duration += scope.more_cycles
    epoch, hold, first = chip.value("epoch_cycles"), chip.value("deskew_hold_cycles"), int(sends(scope)[0])
    apart = deskew or duration
    if apart > epoch:
        again = (
            f"every {deskew:_} cycles" if deskew else f"only at the entry of a step of {duration:_} cycles"
        )
        scope.add(
            "V114",
            first,
            f"clocks align {again}, expected at least every {epoch:_} cycles (epoch)",
            cycle=epoch,
        )
    if deskew and hold >= deskew:
        text = f"clocks align every {deskew:_} cycles, but an alignment holds every queue for {hold:_}"
        scope.add("V114", first, text, cycle=deskew)


def _skew(scope: Scope) -> None:
    """V113 for each SEND and RECEIVE, at the event that is furthest from the alignment before it."""
    chip, rows = scope.system.chip, scope.rows
    link = np.flatnonzero((rows[:, col.C_OP] == Op.SEND) | (rows[:, col.C_OP] == Op.RECEIVE))
    since, cycle = _furthest(rows[link], scope.timetable.deskew)
    if (
        scope.more_cycles
    ):  # iterations are left out: as far as any could be; where that is too far, all are looked at
        since = (
            np.full(len(since), scope.timetable.deskew - 1)
            if scope.timetable.deskew
            else since + scope.more_cycles
        )
    skew, drift, guard = chip.value("skew0_cycles"), 2 * chip.value("drift_ppm"), scope.flat.table.guard
    bad = np.flatnonzero(skew * MILLION + drift * since > guard * MILLION)
    listed = bad[: scope.findings.room].tolist()
    for at in listed:
        row, far = int(link[at]), int(since[at])
        message = (
            f"chip 0, cycle {int(cycle[at]):_}: {scope.name(row)} is {far:_} cycles after an alignment, when clocks may differ "
            f"by {skew + ceil_div(drift * far, MILLION)} cycles; the guard of links is {guard}"
        )
        scope.add("V113", row, message, cycle=int(cycle[at]))
    scope.findings.count(len(bad) - len(listed))


def _furthest(rows: Int64, deskew: int) -> tuple[Int64, Int64]:
    """(cycles since the last alignment, cycle) of the event of each row that is furthest from one: int64[rows] each."""
    issue, n, p, m, q = (rows[:, c] for c in (col.C_ISSUE, col.C_N, col.C_P, col.C_M, col.C_Q))
    last = issue + (n - 1) * p + (m - 1) * q
    since, cycle = last.copy(), last.copy()
    if deskew == 0:
        return since, cycle
    shapes, shape_of = np.unique(np.stack([n, p, m, q], axis=1), axis=0, return_inverse=True)
    for shape, (rn, rp, rm, rq) in enumerate(shapes.tolist()):
        events = (np.arange(rn) * rp + np.arange(rm)[:, None] * rq).ravel()
        members = np.flatnonzero(shape_of.ravel() == shape)
        step = max(CHUNK // len(events), 1)
        for few in (members[i : i + step] for i in range(0, len(members), step)):
            times = issue[few, None] + events
            worst = np.argmax(times % deskew, axis=1)
            cycle[few] = times[np.arange(len(few)), worst]
            since[few] = cycle[few] % deskew
    return since, cycle
