"""A small legal program written by hand for the test machines, and the tools to plant one fault in it.

Every chain has its own template, so a template field can be changed for one chain alone. Chains follow each other, except where
they are meant to run side by side ("pair", "tile.a" and "tile.b", "gather.a" and "gather.b").
"""

from dataclasses import dataclass, field, replace

import numpy as np

from ticktrue.hw import System, load_system
from ticktrue.isa import OPS, Dtype, Kind, Op, OpTable, Unit
from ticktrue.program import (
    AttentionKey,
    Image,
    ImageKey,
    Output,
    Packing,
    Plan,
    Program,
    Region,
    RegionClass,
    StepKind,
    Tensor,
    Timetable,
    expand,
)
from ticktrue.program import columns as col

TOKENS, BLOCKS, VOCAB = 4, 8, 50
BF16, F32 = int(Dtype.BF16), int(Dtype.F32)
EVENTS = ("n", "p", "m", "q")
ATTRIBUTES = ("a0", "a1", "a2", "a3")


@dataclass
class Draft:
    """Chains under construction for one system."""

    system: System
    plan: Plan
    regions: tuple[Region, ...]
    scratch: tuple[Region, ...]
    templates: list[list[list[int]]] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table = OpTable.of(self.system.chip)
        self.index = {r.name: i for i, r in enumerate(self.regions + self.scratch)}
        self.group = {r.name: r.group for r in self.regions + self.scratch}
        self.now = 0

    def chain(self, label: str, rows: list[dict], at: int | None = None) -> int:
        """Adds a chain at `at`, by default after everything so far; gives its start."""
        start = self.now if at is None else at
        template = []
        for r in rows:
            template.append(self._template_row(template, dict(r)))
            self.rows.append(self._class_row(dict(r)))
        ends = [t[col.T_OFFSET] + _span(t) + self._hold(t) for t in template]
        self.now = max(self.now, start + max(ends) + 10)
        self.templates.append(template)
        self.labels.append(label)
        self.starts.append(start)
        return start

    def _hold(self, t: list[int]) -> int:
        """More than any row holds its port, stagger of copies included."""
        return 40 * max(t[col.T_WIDTH], 1)

    def _template_row(self, template: list[list[int]], r: dict) -> list[int]:
        out = [0] * col.T_COLUMNS
        out[col.T_S0] = out[col.T_S1] = -1
        out[col.T_N] = out[col.T_M] = 1
        out[col.T_OP] = int(r["op"])
        out[col.T_GROUP] = self.group[r["region"]] if "region" in r else -1
        if r["op"] == Op.PASS:
            out[col.T_DTYPE] = F32
        for name, value in r.items():
            if name in col.T_NAMES and name != "op":
                out[col.T_NAMES.index(name)] = int(value)
        source = r.get("s0")
        if source is not None and not set(EVENTS) & set(r):
            first = template[source]
            keep = OPS[first[col.T_OP]].kind not in {Kind.REDUCE, Kind.RESHAPE}
            events = [first[c] for c in (col.T_N, col.T_P, col.T_M, col.T_Q)]
            if OPS[first[col.T_OP]].kind == Kind.REDUCE:
                events = [events[2], events[3], 1, 0]
            elif not keep:
                events = [first[col.T_X0], 1 if first[col.T_X0] > 1 else 0, events[2], events[3]]
            out[col.T_N], out[col.T_P], out[col.T_M], out[col.T_Q] = events
        if "offset" not in r and source is not None:
            out[col.T_OFFSET] = self._heard(template[source], out)
        return out

    def _heard(self, source: list[int], row: list[int]) -> int:
        first = source[col.T_OFFSET] + int(self.table.latency[source[col.T_OP]])
        if OPS[source[col.T_OP]].kind in {Kind.REDUCE, Kind.RESHAPE}:
            first += (source[col.T_N] - 1) * source[col.T_P]
        if row[col.T_OP] == Op.RECEIVE:
            latency = self.system.latency_matrix()[: self.plan.chips, : self.plan.chips]
            slot = self.system.slot_matrix()[: self.plan.chips, : self.plan.chips]
            first += int(latency.max()) + (source[col.T_WIDTH] - 1) * int(slot.max()) + self.table.guard
        return first

    def _class_row(self, r: dict) -> list[int]:
        out = [0] * col.V_COLUMNS
        out[col.V_REGION] = self.index[r["region"]] if "region" in r else -1
        for name in ("base", "port", *ATTRIBUTES):
            out[col.V_NAMES.index(name)] = int(r.get(name, 0))
        return out

    def timetable(self, outputs: tuple[Output, ...]) -> Timetable:
        flat = [row for rows in self.templates for row in rows]
        start = np.cumsum([0] + [len(t) for t in self.templates]).astype(np.int32)
        chains = np.array([[i, s, 0] for i, s in enumerate(self.starts)], dtype=np.int64)
        return Timetable(
            kind=StepKind(TOKENS, 1, BLOCKS, "last", "chip"), scratch=self.scratch,
            templates=np.array(flat, dtype=np.int32), template_start=start, chains=chains,
            rows=np.array(self.rows, dtype=np.int32), labels=tuple(self.labels), outputs=outputs, loops=(), duration=0,
            dataflow="",
        )  # fmt: skip


