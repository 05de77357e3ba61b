"""Chains -> cycles: earliest starts by data, then list scheduling of rigid chains on ports, planes, links and streams.

Works on the chip class: one chain has one start on all chips. What depends on a chip's rank (addresses, peers) is looked at on
every chip where it decides an order, and reserved conservatively where it decides a link.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ticktrue.cores import by_cores
from ticktrue.errors import Unschedulable
from ticktrue.hw import System
from ticktrue.isa import OPS, Dtype, Kind, Op, OpTable, Unit
from ticktrue.isa.ops import EXPERT_FNS
from ticktrue.program import Flat, Image, Plan, RegionClass, Timetable, expand, output_progression
from ticktrue.program import columns as col
from ticktrue.schedule.clock import deskew_period
from ticktrue.schedule.edges_kernel import earliest, edges
from ticktrue.schedule.links import link_times
from ticktrue.schedule.list_kernel import place
from ticktrue.schedule.registers import register_edges

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Uses:
    """Reservations of class rows, relative to their chain: alternatives first .. first + count - 1."""

    chain: Int64
    row: Int64
    a: Int64
    b: Int64
    first: Int64
    count: Int64


class _Resources:
    """Numbers for everything that can be reserved on a chip of the class."""

    def __init__(self, table: OpTable, chips: int) -> None:
        per_group = table.ports * np.array([table.mem_groups if u <= Unit.MEM_WRITE else 1 for u in Unit])
        per_group[Unit.C2C_SEND] = per_group[Unit.C2C_RECV] = max(chips, 1)
        self.first: Int64 = np.concatenate([[0], np.cumsum(per_group)]).astype(np.int64)
        self.queues = int(self.first[-1])  # behind all ports: the FIFO at the far end of each link
        self.total = self.queues + max(chips, 1)


def _plane_uses(flat: Flat, res: _Resources) -> _Uses:
    """A plane is held from its INSTALL's issue to the end of the last PASS that names it."""
    rows = flat.rows
    install = np.flatnonzero(rows[:, col.C_OP] == Op.INSTALL)
    end: Int64 = rows[:, col.C_ISSUE] + rows[:, col.C_SPAN]
    passes = np.flatnonzero(rows[:, col.C_OP] == Op.PASS)
    np.maximum.at(end, rows[passes, col.C_S1], rows[passes, col.C_ISSUE] + rows[passes, col.C_SPAN])
    size = np.where(rows[install, col.C_DTYPE] == Dtype.F32, 4, 2)
    first: Int64 = np.full(len(install), int(res.first[Unit.MXM_PLANE]), dtype=np.int64)
    return _Uses(rows[install, col.C_CHAIN], install, rows[install, col.C_ISSUE], end[install], first,
                 flat.table.byte_planes // size)  # fmt: skip


def _link_uses(flat: Flat, res: _Resources) -> list[_Uses]:
    """SEND and RECEIVE by the peer's distance. A pattern may wrap: every distance that a peer has on some chip is reserved."""
    rows, distance = flat.rows, _distances(flat.plan)
    out = []
    for op, unit in ((Op.SEND, Unit.C2C_SEND), (Op.RECEIVE, Unit.C2C_RECV)):
        for way in range(distance.shape[2]):
            r = np.flatnonzero(rows[:, col.C_OP] == op)
            to = distance[rows[r, col.C_PATTERN], rows[r, col.C_K], way]
            r, to = r[to >= 0], to[to >= 0]
            a = rows[r, col.C_ISSUE]
            out.append(_Uses(rows[r, col.C_CHAIN], r, a, a + rows[r, col.C_SPAN], res.first[unit] + to,
                             np.ones(len(r), dtype=np.int64)))  # fmt: skip
    return out


def _distances(plan: Plan) -> Int64:
    """int64[patterns, k, ways]: how far on (modulo chips) the peer k of a pattern is, once for each way on any chip; else -1."""
    own, found = np.arange(plan.chips)[:, None], []
    for pattern in range(plan.patterns):
        far = (plan.reach(pattern) - own) % plan.chips
        found.append([np.unique(column) for column in far.T[1:]])
    ways = max((len(u) for columns in found for u in columns), default=0)
    out = np.full((plan.patterns, plan.chips, ways), -1, dtype=np.int64)
    for pattern, columns in enumerate(found):
        for k, unique in enumerate(columns, start=1):
            out[pattern, k, : len(unique)] = unique
    return out


def _queue_uses(flat: Flat, res: _Resources, system: System) -> list[_Uses]:
    """Where a link's pace is slower than its slot, a SEND keeps others off the link until the FIFO has room again."""
    rows, times = flat.rows, link_times(flat.plan, system)
    slower = times.pace - times.slot
    out = []
    if slower.any():
        distance = _distances(flat.plan)
        for way in range(distance.shape[2]):
            r = np.flatnonzero((rows[:, col.C_OP] == Op.SEND) & (slower[rows[:, col.C_PATTERN]] > 0))
            to = distance[rows[r, col.C_PATTERN], rows[r, col.C_K], way]
            r, to = r[to >= 0], to[to >= 0]
            a = rows[r, col.C_ISSUE]
            b = (
                a
                + rows[r, col.C_SPAN]
                - rows[r, col.C_W]
                + rows[r, col.C_WIDTH] * times.pace[rows[r, col.C_PATTERN]]
            )
            out.append(_Uses(rows[r, col.C_CHAIN], r, a, b, res.queues + to, np.ones(len(r), dtype=np.int64)))
    return out


def _port_uses(flat: Flat, res: _Resources) -> _Uses:
    """Every row on a port of its unit, with the ports it may take."""
    rows, table = flat.rows, flat.table
    unit = rows[:, col.C_UNIT]
    r = np.flatnonzero((unit != Unit.MXM_PLANE) & (unit != Unit.C2C_SEND) & (unit != Unit.C2C_RECV))
    unit = unit[r]
    group: Int64 = np.where(unit <= Unit.MEM_WRITE, rows[r, col.C_GROUP], 0)
    first: Int64 = res.first[unit] + group * table.ports[unit]
    count = table.ports[unit].copy()
    peer = (unit == Unit.MEM_WRITE) & (rows[r, col.C_K] > 0)
    first[peer] += (rows[r[peer], col.C_K] - 1) % table.ports[Unit.MEM_WRITE]
    count[peer] = 1
    a = rows[r, col.C_ISSUE]
    return _Uses(rows[r, col.C_CHAIN], r, a, a + rows[r, col.C_SPAN], first, count)


def _stream_widths(flat: Flat) -> Int64:
    """Streams that each row's result takes (docs/program.md section 4): int64[R]."""
    rows = flat.rows
    op = rows[:, col.C_OP]
    kind = np.array([int(i.kind) for i in OPS], dtype=np.int64)[op]
    width = np.full(len(rows), 4, dtype=np.int64)
    source = (op == Op.LOAD) | (op == Op.GATHER) | (op == Op.RECEIVE)
    width[source] = rows[source, col.C_WIDTH]
    narrow = (op == Op.CONVERT) | ((op == Op.TRANSPOSE) & (rows[:, col.C_DTYPE] == Dtype.BF16))
    width[narrow] = 2
    none = (kind == Kind.SINK) | (kind == Kind.INSTALL) | (rows[:, col.C_UNIT] == Unit.MEM_WIDE)
    width[none] = 0
    return width


def _streams(flat: Flat) -> tuple[Int64, Int64, Int64, Int64]:
    """(first index per chain, from, to, width) of every live result, relative to its chain."""
    width, out = _stream_widths(flat), output_progression(flat)
    r = np.flatnonzero(width)
    a = out[r, 0]
    b = a + (out[r, 1] - 1) * out[r, 2] + (out[r, 3] - 1) * out[r, 4] + 1
    of = np.searchsorted(flat.rows[r, col.C_CHAIN], np.arange(len(flat.start) + 1)).astype(np.int64)
    return of, a, b, width[r]


def _edges(flat: Flat) -> tuple[Int64, Int64, Int64]:
    """Edges between chains from the records they read and write, over all chips."""
    regions = flat.regions
    tracked = [r.cls in {RegionClass.SCRATCH, RegionClass.INBOX, RegionClass.STATE} for r in regions]
    whole = [r.cls == RegionClass.STATE for r in regions]
    # vector by vector: inboxes are laid out for T_max tokens, so a coarser record would join what a smaller T keeps apart
    stride = np.array([r.vectors if w else 1 for r, w in zip(regions, whole, strict=True)], dtype=np.int64)
    count = np.array([1 if w else r.vectors for r, w in zip(regions, whole, strict=True)], dtype=np.int64)
    base = np.array([r.group * flat.table.group_vectors + r.base for r in regions], dtype=np.int64)
    first = np.cumsum(np.concatenate([[0], count[:-1]]))
    first = np.where(tracked, first, -1)
    latency = int(flat.table.latency[Op.STORE])
    # what an expert register names in an inbox can be anywhere in it
    named = np.isin(flat.rows[:, col.C_REGFN], EXPERT_FNS) & (flat.rows[:, col.C_REGION] >= 0)
    rows, of = flat.rows.copy(), flat.rows[named, col.C_REGION]
    rows[named, col.C_N], rows[named, col.C_M], rows[named, col.C_WIDTH] = 1, 1, (stride * count)[of]
    none = np.zeros(0, dtype=np.int64)

    def of_chips(some: range) -> tuple[Int64, Int64, Int64]:
        out = (none, none, none)
        for chip in some:
            address = flat.address(chip)
            address[named] = base[of]
            out = edges(rows, flat.row_of_chain, address, (base, stride, first, count), int(count.sum()),
                        latency, out)  # fmt: skip
        return out

    return _longest(by_cores(flat.plan.chips, of_chips), len(flat.start))


def _longest(parts: list[tuple[Int64, Int64, Int64]], chains: int) -> tuple[Int64, Int64, Int64]:
    """All edges, by second chain, then first; of several between the same chains the longest."""
    eu, ev, ew = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(ev * chains + eu, kind="stable")
    eu, ev, ew = eu[order], ev[order], ew[order]
    if not len(eu):
        return eu, ev, ew
    starts = np.flatnonzero(np.concatenate([[True], (ev[1:] != ev[:-1]) | (eu[1:] != eu[:-1])]))
    return eu[starts], ev[starts], np.maximum.reduceat(ew, starts)


def _joined(a: tuple[Int64, Int64, Int64], b: tuple[Int64, Int64, Int64]) -> tuple[Int64, Int64, Int64]:
    """Both lists of edges, sorted by their second chain."""
    if not len(b[0]):
        return a
    eu, ev, ew = (np.concatenate([x, y]) for x, y in zip(a, b, strict=True))
    order = np.argsort(ev, kind="stable")
    return eu[order], ev[order], ew[order]


def _sorted_uses(parts: list[_Uses], chains: int) -> tuple[_Uses, Int64]:
    joined = [
        np.concatenate([getattr(p, f) for p in parts]) for f in ("chain", "row", "a", "b", "first", "count")
    ]
    order = np.lexsort((joined[5], joined[1], joined[2], joined[0]))
    uses = _Uses(*(x[order] for x in joined))
    return uses, np.searchsorted(uses.chain, np.arange(chains + 1)).astype(np.int64)


def _periods(flat: Flat, uses: _Uses) -> tuple[Int64, Int64]:
    """(period, hold) of each use: period 0 where it is not a single run of equal steps."""
    rows = flat.rows[uses.row]
    run = (rows[:, col.C_M] == 1) | (rows[:, col.C_Q] == rows[:, col.C_N] * rows[:, col.C_P])
    period = np.where(
        (rows[:, col.C_N] == 1) & (rows[:, col.C_M] > 1), rows[:, col.C_Q], rows[:, col.C_P] * run
    )
    return np.where(rows[:, col.C_OP] != Op.INSTALL, period, 0), rows[:, col.C_W].copy()


def schedule(image: Image, timetable: Timetable, system: System) -> Timetable:
    """The timetable with a start for every chain, a port for every row, and its duration.

    Raises:
        Unschedulable: T320, naming the chain that no cycle can hold; T321, T322 where clocks or FIFOs allow no timetable.
    """
    flat = expand(image, timetable, system)
    chains = len(timetable.chains)
    eu, ev, ew = _joined(_edges(flat), register_edges(flat))
    _, key = earliest(chains, eu, ev, ew)
    order = np.lexsort((np.arange(chains), key)).astype(np.int64)
    res = _Resources(flat.table, flat.plan.chips)
    uses, use_of = _sorted_uses(
        [
            _port_uses(flat, res),
            _plane_uses(flat, res),
            *_link_uses(flat, res),
            *_queue_uses(flat, res, system),
        ],
        chains,
    )
    stream_of, stream_a, stream_b, stream_width = _streams(flat)
    pred_of = np.searchsorted(ev, np.arange(chains + 1)).astype(np.int64)
    start, pick, late, failed = place(
        order, pred_of, eu, ew, use_of, uses.a, uses.b, uses.first, uses.count, *_periods(flat, uses),
        stream_of, stream_a, stream_b, stream_width, res.total, res.queues, flat.table.streams,
    )  # fmt: skip
    if failed >= 0:
        raise Unschedulable(
            f"chain {timetable.labels[int(failed)]} needs more ports or streams at once than a chip has",
            where=f"system {image.key.system}", hint="use a system with more memory ports per bank group",
        )  # fmt: skip
    chains_out = timetable.chains.copy()
    chains_out[:, 1], chains_out[:, 2] = start, late
    placed = replace(timetable, chains=chains_out, rows=_stated_ports(flat, timetable, uses, pick, res))
    duration = _duration(flat, start)
    return replace(placed, duration=duration, deskew=deskew_period(system.chip, flat.plan.chips, duration))


def _duration(flat: Flat, start: Int64) -> int:
    """The first cycle after the last event, memory writes included; `flat` has every chain start at 0."""
    rows = flat.rows
    end = start[rows[:, col.C_CHAIN]] + rows[:, col.C_ISSUE] + rows[:, col.C_SPAN]
    end = end + np.where(rows[:, col.C_UNIT] == Unit.MEM_WRITE, flat.table.latency[Op.STORE], 0)
    end = end + np.where(rows[:, col.C_OP] == Op.LATCH, flat.table.latency[Op.LATCH], 0)
    return int(end.max()) if len(end) else 0


def _stated_ports(
    flat: Flat, timetable: Timetable, uses: _Uses, pick: Int64, res: _Resources
) -> npt.NDArray[np.int32]:
    """Class rows with their port columns: the port within its unit (and bank group), the plane for an INSTALL."""
    rows, table = flat.rows, flat.table
    port = np.zeros(len(rows), dtype=np.int64)
    unit = rows[uses.row, col.C_UNIT]
    plane = (unit == Unit.MXM_LOAD) & (uses.first == res.first[Unit.MXM_PLANE])
    link = (unit == Unit.C2C_SEND) | (unit == Unit.C2C_RECV)
    ordinary = ~plane & ~link & (unit != Unit.MXM_LOAD)
    group = np.where(unit <= Unit.MEM_WRITE, rows[uses.row, col.C_GROUP], 0)
    base = res.first[unit] + group * table.ports[unit]
    port[uses.row[ordinary]] = (pick - base)[ordinary]
    # a plane of 8 bits is the first byte of a pair, so that it never shares one with a plane of 16
    bytes_apart = np.where(rows[uses.row, col.C_DTYPE] >= Dtype.INT8, 2, 1)
    port[uses.row[plane]] = ((pick - res.first[Unit.MXM_PLANE]) * bytes_apart)[plane]
    stored = timetable.rows.copy()
    first = np.flatnonzero(rows[:, col.C_K] <= 1)
    peered = rows[first, col.C_K] == 1
    stored[:, col.V_PORT] = np.where(peered, 0, port[first])
    return stored
