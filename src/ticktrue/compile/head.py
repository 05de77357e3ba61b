"""Chains of the logits and of the choice: noise, local best, one small gather, the same winner on every chip."""

from ticktrue.compile.chains import progress
from ticktrue.compile.linear import folded, scaled, tiles
from ticktrue.compile.rows import float_bits
from ticktrue.compile.step import Step, exchange
from ticktrue.isa import Dtype, Op
from ticktrue.partition import Cut
from ticktrue.program import columns as col


def logits(step: Step, rows: int) -> None:
    """Logits of `rows` rows in segments: logits[record][row], float32, unrounded."""
    segment, done = 0, 0
    while (phase := step.phases.get(f"logits.{segment}")) is not None:
        partial = f"part.logits.{segment % 2}"
        tiles(step, phase, "h", partial, rows)
        for record in range(len(phase.packed.partials[0])):
            c = step.chain(f"{phase.name}.fold[{record}]")
            y = folded(step, c, phase, partial, (0, record, rows))
            y = scaled(step, c, y, "lm_head", done + record)
            if (cap := step.sharded.graph.spec.final_softcap) > 0:
                y = c.op(Op.SOFTCAP, y, x=(float_bits(cap), 0))
            c.store(y, step.at("logits", (done + record) * rows * 4, 4), Dtype.F32, step.s.logits.width)
            c.end()
        done += len(phase.packed.partials[0])
        segment += 1


def choose(step: Step, rows: int) -> None:
    """next[row]: largest z, then lowest index, over all chips; z = logit / temperature + noise, or the logit itself at 0.

    Where every token row has logits, also accept[slot]: how many proposed tokens were the ones chosen.
    """
    s, g = step.s, step.sharded.plan.chips
    c = step.chain("greedy.local")
    beats = s.logits.beats
    pr = progress(beats, rows) if rows > 1 else progress(beats)
    width = s.logits.width
    x = c.load(step.at("logits", 0, rows * 4, 4), pr, Dtype.F32, width)
    last = int(step.sharded.graph.kind.logits == "last")
    z = c.op(Op.NOISE, x, x=(last, 0), a=(s.logits.shard, s.vocab, 0))
    best = c.op(Op.LANE_ARGMAX, z, a=(s.logits.shard, s.vocab, 0))
    c.store(best, step.at("cand", 0, 1), Dtype.F32, 1)
    c.end()
    cut = Cut(g, 1, Dtype.F32, 1, 1)
    exchange(step, "greedy", (step.at("cand", 0, 1), step.at("in.winner", 0, 1)), cut, rows, col.PATTERN_ALL)
    each = s.tokens if step.sharded.graph.kind.logits == "all" else rows  # ACCEPT folds the rows of one slot
    for slot in range(rows // each):
        c = step.chain(f"greedy.pick[{slot}]" if rows > each else "greedy.pick")
        pr = progress(g, each) if each > 1 else progress(g)
        x = c.load(step.at("in.winner", slot * each, s.rows, 1), pr, Dtype.F32, 1)
        best = c.op(Op.PICK, x)
        c.store(best, step.at("next", slot * each, 1), Dtype.F32, 1)
        if step.sharded.graph.kind.logits == "all":
            c.store(c.op(Op.ACCEPT, best, a=(slot,)), step.at("accept", slot), Dtype.F32, 1)
        c.end()
