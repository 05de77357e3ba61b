"""Which chain must follow which because one names a tile by an expert register that the other writes."""

import numpy as np

from ticktrue.isa import Op
from ticktrue.isa.ops import EXPERT_FNS
from ticktrue.program import Flat
from ticktrue.program import columns as col
from ticktrue.program.types import Int64


def register_edges(flat: Flat) -> tuple[Int64, Int64, Int64]:
    """Edges (before, after, cycles) in program order, sorted by `after`.

    A GATHER follows the last LATCH of each token row that it names by the LATCH's span and latency; a LATCH follows the GATHERs
    that name what it writes, and the LATCH before it, by their spans.
    """
    rows = flat.rows
    latency = int(flat.table.latency[Op.LATCH])
    latch = rows[:, col.C_OP] == Op.LATCH
    uses = np.flatnonzero(latch | np.isin(rows[:, col.C_REGFN], EXPERT_FNS))
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    best: dict[tuple[int, int], int] = {}

    def after(x: int, r: int, more: int) -> None:
        u, v = int(rows[x, col.C_CHAIN]), int(rows[r, col.C_CHAIN])
        cycles = int(rows[x, col.C_ISSUE] + rows[x, col.C_SPAN] - rows[r, col.C_ISSUE]) + more
        if u != v:
            best[v, u] = max(cycles, best.get((v, u), cycles))

    for r in uses.tolist():
        count = int(rows[r, col.C_N] * rows[r, col.C_M]) if latch[r] else int(rows[r, col.C_M])
        for token_row in range(int(rows[r, col.C_A0]), int(rows[r, col.C_A0]) + count):
            if token_row in writer:
                after(writer[token_row], r, 0 if latch[r] else latency)
            if not latch[r]:
                readers.setdefault(token_row, []).append(r)
                continue
            for reader in readers.pop(token_row, []):
                after(reader, r, 0)
            writer[token_row] = r
    ordered = sorted(best)
    columns = [[u for _, u in ordered], [v for v, _ in ordered], [best[e] for e in ordered]]
    eu, ev, ew = (np.array(c, dtype=np.int64) for c in columns)
    return eu, ev, ew
