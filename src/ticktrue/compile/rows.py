"""Chains on whole rows, run by every chip: embedding, norms, residual add, assembling gathered activations."""

import numpy as np

from ticktrue.compile.chains import Chain, Progress, progress
from ticktrue.compile.step import Step, exchange, merge
from ticktrue.isa import Dtype, Op, RegFn
from ticktrue.isa.ops import LANES
from ticktrue.partition import AttentionShapes, Cut
from ticktrue.place import CHUNK, rope_width
from ticktrue.program import columns as col

WHOLE = "ym"
"""What whole experts add: on every chip in full beats."""


def float_bits(value: float) -> int:
    """Bit pattern of a float32, as a signed 32-bit integer that fits a column."""
    return int(np.float32(value).view(np.int32))


def embed(step: Step) -> None:
    """Every chip gathers its columns of row token[r]; one all-gather; the residual is assembled beat by beat."""
    s, cut, scale = step.s, step.s.embed, step.sharded.graph.spec.embed_scale
    for beat in range(cut.beats):
        at = step.at("embed", beat * cut.width, reg_fn=int(RegFn.TOKEN), reg_stride=cut.beats * cut.width)
        inbox = step.at("in.embed", beat * s.rows * cut.width, cut.width)
        exchange(step, f"embed[{beat}]", (at, inbox), cut, s.rows, col.PATTERN_ALL)
    for beat in range(s.x_beats):
        first = beat * LANES
        c = step.chain(f"embed.assemble[{beat}]")
        x = merge(step, c, "in.embed", cut, (first, min(LANES, s.hidden - first)))
        if scale != 1.0:
            x = c.op(Op.SCALE, x, x=(float_bits(scale), 0))
        c.store(x, step.at("x", beat * s.rows * 4, 4), Dtype.F32, 4)
        c.end()


