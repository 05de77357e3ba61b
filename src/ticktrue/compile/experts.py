"""Chains of a mixture of experts: no dispatch, for every chip knows every choice and has every row.

A chip runs a fixed number of slots for each token row. Where every expert is cut over outputs on all chips, a slot is a rank: a
chain per weight tile goes through the token rows, and the wide GATHER takes the tile of the expert that the row's register names.
Where chips hold whole experts, a slot is an expert of the chip, or a rank if there are fewer ranks: then it runs the expert of
that number on every chip, and registers name which chip's result counts. What experts make lies as [slot][token row], what was
named as [rank][token row]; the weighted sum folds over ranks.
"""

from dataclasses import dataclass, replace
from itertools import product

from ticktrue.compile import linear
from ticktrue.compile.chains import At, Chain, Keep, progress
from ticktrue.compile.rows import assemble
from ticktrue.compile.step import Step, all_gather, exchange, merge
from ticktrue.errors import Bug
from ticktrue.isa import Dtype, Op, RegFn, Unit
from ticktrue.isa.ops import LANES, lanes_of
from ticktrue.partition import ExpertShapes, scale_name
from ticktrue.place import Phase, Tile, piece_streams, route_width, scale_width, turns
from ticktrue.program.columns import PATTERN_ALL


def shapes(step: Step) -> ExpertShapes:
    """Sizes of the model's experts."""
    if step.s.experts is None:
        raise Bug("experts of a model that has none", code="T501")
    return step.s.experts


def router(step: Step, layer: int) -> None:
    """Logits of the router on every chip, in beats: rl[beat][row] (numerics row 27)."""
    x, phase, n = shapes(step), step.phases[f"L{layer}.router"], step.s.rows
    linear.tiles(step, phase, "h", "part.router", n)
    linear.fold_matrix(step, phase, ("part.router", "sh.router", ""), 0, x.logits)
    all_gather(step, f"L{layer}.router", "sh.router", "in.router", x.logits)
    for beat, first in enumerate(range(0, x.count, LANES)):
        c = step.chain(f"L{layer}.router.assemble[{beat}]")
        y = merge(step, c, "in.router", x.logits, (first, min(LANES, x.count - first)))
        c.store(y, step.at("rl", beat * n * 4, 4), Dtype.F32, 4)
        c.end()


