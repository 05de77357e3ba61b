"""For every code a fault planted in a good program: the verdict has exactly that code, and names the culprits."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from tests.unit.verify import programs as p

from ticktrue.hw import System, load_system
from ticktrue.program import Grid, Loop, Plan, Program
from ticktrue.program import columns as col
from ticktrue.program.types import Packing, RegionClass
from ticktrue.verify import CODES, verify

ELSEWHERE = {"V117", "V130", "V140", "V141"}
"""Codes of `sim`, of the file digest and of the dataflow digest."""


@pytest.fixture(scope="module")
def good() -> tuple[Program, System]:
    return p.good()


@dataclass(frozen=True)
class Fault:
    """What is changed, and whom the first violation must name."""

    code: str
    name: str
    plant: Callable[[Program], Program]
    culprits: tuple[str, ...] = ()


def pieces(program: Program, piece: int, name: str, value: int) -> Program:
    table = program.image.pieces.copy()
    table[piece, col.P_NAMES.index(name)] = value
    return p.with_image(program, pieces=table)


def same_region(program: Program, label: str, row: int, region: str, **fields: int) -> Program:
    """The row moved to another region, bank group kept true."""
    r = (program.image.regions + program.timetables[0].scratch)[p.region_id(program, region)]
    moved = p.stored(program, label, row, region=p.region_id(program, region), **fields)
    return p.template(moved, label, row, group=r.group)


def output(g: Program, **changes: int) -> Program:
    first, *others = g.timetables[0].outputs
    return p.with_timetable(g, outputs=(replace(first, **changes), *others))


def later(g: Program, label: str, row: int, by: int) -> Program:
    return rigid(g, label, (row,), by)


def rigid(g: Program, label: str, rows: tuple[int, ...], by: int) -> Program:
    for row in rows:
        g = p.template(g, label, row, offset=p.template_field(g, label, row, "offset") + by)
    return g


def everywhere(g: Program, label: str, **fields: int) -> Program:
    """The same fields in every row of a chain that has them set."""
    (t,) = g.timetables
    chain = t.labels.index(label)
    for row in range(t.template_start[chain + 1] - t.template_start[chain]):
        for name, value in fields.items():
            if p.template_field(g, label, row, name):
                g = p.template(g, label, row, **{name: value})
    return g


def closer(g: Program, label: str, after: str) -> Program:
    """The chain moved so that it reads one cycle before the other's last vector is in memory."""
    (t,) = g.timetables
    start = {name: int(t.chains[t.labels.index(name), 1]) for name in (label, after)}
    store = start[after] + p.template_field(g, after, 1, "offset") + p.TOKENS
    return p.shifted(g, label, store + 3 - 1 - start[label])


def overlapping(g: Program, label: str, other: str) -> Program:
    """The chain started together with the other."""
    chains, labels = g.timetables[0].chains, g.timetables[0].labels
    return p.shifted(g, label, int(chains[labels.index(other), 1] - chains[labels.index(label), 1]))


def rounds(g: Program) -> Program:
    """PASS, its operand and what follows in other rounds than the tiles are installed in."""
    for row in (2, 3, 4, 5):
        g = p.template(g, "value", row, q=61)
    return timed(g)


def unused_tile(g: Program) -> Program:
    """The only PASS of a tile becomes an addition of its operand to itself."""
    g = p.template(g, "turn", 4, op=9, s1=3, dtype=0, offset=p.template_field(g, "turn", 3, "offset") + 5)
    return p.template(g, "turn", 5, offset=p.template_field(g, "turn", 4, "offset") + 2)


def loose_send(g: Program) -> Program:
    """The RECEIVE and its STORE become an own copy: what is sent arrives with nobody listening."""
    # row 2 becomes an addition that hears the LOAD once; row 3 stores it
    load = p.template_field(g, "gather.b", 0, "offset") + 5
    g = p.template(g, "gather.b", 2, op=9, s0=0, s1=0, peers=0, width=0, offset=load)
    g = p.template(g, "gather.b", 3, peers=0, rank_fn=col.RANK_OWN, dtype=p.F32, offset=load + 2)
    return same_region(g, "gather.b", 3, "in.b")


