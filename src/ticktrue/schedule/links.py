"""Links as a maker of timetables sees them: how long a message is under way, and how fast messages may follow each other.

A message is received at the latest moment at which it can arrive; until then it waits in the receiver's FIFO. Where that is
short, messages must follow each other more slowly than the link carries them, or the FIFO would overflow.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ticktrue.errors import Unschedulable
from ticktrue.hw import Chip, System
from ticktrue.program import Plan
from ticktrue.units import ceil_div

Int64 = npt.NDArray[np.int64]
BEAT_VECTORS = 4
"""Most vectors of one message: a beat of 320 float32 lanes."""


@dataclass(frozen=True, slots=True)
class LinkTimes:
    """Cycles by communication pattern, int64[patterns]; 0 where a pattern has no links.

    `latency` from a SEND to the arrival of its first vector at the latest; `slot` for which a vector holds the slowest link;
    `pace` from one vector to the next on a link: the slot, or longer so that FIFOs suffice.
    """

    latency: Int64
    slot: Int64
    pace: Int64


def link_times(plan: Plan, system: System) -> LinkTimes:
    """The links that the chips of a plan talk over.

    Links inside trays and links between trays are two tiers. All messages of a tier keep to its greatest latency, so that none
    overtakes another on a link that two patterns use.

    Raises:
        Unschedulable: T322 if no pace is slow enough for the FIFO.
    """
    latency, slot = (m[: plan.chips, : plan.chips] for m in (system.latency_matrix(), system.slot_matrix()))
    tray = np.arange(plan.chips) // (plan.tray or plan.chips)
    far = tray[:, None] != tray[None, :]
    due = np.zeros_like(latency)
    for tier in (far, ~far):
        due[tier] = latency[tier].max(initial=0)
    out = np.zeros((3, plan.patterns), dtype=np.int64)
    for pattern in range(plan.patterns):
        peers = plan.reach(pattern)[:, 1:]
        if peers.size:
            pair = (np.arange(plan.chips)[:, None], peers)
            out[0, pattern] = due[pair].max()
            out[1, pattern] = max(int(slot[pair].max()), 0)
            early = int((due - latency)[pair][latency[pair] >= 0].max(initial=0))
            out[2, pattern] = _pace(system.chip, int(out[1, pattern]), early)
    return LinkTimes(*out)


def _pace(chip: Chip, slot: int, early: int) -> int:
    """Cycles between vectors at which a FIFO never overflows, whatever the messages: at least the slot.

    A vector may wait for `early` cycles (its link is faster than its tier), jitter, guard and the hold of an alignment. In that
    time come the vectors of messages already begun, the last of which may have just begun, and one more is coming in.
    """
    wait = early + (BEAT_VECTORS - 1) * slot + chip.value("c2c_jitter_cycles")
    wait += chip.value("c2c_guard_cycles") + chip.value("deskew_hold_cycles")
    depth = chip.value("c2c_fifo_vectors") - BEAT_VECTORS - 1
    if depth < 1:
        raise Unschedulable(
            f"expected receive FIFOs of at least {BEAT_VECTORS + 2} vectors, found {depth + BEAT_VECTORS + 1}: a message of "
            f"{BEAT_VECTORS} vectors must be able to wait beside the next",
            code="T322", where=f"chip {chip.name}, fact c2c_fifo_vectors", hint="use a chip with deeper FIFOs",
        )  # fmt: skip
    return max(slot, ceil_div(wait, depth))
