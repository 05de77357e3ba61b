"""Whether each row hears what its op takes: kinds of operands, packets against lanes, and numbers that bf16 can hold (V112)."""

import numpy as np

from ticktrue.isa import Dtype, Kind, Op
from ticktrue.isa.ops import LANES
from ticktrue.program import columns as col
from ticktrue.program.types import Int64
from ticktrue.verify.shape import source_of
from ticktrue.verify.stored import ELEMENT_BYTES, KIND, STREAMS, YIELDS, Mask, Stored
from ticktrue.verify.verdict import Findings

_PACKET = (Op.LOAD, Op.GATHER, Op.SEND, Op.RECEIVE)
_TAKES_PACKET = (Op.INSTALL, Op.STORE, Op.SCATTER, Op.SEND, Op.RECEIVE)
_CUTS = (Op.STORE, Op.SCATTER, Op.SEND)
_KEEPS = (Op.MOVE, Op.MERGE, Op.TRANSPOSE, Op.SPREAD, Op.BROADCAST, Op.INSERT, Op.MAX)
"""Ops whose result is some of their operands' numbers."""


def check_operands(s: Stored, findings: Findings) -> None:
    """Finds rows that hear too few, too many or the wrong kind of rows, or more or other lanes than they can take."""
    before = findings.total
    _arity(s, findings)
    if findings.total == before:
        _kinds(s, findings)
    if findings.total == before:
        _packets(s, findings)
        _precision(s, findings)


def _is(op: Int64, ops: tuple[Op, ...]) -> Mask:
    return np.isin(op, [int(o) for o in ops])


def _arity(s: Stored, findings: Findings) -> None:
    op = s.op
    s0, s1 = s.t[:, col.T_S0] >= 0, s.t[:, col.T_S1] >= 0
    alone = (op == Op.RECEIVE) & ~s0
    s.each(findings, "V106", alone, "listens for a vector that nobody sends (s0 names no SEND)")
    needs0, needs1 = STREAMS[op] >= 1, (STREAMS[op] == 2) | (op == Op.PASS)  # noqa: PLR2004 - two operands
    s.each(findings, "V112", needs0 & ~s0 & ~alone, "expected an operand in s0, found none")
    s.each(findings, "V112", needs1 & ~s1, "expected an operand in s1, found none")
    s.each(findings, "V112", (~needs0 & s0) | (~needs1 & s1), "takes no such operand")


def _kinds(s: Stored, findings: Findings) -> None:
    """RECEIVE hears a SEND, PASS names an INSTALL in s1, everything else hears a result that lies on streams."""
    op = s.op
    for column, name in ((col.T_S0, "s0"), (col.T_S1, "s1")):
        source = source_of(s, column)
        heard = source >= 0
        of = op[np.where(heard, source, 0)]
        receive = heard & (op == Op.RECEIVE)
        s.each(
            findings,
            "V106",
            receive & (of != Op.SEND),
            "listens for a vector that nobody sends (s0 names no SEND)",
        )
        tile = heard & (op == Op.PASS) & (column == col.T_S1)
        s.each(
            findings, "V112", tile & (of != Op.INSTALL), "expected s1 to name an INSTALL, found another op"
        )
        rest = heard & ~receive & ~tile
        s.each(
            findings, "V112", rest & ~YIELDS[of], f"expected {name} to name a row with a result, found none"
        )
    chosen = np.maximum(source_of(s, col.T_S0), 0)
    s.each(
        findings,
        "V112",
        (op == Op.LATCH) & (op[chosen] != Op.TOPK),
        "expected s0 to name a TOPK, found another op",
    )
    loads = source_of(s, col.T_S0)
    wide = (loads >= 0) & (s.t[np.maximum(loads, 0), col.T_WIDE] > 0)
    s.each(findings, "V112", wide & (op != Op.INSTALL), "hears a wide LOAD, which goes to INSTALL only")
    second = source_of(s, col.T_S1)
    wide = (second >= 0) & (s.t[np.maximum(second, 0), col.T_WIDE] > 0)
    s.each(findings, "V112", wide, "hears a wide LOAD, which goes to INSTALL only")


