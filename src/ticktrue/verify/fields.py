"""Whether every field of a row means something in its op: ranges by op, and zero where it means nothing (V100, V112)."""

import numpy as np

from ticktrue.isa import Dtype, Op, RegFn, Unit
from ticktrue.isa.ops import BLOCK, LANES
from ticktrue.program import columns as col
from ticktrue.program.types import Int64
from ticktrue.verify.stored import ELEMENT_BYTES, LINK, MEMORY, UNIT, Mask, Stored
from ticktrue.verify.verdict import Findings

_X0 = {Op.INSTALL, Op.SCALE, Op.MEAN_RSQRT, Op.CMUL, Op.ROPE, Op.MASK, Op.COMBINE, Op.DIVIDE, Op.MERGE, Op.TRANSPOSE,
       Op.SPREAD, Op.INSERT, Op.SOFTCAP, Op.NOISE, Op.TOPK}  # fmt: skip
_X1 = {Op.INSTALL, Op.MEAN_RSQRT, Op.ROPE, Op.MERGE}
_A = {
    Op.INSTALL: 3,
    Op.MASK: 4,
    Op.MOVE: 3,
    Op.MERGE: 4,
    Op.LANE_ARGMAX: 3,
    Op.NOISE: 3,
    Op.GATHER: 2,
    Op.SCATTER: 2,
    Op.TOPK: 1,
    Op.LATCH: 1,
    Op.ACCEPT: 1,
}
_WIDTH = {Op.LOAD, Op.GATHER, Op.STORE, Op.SCATTER, Op.SEND, Op.RECEIVE, Op.INSTALL}
_EIGHT = {Op.TILE_SCALE, Op.QUANTISE}
_DTYPE = _WIDTH | {Op.TRANSPOSE} | _EIGHT

PAIR = 2
"""Lanes that RoPE turns together."""
MAX_MOVED = 1 << 20
"""Greatest vectors that the events of a row move, and results that it has: they are buffered whole when it is executed."""


def check_fields(s: Stored, findings: Findings) -> None:
    """Finds fields that contradict others or have no meaning where they stand, and attributes that cannot be."""
    _canonical(s, findings)
    _memory(s, findings)
    _ports(s, findings)
    _widths(s, findings)
    _noise(s, findings)
    _accept(s, findings)
    _attributes(s, findings)
    _install(s, findings)


def _is(s: Stored, ops: set[Op]) -> Mask:
    return np.isin(s.op, [int(o) for o in ops])


def _zero(s: Stored, findings: Findings, mask: Mask, what: tuple[str, Int64, int]) -> None:
    """V100 where a field without meaning is not its one value."""
    name, values, expected = what
    text = f"expected {name} = {expected}, which means nothing here, found {{}}"
    s.each(findings, "V100", mask & (values != expected), text, values)


def _told(s: Stored, findings: Findings, name: str, mask: Mask, values: tuple[int, ...]) -> None:
    """V100 where a field is none of the values that its op leaves it."""
    found = s.t[:, col.T_NAMES.index(name)]
    text = f"expected {name} = {' or '.join(str(x) for x in sorted(set(values)))}, which follows from the op, found {{}}"
    s.each(findings, "V100", mask & ~np.isin(found, values), text, found)


