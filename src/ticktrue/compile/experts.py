"""Chains of a mixture of experts, every expert cut over outputs on all chips: no dispatch, k passes for each token.

Every chip knows every choice. Per rank, a chain per weight tile goes through the token rows: the wide GATHER takes the tile of
the expert that the row's register names. What the experts make lies as [rank][token row]; the weighted sum folds over ranks.
"""

from dataclasses import dataclass, replace
from itertools import product

from ticktrue.compile import linear
from ticktrue.compile.chains import Chain, Keep, progress
from ticktrue.compile.rows import assemble
from ticktrue.compile.step import Step, all_gather, merge
from ticktrue.errors import Bug
from ticktrue.isa import Dtype, Op, RegFn, Unit
from ticktrue.isa.ops import LANES, lanes_of
from ticktrue.partition import ExpertShapes, scale_name
from ticktrue.place import Phase, Tile, piece_streams, route_width, scale_width, turns


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
    """Gate, up, the gated product and its gather, down, and the weighted sum of every row (numerics row 28)."""
    x, label = shapes(step), f"L{layer}"
    each = _each(step, x)
    gate, down = step.phases[f"{label}.xgu"], step.phases[f"{label}.xdown"]
    if gate.eight_bits:
        _scales(step, layer)
        linear.quantise(step, gate.name, "h", (step.s.x_beats, step.s.rows))
    _tiles(step, gate, ("h", "part.xgu"), per_rank=False)
    linear.fold_gate(each, gate, "part.xgu", "sh.xffn")
    all_gather(each, f"{label}.xffn", "sh.xffn", "in.xffn", x.ffn_cut)
    assemble(each, f"{label}.xffn", ("in.xffn", "xf"), x.ffn_cut)
    if down.eight_bits:
        linear.quantise(step, down.name, "xf", (-(-x.ffn // LANES), step.s.rows * x.per_token))
    _tiles(step, down, ("xf", "part.xdown"), per_rank=True)
    linear.fold_matrix(each, down, ("part.xdown", "xy", ""), 0, x.y)
    for record in range(x.y.beats):
        _mix(step, f"{label}.mix[{record}]", x, record)
    all_gather(step, f"{label}.down", "sh.down", "in.down", step.s.y)


def _each(step: Step, x: ExpertShapes) -> Step:
    """The step as what lies as [rank][token row] sees it."""
    wide = replace(step.s, rows=step.s.rows * x.per_token, ffn_cut=x.ffn_cut)
    return replace(step, sharded=replace(step.sharded, shapes=wide))


def _scales(step: Step, layer: int) -> None:
    """Of gate, up and down of the experts of every row, the chip's scales: xs.part[record][rank][row], once they are named."""
    x, n = shapes(step), step.s.rows
    for part, cut in (("gate", x.ffn_cut), ("up", x.ffn_cut), ("down", x.y)):
        width = scale_width(cut)
        for record, rank in product(range(cut.beats), range(x.per_token)):
            c = step.chain(f"L{layer}.scale[{part}.{record}.{rank}]")
            pr = progress(1, n, q=c.pace(width))
            named = step.at(
                scale_name(f"layers.{layer}.experts.{part}"), 4 * record, reg_fn=int(RegFn.EXPERT), reg_stride=4 * cut.beats,
                rank=rank,
            )  # fmt: skip
            y = c.load(named, pr, Dtype.F32, width)
            into = step.at(f"xs.{part}", (record * x.per_token + rank) * n * width, 0, width)
            c.store(y, into, Dtype.F32, width)
            c.end()


def _tiles(step: Step, phase: Phase, names: tuple[str, str], *, per_rank: bool) -> None:
    """Per rank and tile the chains over its token rows; `per_rank`: whether x lies as [rank][row]. names = (x, partials)."""
    fit = step.writer.table.streams // piece_streams(eight_bits=phase.eight_bits)
    for rank in range(shapes(step).per_token):
        for i, tile in enumerate(phase.packed.tiles):
            found = turns(len(tile.pieces), step.s.rows, fit)
            for number, (rows, pieces) in enumerate(found):
                c = step.chain(f"{phase.name}.tile[{rank}.{i}{f'.{number}' if len(found) > 1 else ''}]")
                named = replace(tile, pieces=tile.pieces[pieces])
                _tile(
                    step, c, _Named(phase, named, rank, rows.start, rows.stop - rows.start, per_rank), names
                )
                c.end()


@dataclass(frozen=True, slots=True)
class _Named:
    """A tile of the expert that rank `rank` of token rows first .. first + count - 1 names; `per_rank` as of `_tiles`."""

    phase: Phase
    tile: Tile
    rank: int
    first: int
    count: int
    per_rank: bool


def _period(step: Step, tile: Tile) -> int:
    """Cycles from one token row's tile to the next one's: loaded, installed, and passed once for each piece."""
    table, vectors = step.writer.table, tile.rows * tile.per_row
    load = -(-vectors // int(table.port_vectors[Unit.MEM_WIDE]))
    hold = max(load, -(-vectors * 320 // table.weight_load_bytes), 1)
    return hold + int(table.latency[Op.INSTALL]) + len(tile.pieces)


def _tile(step: Step, c: Chain, of: _Named, names: tuple[str, str]) -> None:
    (x, partial), s, phase, tile = names, step.s, of.phase, of.tile
    n, k = s.rows, shapes(step).per_token
    pr = progress(1, of.count, q=_period(step, tile))
    named = step.at(
        phase.name,
        tile.vector,
        reg_fn=int(RegFn.EXPERT),
        reg_stride=phase.packed.vectors,
        row=of.first,
        rank=of.rank,
    )
    w = c.load(named, pr, phase.weight, tile.rows * tile.per_row, wide=True)
    plane = c.install(w, phase.passed, Keep(0, lanes_of(phase.weight) * tile.per_row), per_row=tile.per_row)
    rows, row = (n * k, of.rank * n + of.first) if of.per_rank else (n, of.first)
    for piece in tile.pieces:
        if phase.eight_bits:
            at, dtype = step.at(f"{x}8", piece.k_tile * rows + row, 0, 1), s.passed
        else:
            beat, inside = divmod(piece.k_tile, s.per_beat)
            at, dtype = step.at(x, (beat * rows + row) * s.per_beat + inside, 0, s.per_beat), s.act
        y = c.matmul(c.load(at, pr, dtype, 1), plane)
        moved = c.op(Op.MOVE, y, a=(piece.lane, piece.cols, piece.to_lane))
        if phase.eight_bits:
            scale = c.load(step.at(f"{x}s", piece.k_tile * rows + row, 0, 1), c.out(moved), Dtype.F32, 1)
            moved = c.op(Op.MUL, moved, c.op(Op.BROADCAST, scale))
        number, width = (
            phase.packed.first_partial(piece.matrix, piece.record) + piece.partial,
            phase.partial_width,
        )
        into = step.at(partial, ((number * k + of.rank) * n + of.first) * width, 0, width)
        c.store(moved, into, Dtype.F32, width)


def _mix(step: Step, label: str, x: ExpertShapes, record: int) -> None:
    """The sum over ranks, ascending, of weight times y, rounded: one record of the chip's shard of y."""
    s, n, k, w = step.s, step.s.rows, x.per_token, x.y.width
    c = step.chain(label)
    one = progress(1, n, q=k) if n > 1 else progress(1)
    pr = progress(k, n) if n > 1 else progress(k)
    y = c.load(step.at("xy", record * k * n * w, n * w, w), pr, Dtype.F32, w)
    chosen = c.load(step.at("route", 0, 0, route_width(k)), one, Dtype.F32, route_width(k))
    y = c.op(Op.FOLD, c.op(Op.MUL, y, c.op(Op.SPREAD, chosen, x=(k, 0))))
    c.store(step.rounded(c, y), step.at("sh.down", record * n * s.y.width, s.y.width), s.act, s.y.width)
    c.end()