def _lanes(s: Stored) -> Int64:
    """Lanes in the packet of each row: width times lanes per vector of its dtype."""
    return s.t[:, col.T_WIDTH] * (LANES // ELEMENT_BYTES[s.t[:, col.T_DTYPE]])


def _packets(s: Stored, findings: Findings) -> None:
    op, width, dtype = s.op, s.t[:, col.T_WIDTH], s.t[:, col.T_DTYPE]
    lanes = _lanes(s)
    for column in (col.T_S0, col.T_S1):
        source = source_of(s, column)
        heard = (source >= 0) & ~((op == Op.PASS) & (column == col.T_S1))
        at = np.where(heard, source, 0)
        packet = heard & _is(op[at], _PACKET)
        raw = packet & (lanes[at] > LANES)
        s.each(
            findings,
            "V112",
            raw & ~_is(op, _TAKES_PACKET),
            f"hears a packet of {{}} lanes where {LANES} fit",
            lanes[at],
        )
        # the row at the peer is the packet that was sent; a raw packet has no lanes to cut
        same = (
            (packet & (op == Op.RECEIVE))
            | (raw & _is(op, _CUTS))
            | (heard & (op[at] == Op.RECEIVE) & _is(op, _CUTS))
        )
        differ = (width != width[at]) | (dtype != dtype[at])
        s.each(
            findings,
            "V112",
            same & differ,
            "expected width and type of the packet it hears, found width {}",
            width,
        )
        cut = heard & _is(op, _CUTS) & ~raw & (lanes > LANES)
        s.each(findings, "V112", cut, f"writes {{}} lanes where {LANES} exist", lanes)
    _installed(s, findings)
    _version(s, findings)


def _installed(s: Stored, findings: Findings) -> None:
    """An INSTALL takes the packet it hears as it is; only bf16 is widened, to a float32 plane."""
    op, t = s.op, s.t
    source = np.maximum(source_of(s, col.T_S0), 0)
    install = op == Op.INSTALL
    packet = install & _is(op[source], _PACKET)
    s.each(findings, "V112", packet & (t[:, col.T_WIDTH] != t[source, col.T_WIDTH]),
           "expected the width of the packet it hears, found {}", t[:, col.T_WIDTH])  # fmt: skip
    plane, loaded = t[:, col.T_DTYPE], t[source, col.T_DTYPE]
    widened = (plane == Dtype.F32) & (loaded == Dtype.BF16)
    s.each(
        findings,
        "V112",
        packet & (plane != loaded) & ~widened,
        "installs rows of type {} into a plane of another",
        loaded,
    )
    per_row = np.where(t[:, col.T_X0] > 0, t[:, col.T_X0], t[:, col.T_WIDTH])
    heard = np.where(packet, t[source, col.T_DTYPE], t[:, col.T_DTYPE])
    lanes = per_row * (LANES // ELEMENT_BYTES[heard])
    s.each(
        findings, "V112", install & (lanes > LANES), f"installs rows of {{}} lanes where {LANES} exist", lanes
    )
    s.each(findings, "V112", install & ~packet & (t[:, col.T_X0] != 0), "expected x0 = 0 for rows that are beats, found {}",
           t[:, col.T_X0])  # fmt: skip


def _version(s: Stored, findings: Findings) -> None:
    """What the op table could mean, but this version of the format leaves out: relays, and tiles that are also operands."""
    op, source = s.op, np.maximum(source_of(s, col.T_S0), 0)
    for column in (col.T_S0, col.T_S1):
        heard = source_of(s, column)
        relay = (heard >= 0) & (op[np.maximum(heard, 0)] == Op.RECEIVE) & ~_is(op, (Op.STORE, Op.SCATTER))
        s.each(
            findings,
            "V112",
            relay,
            "hears a RECEIVE, whose vectors only STORE and SCATTER take in this version",
        )
        taken = np.zeros(len(op), dtype=bool)
        taken[source[op == Op.INSTALL]] = True
        also = (
            (heard >= 0)
            & taken[np.maximum(heard, 0)]
            & ~((op == Op.INSTALL) | ((op == Op.PASS) & (column == col.T_S1)))
        )
        s.each(
            findings,
            "V112",
            also,
            "hears a row that an INSTALL hears too, which takes it alone in this version",
        )
    # turning lanes that nobody wrote would fill them with zeros of either sign
    merged = (op == Op.ROPE) & (op[source] == Op.MERGE)
    turned = s.t[:, col.T_X0] * s.t[:, col.T_X1]
    beyond = merged & (turned > s.v[source, col.V_A3])
    s.each(findings, "V112", beyond, "turns {} lanes, more than the merged beat it hears has", turned)
    packet = (op == Op.INSTALL) & _is(op[source], _PACKET)
    named = (op[source] == Op.GATHER) & (s.t[source, col.T_WIDE] > 0)
    whole = ((op[source] == Op.LOAD) | named) & (s.t[:, col.T_X0] > 0) & (s.t[:, col.T_N] == 1)
    s.each(
        findings,
        "V112",
        packet & ~whole,
        "expected to hear one LOAD or wide GATHER of whole tile rows (n = 1, x0 > 0) in this version",
    )


def _held(s: Stored) -> Int64:
    """The type that the numbers of each row's result were rounded to; float32 where they can be any."""
    op, dtype = s.op, s.t[:, col.T_DTYPE]
    s0, s1 = np.maximum(source_of(s, col.T_S0), 0), source_of(s, col.T_S1)
    held = np.where(_is(op, (*_PACKET, Op.CONVERT, Op.QUANTISE)), dtype, int(Dtype.F32))
    kept = _is(op, _KEEPS)
    # operands are earlier rows: as many rounds as the longest run of moves settle every row
    while True:
        same = kept & ((s1 < 0) | (held[np.maximum(s1, 0)] == held[s0]))
        new = np.where(same, held[s0], held)
        if (new == held).all():
            return held
        held = new


def _precision(s: Stored, findings: Findings) -> None:
    """What is stored, sent or multiplied in a narrow type was loaded in it, CONVERTed or QUANTISEd to it."""
    op, dtype = s.op, s.t[:, col.T_DTYPE]
    heard, tile = np.maximum(source_of(s, col.T_S0), 0), np.maximum(source_of(s, col.T_S1), 0)
    held, narrow = _held(s), dtype != Dtype.F32
    raw = _is(op[heard], _PACKET) & (_lanes(s)[heard] > LANES)
    widened = (op == Op.INSTALL) & (dtype == Dtype.F32)
    taken = (_is(op, _CUTS) | (op == Op.INSTALL) | (op == Op.TRANSPOSE)) & narrow & ~raw & ~widened
    text = "takes as type {} a number that it may not hold: a CONVERT or QUANTISE is missing"
    s.each(findings, "V112", taken & (held[heard] != dtype), text, dtype)
    plane = (op == Op.PASS) & (KIND[op[tile]] == Kind.INSTALL) & (dtype[tile] != Dtype.F32)
    s.each(
        findings,
        "V112",
        plane & (held[heard] != dtype[tile]),
        "passes a number that type {} may not hold through a plane of it",
        dtype[tile],
    )