def _span(t: list[int]) -> int:
    return (t[col.T_N] - 1) * t[col.T_P] + (t[col.T_M] - 1) * t[col.T_Q]


def regions_of(plan: Plan, group_vectors: int) -> tuple[Region, ...]:
    """Image regions of the small model: width 320, one layer, one KV head of 64; `rope` at the very end of group 3."""
    rank = -(-320 // plan.chips)
    c = RegionClass
    positions = 64 * -(-BLOCKS // plan.grids[0].cp)
    return (
        Region("embed", c.WEIGHT, 0, 0, -(-rank * 2 // 320), VOCAB, Packing.ROWS, 0),
        Region("w.a", c.WEIGHT, 1, 0, 320, 1, Packing.TILES),
        Region("w.b", c.WEIGHT, 2, 2000, 320, 1, Packing.TILES),
        Region("norm", c.CONST, 2, 0, 4, 1, Packing.LANES, 2),
        Region("rope_b", c.CONST, 3, group_vectors - 512, 1, 512, Packing.ROPE_B, -1, 64),
        Region("k", c.STATE, 2, 100, 1, positions, Packing.KV, -1, 0, 0),
        Region("in.a", c.INBOX, 3, 0, 2, 2 * plan.chips + 1),
        Region("in.b", c.INBOX, 2, 1000, 2, 2 * plan.chips),
        Region("code", c.CODE, 3, 500, 1, 200),
        Region("arena.0", c.ARENA, 0, 1000, 1, 400),
        Region("arena.1", c.ARENA, 1, 1000, 1, 400),
    )


SCRATCH = (
    Region("e", RegionClass.SCRATCH, 0, 1000, 1, 2 * TOKENS),
    Region("x", RegionClass.SCRATCH, 0, 1010, 4, 4 * TOKENS),
    Region("y", RegionClass.SCRATCH, 1, 1000, 4, 2 * TOKENS),
    Region("part", RegionClass.SCRATCH, 1, 1040, 4, 2 * TOKENS),
    Region("shard", RegionClass.SCRATCH, 1, 1080, 2, TOKENS),
    Region("olm", RegionClass.SCRATCH, 0, 1100, 1, 64),
    Region("m", RegionClass.SCRATCH, 0, 1200, 1, 2),
    Region("logits", RegionClass.SCRATCH, 1, 1120, 4 * TOKENS, 2),
    Region("next", RegionClass.SCRATCH, 1, 1160, TOKENS, 1),
)


def image_of(system: System, plan: Plan) -> Image:
    table = OpTable.of(system.chip)
    key = ImageKey(
        model="hand", spec="", weights="", system=system.name, facts=system.fact_digest(), fmt="bf16",
        kv="bf16", hypothetical=False,
        plan=plan, max_context=64 * BLOCKS - TOKENS, slots=1, t_max=TOKENS, vocab=VOCAB,
        attention=(AttentionKey(1, 1, 64, 0, 0),), layer_kinds=(0,),
    )  # fmt: skip
    rank = -(-320 // plan.chips)
    tensors = (
        Tensor("embed", VOCAB, 320, rank),
        Tensor("w", 160 * plan.chips, 320, 160),
        Tensor("norm", 1, 320, 320),
    )
    # two tiles of 160 rows: K tile 0 and 1 of a tensor [*, 320] of 160 columns per rank
    pieces = np.array([[1, 0, 160, 0, 160, 1, 0, 0], [2, 0, 160, 0, 160, 1, 160, 0]], dtype=np.int32)
    return Image(key, tensors, regions_of(plan, table.group_vectors), pieces)


def good(system: System | None = None, plan: Plan | None = None) -> tuple[Program, System]:
    """A legal program that uses every kind of row."""
    system = system or load_system("tiny-4")
    plan = plan or Plan.of(system.chips, 1)
    image = image_of(system, plan)
    d = Draft(system, plan, image.regions, SCRATCH)
    _chains(d)
    timetable = d.timetable(
        (Output("logits", d.index["logits"], 0, 1, 1), Output("next_token", d.index["next"], 0, 1, 1))
    )
    return with_duration(Program(image, (timetable,)), system), system


def _chains(d: Draft) -> None:
    t, slot = TOKENS, max(int(d.system.slot_matrix().max()), 1)
    four = {"n": t, "p": 1}
    blocks = -(-BLOCKS // d.plan.grids[0].cp)

    def per_block(q: int) -> dict:
        return {"m": blocks, "q": q if blocks > 1 else 0, "step2": 64 if blocks > 1 else 0}

    d.chain("embed", [
        {"op": Op.GATHER, "region": "embed", "width": 1, **four, "reg_fn": 1, "reg_stride": 1},
        {"op": Op.STORE, "region": "e", "s0": 0, "width": 1, "step": 1},
    ])  # fmt: skip
    # two independent additions side by side: other read, write and VXM ports
    load = {"op": Op.LOAD, "width": 1, **four}
    d.chain("pair", [
        {**load, "region": "e", "step": 1, "port": 0},
        {**load, "region": "e", "step": 1, "port": 1},
        {"op": Op.ADD, "s0": 0, "s1": 1, "port": 0},
        {"op": Op.MUL, "s0": 0, "s1": 1, "port": 1},
        {"op": Op.STORE, "region": "x", "s0": 2, "dtype": F32, "width": 4, "step": 4, "port": 0},
        {"op": Op.STORE, "region": "x", "base": 4 * t, "s0": 3, "dtype": F32, "width": 4, "step": 4, "port": 1},
    ])  # fmt: skip
    d.chain("round", [
        {"op": Op.LOAD, "region": "x", "dtype": F32, "width": 4, **four, "step": 4},
        {"op": Op.CONVERT, "s0": 0},
        {"op": Op.STORE, "region": "y", "s0": 1, "width": 2, "step": 2},
    ])  # fmt: skip
    # the weights: two tiles on two planes; the second is loaded while the first still passes
    start = d.now
    for name, plane, begin in (("a", 0, start), ("b", 1, start + 45)):
        d.chain(f"tile.{name}", _tile(name, plane), at=begin)
    d.chain("fold", [
        {"op": Op.LOAD, "region": "part", "dtype": F32, "width": 4, "n": 2, "p": 1, "m": t, "q": 2, "step": 4 * t, "step2": 4},
        {"op": Op.FOLD, "s0": 0},
        {"op": Op.CONVERT, "s0": 1, "port": 1},
        {"op": Op.STORE, "region": "shard", "s0": 2, "width": 2, "step": 2},
    ])  # fmt: skip
    # two all-gathers over one link, the second in the idle slots of the first
    start = d.now
    for name, begin in (("a", start), ("b", start + 2 * slot)):
        d.chain(f"gather.{name}", _gather(f"in.{name}", 4 * slot, 0 if name == "a" else 1), at=begin)
    d.chain("keep", [
        {"op": Op.LOAD, "region": "shard", "width": 2, "n": 2, "p": 1, "step": 2},
        {"op": Op.STORE, "region": "in.a", "s0": 0, "width": 2, "step": 2, "rank_fn": col.RANK_OWN, "rank_stride": 4},
    ])  # fmt: skip
    d.chain("merge", [
        {"op": Op.LOAD, "region": "in.a", "width": 2, "n": d.plan.chips, "p": 1, "m": 2, "q": d.plan.chips,
         "step": 4, "step2": 2},
        {"op": Op.MERGE, "s0": 0, "x0": 1, "a0": 80, "a3": 320},
        {"op": Op.LOAD, "region": "rope_b", "dtype": F32, "width": 1, "n": 2, "p": d.plan.chips, "step": 1, "port": 1,
         "offset": d.plan.chips - 1 + int(d.table.latency[Op.MERGE])},
        {"op": Op.ROPE, "s0": 1, "s1": 2, "x0": 64, "x1": 5},
        {"op": Op.STORE, "region": "x", "s0": 3, "dtype": F32, "width": 4, "step": 4, "base": 8 * t},
    ])  # fmt: skip
    d.chain("append", [
        {"op": Op.LOAD, "region": "y", "width": 1, **four, "step": 2},
        {"op": Op.SCATTER, "region": "k", "s0": 0, "width": 1, "reg_fn": 4, "reg_stride": 1, "pattern": col.PATTERN_CONTEXT},
    ])  # fmt: skip
    d.chain("score", [
        {"op": Op.LOAD, "region": "k", "width": 1, "n": 64, "p": 1, "step": 1, **per_block(64)},
        {"op": Op.SCALE, "s0": 0, "x0": 1065353216},
        {"op": Op.MASK, "s0": 1, "x0": t, "pattern": col.PATTERN_CONTEXT, "port": 1},
        {"op": Op.MAX, "s0": 2, "port": 2},
        {"op": Op.STORE, "region": "m", "s0": 3, "dtype": F32, "width": 1, "step": int(blocks > 1)},
    ])  # fmt: skip
    d.chain("seed", [
        {"op": Op.LOAD, "region": "norm", "dtype": F32, "width": 1, "n": 64, "p": 1},
        {"op": Op.STORE, "region": "olm", "s0": 0, "dtype": F32, "width": 1, "step": 1},
    ])  # fmt: skip
    # in place: the write of event i follows its read
    d.chain("combine", [
        {"op": Op.LOAD, "region": "olm", "dtype": F32, "width": 1, "n": 32, "p": 1, "step": 1, "port": 0},
        {"op": Op.LOAD, "region": "olm", "base": 32, "dtype": F32, "width": 1, "n": 32, "p": 1, "step": 1, "port": 1},
        {"op": Op.COMBINE, "s0": 0, "s1": 1, "x0": 64},
        {"op": Op.STORE, "region": "olm", "s0": 2, "dtype": F32, "width": 1, "step": 1},
    ])  # fmt: skip
    d.chain("turn", [
        {"op": Op.LOAD, "region": "e", "width": 1, **four, "step": 1},
        {"op": Op.TRANSPOSE, "s0": 0, "x0": 8},
        {"op": Op.INSTALL, "s0": 1, "width": 1, "a0": 0, "a1": 0, "a2": 4},
        {"op": Op.LOAD, "region": "e", "width": 1, **four, "step": 1, "offset": 80},
        {"op": Op.PASS, "s0": 3, "s1": 2},
        {"op": Op.STORE, "region": "x", "base": 12 * t, "s0": 4, "dtype": F32, "width": 4, "step": 4},
    ])  # fmt: skip
    d.chain("last", [
        {"op": Op.GATHER, "region": "x", "dtype": F32, "width": 4, "reg_fn": 5, "reg_stride": 4},
        {"op": Op.SILU_MUL, "s0": 0, "s1": 0},
        {"op": Op.STORE, "region": "logits", "s0": 1, "dtype": F32, "width": 4},
    ])  # fmt: skip
    d.chain("noise", [
        {"op": Op.LOAD, "region": "logits", "dtype": F32, "width": 1},
        {"op": Op.NOISE, "s0": 0, "x0": 1, "a0": -(-VOCAB // d.plan.chips), "a1": VOCAB},
        {"op": Op.STORE, "region": "next", "s0": 1, "dtype": F32, "width": 1},
    ])  # fmt: skip
    d.chain("pick", [
        {"op": Op.LOAD, "region": "logits", "dtype": F32, "width": 1},
        {"op": Op.LANE_ARGMAX, "s0": 0, "a0": -(-VOCAB // d.plan.chips), "a1": VOCAB},
        {"op": Op.STORE, "region": "next", "s0": 1, "dtype": F32, "width": 1},
    ])  # fmt: skip
    # token by token, several tiles on one plane
    d.chain("value", [
        {"op": Op.LOAD, "region": "k", "width": 64, **per_block(60), "wide": 1},
        {"op": Op.INSTALL, "s0": 0, "width": 64, "x0": 1, "x1": 1, "a1": 0, "a2": 64},
        {"op": Op.LOAD, "region": "e", "width": 1, "n": t, "p": 1, **(per_block(60) | {"step2": 0}), "step": 1, "offset": 20},
        {"op": Op.PASS, "s0": 2, "s1": 1},
        {"op": Op.MOVE, "s0": 3, "a0": 0, "a1": 65},
        {"op": Op.STORE, "region": "part", "s0": 4, "dtype": F32, "width": 4, "step": 4, "step2": 4 * t * (blocks > 1)},
    ])  # fmt: skip


def _tile(name: str, plane: int) -> list[dict]:
    second = name == "b"
    return [
        {"op": Op.LOAD, "region": f"w.{name}", "width": 320, "wide": 1},
        {"op": Op.INSTALL, "s0": 0, "width": 320, "x0": 2, "a1": 0, "a2": 320, "port": plane},
        {"op": Op.LOAD, "region": "y", "base": int(second), "width": 1, "n": TOKENS, "p": 1, "step": 2, "offset": 60,
         "port": plane},
        {"op": Op.PASS, "s0": 2, "s1": 1},
        {"op": Op.MOVE, "s0": 3, "a1": 160, "port": plane},
        {"op": Op.STORE, "region": "part", "base": 4 * TOKENS * second, "s0": 4, "dtype": F32, "width": 4, "step": 4,
         "port": plane},
    ]  # fmt: skip


def _gather(inbox: str, period: int, port: int) -> list[dict]:
    peers = {"peers": 1, "width": 2}
    return [
        {"op": Op.LOAD, "region": "shard", "width": 2, "n": 2, "p": period, "step": 2, "port": port},
        {"op": Op.SEND, "s0": 0, **peers},
        {"op": Op.RECEIVE, "s0": 1, **peers},
        {
            "op": Op.STORE,
            "region": inbox,
            "s0": 2,
            **peers,
            "step": 2,
            "rank_fn": col.RANK_FROM,
            "rank_stride": 4,
        },
    ]


# ---- planting ----------------------------------------------------------------------------------------------------------------


def with_duration(program: Program, system: System) -> Program:
    """The program with the duration that its rows have."""
    (t,) = program.timetables
    rows = expand(program.image, t, system).rows
    write = rows[:, col.C_UNIT] == Unit.MEM_WRITE
    end = (
        rows[:, col.C_ISSUE]
        + rows[:, col.C_SPAN]
        + np.where(write, OpTable.of(system.chip).latency[Op.STORE], 0)
    )
    return with_timetable(program, duration=int(end.max()))


def with_timetable(program: Program, **changes: object) -> Program:
    (t,) = program.timetables
    return replace(program, timetables=(replace(t, **changes),))


def with_image(program: Program, **changes: object) -> Program:
    return replace(program, image=replace(program.image, **changes))


def with_key(program: Program, **changes: object) -> Program:
    return with_image(program, key=replace(program.image.key, **changes))


def with_region(program: Program, name: str, **changes: object) -> Program:
    """One image or scratch region changed."""
    change = lambda rs: tuple(replace(r, **changes) if r.name == name else r for r in rs)  # noqa: E731
    changed = with_image(program, regions=change(program.image.regions))
    return with_timetable(changed, scratch=change(program.timetables[0].scratch))


def on(program: Program, system: System) -> Program:
    """The program as if it had been compiled for the facts of `system`."""
    return with_key(program, system=system.name, facts=system.fact_digest())


def row_of(program: Program, label: str, row: int) -> int:
    """Number of a stored row."""
    (t,) = program.timetables
    chain = t.labels.index(label)
    return int(t.template_start[t.chains[chain, 0]]) + row


def template(program: Program, label: str, row: int, **fields: int) -> Program:
    """Template fields of one row changed."""
    (t,) = program.timetables
    table = t.templates.copy()
    for name, value in fields.items():
        table[row_of(program, label, row), col.T_NAMES.index(name)] = value
    return with_timetable(program, templates=table)


def stored(program: Program, label: str, row: int, **fields: int) -> Program:
    """Fields of one stored row changed."""
    (t,) = program.timetables
    table = t.rows.copy()
    for name, value in fields.items():
        table[row_of(program, label, row), col.V_NAMES.index(name)] = value
    return with_timetable(program, rows=table)


def shifted(program: Program, label: str, by: int) -> Program:
    """One chain started later."""
    (t,) = program.timetables
    chains = t.chains.copy()
    chains[t.labels.index(label), 1] += by
    return with_timetable(program, chains=chains)


def region_id(program: Program, name: str) -> int:
    regions = program.image.regions + program.timetables[0].scratch
    return [r.name for r in regions].index(name)


def template_field(program: Program, label: str, row: int, name: str) -> int:
    return int(program.timetables[0].templates[row_of(program, label, row), col.T_NAMES.index(name)])


def only(program: Program, label: str, rows: tuple[int, ...]) -> Program:
    """A program of some rows of one chain."""
    (t,) = program.timetables
    chain = t.labels.index(label)
    kept = [row_of(program, label, row) for row in rows]
    templates = t.templates[kept].copy()
    for column in (col.T_S0, col.T_S1):
        templates[:, column] = [rows.index(s) if s in rows else -1 for s in templates[:, column].tolist()]
    return with_timetable(
        program, templates=templates, template_start=np.array([0, len(kept)], dtype=np.int32),
        chains=np.array([[0, t.chains[chain, 1], 0]]), rows=t.rows[kept], labels=(label,),
    )  # fmt: skip