def rope_base(g: Program) -> int:
    return g.image.regions[p.region_id(g, "rope_b")].base


def rope_reader(g: Program) -> Program:
    """A row that reads the last region of a bank group at a register, one row too far."""
    g = same_region(g, "last", 0, "rope_b", base=1)
    return p.template(g, "last", 0, width=1, reg_fn=3, reg_stride=1)


def timed(g: Program) -> Program:
    """With the duration that the changed rows have."""
    return p.with_duration(g, load_system("tiny-4"))


def relay(g: Program) -> Program:
    """The vectors that arrive are moved before they are stored."""
    g = p.template(g, "gather.b", 3, op=22, peers=1, width=0, rank_fn=0, rank_stride=0, step=0, group=-1)
    return p.stored(g, "gather.b", 3, region=-1, a1=1)


def events(g: Program) -> Program:
    """Two events of half a tile each."""
    for row in (0, 1):
        g = p.template(g, "value", row, n=2, p=8, width=32)
    return p.template(g, "value", 0, step=32)


def tensor(g: Program, at: int, **changes: int) -> Program:
    tensors = list(g.image.tensors)
    tensors[at] = replace(tensors[at], **changes)
    return p.with_image(g, tensors=tuple(tensors))


def chains(g: Program, column: int, value: int) -> Program:
    """One field of the last chain."""
    table = g.timetables[0].chains.copy()
    table[-1, column] = value
    return p.with_timetable(g, chains=table)


def kind(g: Program, **changes: object) -> Program:
    return p.with_timetable(g, kind=replace(g.timetables[0].kind, **changes))