def _canonical(s: Stored, findings: Findings) -> None:
    t, v = s.t, s.v
    n, p, m, q = (t[:, c] for c in (col.T_N, col.T_P, col.T_M, col.T_Q))
    memory = MEMORY[s.op]
    ranked = t[:, col.T_RANKFN] != col.RANK_NONE
    context = _is(s, {Op.MASK, Op.SCATTER})
    patterned = (t[:, col.T_PEERS] > 0) | ranked | context | _is(s, {Op.LANE_ARGMAX, Op.NOISE})
    everywhere = (
        (n == 1, ("p", p, 0)), (m == 1, ("q", q, 0)),
        ((n == 1) | ~memory, ("step", t[:, col.T_STEP], 0)), ((m == 1) | ~memory, ("step2", t[:, col.T_STEP2], 0)),
        (~memory, ("group", t[:, col.T_GROUP], -1)), (~memory, ("region", v[:, col.V_REGION], -1)),
        (~memory, ("base", v[:, col.V_BASE], 0)), (~memory, ("rank_fn", t[:, col.T_RANKFN], 0)),
        (~ranked, ("rank_stride", t[:, col.T_RANKSTRIDE], 0)),
        (t[:, col.T_REGFN] == 0, ("reg_stride", t[:, col.T_REGSTRIDE], 0)),
        (~patterned, ("pattern", t[:, col.T_PATTERN], 0)),
        (~_is(s, _X0), ("x0", t[:, col.T_X0], 0)), (~_is(s, _X1), ("x1", t[:, col.T_X1], 0)),
        (~_is(s, _WIDTH), ("width", t[:, col.T_WIDTH], 0)),
    )  # fmt: skip
    for mask, what in everywhere:
        _zero(s, findings, mask, what)
    _zero(s, findings, ~_is(s, _DTYPE | {Op.CONVERT, Op.PASS}), ("dtype", t[:, col.T_DTYPE], 0))
    for i, column in enumerate((col.V_A0, col.V_A1, col.V_A2, col.V_A3)):
        _zero(s, findings, ~_is(s, {o for o, count in _A.items() if count > i}), (f"a{i}", v[:, column], 0))
    ranked_register = (s.op == Op.GATHER) & (t[:, col.T_REGFN] == RegFn.EXPERT)
    _zero(s, findings, (s.op == Op.GATHER) & ~ranked_register, ("a1", v[:, col.V_A1], 0))
    _told(s, findings, "dtype", s.op == Op.PASS, (int(Dtype.F32),))
    plan, kinds = s.image.key.plan, range(len(s.image.key.attention))
    _told(s, findings, "pattern", context, tuple(plan.pattern(col.PATTERN_CONTEXT, kind) for kind in kinds))
    for ops, types in (({Op.CONVERT}, (Dtype.BF16, Dtype.E4M3)), (_EIGHT, (Dtype.INT8, Dtype.E4M3))):
        wrong = _is(s, ops) & ~np.isin(t[:, col.T_DTYPE], [int(x) for x in types])
        text = f"expected dtype {' or '.join(str(int(x)) for x in types)}, found {{}}"
        s.each(findings, "V112", wrong, text, t[:, col.T_DTYPE])
    idle = (
        ("rank_stride", ranked & (t[:, col.T_RANKSTRIDE] == 0)),
        ("reg_stride", (t[:, col.T_REGFN] != 0) & (t[:, col.T_REGSTRIDE] == 0)),
    )
    for name, mask in idle:
        s.each(findings, "V100", memory & mask, f"has a function that moves nothing: {name} is 0")
    own = (t[:, col.T_RANKFN] == col.RANK_FROM) & (t[:, col.T_PEERS] == 0)
    s.each(findings, "V100", own, "names the rank of a peer, but stands for no peers")
    s.each(findings, "V112", (n > 1) & (p < 1), "expected p of 1 or more between its events, found {}", p)
    s.each(findings, "V112", (m > 1) & (q < 1), "expected q of 1 or more between its rounds, found {}", q)


def _memory(s: Stored, findings: Findings) -> None:
    """A memory row has a region, in the bank group it states; only LOAD and the GATHER of an expert's tile may be wide."""
    memory, region = MEMORY[s.op], s.v[:, col.V_REGION]
    s.each(findings, "V112", memory & (region < 0), "expected a region, found {}", region)
    groups = np.array([r.group for r in s.regions] + [-1], dtype=np.int64)
    stated = s.t[:, col.T_GROUP]
    s.each(findings, "V100", memory & (region >= 0) & (groups[region] != stated),
           "expected the bank group of its region, found {}", stated)  # fmt: skip
    may = (s.op == Op.LOAD) | ((s.op == Op.GATHER) & (s.t[:, col.T_REGFN] == RegFn.EXPERT))
    s.each(
        findings,
        "V112",
        (s.t[:, col.T_WIDE] > 0) & ~may,
        "expected a LOAD, or a GATHER by an expert register, to be wide, found another op",
    )


