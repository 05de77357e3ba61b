"""Timetables written by hand, row by row, for the tiny chip: no compiler and no scheduler takes part."""

from dataclasses import dataclass, field

import numpy as np

from ticktrue.hw import load_system
from ticktrue.isa import OPS, Dtype, Op, OpTable
from ticktrue.program import (
    AttentionKey,
    Image,
    ImageKey,
    Packing,
    Plan,
    Program,
    Region,
    RegionClass,
    StepKind,
    Timetable,
)
from ticktrue.program import columns as col
from ticktrue.sim import simulate

KIND = StepKind(1, 1, 1, "last", "chip")


@dataclass(frozen=True)
class Row:
    """One template row with what varies; names as in program/columns.py."""

    op: Op
    offset: int = 0
    fields: dict = field(default_factory=dict)

    def template(self):
        out = [0] * col.T_COLUMNS
        out[col.T_OP], out[col.T_OFFSET], out[col.T_GROUP] = (
            int(self.op),
            self.offset,
            self.fields.get("group", 0),
        )
        out[col.T_N] = out[col.T_M] = 1
        out[col.T_S0] = out[col.T_S1] = -1
        for name, value in self.fields.items():
            if name in col.T_NAMES:
                out[col.T_NAMES.index(name)] = int(value)
        return out

    def values(self):
        f = self.fields
        return [
            f.get("region", -1),
            f.get("base", 0),
            f.get("port", 0),
            *(f.get(a, 0) for a in ("a0", "a1", "a2", "a3")),
        ]


def row(op, offset=0, **fields):
    """A row; defaults: one event, width 1, no operand, group 0, port 0."""
    return Row(op, offset, {"width": 1, **fields})


@dataclass(frozen=True)
class Chain:
    """A chain: stated start, rows, whether it is marked late."""

    label: str
    start: int
    rows: tuple
    late: int = 0


def chain(label, start, *rows, late=0):
    return Chain(label, start, rows, late)


def scratch(name, count, *, group=0, base=0, stride=1):
    """A scratch region of `count` records."""
    return Region(name, RegionClass.SCRATCH, group, base, stride, count)


def weight(name, count, *, group=0, base=0):
    return Region(name, RegionClass.WEIGHT, group, base, 1, count, Packing.TILES)


def cache(name, count, *, group=0, base=0, stride=1):
    return Region(name, RegionClass.STATE, group, base, stride, count, Packing.KV)


def program(chains, regions, *, chips=1, cp=None, kind=KIND, duration=None, system=None, deskew=0, tray=0):
    """A program of one timetable; the duration is what the rows give, unless stated."""
    system = system or load_system("tiny-4")
    plan = Plan.of(chips, chips // (cp or chips), tray=tray)
    key = ImageKey(
        model="hand", spec="", weights="", system=system.name, facts=system.fact_digest(), fmt="bf16",
        kv="bf16", hypothetical=True,
        plan=plan, max_context=64, slots=1, t_max=1, vocab=1, attention=(AttentionKey(1, 1, 64, 0, 0),),
        layer_kinds=(0,),
    )  # fmt: skip
    image = Image(key, (), (), np.zeros((0, col.P_COLUMNS), dtype=np.int32))
    templates = [r.template() for c in chains for r in c.rows]
    starts = np.cumsum([0] + [len(c.rows) for c in chains]).astype(np.int32)
    timetable = Timetable(
        kind=kind,
        scratch=tuple(regions),
        templates=np.array(templates, dtype=np.int32).reshape(-1, col.T_COLUMNS),
        template_start=starts,
        chains=np.array([[i, c.start, c.late] for i, c in enumerate(chains)], dtype=np.int64).reshape(-1, 3),
        rows=np.array([r.values() for c in chains for r in c.rows], dtype=np.int32).reshape(
            -1, col.V_COLUMNS
        ),
        labels=tuple(c.label for c in chains),
        outputs=(),
        loops=(),
        duration=_duration(chains, plan, system) if duration is None else duration,
        dataflow="",
        deskew=deskew,
    )
    return Program(image, (timetable,))


def _duration(chains, plan, system):
    """docs/program.md section 3: the largest last event + w, plus the write latency of a STORE or SCATTER."""
    table, end = OpTable.of(system.chip), 0
    for c in chains:
        for r in c.rows:
            t = dict(zip(col.T_NAMES, r.template(), strict=True))
            w = 1
            vectors = int(table.port_vectors[OPS[r.op].units[0]])
            if t["wide"]:
                vectors = int(table.port_vectors[0])
            if vectors:
                w = -(-t["width"] // vectors)
            elif r.op == Op.INSTALL:
                w = -(-t["width"] * 320 // table.weight_load_bytes)
            elif r.op in {Op.SEND, Op.RECEIVE}:
                peers = plan.reach(t["pattern"])[0, 1:]
                w = t["width"] * max(int(system.slot_matrix()[0, peers].max(initial=0)), 1)
            peers = plan.size(t["pattern"]) - 1 if t["peers"] else 1
            stagger = (peers - 1) // int(table.ports[OPS[Op.STORE].units[0]]) if t["peers"] else 0
            last = c.start + r.offset + stagger + (t["n"] - 1) * t["p"] + (t["m"] - 1) * t["q"] + w
            end = max(end, last + (int(table.latency[r.op]) if r.op in {Op.STORE, Op.SCATTER} else 0))
    return end


def timed(chains, regions, **more):
    """The timing of a hand-made timetable on tiny-4."""
    system = more.get("system") or load_system("tiny-4")
    return simulate(program(chains, regions, **more), system)


BF16, F32 = Dtype.BF16, Dtype.F32