def route(step: Step, layer: int) -> None:
    """The choice of every row: its weights to memory, its ids to the expert registers."""
    x, n = shapes(step), step.s.rows
    beats, width = -(-x.count // LANES), route_width(x.per_token)
    c = step.chain(f"L{layer}.route")
    pr = progress(beats, n) if n > 1 else progress(beats)
    y = c.op(Op.TOPK, c.load(step.at("rl", 0, n * 4, 4), pr, Dtype.F32, 4), x=(x.per_token, 0), a=(x.count,))
    c.latch(y, 0)
    c.store(y, step.at("route", 0, width), Dtype.F32, width)
    c.end()


def experts(step: Step, layer: int) -> None:
    """Gate, up, the gated product, down, and the weighted sum of every row (numerics row 28)."""
    x, label = shapes(step), f"L{layer}"
    each = _each(step, x)
    gate, down = step.phases[f"{label}.xgu"], step.phases[f"{label}.xdown"]
    if gate.eight_bits:
        _scales(step, layer)
        linear.quantise(step, gate.name, "h", (step.s.x_beats, step.s.rows))
    _tiles(step, gate, ("h", "part.xgu"), per_slot=False)
    linear.fold_gate(each, gate, "part.xgu", "xf" if x.held else "sh.xffn")
    if not x.held:
        all_gather(each, f"{label}.xffn", "sh.xffn", "in.xffn", x.ffn_cut)
        assemble(each, f"{label}.xffn", ("in.xffn", "xf"), x.ffn_cut)
    if down.eight_bits:
        linear.quantise(step, down.name, "xf", (-(-x.ffn // LANES), each.s.rows))
    _tiles(step, down, ("xf", "part.xdown"), per_slot=True)
    linear.fold_matrix(each, down, ("part.xdown", "xy", ""), 0, x.y)
    if x.held:
        _collect(step, each, label)
    for record in range(x.y.beats):
        _mix(step, f"{label}.mix[{record}]", x, record)
    if not x.held:
        all_gather(step, f"{label}.down", "sh.down", "in.down", step.s.y)


def _each(step: Step, x: ExpertShapes) -> Step:
    """The step as what lies as [slot][token row] sees it."""
    wide = replace(step.s, rows=step.s.rows * x.slots, ffn_cut=x.ffn_cut)
    return replace(step, sharded=replace(step.sharded, shapes=wide))


def _collect(step: Step, each: Step, label: str) -> None:
    """What the slots of all chips made to every chip, and of it what the registers name: xz[beat][rank][row].

    What a slot made that nobody's register names is never looked at.
    """
    x, n, w = shapes(step), step.s.rows, shapes(step).y.width
    for beat in range(x.y.beats):
        inbox, one = f"in.xy.{beat}", replace(x.y, beats=1)
        ends = (step.at("xy", beat * each.s.rows * w, w), step.at(inbox, 0, w))
        exchange(each, f"{label}.xy[{beat}]", ends, one, each.s.rows, PATTERN_ALL)
        for rank in range(x.per_token):
            c = step.chain(f"{label}.take[{beat}.{rank}]")
            named = step.at(inbox, 0, 0, w, reg_fn=int(RegFn.EXPERT), reg_stride=n * w, rank=rank)
            if x.named:  # the slot is the rank: only which chip ran it is asked for
                named = replace(
                    named, base=rank * n * w, reg_fn=int(RegFn.EXPERT_HOME), reg_stride=each.s.rows * w, held=x.held
                )  # fmt: skip
            y = c.load(named, progress(1, n, q=c.pace(w)), Dtype.F32, w)
            c.store(y, step.at("xz", (beat * x.per_token + rank) * n * w, 0, w), Dtype.F32, w)
            c.end()


def _named(step: Step, at: At, slot: int, stride: int) -> At:
    """The record of a slot in a region of `stride` vectors per expert: one that a register names, or the slot's own."""
    x = shapes(step)
    if not x.named:
        return replace(at, base=at.base + slot * stride)
    fn = RegFn.EXPERT_LOCAL if x.held else RegFn.EXPERT
    return replace(at, reg_fn=int(fn), reg_stride=stride, rank=slot, held=x.held)


def _scales(step: Step, layer: int) -> None:
    """Of gate, up and down of the experts of every row, the chip's scales: xs.part[record][rank][row], once they are named."""
    x, n = shapes(step), step.s.rows
    for part, cut in (("gate", x.ffn_cut), ("up", x.ffn_cut), ("down", x.y)):
        width = scale_width(cut)
        for record, slot in product(range(cut.beats), range(x.slots)):
            c = step.chain(f"L{layer}.scale[{part}.{record}.{slot}]")
            pr = progress(1, n, q=c.pace(width))
            own = step.at(scale_name(f"layers.{layer}.experts.{part}"), 4 * record)
            y = c.load(_named(step, own, slot, 4 * cut.beats), pr, Dtype.F32, width)
            into = step.at(f"xs.{part}", (record * x.slots + slot) * n * width, 0, width)
            c.store(y, into, Dtype.F32, width)
            c.end()


def _tiles(step: Step, phase: Phase, names: tuple[str, str], *, per_slot: bool) -> None:
    """Per slot and tile the chains over its token rows; `per_slot`: whether x lies as [slot][row]. names = (x, partials)."""
    x, rows = shapes(step), step.s.rows
    fit = step.writer.table.streams // piece_streams(eight_bits=phase.eight_bits)
    for slot in range(x.slots):
        for i, tile in enumerate(phase.packed.tiles):
            found = turns(len(tile.pieces), rows, fit if x.named else len(tile.pieces))
            for number, (of_rows, pieces) in enumerate(found):
                c = step.chain(f"{phase.name}.tile[{slot}.{i}{f'.{number}' if len(found) > 1 else ''}]")
                part = replace(tile, pieces=tile.pieces[pieces])
                first, count = of_rows.start, of_rows.stop - of_rows.start
                _tile(step, c, _Slot(phase, part, slot, first, count, per_slot), names)
                c.end()


@dataclass(frozen=True, slots=True)
class _Slot:
    """A tile of the expert in `slot`, for token rows first .. first + count - 1; `per_slot` as of `_tiles`."""

    phase: Phase
    tile: Tile
    slot: int
    first: int
    count: int
    per_slot: bool


def _period(step: Step, tile: Tile) -> int:
    """Cycles from one token row's tile to the next one's: loaded, installed, and passed once for each piece."""
    table, vectors = step.writer.table, tile.rows * tile.per_row
    load = -(-vectors // int(table.port_vectors[Unit.MEM_WIDE]))
    hold = max(load, -(-vectors * 320 // table.weight_load_bytes), 1)
    return hold + int(table.latency[Op.INSTALL]) + len(tile.pieces)


def _tile(step: Step, c: Chain, of: _Slot, names: tuple[str, str]) -> None:
    """One chain: a tile for each row where registers name them, else one tile that all rows pass."""
    (x, partial), s, phase, tile = names, step.s, of.phase, of.tile
    n, slots, named = s.rows, shapes(step).slots, shapes(step).named
    pr = progress(1, of.count, q=_period(step, tile)) if named else progress(of.count)
    at = replace(
        _named(step, step.at(phase.name, tile.vector), of.slot, phase.packed.vectors),
        row=of.first if named else 0,
    )
    w = c.load(at, pr if named else progress(1), phase.weight, tile.rows * tile.per_row, wide=True)
    plane = c.install(w, phase.passed, Keep(0, lanes_of(phase.weight) * tile.per_row), per_row=tile.per_row)
    rows, row = (n * slots, of.slot * n + of.first) if of.per_slot else (n, of.first)
    for piece in tile.pieces:
        if phase.eight_bits:
            at, dtype = step.at(f"{x}8", piece.k_tile * rows + row, 1, 1), s.passed
        else:
            beat, inside = divmod(piece.k_tile, s.per_beat)
            at, dtype = step.at(x, (beat * rows + row) * s.per_beat + inside, s.per_beat, s.per_beat), s.act
        y = c.matmul(c.load(at, pr, dtype, 1), plane)
        moved = c.op(Op.MOVE, y, a=(piece.lane, piece.cols, piece.to_lane))
        if phase.eight_bits:
            scale = c.load(step.at(f"{x}s", piece.k_tile * rows + row, 1, 1), c.out(moved), Dtype.F32, 1)
            moved = c.op(Op.MUL, moved, c.op(Op.BROADCAST, scale))
        number, width = (
            phase.packed.first_partial(piece.matrix, piece.record) + piece.partial,
            phase.partial_width,
        )
        into = step.at(partial, ((number * slots + of.slot) * n + of.first) * width, width, width)
        c.store(moved, into, Dtype.F32, width)


def _mix(step: Step, label: str, x: ExpertShapes, record: int) -> None:
    """The sum over ranks, ascending, of weight times y, rounded: one record of the chip's shard of y, or of all of it."""
    s, n, k, w = step.s, step.s.rows, x.per_token, x.y.width
    c = step.chain(label)
    one = progress(1, n, q=k) if n > 1 else progress(1)
    pr = progress(k, n) if n > 1 else progress(k)
    y = c.load(step.at("xz" if x.held else "xy", record * k * n * w, n * w, w), pr, Dtype.F32, w)
    chosen = c.load(step.at("route", 0, 0, route_width(k)), one, Dtype.F32, route_width(k))
    y = c.op(Op.FOLD, c.op(Op.MUL, y, c.op(Op.SPREAD, chosen, x=(k, 0))))
    into, width = ("ym", s.per_beat) if x.held else ("sh.down", s.y.width)
    c.store(step.rounded(c, y), step.at(into, record * n * width, width), s.act, width)
    c.end()
