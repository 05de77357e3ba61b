"""Times against context: the bucket that serves a context, and the time it spends on blocks that no position can see."""

import numpy as np

from ticktrue.hw import System
from ticktrue.isa import Op
from ticktrue.isa.ops import BLOCK
from ticktrue.program import Flat, ImageKey, Packing, Program, StepKind, Timetable, expand
from ticktrue.program import columns as col
from ticktrue.program.types import Int64
from ticktrue.sim.replay import pick
from ticktrue.units import Cycles, ceil_div


def bucket_of(program: Program, context: int, tokens: int = 1) -> Timetable | None:
    """The timetable of `tokens` tokens with the fewest blocks that hold `context` positions (the step's own included).

    None if the program has none so large.
    """
    fits = [t for t in program.timetables if t.kind.tokens == tokens and t.kind.blocks * BLOCK >= context]
    return min(fits, key=lambda t: (t.kind.blocks, t.kind), default=None)


def masked_cycles(
    program: Program, system: System, context: int, kind: StepKind | Timetable | None = None
) -> Cycles:
    """Cycles in which the score and value loops stream a block that is masked on every chip at `context`.

    `context` = pos + T positions. Loops that run side by side count once. The step does not get shorter without them where
    something else runs meanwhile.
    """
    timetable = pick(program, kind)
    flat = expand(program.image, timetable, system)
    needed = ceil_div(context, BLOCK)
    spans = _block_spans(flat, program.image.key)
    masked = spans[spans[:, 2] >= needed]
    return Cycles(_union(masked[:, 0], masked[:, 1]))


def _block_spans(flat: Flat, key: ImageKey) -> Int64:
    """(begin, end, first block on any chip) of every block that a row reads from the KV state: int64[blocks, 3]."""
    rows, table, out = flat.rows, flat.table, []
    cache = np.array([r.packing == Packing.KV for r in flat.regions] + [False])
    for r in np.flatnonzero(cache[rows[:, col.C_REGION]] & (rows[:, col.C_OP] == Op.LOAD)):
        n, p, m, q, w = (int(x) for x in rows[r, col.C_N : col.C_W + 1])
        region = flat.regions[rows[r, col.C_REGION]]
        first = int(rows[r, col.C_ABS]) - region.base - region.group * table.group_vectors
        j = np.arange(m, dtype=np.int64)
        begin = int(rows[r, col.C_ISSUE]) + j * q
        block = (first + j * int(rows[r, col.C_STEP2])) // (BLOCK * region.stride)
        cp = key.grid_of(region.p0 // 2).cp
        out.append(np.stack([begin, begin + (n - 1) * p + w, block * cp], axis=1))
    return np.concatenate(out) if out else np.zeros((0, 3), dtype=np.int64)


def _union(begin: Int64, end: Int64) -> int:
    """Cycles that at least one of the spans covers."""
    by = np.argsort(begin, kind="stable")
    reach = np.maximum.accumulate(np.concatenate([[0], end[by]]))
    return int(np.maximum(end[by] - np.maximum(begin[by], reach[:-1]), 0).sum())