def _ports(s: Stored, findings: Findings) -> None:
    """The stated port exists; it is 0 where it is derived (PASS, links, peers' copies)."""
    port, op = s.v[:, col.V_PORT], s.op
    derived = (op == Op.PASS) | LINK[op] | (s.t[:, col.T_PEERS] > 0)
    _zero(s, findings, derived, ("port", port, 0))
    unit = np.where(s.t[:, col.T_WIDE] > 0, int(Unit.MEM_WIDE), UNIT[op])
    limit = s.table.ports[unit].copy()
    install = op == Op.INSTALL
    limit[install] = s.table.byte_planes // ELEMENT_BYTES[s.t[install, col.T_DTYPE]]
    bad = ~derived & ((port < 0) | (port >= limit))
    s.each(findings, "V112", bad, "expected a port that the unit has, found {}", port)
    s.each(
        findings,
        "V108",
        LINK[op] & (s.t[:, col.T_PEERS] == 0),
        "names no peers: no link leads from a chip to itself",
    )


def _widths(s: Stored, findings: Findings) -> None:
    width, n, x0 = s.t[:, col.T_WIDTH], s.t[:, col.T_N], s.t[:, col.T_X0]
    s.each(findings, "V112", _is(s, _WIDTH) & (width < 1), "expected vectors to move, found {}", width)
    reshape = _is(s, {Op.TRANSPOSE, Op.SPREAD})
    s.each(
        findings,
        "V112",
        reshape & ((x0 < 1) | (x0 > LANES)),
        f"expected 1 to {LANES} results (x0), found {{}}",
        x0,
    )
    moved = n * s.t[:, col.T_M] * np.maximum(width, 1)
    many = (moved > MAX_MOVED) | (reshape & (np.clip(x0, 0, LANES) * s.t[:, col.T_M] > MAX_MOVED))
    s.each(findings, "V112", many, f"moves more than {MAX_MOVED:_} vectors")
    s.each(
        findings,
        "V112",
        (s.op == Op.TRANSPOSE) & (n > LANES),
        f"expected at most {LANES} vectors (n), found {{}}",
        n,
    )
    s.each(findings, "V112", (s.op == Op.SPREAD) & (n != 1), "expected one vector (n = 1), found {}", n)
    s.each(
        findings,
        "V112",
        (s.op == Op.MASK) & (n > BLOCK),
        f"expected at most {BLOCK} positions (n), found {{}}",
        n,
    )
    rounds = s.op == Op.MASK
    tokens = s.timetable.kind.tokens
    s.each(
        findings,
        "V100",
        rounds & (x0 != tokens),
        f"expected the {tokens} tokens of the step (x0), found {{}}",
        x0,
    )


def _noise(s: Stored, findings: Findings) -> None:
    """NOISE names the rows of the step whose registers it takes: the last valid one, or row j."""
    x0, m, kind = s.t[:, col.T_X0], s.t[:, col.T_M], s.timetable.kind
    last = int(kind.logits == "last")
    noise, rows = s.op == Op.NOISE, kind.slots * (kind.tokens if kind.logits == "all" else 1)
    s.each(
        findings,
        "V100",
        noise & (x0 != last),
        f"expected x0 = {last} for logits {kind.logits}, found {{}}",
        x0,
    )
    s.each(
        findings, "V122", noise & (m > rows), f"takes the registers of row {{}} of a step of {rows}", m - 1
    )


def _accept(s: Stored, findings: Findings) -> None:
    """ACCEPT folds all rows of a slot, and compares them with the tokens of slots that the step has."""
    n, m, first, kind = s.t[:, col.T_N], s.t[:, col.T_M], s.v[:, col.V_A0], s.timetable.kind
    accept = s.op == Op.ACCEPT
    text = f"expected the {kind.tokens} rows of a slot (n), found {{}}"
    s.each(findings, "V112", accept & (n != kind.tokens), text, n)
    last = first + m - 1
    text = f"takes the tokens of slot {{}} of a step of {kind.slots}"
    s.each(findings, "V122", accept & (first < 0), text, first)
    s.each(findings, "V122", accept & (first >= 0) & (last >= kind.slots), text, last)


