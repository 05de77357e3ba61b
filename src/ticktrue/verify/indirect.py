"""Where memory rows may go: classes of regions, register functions, and addresses over all events, ranks and register values."""

import numpy as np

from ticktrue.isa import Op, RegFn
from ticktrue.isa.ops import BLOCK, ROPE_ROWS
from ticktrue.program import Image, Packing, RegionClass, StepKind
from ticktrue.program import columns as col
from ticktrue.program.types import Int64
from ticktrue.verify.shape import source_of
from ticktrue.verify.stored import MEMORY, READS, WRITES, Mask, Stored
from ticktrue.verify.verdict import Findings, Violation

MAX_VECTORS = 1 << 26
"""Greatest vectors that one row may touch over all values of its register."""

_LEGAL = (
    (Op.GATHER, RegFn.TOKEN, (RegionClass.WEIGHT,)),
    (Op.GATHER, RegFn.P_DIV, (RegionClass.CONST,)),
    (Op.GATHER, RegFn.P_MOD, (RegionClass.CONST,)),
    (Op.GATHER, RegFn.LAST, (RegionClass.SCRATCH, RegionClass.INBOX)),
    (Op.SCATTER, RegFn.KV, (RegionClass.STATE,)),
    (Op.GATHER, RegFn.EXPERT, (RegionClass.WEIGHT,)),
)
_TOKEN_FUNCTIONS = (RegFn.TOKEN, RegFn.P_DIV, RegFn.P_MOD, RegFn.KV)


def greatest(image: Image, kind: StepKind) -> Int64:
    """Greatest value of each register function in a step: int64[functions]. The least is 0 for all.

    That of KV depends on the row (`greatest_place`), that of an expert register on its producer: both are left at 0 here.
    """
    last = BLOCK * kind.blocks - 1
    out = np.zeros(len(RegFn), dtype=np.int64)
    out[RegFn.TOKEN] = image.key.vocab - 1
    out[RegFn.P_DIV] = last // ROPE_ROWS
    out[RegFn.P_MOD] = min(last, ROPE_ROWS - 1)
    out[RegFn.LAST] = kind.tokens - 1
    return out


