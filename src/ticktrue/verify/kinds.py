"""Whether attention in the rows is of the kind that the key says each layer has: heads, window, ring (V117).

The key is what a reader, or another checker, takes a program for. Rows tell it themselves: a MASK says window and ring, and of
which slot; the state that its scores come from says the layer; the columns of its plane say how many heads it serves.
"""

from typing import NamedTuple

import numpy as np

from ticktrue.isa import Op
from ticktrue.program import Packing
from ticktrue.program import columns as col
from ticktrue.program.loops import body_rows
from ticktrue.program.types import Int64
from ticktrue.verify.shape import source_of
from ticktrue.verify.stored import Stored
from ticktrue.verify.verdict import Findings


class Masks(NamedTuple):
    """MASK rows of all iterations: stored row, layer whose keys it looks at, its slot, and columns of its plane (-1: none)."""

    row: Int64
    layer: Int64
    slot: Int64
    columns: Int64


def check_kinds(s: Stored, findings: Findings) -> None:
    """Finds MASKs of another window or ring than their layer's, and layers that attend other heads than the key says."""
    masks = _masks(s)
    if not len(masks.row):
        return
    key = s.image.key
    of = np.array([(a.window, a.ring) for a in key.attention], dtype=np.int64)
    expected = of[np.array(key.layer_kinds, dtype=np.int64)[masks.layer]]
    for i, (name, column) in enumerate((("window", col.V_A1), ("ring", col.V_A2))):
        found = s.v[masks.row, column]
        bad = np.zeros(len(s.op), dtype=bool)
        bad[masks.row[found != expected[:, i]]] = True
        text = f"expected the {name} that the key gives its layer (a{i + 1}), found {{}}"
        s.each(findings, "V117", bad, text, s.v[:, column])
    _heads(s, masks, findings)


def _heads(s: Stored, masks: Masks, findings: Findings) -> None:
    """A chip attends the heads of its group: in every slot, T columns of planes for each."""
    key, kind = s.image.key, s.timetable.kind
    scored = masks.columns >= 0
    if not scored.any():
        return
    total = np.zeros((len(key.layer_kinds), kind.slots), dtype=np.int64)
    np.add.at(total, (masks.layer[scored], masks.slot[scored]), masks.columns[scored])
    for layer, slot in np.ndindex(*total.shape):
        expected = key.of_layer(layer).heads // key.grid_of(layer).h * kind.tokens
        if total[layer, slot] != expected:
            findings.field(
                "V117", f"{s.where}, key.attention[{key.layer_kinds[layer]}].heads",
                f"expected {expected:_} rows of queries a chip (its heads x {kind.tokens} tokens) in layer {layer}, slot {slot}; "
                f"found {total[layer, slot]:_}",
            )  # fmt: skip


def _masks(s: Stored) -> Masks:
    """MASKs whose scores come from the state of a layer, of every iteration of their loop."""
    state = np.array([r.packing == Packing.KV for r in s.regions] + [False])
    p0 = np.array([r.p0 for r in s.regions] + [0], dtype=np.int64)
    every, region = np.arange(len(s.op), dtype=np.int64), s.v[:, col.V_REGION]
    keys = _come_from(s, np.where((s.op == Op.LOAD) & state[region], every, -1))
    passes = _come_from(s, np.where((s.op == Op.PASS) & (keys >= 0), every, -1))
    rows = np.flatnonzero((s.op == Op.MASK) & (keys >= 0))
    tile = source_of(s, col.T_S1)[np.maximum(passes[rows], 0)]
    columns = np.where(passes[rows] >= 0, s.v[tile, col.V_A2] - s.v[tile, col.V_A1], -1)
    found, named = [np.arange(len(rows))], [region[keys[rows]]]
    for loop in s.timetable.loops:
        body, step = body_rows(s.timetable, loop), np.zeros(len(s.regions) + 1, dtype=np.int64)
        for at, by in loop.strides:
            step[at] = by
        inside = np.flatnonzero((rows >= body.start) & (rows < body.stop))
        for later in range(1, loop.count):
            found.append(inside)
            named.append(named[0][inside] + later * step[named[0][inside]])
    chosen = np.concatenate(found)
    return Masks(rows[chosen], p0[np.concatenate(named)] // 2, s.v[rows[chosen], col.V_A3], columns[chosen])


def _come_from(s: Stored, first: Int64) -> Int64:
    """Of each row the one that `first` names of it, or else of what it hears on streams (s0 before s1); -1 for none."""
    s0, s1 = source_of(s, col.T_S0), source_of(s, col.T_S1)
    s1 = np.where(s.op == Op.PASS, -1, s1)
    found = first
    # operands are earlier rows: as many rounds as the longest way settle every row
    while True:
        left, right = (np.where(x >= 0, found[np.maximum(x, 0)], -1) for x in (s0, s1))
        new = np.where(first >= 0, first, np.where(left >= 0, left, right))
        if (new == found).all():
            return found
        found = new