def _attributes(s: Stored, findings: Findings) -> None:
    """V112 for attributes that name lanes or columns that do not exist."""
    x0, x1 = s.t[:, col.T_X0], s.t[:, col.T_X1]
    a0, a1, a2, a3 = (s.v[:, c] for c in (col.V_A0, col.V_A1, col.V_A2, col.V_A3))
    head = _is(s, {Op.CMUL, Op.ROPE})
    tests = (
        (head, (x0 < PAIR) | (x0 > LANES) | (x0 % PAIR != 0), "an even head size (x0)", x0),
        (s.op == Op.ROPE, (x1 < 1) | (x1 > LANES) | (x0 * np.minimum(x1, LANES) > LANES), "heads that fit a beat (x1)", x1),
        (s.op == Op.COMBINE, (x0 < 1) | (x0 > LANES - 2), "a head size that leaves lanes for l and m (x0)", x0),
        (s.op == Op.DIVIDE, (x0 < 1) | (x0 > LANES - 1), "a head size that leaves a lane for l (x0)", x0),
        (s.op == Op.INSERT, (x0 < 0) | (x0 >= LANES), "a lane (x0)", x0),
        (s.op == Op.MASK, a0 < 0, "a first block (a0)", a0),
        (s.op == Op.MASK, (a1 < 0) | (a2 < 0) | ((a1 == 0) & (a2 > 0)), "a window, and a ring only with one (a1, a2)", a1),
        (s.op == Op.MASK, (a3 < 0) | (a3 >= s.timetable.kind.slots), "a slot of the step (a3)", a3),
        (s.op == Op.MERGE, (x1 < 0) | ((x1 > 0) & (a3 % 2 != 0)), "two halves of equal size where they lie apart (x1)", x1),
        (s.op == Op.MOVE, (a0 < 0) | (a1 < 1) | (a0 + a1 > LANES), "lanes to take (a0, a1)", a0),
        (s.op == Op.MOVE, (a2 < 0) | (a2 + a1 > LANES), "lanes to fill (a2)", a2),
        (s.op == Op.MERGE, (x0 < 1) | (a0 < 1) | (a0 > LANES * np.maximum(x0, 1)), "beats for all columns of a source (x0)", x0),
        (s.op == Op.MERGE, (a1 < 0) | (a2 < 0), "a first source beat and a first column (a1, a2)", a1),
        (s.op == Op.MERGE, (a3 < 1) | (a3 > LANES), "columns that fit a beat (a3)", a3),
        (s.op == Op.TOPK, (x0 < 1) | (2 * x0 > LANES) | (x0 > a0), "ranks whose weights and columns fit a beat (x0)", x0),
        (s.op == Op.TOPK, (a0 < 1) | (a0 > LANES * s.t[:, col.T_N]), "columns that its beats have (a0)", a0),
        (_is(s, {Op.LANE_ARGMAX, Op.NOISE}), (a0 < 1) | (a1 < 1) | (a2 < 0),
         "columns per rank, of all, and before these (a0, a1, a2)", a0),
    )  # fmt: skip
    for mask, wrong, text, values in tests:
        s.each(findings, "V112", mask & wrong, f"expected {text}, found {{}}", values)


def _install(s: Stored, findings: Findings) -> None:
    """An INSTALL brings whole rows of at most 320 lanes into the rows that the plane has."""
    install, t, v = s.op == Op.INSTALL, s.t, s.v
    width, per_row = t[:, col.T_WIDTH], t[:, col.T_X0]
    depth = s.system.chip.value("mxm_rows_8bit") // ELEMENT_BYTES[t[:, col.T_DTYPE]]
    rows = np.where(per_row > 0, width // np.maximum(per_row, 1), 1) * t[:, col.T_N]
    first, low, high = v[:, col.V_A0], v[:, col.V_A1], v[:, col.V_A2]
    ones = t[:, col.T_X1]
    tests = (
        (
            (per_row < 0) | ((per_row > 0) & (width % np.maximum(per_row, 1) != 0)),
            "whole rows in an event (x0)",
            per_row,
        ),
        ((first < 0) | (first + rows > depth), "rows that the plane has (a0)", first),
        ((low < 0) | (high <= low) | (high > LANES), "columns to keep (a1, a2)", low),
        ((ones < 0) | (ones > 1), "0 or 1 for a column of ones (x1)", ones),
        ((ones == 1) & (high >= LANES), "a free column for the ones (a2)", high),
    )
    for wrong, text, values in tests:
        s.each(findings, "V112", install & wrong, f"expected {text}, found {{}}", values)