def chunks(head_dim: int) -> list[tuple[int, int]]:
    """(first pair, pairs) of what one ROPE turns at a time."""
    return [(i, min(CHUNK, head_dim // 2 - i)) for i in range(0, head_dim // 2, CHUNK)]


def rope_rows(step: Step, a: AttentionShapes) -> None:
    """(cos, sin) of every row's position for one kind of attention: two table rows, one complex multiply per chunk."""
    stride, pr = rope_width(a.head_dim), progress(step.s.rows)
    for first, pairs in chunks(a.head_dim):
        at, width = 4 * (first // CHUNK), -(-2 * pairs * 4 // 320)
        c = step.chain(f"rope{a.suffix}[{first // CHUNK}]")
        rows = [
            c.load(
                step.at(f"rope_{which}{a.suffix}", at, reg_fn=int(fn), reg_stride=stride),
                pr,
                Dtype.F32,
                width,
            )
            for which, fn in (("a", RegFn.P_DIV), ("b", RegFn.P_MOD))
        ]
        turned = c.op(Op.CMUL, *rows, x=(2 * pairs, 0))
        c.store(turned, step.at(f"rope{a.suffix}", at, stride), Dtype.F32, width)
        c.end()


def mean_root(c: Chain, x: int, width: int, eps: float) -> int:
    """1 / sqrt(mean square + eps) of the `width` elements that x brings in beats (numerics row 5)."""
    total = c.op(Op.LANE_SUM, c.op(Op.MUL, x, x))
    return c.op(Op.MEAN_RSQRT, total, x=(float_bits(float(width)), float_bits(eps)))


def normed(step: Step, c: Chain, x: int, r: int, weight: str, pr: Progress) -> int:
    """(x * r) * g; without a weight x * r."""
    y = c.op(Op.MUL, x, c.op(Op.BROADCAST, r))
    return c.op(Op.MUL, y, c.load(step.at(weight, 0, 4), pr, Dtype.F32, 4)) if weight else y


def norm(step: Step, label: str, weight: str, eps: float) -> None:
    """RMSNorm of the residual into `h`: r[row] by a lane sum, then (x*r)*g."""
    rows = step.s.rows
    _norm(step, label, weight, eps, (0, rows, {}), rows)


def last_norm(step: Step, label: str, weight: str, eps: float) -> None:
    """RMSNorm of row valid-1 of each slot into row s of `h`."""
    s = step.s
    for slot in range(s.slots):
        reg = {"reg_fn": int(RegFn.LAST), "reg_stride": 4, "row": slot * s.tokens}
        name = f"{label}[{slot}]" if s.slots > 1 else label
        _norm(step, name, weight, eps, (slot, 1, reg), s.slots)


def _norm(
    step: Step, label: str, weight: str, eps: float, which: tuple[int, int, dict[str, int]], stored: int
) -> None:
    """Rows `which` = (first row of h, rows, register of x) of `stored` rows of h."""
    s, beats = step.s, step.s.x_beats
    first, rows, reg = which
    record, base = s.rows * 4, first * s.tokens * 4 if reg else 0
    pr = progress(beats, rows) if rows > 1 else progress(beats)
    c = step.chain(f"{label}.r")
    x = c.load(step.at("x", base, record, 4, **reg), pr, Dtype.F32, 4)
    c.store(mean_root(c, x, s.hidden, eps), step.at("r", first, 1), Dtype.F32, 1)
    c.end()
    c = step.chain(f"{label}.scale")
    x = c.load(step.at("x", base, record, 4, **reg), pr, Dtype.F32, 4)
    r = c.load(step.at("r", first, 0, 1), pr, Dtype.F32, 1)
    y = step.rounded(c, normed(step, c, x, r, weight, pr))
    c.store(y, step.at("h", first * s.per_beat, stored * s.per_beat, s.per_beat), s.act, s.per_beat)
    c.end()


def _block(step: Step, c: Chain, inbox: str, beat: int) -> int:
    """A beat of what a block adds: merged from the gathered shards, or as it lies where every chip made all of it."""
    s, first = step.s, beat * LANES
    if inbox == WHOLE:
        at = step.at(WHOLE, beat * s.rows * s.per_beat, s.per_beat)
        return c.load(at, progress(s.rows), s.act, s.per_beat)
    return merge(step, c, inbox, s.y, (first, min(LANES, s.hidden - first)))


def residual(step: Step, label: str, inbox: str, scalar: str = "") -> None:
    """X = x + y for every beat, y merged from the gathered shards; then times a layer scalar if there is one."""
    s = step.s
    for beat in range(s.x_beats):
        c = step.chain(f"{label}.add[{beat}]")
        y = _block(step, c, inbox, beat)
        at = step.at("x", beat * s.rows * 4, 4)
        x = c.op(Op.ADD, c.load(at, c.out(y), Dtype.F32, 4), y)
        c.store(_scaled(step, c, x, scalar), at, Dtype.F32, 4)
        c.end()


def _scaled(step: Step, c: Chain, x: int, scalar: str) -> int:
    if not scalar:
        return x
    return c.op(Op.MUL, x, c.op(Op.BROADCAST, c.load(step.at(scalar), c.out(x), Dtype.F32, 1)))


def normed_residual(step: Step, label: str, inbox: str, weight: str, scalar: str = "") -> None:
    """X = x + norm(y), y merged from the gathered shards (numerics row 5b); then times a layer scalar if there is one."""
    s, eps = step.s, step.sharded.graph.spec.rms_eps
    record = s.rows * 4
    for beat in range(s.x_beats):
        c = step.chain(f"{label}.merge[{beat}]")
        y = _block(step, c, inbox, beat)
        c.store(y, step.at("y", beat * record, 4), Dtype.F32, 4)
        c.end()
    pr = progress(s.x_beats, s.rows) if s.rows > 1 else progress(s.x_beats)
    c = step.chain(f"{label}.r")
    y = c.load(step.at("y", 0, record, 4), pr, Dtype.F32, 4)
    c.store(mean_root(c, y, s.hidden, eps), step.at("r", 0, 1), Dtype.F32, 1)
    c.end()
    c = step.chain(f"{label}.add")
    y = c.load(step.at("y", 0, record, 4), pr, Dtype.F32, 4)
    r = c.load(step.at("r", 0, 0, 1), pr, Dtype.F32, 1)
    y = step.rounded(c, normed(step, c, y, r, weight, pr))
    x = c.op(Op.ADD, c.load(step.at("x", 0, record, 4), pr, Dtype.F32, 4), y)
    c.store(_scaled(step, c, x, scalar), step.at("x", 0, record, 4), Dtype.F32, 4)
    c.end()


def assemble(step: Step, label: str, names: tuple[str, str], cut: Cut) -> None:
    """Gathered shards (inbox) to full activation rows (target) in beats of 320 lanes."""
    s, (inbox, target) = step.s, names
    for beat, first in enumerate(range(0, cut.columns, LANES)):
        c = step.chain(f"{label}.assemble[{beat}]")
        x = merge(step, c, inbox, cut, (first, min(LANES, cut.columns - first)))
        c.store(x, step.at(target, beat * s.rows * s.per_beat, s.per_beat), s.act, s.per_beat)
        c.end()