FAULTS = [
    Fault("V100", "period of one event", lambda g: p.template(g, "last", 1, p=3), ("last SILU_MUL row 1",)),
    Fault("V100", "second period of one round", lambda g: p.template(g, "last", 1, q=3)),
    Fault("V100", "bank group of another region", lambda g: p.template(g, "seed", 0, group=1), ("seed LOAD row 0",)),
    Fault("V100", "duration", lambda g: p.with_timetable(g, duration=g.timetables[0].duration + 1)),
    Fault("V100", "labels", lambda g: p.with_timetable(g, labels=(*g.timetables[0].labels, "more"))),
    Fault("V100", "field without meaning", lambda g: p.template(g, "pair", 2, x0=7), ("pair ADD row 2",)),
    Fault("V100", "port of a pass", lambda g: p.stored(g, "tile.a", 3, port=1)),
    Fault("V100", "tokens of a mask", lambda g: p.template(g, "score", 2, x0=2)),
    Fault("V100", "key of other facts", lambda g: p.with_key(g, facts="0")),
    Fault("V100", "key of another system", lambda g: p.with_key(g, system="tiny-16")),
    Fault("V100", "plan of more chips than h * cp", lambda g: p.with_key(g, plan=Plan(4, (Grid(1, 2),)))),
    Fault("V100", "plan of more chips than exist", lambda g: p.with_key(g, plan=Plan.of(8, 1))),
    Fault("V100", "piece beyond its tensor", lambda g: pieces(g, 1, "k0", 161)),
    Fault("V100", "piece beyond its region", lambda g: pieces(g, 1, "vector", 250)),
    Fault("V100", "piece beyond the lanes", lambda g: pieces(g, 1, "lane", 161)),
    Fault("V100", "piece beyond the shard", lambda g: pieces(g, 1, "col0", 1)),
    Fault("V100", "elements that no piece holds", lambda g: pieces(g, 1, "cols", 159)),
    Fault("V100", "pieces on the same lanes", lambda g: pieces(g, 1, "region", 1)),
    Fault("V100", "shard of a vector", lambda g: tensor(g, 2, shard=319)),
    Fault("V100", "rows of another tile", lambda g: pieces(pieces(g, 1, "region", 1), 1, "rows", 80)),
    Fault("V100", "stride of a packing rule", lambda g: p.with_region(g, "rope_b", stride=1, count=511)),
    Fault("V100", "packing of another class", lambda g: p.with_region(g, "norm", packing=Packing.KV)),
    Fault("V100", "tensor of a region that has none", lambda g: p.with_region(g, "code", tensor=0)),
    Fault("V100", "first head of a state", lambda g: p.with_region(g, "k", p1=1)),
    Fault("V100", "packing of scratch", lambda g: p.with_region(g, "x", p0=1)),
    Fault("V100", "rows of an output", lambda g: output(g, rows=2)),
    Fault("V100", "output of weights", lambda g: output(g, region=0)),
    Fault("V100", "records of an output", lambda g: output(g, vectors=2)),
    Fault("V100", "an output that is missing", lambda g: p.with_timetable(g, outputs=g.timetables[0].outputs[:1])),
    Fault("V100", "two outputs of one name", lambda g: p.with_timetable(g, outputs=g.timetables[0].outputs * 2)),
    Fault("V100", "timetables out of order", lambda g: replace(g, timetables=g.timetables * 2)),
    Fault("V101", "two additions on one port", lambda g: p.stored(g, "pair", 3, port=0), ("pair ADD row 2", "pair MUL row 3")),
    Fault("V101", "two tiles through the weight-load port", lambda g: p.shifted(g, "tile.b", -15),
          ("tile.a INSTALL row 1", "tile.b INSTALL row 1")),
    Fault("V102", "two reads on one port", lambda g: p.stored(g, "pair", 1, port=0), ("pair LOAD row 0", "pair LOAD row 1")),
    Fault("V102", "two writes on one port", lambda g: p.stored(g, "pair", 5, port=0), ("pair STORE row 4", "pair STORE row 5")),
    Fault("V103", "a vector that nothing wrote", lambda g: p.stored(g, "pair", 0, base=4), ("pair LOAD row 0",)),
    Fault("V103", "an inbox slot that no peer filled", lambda g: p.stored(g, "merge", 0, base=2), ("merge LOAD row 0",)),
    Fault("V103", "a region that is code", lambda g: same_region(g, "seed", 0, "code"), ("seed LOAD row 0",)),
    Fault("V103", "an arena itself", lambda g: same_region(g, "pair", 1, "arena.0"), ("pair LOAD row 1",)),
    Fault("V103", "an output that nothing wrote", lambda g: output(g, base=16), ("host reading output logits",)),
    Fault("V104", "a read before the write is in memory", lambda g: closer(g, "pair", "embed"),
          ("embed STORE row 1", "pair LOAD row")),
    Fault("V104", "a write before the read has ended", lambda g: p.stored(g, "combine", 3, base=1),
          ("combine LOAD row 0", "combine STORE row 3")),
    Fault("V104", "a read that the exception must not hide", lambda g: p.stored(g, "combine", 1, base=1),
          ("combine LOAD row 1", "combine STORE row 3")),
    Fault("V104", "a scatter while the state is read", lambda g: overlapping(g, "append", "score"),
          ("append SCATTER row 1", "score LOAD row 0")),
    Fault("V104", "scratch regions that share vectors", lambda g: p.with_region(g, "x", base=1002),
          ("pair STORE row", "turn LOAD row")),
    Fault("V104", "a vector overwritten through another region", lambda g: p.with_region(g, "olm", base=1000), ()),
    Fault("V105", "a row one cycle late", lambda g: later(g, "round", 2, 1), ("round STORE row 2", "round CONVERT row 1")),
    Fault("V105", "a row one cycle early", lambda g: later(g, "round", 2, -1), ("round STORE row 2", "round CONVERT row 1")),
    Fault("V105", "other events", lambda g: p.template(g, "round", 2, p=2), ("round STORE row 2", "round CONVERT row 1")),
    Fault("V105", "a tile that is not installed yet", lambda g: rigid(g, "tile.b", (2, 3, 4, 5), -14),
          ("tile.b PASS row 3", "tile.b INSTALL row 1")),
    Fault("V105", "tiles of other rounds", rounds, ("value PASS row 3", "value INSTALL row 1")),
    Fault("V105", "a receive that listens too early", lambda g: rigid(g, "gather.a", (2, 3), -1),
          ("gather.a RECEIVE row 2 copy 1", "gather.a SEND row 1 copy 1")),
    Fault("V106", "a receive without a send", lambda g: p.template(g, "gather.a", 2, s0=-1), ("gather.a RECEIVE row 2",)),
    Fault("V106", "a receive that hears a load", lambda g: p.template(g, "gather.a", 2, s0=0), ("gather.a RECEIVE row 2",)),
    Fault("V106", "a result that nobody takes", lambda g: p.template(g, "combine", 2, s1=0), ("combine LOAD row 1",)),
    Fault("V106", "a tile that nobody uses", unused_tile, ("turn INSTALL row 2",)),
    Fault("V106", "a send that nobody hears", loose_send, ("gather.b SEND row 1 copy 1",)),
    Fault("V107", "faster than the slot", lambda g: everywhere(g, "gather.a", p=13), ("gather.a SEND row 1 copy 1",)),
    Fault("V107", "two vectors on one slot", lambda g: p.shifted(g, "gather.b", -1),
          ("gather.a SEND row 1 copy 1", "gather.b SEND row 1 copy 1")),
    Fault("V108", "a send to itself", lambda g: p.template(g, "gather.a", 1, peers=0), ("gather.a SEND row 1",)),
    Fault("V109", "regions that overlap", lambda g: p.with_region(g, "in.b", base=101)),
    Fault("V109", "a region beyond its bank group", lambda g: p.with_region(g, "rope_b", base=rope_base(g) + 1)),
    Fault("V109", "a bank group that does not exist", lambda g: p.with_region(g, "rope_b", group=4)),
    Fault("V109", "scratch outside the arena", lambda g: p.with_region(g, "olm", base=1390)),
    Fault("V109", "code that does not fit", lambda g: p.with_region(g, "code", count=3)),
    Fault("V110", "a plane overwritten before its last pass", lambda g: p.stored(g, "tile.b", 1, port=0),
          ("tile.b INSTALL row 1", "tile.a INSTALL row 1")),
    Fault("V110", "tiles that follow each other too fast", lambda g: timed(everywhere(g, "value", q=23)),
          ("value INSTALL row 1",)),
    Fault("V116", "a store into constants", lambda g: same_region(g, "round", 2, "norm", base=0), ("round STORE row 2",)),
    Fault("V116", "a store into state", lambda g: same_region(g, "round", 2, "k", base=0), ("round STORE row 2",)),
    Fault("V116", "a scatter into scratch", lambda g: same_region(g, "append", 1, "e"), ("append SCATTER row 1",)),
    Fault("V120", "a register that leads out of its region", lambda g: p.template(g, "append", 1, reg_stride=2),
          ("append SCATTER row 1",)),
    Fault("V120", "a token beyond the table", lambda g: p.with_key(g, vocab=51), ()),
    Fault("V120", "events beyond the region", lambda g: p.template(g, "embed", 1, step=3), ("embed STORE row 1",)),
    Fault("V120", "a rank beyond the region", lambda g: p.template(g, "gather.a", 3, rank_stride=5), ("gather.a STORE row 3",)),
    Fault("V120", "an output beyond its region", lambda g: output(g, base=30)),
    Fault("V121", "another bank group", rope_reader, ("last GATHER row 0",)),
    Fault("V122", "a register in a plain load", lambda g: p.template(g, "round", 0, reg_fn=2, reg_stride=1),
          ("round LOAD row 0",)),
    Fault("V122", "a gather without a register", lambda g: p.template(g, "last", 0, reg_fn=0, reg_stride=0),
          ("last GATHER row 0",)),
    Fault("V122", "a register of other regions", lambda g: p.template(g, "embed", 0, reg_fn=5), ("embed GATHER row 0",)),
    Fault("V122", "a token beyond the step", lambda g: everywhere(g, "embed", n=5), ("embed GATHER row 0",)),
    Fault("V100", "a sampler on the host that leaves a token", lambda g: p.with_timetable(
        g, kind=replace(g.timetables[0].kind, sampler="host"))),
    Fault("V100", "a sampler on the chips that leaves none", lambda g: p.with_timetable(g, outputs=g.timetables[0].outputs[:1])),
    Fault("V122", "registers of a row that the step has not",
          lambda g: p.template(p.template(p.template(g, "noise", 0, m=2, q=1), "noise", 1, m=2, q=1), "noise", 2, m=2, q=1),
          ("noise NOISE row 1",)),
    Fault("V100", "noise of row 0, not of the last row", lambda g: p.template(g, "noise", 1, x0=0), ("noise NOISE row 1",)),
    Fault("V112", "noise of no column", lambda g: p.stored(g, "noise", 1, a0=0), ("noise NOISE row 1",)),
    Fault("V112", "an op that does not exist", lambda g: p.template(g, "seed", 0, op=999)),
    Fault("V112", "a negative number of events", lambda g: p.template(g, "seed", 0, n=-3), ("seed LOAD row 0",)),
    Fault("V112", "no rounds", lambda g: p.template(g, "seed", 0, m=0)),
    Fault("V112", "events without a period", lambda g: p.template(g, "seed", 0, p=0), ("seed LOAD row 0",)),
    Fault("V112", "rounds without a period", lambda g: p.template(g, "fold", 0, q=0)),
    Fault("V112", "an operand outside the chain", lambda g: p.template(g, "round", 1, s0=7), ("round CONVERT row 1",)),
    Fault("V112", "an operand that comes later", lambda g: p.template(g, "round", 1, s0=2)),
    Fault("V112", "an operand that is missing", lambda g: p.template(g, "round", 1, s0=-1)),
    Fault("V112", "a second operand that is missing", lambda g: p.template(g, "pair", 2, s1=-1)),
    Fault("V112", "an operand too many", lambda g: p.template(g, "round", 2, s1=0)),
    Fault("V112", "an operand that has no result", lambda g: p.template(g, "pair", 5, s0=4), ("pair STORE row 5",)),
    Fault("V112", "a pass through something else", lambda g: p.template(g, "turn", 4, s1=1), ("turn PASS row 4",)),
    Fault("V112", "one row that hears copies", lambda g: p.template(g, "gather.a", 3, peers=0)),
    Fault("V112", "copies of another pattern", lambda g: p.template(g, "gather.a", 3, pattern=col.PATTERN_CONTEXT)),
    Fault("V112", "a region that does not exist", lambda g: p.stored(g, "seed", 0, region=99), ("seed LOAD row 0",)),
    Fault("V112", "a memory row without a region", lambda g: p.stored(g, "seed", 0, region=-1)),
    Fault("V112", "a negative address", lambda g: p.stored(g, "seed", 0, base=-1)),
    Fault("V112", "a port that does not exist", lambda g: p.stored(g, "seed", 0, port=2), ("seed LOAD row 0",)),
    Fault("V112", "a plane that does not exist", lambda g: p.stored(g, "tile.b", 1, port=2)),
    Fault("V112", "a type that does not exist", lambda g: p.template(g, "seed", 0, dtype=4)),
    Fault("V112", "nothing to move", lambda g: p.template(g, "seed", 1, width=0)),
    Fault("V112", "more lanes than a beat has", lambda g: p.template(g, "seed", 1, width=5)),
    Fault("V112", "a packet where lanes are taken", lambda g: p.template(g, "round", 0, width=8), ("round CONVERT row 1",)),
    Fault("V112", "a packet cut on its way", lambda g: p.template(g, "gather.a", 2, width=1), ("gather.a RECEIVE row 2",)),
    Fault("V112", "float32 stored as bf16", lambda g: p.template(g, "combine", 3, dtype=0), ("combine STORE row 3",)),
    Fault("V112", "float32 in a bf16 plane", lambda g: p.template(g, "value", 0, dtype=1), ("value INSTALL row 1",)),
    Fault("V112", "a wide load that is computed with", lambda g: p.template(g, "round", 0, wide=1), ("round CONVERT row 1",)),
    Fault("V112", "a wide store", lambda g: p.template(g, "round", 2, wide=1)),
    Fault("V112", "a tile of part of a row", lambda g: p.template(g, "tile.a", 1, x0=3), ("tile.a INSTALL row 1",)),
    Fault("V112", "more rows than a plane has", lambda g: p.stored(g, "tile.a", 1, a0=1), ("tile.a INSTALL row 1",)),
    Fault("V112", "no columns to keep", lambda g: p.stored(g, "tile.a", 1, a2=0)),
    Fault("V112", "no lane for the column of ones", lambda g: p.template(g, "tile.a", 1, x1=1)),
    Fault("V112", "lanes that do not exist", lambda g: p.stored(g, "tile.a", 4, a2=161), ("tile.a MOVE row 4",)),
    Fault("V112", "a head without lanes for l and m", lambda g: p.template(g, "combine", 2, x0=319)),
    Fault("V112", "rotated lanes that nobody merged", lambda g: p.stored(g, "merge", 1, a3=319), ("merge ROPE row 3",)),
    Fault("V112", "columns wider than a beat", lambda g: p.stored(g, "merge", 1, a3=321)),
    Fault("V112", "a thousand results", lambda g: p.template(g, "turn", 1, x0=1000)),
    Fault("V112", "more positions than a block", lambda g: everywhere(g, "score", n=65)),
    Fault("V112", "a packet stored as another", lambda g: p.template(g, "gather.b", 3, width=1)),
    Fault("V112", "a relay", relay, ("gather.b MOVE row 3",)),
    Fault("V112", "rows of a tile that are operands too", lambda g: p.template(g, "value", 3, s0=0), ("value PASS row 3",)),
    Fault("V112", "a packet of beats", lambda g: p.template(g, "value", 1, x0=0, width=64)),
    Fault("V112", "a tile in several events", events, ("value INSTALL row 1",)),
    Fault("V112", "more vectors than a row may move", lambda g: everywhere(g, "round", n=1 << 19)),
    Fault("V112", "more results than a row may have", lambda g: p.template(g, "turn", 1, m=1 << 20, q=4, p=1)),
    Fault("V112", "a reason that does not exist", lambda g: chains(g, 2, 7)),
    Fault("V112", "a template that does not exist", lambda g: chains(g, 0, 77)),
    Fault("V112", "a start before the step", lambda g: chains(g, 1, -1)),
    Fault("V112", "a start after the end of time", lambda g: chains(g, 1, 1 << 62)),
    Fault("V112", "a row too many", lambda g: p.with_timetable(g, rows=g.timetables[0].rows.repeat(2, axis=0))),
    Fault("V112", "no chains", lambda g: p.with_timetable(g, chains=g.timetables[0].chains[:0])),
    Fault("V112", "templates that do not follow each other",
          lambda g: p.with_timetable(g, template_start=g.timetables[0].template_start[::-1])),
    Fault("V112", "columns of floats", lambda g: p.with_timetable(g, rows=g.timetables[0].rows.astype(np.float64))),
    Fault("V112", "a table of another width", lambda g: p.with_timetable(g, templates=g.timetables[0].templates[:, :5])),
    Fault("V112", "a loop of one iteration", lambda g: p.with_timetable(g, loops=(Loop(0, 0, 1, 1, ()),))),
    Fault("V119", "a loop in a loop", lambda g: p.with_timetable(g, loops=(Loop(0, 2, 2, 900, ()), Loop(1, 1, 2, 90, ())))),
    Fault("V112", "a duration before the start", lambda g: p.with_timetable(g, duration=-1)),
    Fault("V112", "a duration without end", lambda g: p.with_timetable(g, duration=10**30)),
    Fault("V112", "more tokens than the image has room for", lambda g: kind(g, tokens=5)),
    Fault("V112", "more blocks than the image holds", lambda g: kind(g, blocks=9)),
    Fault("V112", "blocks beyond any memory", lambda g: kind(g, blocks=10**12)),
    Fault("V112", "more tokens than positions", lambda g: kind(p.with_key(g, max_context=1, t_max=511), tokens=65, blocks=1)),
    Fault("V112", "two slots", lambda g: p.with_timetable(
        kind(g, slots=2), outputs=tuple(replace(o, rows=2) for o in g.timetables[0].outputs))),
    Fault("V112", "logits of some rows", lambda g: kind(g, logits="some")),
    Fault("V112", "an output of no region", lambda g: output(g, region=99)),
    Fault("V112", "a scratch region of the image's classes", lambda g: p.with_region(g, "x", cls=RegionClass.INBOX)),
    Fault("V112", "a scratch region in the image", lambda g: p.with_region(g, "code", cls=RegionClass.SCRATCH)),
    Fault("V112", "a region without records", lambda g: p.with_region(g, "x", count=-1)),
    Fault("V112", "a region beyond all numbers", lambda g: p.with_region(g, "norm", base=10**30)),
    Fault("V112", "a number format that does not exist", lambda g: p.with_key(g, fmt="fp4")),
    Fault("V112", "no vocabulary", lambda g: p.with_key(g, vocab=0)),
    Fault("V112", "a plan without chips", lambda g: p.with_key(g, plan=Plan(0, (Grid(0, 0),)))),
    Fault("V112", "a tensor without columns", lambda g: tensor(g, 0, inputs=0)),
    Fault("V112", "a piece of no tensor", lambda g: pieces(g, 0, "tensor", 9)),
    Fault("V112", "a piece of no tile", lambda g: pieces(g, 0, "region", 0)),
    Fault("V112", "pieces of another width", lambda g: p.with_image(g, pieces=g.image.pieces[:, :3])),
]  # fmt: skip


