"""Chains of a matrix product: weight tiles against activations, then the fold of partial sums with its epilogue."""

from ticktrue.compile.chains import Chain, Keep, progress
from ticktrue.compile.step import Step
from ticktrue.isa import Dtype, Op
from ticktrue.isa.ops import LANES, lanes_of
from ticktrue.model import Activation
from ticktrue.partition import Cut, scale_name
from ticktrue.place import Phase, Tile, scale_width

GATES = {Activation.SILU: Op.SILU_MUL, Activation.GELU_TANH: Op.GELU_MUL}


def tiles(step: Step, phase: Phase, x: str, partial: str, rows: int) -> None:
    """One chain per tile: LOAD and INSTALL the tile, then per piece LOAD x, PASS, MOVE to its record lanes, STORE a partial.

    In 8 bits x is quantised first (numerics row 6), and each partial multiplied by the scale of its tile of x.
    """
    if phase.eight_bits:
        quantise(step, phase.name, x, (-(-phase.packed.matrices[0].inputs // LANES), rows))
    for i, tile in enumerate(phase.packed.tiles):
        c = step.chain(f"{phase.name}.tile[{i}]")
        _tile(step, c, (phase, tile), (x, partial), rows)
        c.end()


def quantise(step: Step, label: str, x: str, size: tuple[int, int]) -> None:
    """X in 8 bits, and the scale of each of its tiles: [beat][row]. `size` = (beats, rows)."""
    s, (beats, rows) = step.s, size
    pr, name = progress(rows, beats) if beats > 1 else progress(rows), x.partition(".")[0]
    at = step.at(x, 0, s.per_beat, rows * s.per_beat)
    c = step.chain(f"{label}.quantise")
    scale = c.op(Op.TILE_SCALE, c.load(at, pr, s.act, s.per_beat), dtype=s.passed)
    q = c.op(Op.QUANTISE, c.load(at, pr, s.act, s.per_beat), scale, dtype=s.passed)
    c.store(scale, step.at(f"{name}s", 0, 1, rows), Dtype.F32, 1)
    c.store(q, step.at(f"{name}8", 0, 1, rows), s.passed, 1)
    c.end()


def _tile(step: Step, c: Chain, what: tuple[Phase, Tile], names: tuple[str, str], rows: int) -> None:
    (phase, tile), (x, partial) = what, names
    w = c.load(
        step.at(phase.name, tile.vector), progress(1), phase.weight, tile.rows * tile.per_row, wide=True
    )
    keep = Keep(0, lanes_of(phase.weight) * tile.per_row)
    plane, width = c.install(w, phase.passed, keep, per_row=tile.per_row), phase.partial_width
    for piece in tile.pieces:
        y = c.matmul(_passed(step, c, phase, (x, piece.k_tile, rows)), plane)
        moved = c.op(Op.MOVE, y, a=(piece.lane, piece.cols, piece.to_lane))
        if phase.eight_bits:
            scale = c.load(
                step.at(f"{x.partition('.')[0]}s", piece.k_tile * rows, 1), c.out(moved), Dtype.F32, 1
            )
            moved = c.op(Op.MUL, moved, c.op(Op.BROADCAST, scale))
        number = phase.packed.first_partial(piece.matrix, piece.record) + piece.partial
        c.store(moved, step.at(partial, number * rows * width, width), Dtype.F32, width)


def _passed(step: Step, c: Chain, phase: Phase, what: tuple[str, int, int]) -> int:
    """LOAD of one K tile of x as the matrix unit takes it. what = (x, K tile, rows)."""
    s, (x, k_tile, rows) = step.s, what
    if phase.eight_bits:
        return c.load(step.at(f"{x.partition('.')[0]}8", k_tile * rows, 1), progress(rows), s.passed, 1)
    beat, inside = divmod(k_tile, s.per_beat)
    return c.load(step.at(x, beat * rows * s.per_beat + inside, s.per_beat), progress(rows), s.act, 1)


def folded(
    step: Step, c: Chain, phase: Phase, partial: str, where: tuple[int, int, int], pace: int = 0
) -> int:
    """The sum of a record's partials in ascending K order; `where` = (matrix, record, rows).

    `pace`: cycles per row where two folds must give their rows together.
    """
    matrix, record, rows = where
    count, width = phase.packed.partials[matrix][record], phase.partial_width
    first = phase.packed.first_partial(matrix, record)
    pr = progress(count, rows, q=pace) if rows > 1 else progress(count)
    x = c.load(step.at(partial, first * rows * width, rows * width, width), pr, Dtype.F32, width)
    return c.op(Op.FOLD, x)


def scaled(step: Step, c: Chain, y: int, tensor: str, record: int) -> int:
    """Y times the chip's share of the scales of a matrix in 8 bits (numerics row 10); y itself where it has none.

    Those of experts were gathered for each row: [record][row].
    """
    if scale_name(tensor) not in step.writer.index:
        return y
    at, width = step.at(scale_name(tensor), 4 * record), 4
    if ".experts." in tensor:
        part, x = tensor.rpartition(".")[2], step.s.experts
        width = scale_width(x.y if part == "down" else x.ffn_cut) if x else 0
        at = step.at(f"xs.{part}", record * step.s.rows * width, width)
    return c.op(Op.MUL, y, c.load(at, c.out(y), Dtype.F32, width))


def biased(step: Step, c: Chain, y: int, bias: str, record: int) -> int:
    """Y + the chip's share of a bias ('': none), numerics row 10."""
    if not bias:
        return y
    return c.op(Op.ADD, y, c.load(step.at(bias, 4 * record), c.out(y), Dtype.F32, 4))


def fold_record(
    step: Step, phase: Phase, names: tuple[str, str, str], which: tuple[int, int], cut: Cut
) -> None:
    """Fold of one record into the shard region, rounded where the cut is bf16. `names` = (partials, shard, bias or '')."""
    partial, shard, bias = names
    rows = step.s.rows
    c = step.chain(f"{phase.name}.fold[{which[0]}.{which[1]}]")
    tensor = step.sharded.tensors[phase.packed.matrices[which[0]].tensor].name
    y = scaled(step, c, folded(step, c, phase, partial, (*which, rows)), tensor, which[1])
    y = biased(step, c, y, bias, which[1])
    if cut.dtype == Dtype.BF16:
        y = step.rounded(c, y)
    c.store(y, step.at(shard, which[1] * rows * cut.width, cut.width), cut.dtype, cut.width)
    c.end()


def fold_matrix(step: Step, phase: Phase, names: tuple[str, str, str], matrix: int, cut: Cut) -> None:
    """Folds of all records of one matrix of the phase; `names` as for `fold_record`."""
    for record in range(len(phase.packed.partials[matrix])):
        fold_record(step, phase, names, (matrix, record), cut)


def fold_gate(step: Step, phase: Phase, partial: str, shard: str) -> None:
    """Folds of gate and up together, then the gated product: matrices 0 and 1 of the phase."""
    rows, cut = step.s.rows, step.s.ffn_cut
    gated = GATES[step.sharded.graph.spec.activation]
    names = [step.sharded.tensors[m.tensor].name for m in phase.packed.matrices]
    for record in range(len(phase.packed.partials[0])):
        c = step.chain(f"{phase.name}.gate[{record}]")
        pace = max(phase.packed.partials[0][record], phase.packed.partials[1][record])
        gate, up = (
            scaled(step, c, folded(step, c, phase, partial, (m, record, rows), pace), name, record)
            for m, name in enumerate(names)
        )
        y = step.rounded(c, c.op(gated, gate, up))
        c.store(y, step.at(shard, record * rows * cut.width, cut.width), cut.dtype, cut.width)
        c.end()
