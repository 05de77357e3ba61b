"""Whether links exist (V108), carry a vector a slot (V107) and receive queues hold (V115), on (source, target) pairs."""

import numpy as np

from ticktrue.program import columns as col
from ticktrue.units import ceil_div
from ticktrue.verify.ports import Uses
from ticktrue.verify.scope import Scope, link_latency, link_slot, sends

_USE = (col.C_ISSUE, col.C_N, col.C_P, col.C_M, col.C_Q)


def check_links(scope: Scope) -> None:
    """Finds SENDs over links that do not exist, that meet on one link, or whose vectors overflow the receiver's queue."""
    rows, chips = scope.rows, scope.flat.plan.chips
    send = sends(scope)
    if not len(send):
        return
    target = np.stack([scope.flat.peer(c)[send] for c in range(chips)])
    source = np.repeat(np.arange(chips), len(send)).reshape(target.shape)
    slot = scope.system.slot_matrix().astype(np.int64)[source, target]
    missing = slot < 0
    for chip, at in _first_chip(missing):
        to = int(target[chip, at])
        name = scope.name(int(send[at]))
        scope.add(
            "V108",
            int(send[at]),
            f"chip {chip}: no direct link leads to chip {to}, to which {name} sends",
            chip=chip,
        )
    if missing.any():
        return
    row = np.broadcast_to(send, target.shape).ravel()
    hold = slot.ravel() * rows[row, col.C_WIDTH]
    use = np.concatenate([rows[row][:, _USE], hold[:, None]], axis=1)
    pairs, count = Uses((source * chips + target).ravel(), np.arange(len(row)), use).conflicts()
    seen: set[tuple[int, int]] = set()
    for x, y, cycle in pairs.tolist():
        a, b = int(row[x]), int(row[y])
        if (a, b) in seen:
            continue
        seen.add((a, b))
        chip, to = int(source.ravel()[x]), int(target.ravel()[x])
        message = (f"the link from chip {chip} to chip {to} carries two vectors at cycle {cycle:_}: by {scope.name(a)} and by "
                   f"{scope.name(b)}")  # fmt: skip
        scope.add("V107", a, message, second=b, chip=chip, cycle=cycle)
    scope.findings.count(count - len(pairs))
    _queues(scope, target)


def _first_chip(mask: np.ndarray) -> list[tuple[int, int]]:
    """(first chip, index of the SEND) for each SEND that `mask` names on some chip."""
    hit = np.flatnonzero(mask.any(axis=0))
    return [(int(np.argmax(mask[:, at])), at) for at in hit.tolist()]


def _queues(scope: Scope, target: np.ndarray) -> None:
    """V115: a vector waits from its least latency until the RECEIVE, and a hold for alignment besides; one comes each slot."""
    chip = scope.system.chip
    depth, send = chip.value("c2c_fifo_vectors"), sends(scope)
    due = link_latency(scope)[scope.rows[send, col.C_PATTERN]] + scope.flat.table.guard
    due += chip.value("c2c_jitter_cycles") + chip.value("deskew_hold_cycles")
    due += (scope.rows[send, col.C_WIDTH] - 1) * link_slot(scope)[scope.rows[send, col.C_PATTERN]]
    sources = np.arange(len(target))[:, None]
    latency, slots = (
        m.astype(np.int64)[sources, target]
        for m in (scope.system.latency_matrix(), scope.system.slot_matrix())
    )
    vectors = scope.rows[send][:, (col.C_N, col.C_M, col.C_WIDTH)].prod(axis=1)
    need = np.minimum(-(-(due - latency) // slots) + 1, vectors)
    for src, at in _first_chip(need > depth):
        wait, slot = int(due[at] - latency[src, at]), int(slots[src, at])
        message = (f"chip {int(target[src, at])}: {ceil_div(wait, slot) + 1} vectors from chip {src} can wait for the RECEIVE of "
                   f"{scope.name(int(send[at]))}, its queue holds {depth}")  # fmt: skip
        scope.add("V115", int(send[at]), message, chip=int(target[src, at]))