def test_the_good_program_is_clean(good: tuple[Program, System]) -> None:
    verdict = verify(*good)
    assert verdict.violations == ()
    assert verdict.clean
    assert verdict.total == 0
    assert (verdict.timetables, verdict.chips) == (1, 4)
    assert verdict.rows > 70


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f.code} {f.name}")
def test_planted_fault_gives_exactly_its_code(good: tuple[Program, System], fault: Fault) -> None:
    program, system = good
    planted = fault.plant(program)
    verdict = verify(planted, system)
    assert not verdict.clean
    assert set(verdict.codes) == {fault.code}, "\n".join(map(str, verdict.violations))
    first = verdict.violations[0]
    told = str(first) + first.first + first.second
    for culprit in fault.culprits:
        assert culprit in told, told
    assert str(first).startswith(f"{fault.code}: ")


@dataclass(frozen=True)
class Machine:
    """A fact of the chip changed, and the program compiled anew for it as far as its rows allow."""

    code: str
    fact: str
    value: int


MACHINES = [
    Machine("V111", "streams", 11),
    Machine("V113", "drift_ppm", 900),
    Machine("V113", "skew0_cycles", 9),
    Machine("V114", "epoch_cycles", 16),
    Machine("V115", "c2c_fifo_vectors", 3),
]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.code} {m.fact}")
def test_a_machine_that_is_too_small_gives_exactly_its_code(
    good: tuple[Program, System], machine: Machine
) -> None:
    program, system = good
    smaller = system.with_fact(machine.fact, machine.value)
    verdict = verify(p.on(program, smaller), smaller)
    assert set(verdict.codes) == {machine.code}, "\n".join(map(str, verdict.violations))