def greatest_place(image: Image, kind: StepKind, pattern: Int64, ring: Int64) -> Int64:
    """Greatest place of a position on a chip, for rows of a context pattern and a ring of blocks (0: none): int64[rows]."""
    plan = image.key.plan
    cp = np.array([plan.size(k) for k in range(plan.patterns)], dtype=np.int64)[pattern]
    blocks = np.where(ring > 0, np.minimum(kind.blocks, ring), kind.blocks)
    return -(-blocks // cp) * BLOCK - 1


def check_addresses(s: Stored, findings: Findings) -> None:
    """Finds rows that address what they may not, or can leave their region."""
    before = findings.total
    _classes(s, findings)
    _functions(s, findings)
    if findings.total == before:
        _reach(s, findings)


def _class_of(s: Stored) -> Int64:
    classes = np.array([int(r.cls) for r in s.regions] + [-1], dtype=np.int64)
    return np.where(MEMORY[s.op], classes[s.v[:, col.V_REGION]], -1)


def _classes(s: Stored, findings: Findings) -> None:
    """STORE and SCATTER write what they may; nothing reads code or an arena."""
    op, cls = s.op, _class_of(s)
    scratch = (cls == RegionClass.SCRATCH) | (cls == RegionClass.INBOX)
    bad = ((op == Op.STORE) & ~scratch) | ((op == Op.SCATTER) & (cls != RegionClass.STATE))
    bad &= WRITES[op]
    s.each(findings, "V116", bad, "writes region {}, which its op may not write", s.v[:, col.V_REGION])
    nothing = READS[op] & ((cls == RegionClass.CODE) | (cls == RegionClass.ARENA))
    s.each(
        findings,
        "V103",
        nothing,
        "reads region {}, where nothing that the program means lies",
        s.v[:, col.V_REGION],
    )


def _functions(s: Stored, findings: Findings) -> None:
    op, fn, cls = s.op, s.t[:, col.T_REGFN], _class_of(s)
    plain = ~np.isin(op, [int(Op.GATHER), int(Op.SCATTER)])
    legal: Mask = plain & (fn == RegFn.NONE)
    for an_op, a_fn, classes in _LEGAL:
        inside = np.isin(cls, [int(c) for c in classes])
        # a SCATTER outside state is V116, not a matter of its register
        legal |= (op == an_op) & (fn == a_fn) & (inside | (op == Op.SCATTER))
    s.each(findings, "V122", ~legal, "register function {} is not legal in this op and region", fn)
    kind, first = s.timetable.kind, s.v[:, col.V_A0]
    last = first + s.t[:, col.T_N] - 1
    token = legal & np.isin(fn, [int(f) for f in _TOKEN_FUNCTIONS])
    rows = kind.slots * kind.tokens
    s.each(findings, "V122", token & ((first < 0) | (last >= rows)),
           f"takes the register of token row {{}} of a step of {rows}", last)  # fmt: skip
    slot = token & (fn == RegFn.KV) & (first // kind.tokens != last // kind.tokens)
    s.each(findings, "V122", slot, "takes registers of two slots, up to token row {}", last)
    begin = legal & (fn == RegFn.LAST) & ((first < 0) | (first >= rows) | (first % kind.tokens != 0))
    s.each(findings, "V122", begin, "expected the first token row of a slot, found {}", first)
    _layers(s, findings)
    _experts(s, findings)


def _experts(s: Stored, findings: Findings) -> None:
    """Expert registers exist for the token rows of a step; a row that names one has an event or round for each."""
    rows, first = s.timetable.kind.slots * s.timetable.kind.tokens, s.v[:, col.V_A0]
    read = (s.op == Op.GATHER) & (s.t[:, col.T_REGFN] == RegFn.EXPERT)
    written = s.op == Op.LATCH
    last = first + np.where(read, s.t[:, col.T_M], s.t[:, col.T_N] * s.t[:, col.T_M]) - 1
    s.each(findings, "V122", (read | written) & ((first < 0) | (last >= rows)),
           f"takes the expert register of token row {{}} of a step of {rows}", last)  # fmt: skip
    rank, most = s.v[:, col.V_A1], int(s.t[_choices(s), col.T_X0].max(initial=0))
    s.each(findings, "V122", read & ((rank < 0) | (rank >= most)),
           f"takes the expert register of rank {{}}, where {most} are written", rank)  # fmt: skip


def _choices(s: Stored) -> Int64:
    """The TOPKs whose ids a LATCH writes to registers: what they choose from is the range of every expert register."""
    found: Int64 = source_of(s, col.T_S0)[s.op == Op.LATCH]
    return found


def _layers(s: Stored, findings: Findings) -> None:
    """A SCATTER goes round in the ring of the layer whose state it writes, and to the context lanes of its kind of attention."""
    key = s.image.key
    ring, context = (np.zeros(len(s.regions) + 1, dtype=np.int64) for _ in range(2))
    for i, r in enumerate(s.regions):
        if r.packing == Packing.KV:
            ring[i] = key.of_layer(r.p0 // 2).ring
            context[i] = key.plan.pattern(col.PATTERN_CONTEXT, key.layer_kinds[r.p0 // 2])
    region = s.v[:, col.V_REGION]
    scatter = (s.op == Op.SCATTER) & (_class_of(s) == RegionClass.STATE)
    of_layer = (
        ("ring (a1)", ring, s.v[:, col.V_A1]),
        ("context lanes (pattern)", context, s.t[:, col.T_PATTERN]),
    )
    for name, expected, found in of_layer:
        text = f"expected the {name} of the layer's state, found {{}}"
        s.each(findings, "V100", scatter & (expected[region] != found), text, found)


def _reach(s: Stored, findings: Findings) -> None:
    """V120, V121: by interval arithmetic; V112 for a row that touches more vectors than any memory has."""
    t, v, memory = s.t, s.v, MEMORY[s.op]
    plan = s.image.key.plan
    top = greatest(s.image, s.timetable.kind)[t[:, col.T_REGFN]]
    top = np.where(t[:, col.T_REGFN] == RegFn.EXPERT, int(v[_choices(s), col.V_A0].max(initial=1)) - 1, top)
    place = greatest_place(s.image, s.timetable.kind, t[:, col.T_PATTERN], v[:, col.V_A1])
    top = np.where(t[:, col.T_REGFN] == RegFn.KV, place, top)
    sizes = np.array([plan.ranks(k) for k in range(plan.patterns)], dtype=np.int64)
    ranked = t[:, col.T_RANKFN] != col.RANK_NONE
    parts = np.stack([
        (t[:, col.T_N] - 1) * t[:, col.T_STEP], (t[:, col.T_M] - 1) * t[:, col.T_STEP2],
        np.where(ranked, (sizes[t[:, col.T_PATTERN]] - 1) * t[:, col.T_RANKSTRIDE], 0),
        top * t[:, col.T_REGSTRIDE],
    ])  # fmt: skip
    low = v[:, col.V_BASE] + np.minimum(parts, 0).sum(axis=0)
    high = v[:, col.V_BASE] + np.maximum(parts, 0).sum(axis=0) + t[:, col.T_WIDTH]
    region = v[:, col.V_REGION]
    vectors = np.array([r.vectors for r in s.regions] + [0], dtype=np.int64)[region]
    base = np.array([r.base for r in s.regions] + [0], dtype=np.int64)[region]
    out = memory & ((low < 0) | (high > vectors))
    stripe = memory & ((base + low < 0) | (base + high > s.table.group_vectors))
    _leaves(s, findings, out & ~stripe, (low, high))
    _leaves(s, findings, stripe, (low, high))
    values = np.where(t[:, col.T_REGSTRIDE] != 0, top + 1, 1).astype(float)
    moved = values * t[:, col.T_N] * t[:, col.T_M] * t[:, col.T_WIDTH]
    s.each(findings, "V112", memory & (moved > MAX_VECTORS), f"can touch more than {MAX_VECTORS:_} vectors")


def _leaves(s: Stored, findings: Findings, mask: Mask, span: tuple[Int64, Int64]) -> None:
    low, high = span
    rows = np.flatnonzero(mask)
    listed = rows[: findings.room].tolist()
    for row in listed:
        r = s.regions[int(s.v[row, col.V_REGION])]
        stripe = r.base + int(low[row]) < 0 or r.base + int(high[row]) > s.table.group_vectors
        code, beyond = ("V121", f"bank group {r.group}") if stripe else ("V120", f"region {r.name}")
        name = s.name(row)
        reach = f"vectors {int(low[row]):_} to {int(high[row]) - 1:_}"
        message = (f"{name} can reach {reach} of region {r.name} ({r.vectors:_} vectors), "
                   f"beyond {beyond}")  # fmt: skip
        place = f"{s.where}, chain {int(s.chain[row])} row {int(s.local[row])}"
        cycle = int(s.timetable.chains[s.chain[row], 1] + s.t[row, col.T_OFFSET])
        findings.add(
            Violation(
                code,
                message,
                _chip(s, row, low_side=bool(low[row] < 0)),
                cycle,
                name,
                f"region {r.name}",
                place,
            )
        )
    findings.count(len(rows) - len(listed))


def _chip(s: Stored, row: int, *, low_side: bool) -> int:
    """A chip whose rank takes the address of a row furthest to that side."""
    if s.t[row, col.T_RANKFN] == col.RANK_NONE:
        return 0
    plan, pattern = s.image.key.plan, int(s.t[row, col.T_PATTERN])
    furthest = plan.size(pattern) - 1 if (int(s.t[row, col.T_RANKSTRIDE]) >= 0) != low_side else 0
    if s.t[row, col.T_RANKFN] == col.RANK_FROM and s.t[row, col.T_PEERS] > 0:
        furthest = (furthest + 1) % plan.size(pattern)  # its first copy hears the chip before it
    return plan.member(pattern, 0, furthest)
