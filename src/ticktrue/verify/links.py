"""Whether links exist (V108), carry a vector a slot (V107) and receive queues hold (V115), on (source, target) pairs.

Chips whose SENDs go over links that coincide in the same way, of the same speed, give the same findings: one is looked at.
"""

from dataclasses import dataclass

import numpy as np

from ticktrue.isa import Op
from ticktrue.program import columns as col
from ticktrue.program.types import Int64
from ticktrue.verify.ports import Uses
from ticktrue.verify.scope import Scope, link_latency, link_slot, sends

_USE = (col.C_ISSUE, col.C_N, col.C_P, col.C_M, col.C_Q)


@dataclass(frozen=True, slots=True)
class _Links:
    """SENDs of one chip of every kind: `chip` int64[kinds]; target chip, latency and slot int64[kinds, sends]."""

    chip: Int64
    target: Int64
    latency: Int64
    slot: Int64


def check_links(scope: Scope) -> None:
    """Finds SENDs over links that do not exist, that meet on one link, or whose vectors overflow the receiver's queue."""
    send = sends(scope)
    if not len(send):
        return
    links = _links(scope, send)
    missing = links.slot < 0
    for kind, at in _first_kind(missing):
        to = int(links.target[kind, at])
        name = scope.name(int(send[at]))
        chip = int(links.chip[kind])
        scope.add(
            "V108",
            int(send[at]),
            f"chip {chip}: no direct link leads to chip {to}, to which {name} sends",
            chip=chip,
        )
    if not missing.any():
        _meetings(scope, send, links)
        _queues(scope, send, links)


def _links(scope: Scope, send: Int64) -> _Links:
    chips = np.arange(scope.flat.plan.chips)
    target = np.stack([scope.flat.peer(c)[send] for c in chips.tolist()])
    latency, slot = (
        matrix.astype(np.int64)[chips[:, None], target]
        for matrix in (scope.system.latency_matrix(), scope.system.slot_matrix())
    )
    # which SENDs share a link, whatever chip is at its end
    shared = np.stack(
        [np.unique(to, return_index=True)[1][np.unique(to, return_inverse=True)[1]] for to in target]
    )
    _, first = np.unique(np.concatenate([shared, latency, slot], axis=1), axis=0, return_index=True)
    kinds = np.sort(first)
    return _Links(chips[kinds], target[kinds], latency[kinds], slot[kinds])


def _first_kind(mask: np.ndarray) -> list[tuple[int, int]]:
    """(first kind of chip, index of the SEND) for each SEND that `mask` names on some chip."""
    hit = np.flatnonzero(mask.any(axis=0))
    return [(int(np.argmax(mask[:, at])), at) for at in hit.tolist()]


def _meetings(scope: Scope, send: Int64, links: _Links) -> None:
    """V107: two SENDs hold one link in one cycle, or the two RECEIVEs its far end."""
    rows = scope.rows
    receive = np.flatnonzero(rows[:, col.C_OP] == Op.RECEIVE)
    heard = np.searchsorted(
        send, rows[receive, col.C_S0]
    )  # which SEND a RECEIVE hears: it takes that one's link
    _met(scope, send, links, (np.arange(len(send)), rows[send, col.C_ISSUE]))
    # when it is due, not when it is stated (V105): all messages of a link are as long under way, but for their further vectors
    slots = link_slot(scope)[rows[receive, col.C_PATTERN]]
    due = rows[send[heard], col.C_ISSUE] + (rows[receive, col.C_WIDTH] - 1) * slots
    _met(scope, receive, links, (heard, due))