def test_a_double_buffer_takes_a_tile_while_the_last_one_passes(good: tuple[Program, System]) -> None:
    program, system = good
    on_one_plane = p.stored(program, "tile.b", 1, port=0)
    assert verify(on_one_plane, system).codes == ("V110",)
    double = system.with_fact("mxm_double_buffer", 1)
    assert verify(p.on(on_one_plane, double), double).clean
    # the first tile passes so late that the second is in the plane before
    late = rigid(p.on(on_one_plane, double), "tile.a", (2, 3, 4, 5), 40)
    verdict = verify(late, double)
    assert verdict.codes == ("V110",)
    assert verdict.violations[0].second == "tile.a INSTALL row 1"


def test_a_route_that_does_not_exist() -> None:
    """Chip 0 of one tray and chip 17 of the next have no direct link."""
    system = load_system("groq3-lpx").subset(32).with_fact("streams", 256)
    program, system = p.good(system, Plan.of(32, 1, tray=16))
    verdict = verify(program, system)
    assert set(verdict.codes) == {"V108"}, "\n".join(map(str, verdict.violations[:5]))
    assert "chip 0: no direct link leads to chip 17" in str(verdict.violations[15])


def test_every_code_is_planted() -> None:
    planted = {f.code for f in FAULTS} | {m.code for m in MACHINES}
    assert planted | ELSEWHERE == set(CODES)
