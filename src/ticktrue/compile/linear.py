"""Chains of a matrix product: weight tiles against activations, then the fold of partial sums with its epilogue."""

from ticktrue.compile.chains import Chain, Keep, progress
from ticktrue.compile.step import Step
from ticktrue.isa import Dtype, Op
from ticktrue.model import Activation
from ticktrue.partition import Cut
from ticktrue.place import Phase, Tile

VECTOR_LANES = 160
GATES = {Activation.SILU: Op.SILU_MUL, Activation.GELU_TANH: Op.GELU_MUL}


def tiles(step: Step, phase: Phase, x: str, partial: str, rows: int) -> None:
    """One chain per tile: LOAD and INSTALL the tile, then per piece LOAD x, PASS, MOVE to its record lanes, STORE a partial."""
    for i, tile in enumerate(phase.packed.tiles):
        c = step.chain(f"{phase.name}.tile[{i}]")
        _tile(step, c, (phase, tile), (x, partial), rows)
        c.end()


def _tile(step: Step, c: Chain, what: tuple[Phase, Tile], names: tuple[str, str], rows: int) -> None:
    (phase, tile), (x, partial), s = what, names, step.s
    w = c.load(step.at(phase.name, tile.vector), progress(1), Dtype.BF16, tile.rows * tile.per_row, wide=True)
    plane = c.install(w, s.act, Keep(0, VECTOR_LANES * tile.per_row), per_row=tile.per_row)
    width = phase.partial_width
    for piece in tile.pieces:
        beat, inside = divmod(piece.k_tile, s.per_beat)
        v = c.load(step.at(x, beat * rows * s.per_beat + inside, s.per_beat), progress(rows), s.act, 1)
        y = c.matmul(v, plane)
        moved = c.op(Op.MOVE, y, a=(piece.lane, piece.cols, piece.to_lane))
        number = phase.packed.first_partial(piece.matrix, piece.record) + piece.partial
        c.store(moved, step.at(partial, number * rows * width, width), Dtype.F32, width)


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
    y = biased(step, c, folded(step, c, phase, partial, (*which, rows)), bias, which[1])
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
    for record in range(len(phase.packed.partials[0])):
        c = step.chain(f"{phase.name}.gate[{record}]")
        pace = max(phase.packed.partials[0][record], phase.packed.partials[1][record])
        gate = folded(step, c, phase, partial, (0, record, rows), pace)
        up = folded(step, c, phase, partial, (1, record, rows), pace)
        y = step.rounded(c, c.op(gated, gate, up))
        c.store(y, step.at(shard, record * rows * cut.width, cut.width), cut.dtype, cut.width)
        c.end()
