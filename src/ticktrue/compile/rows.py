"""Chains on whole rows, run by every chip: embedding, norm, residual add, assembling gathered activations."""

import numpy as np

from ticktrue.compile.chains import progress
from ticktrue.compile.step import Step, exchange, merge
from ticktrue.isa import Dtype, Op, RegFn
from ticktrue.isa.ops import LANES
from ticktrue.partition import Cut
from ticktrue.program import columns as col


def float_bits(value: float) -> int:
    """Bit pattern of a float32, as a signed 32-bit integer that fits a column."""
    return int(np.float32(value).view(np.int32))


def embed(step: Step) -> None:
    """Every chip gathers its columns of row token[t]; one all-gather; the residual is assembled beat by beat."""
    s, cut = step.s, step.s.embed
    for beat in range(cut.beats):
        at = step.at("embed", beat * cut.width, reg_fn=int(RegFn.TOKEN), reg_stride=cut.beats * cut.width)
        inbox = step.at("in.embed", beat * s.tokens * cut.width, cut.width)
        exchange(step, f"embed[{beat}]", (at, inbox), cut, s.tokens, col.PATTERN_ALL)
    for beat in range(s.x_beats):
        first = beat * LANES
        c = step.chain(f"embed.assemble[{beat}]")
        x = merge(step, c, "in.embed", cut, first, min(LANES, s.hidden - first))
        c.store(x, step.at("x", beat * s.tokens * 4, 4), Dtype.F32, 4)
        c.end()


def rope_rows(step: Step) -> None:
    """(cos, sin) of every token's position: two table rows, one complex multiply."""
    s = step.s
    width = -(-s.head_dim * 4 // 320)
    c = step.chain("rope")
    pr = progress(s.tokens)
    a = c.load(step.at("rope_a", reg_fn=int(RegFn.P_DIV), reg_stride=width), pr, Dtype.F32, width)
    b = c.load(step.at("rope_b", reg_fn=int(RegFn.P_MOD), reg_stride=width), pr, Dtype.F32, width)
    c.store(c.op(Op.CMUL, a, b, x=(s.head_dim, 0)), step.at("rope", 0, width), Dtype.F32, width)
    c.end()


def norm(step: Step, label: str, weight: str, eps: float, *, last: bool = False) -> None:
    """RMSNorm of the residual into `h`: r[t] by a lane sum, then (x*r)*g. `last`: of row valid-1 only."""
    s, beats = step.s, step.s.x_beats
    rows = 1 if last else s.tokens
    record = s.tokens * 4
    c = step.chain(f"{label}.r")
    pr = progress(beats, rows) if rows > 1 else progress(beats)
    reg = {"reg_fn": int(RegFn.LAST), "reg_stride": 4} if last else {}
    x = c.load(step.at("x", 0, record, 4, **reg), pr, Dtype.F32, 4)
    total = c.op(Op.LANE_SUM, c.op(Op.MUL, x, x))
    r = c.op(Op.MEAN_RSQRT, total, x=(float_bits(float(s.hidden)), float_bits(eps)))
    c.store(r, step.at("r", 0, 1), Dtype.F32, 1)
    c.end()
    c = step.chain(f"{label}.scale")
    x = c.load(step.at("x", 0, record, 4, **reg), pr, Dtype.F32, 4)
    r = c.op(Op.BROADCAST, c.load(step.at("r", 0, 0, 1), pr, Dtype.F32, 1))
    g = c.load(step.at(weight, 0, 4), pr, Dtype.F32, 4)
    y = step.rounded(c, c.op(Op.MUL, c.op(Op.MUL, x, r), g))
    c.store(y, step.at("h", 0, rows * s.per_beat, s.per_beat), s.act, s.per_beat)
    c.end()


def residual(step: Step, label: str, inbox: str) -> None:
    """X = x + y for every beat, y merged from the gathered shards."""
    s = step.s
    for beat in range(s.x_beats):
        first = beat * LANES
        c = step.chain(f"{label}.add[{beat}]")
        y = merge(step, c, inbox, s.y, first, min(LANES, s.hidden - first))
        x = c.load(step.at("x", beat * s.tokens * 4, 4), c.out(y), Dtype.F32, 4)
        c.store(c.op(Op.ADD, x, y), step.at("x", beat * s.tokens * 4, 4), Dtype.F32, 4)
        c.end()


def assemble(step: Step, label: str, names: tuple[str, str], cut: Cut) -> None:
    """Gathered shards (inbox) to full activation rows (target) in beats of 320 lanes."""
    s, (inbox, target) = step.s, names
    for beat, first in enumerate(range(0, cut.columns, LANES)):
        c = step.chain(f"{label}.assemble[{beat}]")
        x = merge(step, c, inbox, cut, first, min(LANES, cut.columns - first))
        c.store(x, step.at(target, beat * s.tokens * s.per_beat, s.per_beat), s.act, s.per_beat)
        c.end()