def _met(scope: Scope, of: Int64, links: _Links, what: tuple[Int64, Int64]) -> None:
    """V107 among the rows `of`: (columns of `links`, first cycle) of each."""
    rows, chips, (at, begin) = scope.rows, scope.flat.plan.chips, what
    target = links.target[:, at]
    row = np.broadcast_to(of, target.shape).ravel()
    hold = links.slot[:, at].ravel() * rows[row, col.C_WIDTH]
    use = np.concatenate([rows[row][:, _USE], hold[:, None]], axis=1)
    use[:, 0] = np.broadcast_to(begin, target.shape).ravel()
    link = (links.chip[:, None] * chips + target).ravel()
    pairs, count = Uses(link, np.arange(len(row)), use).conflicts()
    seen: set[tuple[int, int]] = set()
    for x, y, cycle in pairs.tolist():
        a, b = int(row[x]), int(row[y])
        if (a, b) in seen:
            continue
        seen.add((a, b))
        chip, to = divmod(int(link[x]), chips)
        message = (f"the link from chip {chip} to chip {to} carries two vectors at cycle {cycle:_}: by {scope.name(a)} and by "
                   f"{scope.name(b)}")  # fmt: skip
        scope.add("V107", a, message, second=b, chip=chip, cycle=cycle)
    scope.findings.count(count - len(pairs))


def _queues(scope: Scope, send: Int64, links: _Links) -> None:
    """V115: vectors of one link that have come, at the least latency, when the first of a message is taken at last."""
    chip = scope.system.chip
    depth = chip.value("c2c_fifo_vectors")
    pattern, width = scope.rows[send, col.C_PATTERN], scope.rows[send, col.C_WIDTH]
    due = link_latency(scope)[pattern] + (width - 1) * link_slot(scope)[pattern] + scope.flat.table.guard
    due += chip.value("c2c_jitter_cycles") + chip.value("deskew_hold_cycles")
    told: set[int] = set()
    for kind in range(len(links.chip)):
        vectors = _Vectors.of(scope, send, links, kind)
        need = vectors.waiting(due - links.latency[kind])
        for at in np.flatnonzero(need > depth).tolist():
            if at in told:
                continue
            told.add(at)
            source, to = int(links.chip[kind]), int(links.target[kind, at])
            message = (f"chip {to}: {int(need[at])} vectors from chip {source} can wait for the RECEIVE of "
                       f"{scope.name(int(send[at]))}, its queue holds {depth}")  # fmt: skip
            scope.add("V115", int(send[at]), message, chip=to)


@dataclass(frozen=True, slots=True)
class _Vectors:
    """All vectors that one chip sends, by link and time: `link`, `time`, `row` (index of the SEND), `first` of its message."""

    link: Int64
    time: Int64
    row: Int64
    first: np.ndarray
    sends: int

    @staticmethod
    def of(scope: Scope, send: Int64, links: _Links, kind: int) -> "_Vectors":
        """The vectors of `scope`'s SENDs on one chip."""
        rows = scope.rows[send]
        n, m, width = rows[:, col.C_N], rows[:, col.C_M], rows[:, col.C_WIDTH]
        count = n * m * width
        row = np.repeat(np.arange(len(send)), count)
        event, v = np.divmod(np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count), width[row])
        j, i = np.divmod(event, n[row])
        time = (
            rows[row, col.C_ISSUE]
            + i * rows[row, col.C_P]
            + j * rows[row, col.C_Q]
            + v * links.slot[kind][row]
        )
        link = links.target[kind][row]
        order = np.lexsort((time, link))
        return _Vectors(link[order], time[order], row[order], (v == 0)[order], len(send))

    def waiting(self, wait: Int64) -> Int64:
        """Most vectors in the queue when a message of each SEND is taken, `wait` after its first vector came: int64[sends].

        Those that were sent in that time, and one more that is coming in.
        """
        first = np.flatnonzero(self.first)
        span = int(self.time.max()) + int(wait.max()) + 2
        key = self.link * span + self.time
        ready = np.searchsorted(key, key[first] + np.minimum(wait[self.row[first]], span), side="left")
        end = np.searchsorted(self.link, self.link[first], side="right")
        out = np.zeros(self.sends, dtype=np.int64)
        np.maximum.at(out, self.row[first], np.minimum(ready + 1, end) - first)
        return out
