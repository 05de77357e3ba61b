"""Chains of attention on one chip: RoPE, KV append, score, softmax numerators, values, and the fixed combine order."""

import math
from dataclasses import replace

from ticktrue.compile.chains import Chain, Keep, progress
from ticktrue.compile.rows import assemble, float_bits
from ticktrue.compile.step import Step, all_gather, merge, relay
from ticktrue.isa import Dtype, Op, RegFn
from ticktrue.isa.ops import BLOCK, LANE_BLOCKS, LANES
from ticktrue.partition import Cut
from ticktrue.place import kv_name
from ticktrue.program import columns as col


def rope_queries(step: Step, label: str) -> None:
    """Each q head: merged from the gathered float32 shards, rotated, rounded: q[head][token]."""
    s = step.s
    width = -(-s.head_dim * 4 // 320)
    for head in range(s.heads):
        c = step.chain(f"{label}.q_rope[{head}]")
        x = merge(step, c, "in.q", s.q, head * s.head_dim, s.head_dim)
        cs = c.load(step.at("rope", 0, width), c.out(x), Dtype.F32, width)
        y = step.rounded(c, c.op(Op.ROPE, x, cs, x=(s.head_dim, 1)))
        c.store(y, step.at("q", head * s.tokens * s.vq, s.vq), s.act, s.vq)
        c.end()


def keys_values(step: Step, label: str) -> None:
    """New K (rotated) and V of every vector group of every head group: kr, vm [head group][vector group][token]."""
    s, h = step.s, step.sharded.plan.h
    width = -(-s.head_dim * 4 // 320)
    for hg in range(h):
        for group in range(s.kv_groups):
            first_head = hg * s.local_kv + group * s.hv
            heads = min(s.hv, s.local_kv - group * s.hv)
            first, count = first_head * s.head_dim, heads * s.head_dim
            base = (hg * s.kv_groups + group) * s.tokens * s.vg
            c = step.chain(f"{label}.k_rope[{hg}.{group}]")
            x = merge(step, c, "in.k", s.k, first, count)
            cs = c.load(step.at("rope", 0, width), c.out(x), Dtype.F32, width)
            y = step.rounded(c, c.op(Op.ROPE, x, cs, x=(s.head_dim, heads)))
            c.store(y, step.at("kr", base, s.vg), s.act, s.vg)
            c.end()
            c = step.chain(f"{label}.v_merge[{hg}.{group}]")
            c.store(merge(step, c, "in.v", s.v, first, count), step.at("vm", base, s.vg), s.act, s.vg)
            c.end()


def append(step: Step, label: str, layer: int) -> None:
    """Predicated SCATTER of the new K and V of the chip's head group; the owner among the context lanes stores."""
    s = step.s
    own = s.kv_groups * s.tokens * s.vg
    for which, source in ((0, "kr"), (1, "vm")):
        for group in range(s.kv_groups):
            c = step.chain(f"{label}.append_{'kv'[which]}[{group}]")
            at = step.at(source, group * s.tokens * s.vg, s.vg, pattern=col.PATTERN_HEADS, rank_fn=col.RANK_OWN,
                         rank_stride=own)  # fmt: skip
            x = c.load(at, progress(s.tokens), s.act, s.vg)
            there = step.at(kv_name(layer, which, group), reg_fn=int(RegFn.KV), reg_stride=s.vg,
                            pattern=col.PATTERN_CONTEXT)  # fmt: skip
            c.store(x, there, s.act, s.vg)
            c.end()


def _units(step: Step) -> list[tuple[int, int, int]]:
    """(unit, local KV head, first local q head) of everything attended separately."""
    s = step.s
    return [(kv * s.rounds + r, kv, kv * s.group_heads + r * s.round_heads)
            for kv in range(s.local_kv) for r in range(s.rounds)]  # fmt: skip


def score(step: Step, label: str, layer: int) -> None:
    """Scores of every unit: q installed, K streamed past it, scaled, masked last, stored; block maxima beside."""
    for unit, kv, head in _units(step):
        tiles = -(-step.s.head_dim // step.s.ka)
        for k_tile in range(tiles):
            _score_tile(step, f"{label}.score[{unit}.{k_tile}]", (layer, unit, kv, head), (k_tile, tiles))


def _score_tile(step: Step, label: str, what: tuple[int, int, int, int], which: tuple[int, int]) -> None:
    (layer, unit, kv, head), (k_tile, tiles), s = what, which, step.s
    rows, blocks = s.q_rows, s.local_blocks
    width = -(-rows * 4 // 320)
    lane = (kv % s.hv) * s.head_dim if tiles == 1 else 0
    depth = min(s.ka, s.head_dim - k_tile * s.ka)
    c = step.chain(label)
    own = s.local_heads * s.tokens * s.vq
    q_at = step.at("q", head * s.tokens * s.vq + k_tile, s.vq, pattern=col.PATTERN_HEADS, rank_fn=col.RANK_OWN,
                   rank_stride=own)  # fmt: skip
    q = c.load(q_at, progress(rows), s.act, 1)
    turned = c.op(Op.TRANSPOSE, q, x=(depth, 0), dtype=s.act)
    q_width = -(-rows * (4 if s.act == Dtype.F32 else 2) // 320)
    plane = c.install(turned, s.act, Keep(0, rows, row=lane), per_row=0, width=q_width)
    region = kv_name(layer, 0, kv // s.hv)
    k = c.load(step.at(region, k_tile, s.vg, BLOCK * s.vg), progress(BLOCK, blocks), s.act, 1)
    y = c.matmul(k, plane)
    at = step.at("s", unit * blocks * BLOCK * width, width, BLOCK * width)
    if k_tile > 0:
        y = c.op(Op.ADD, c.load(at, c.out(y), Dtype.F32, width), y)
    if k_tile == tiles - 1:
        scale = 1.0 / math.sqrt(s.head_dim)  # rounded once to float32 (numerics row 14)
        y = c.op(Op.SCALE, y, x=(float_bits(scale), 0))
        y = c.op(Op.MASK, y, x=(s.tokens, 0), a=(0,))
        c.set_pattern(y, col.PATTERN_CONTEXT)
        c.store(c.op(Op.MAX, y), step.at("m", unit * blocks * width, width), Dtype.F32, width)
    c.store(y, at, Dtype.F32, width)
    c.end()


def softmax(step: Step, label: str) -> None:
    """P = exp(s - m) of every unit, rounded, turned so that a row's 64 positions of a block lie in one vector."""
    s, rows, blocks = step.s, step.s.q_rows, step.s.local_blocks
    width, p_width = -(-rows * 4 // 320), -(-BLOCK // step.s.ka)
    for unit, _, _ in _units(step):
        c = step.chain(f"{label}.softmax[{unit}]")
        pr = progress(BLOCK, blocks, q=max(BLOCK, rows))
        x = c.load(step.at("s", unit * blocks * BLOCK * width, width, BLOCK * width), pr, Dtype.F32, width)
        m = c.load(step.at("m", unit * blocks * width, 0, width), pr, Dtype.F32, width)
        p = step.rounded(c, c.op(Op.EXP, x, m))
        p = c.op(Op.TRANSPOSE, p, x=(rows, 0), dtype=s.act)
        c.store(p, step.at("p", unit * blocks * rows * p_width, p_width, rows * p_width), s.act, p_width)
        c.end()


def values(step: Step, label: str, layer: int) -> None:
    """Per unit and block: V installed with a column of ones, p passed through it, (o, l, m) stored as one beat per row."""
    s, rows, blocks, d = step.s, step.s.q_rows, step.s.local_blocks, step.s.head_dim
    width, p_width = -(-rows * 4 // 320), -(-BLOCK // step.s.ka)
    table = step.writer.table
    v_vectors = BLOCK * s.vg
    hold = -(-v_vectors * 320 // table.weight_load_bytes)
    period = max(hold, -(-v_vectors // int(table.port_vectors[0]))) + int(table.latency[Op.INSTALL]) + rows
    for unit, kv, _ in _units(step):
        lane = (kv % s.hv) * d if s.head_dim <= s.ka else 0
        c = step.chain(f"{label}.value[{unit}]")
        region = kv_name(layer, 1, kv // s.hv)
        v = c.load(
            step.at(region, 0, 0, v_vectors), progress(1, blocks, q=period), s.act, v_vectors, wide=True
        )
        plane = c.install(v, s.act, Keep(lane, lane + d, ones=True), per_row=s.vg)
        pr = progress(rows, blocks, q=period)
        p = c.load(step.at("p", unit * blocks * rows * p_width, p_width, rows * p_width), pr, s.act, p_width)
        o = c.op(Op.MOVE, c.matmul(p, plane), a=(lane, d + 1, 0))
        m = c.load(
            step.at("m", unit * blocks * width, 0, width), progress(1, blocks, q=period), Dtype.F32, width
        )
        partial = c.op(Op.INSERT, o, c.op(Op.SPREAD, m, x=(rows, 0)), x=(d + 1, 0))
        w = s.partial_width
        c.store(partial, step.at("olm", unit * blocks * rows * w, w, rows * w), Dtype.F32, w)
        c.end()


def _combine(step: Step, label: str, region: str, pair: tuple[int, int], vectors: int) -> None:
    """Acc = combine(acc, other) over `vectors` // width consecutive partials of a region, in place."""
    w = step.s.partial_width
    acc, other = pair
    c = step.chain(label)
    pr = progress(vectors // w)
    a = c.load(step.at(region, acc, w), pr, Dtype.F32, w)
    b = c.load(step.at(region, other, w), pr, Dtype.F32, w)
    c.store(c.op(Op.COMBINE, a, b, x=(step.s.head_dim, 0)), step.at(region, acc, w), Dtype.F32, w)
    c.end()


def combine_local(step: Step, label: str) -> None:
    """The chip's own blocks: ascending inside a lane, then the tree over its lanes (numerics row 19)."""
    s, blocks = step.s, step.s.local_blocks
    lanes = LANE_BLOCKS // step.sharded.plan.cp
    record = s.q_rows * s.partial_width
    for unit, _, _ in _units(step):
        base = unit * blocks * record
        for start in range(lanes, blocks, lanes):
            count = min(lanes, blocks - start)
            _combine(
                step, f"{label}.lane[{unit}.{start}]", "olm", (base, base + start * record), count * record
            )
        present, half = min(blocks, lanes), lanes // 2
        while half:
            count = min(half, present - half)
            if count > 0:
                _combine(
                    step, f"{label}.tree[{unit}.{half}]", "olm", (base, base + half * record), count * record
                )
                present = half
            half //= 2


def _gather_partials(step: Step, label: str, units: int, per_unit: int) -> None:
    """The chip's one partial per row, to its own slot and to every peer's of the context group."""
    w, rows = step.s.partial_width, step.s.q_rows
    at = step.at("in.partial", 0, w, rows * w, pattern=col.PATTERN_CONTEXT, rank_stride=units * rows * w)

    def load(c: Chain, pace: int) -> int:
        both = rows > 1 and units > 1  # else one run of equal steps: one row of each unit, or all of one
        pr = progress(rows, units, p=pace) if both else progress(rows * units, p=pace)
        return c.load(step.at("olm", 0, w if rows > 1 else per_unit, per_unit), pr, Dtype.F32, w)

    c = step.chain(f"{label}.partial.keep")
    c.store(load(c, c.pace(w)), replace(at, rank_fn=col.RANK_OWN), Dtype.F32, w)
    c.end()
    c = step.chain(f"{label}.partial.gather")
    first = step.near(col.PATTERN_CONTEXT)
    x = c.exchange(load(c, step.writer.slots[first] * w), first, Dtype.F32, w)
    c.store(x, replace(at, pattern=first, rank_fn=col.RANK_FROM), Dtype.F32, w, peers=True)
    c.end()
    relay(step, f"{label}.partial", at, (units * rows, Dtype.F32, w))


def combine_remote(step: Step, label: str) -> None:
    """One all-gather of (o, l, m) in the context group, the last tree levels on every chip, then o / l: ah[head][token]."""
    s, cp = step.s, step.sharded.plan.cp
    w, rows, blocks = s.partial_width, s.q_rows, s.local_blocks
    units = s.local_kv * s.rounds
    source, start = "olm", 0
    per_unit = blocks * rows * w
    if cp > 1:
        stride = units * rows * w
        _gather_partials(step, label, units, per_unit)
        half = cp // 2
        while half:
            _combine(step, f"{label}.across[{half}]", "in.partial", (start, half * stride), half * stride)
            half //= 2
        source, per_unit = "in.partial", rows * w
    c = step.chain(f"{label}.divide")
    pr = progress(rows, units) if units > 1 else progress(rows)
    x = c.load(step.at(source, start, w, per_unit), pr, Dtype.F32, w)
    y = step.rounded(c, c.op(Op.DIVIDE, x, x=(s.head_dim, 0)))
    c.store(y, step.at("ah", 0, s.vq, rows * s.vq), s.act, s.vq)
    c.end()


def collect(step: Step, label: str) -> None:
    """Heads to full attention rows `a`: a merge on the chip, and a gather over head groups where h > 1."""
    s = step.s
    heads = Cut(s.local_heads * s.head_dim, s.head_dim, s.act, 1, s.vq)
    if step.sharded.plan.h == 1:
        assemble(step, f"{label}.heads", ("ah", "a"), heads)
        return
    for beat, first in enumerate(range(0, s.attn.shard, LANES)):
        c = step.chain(f"{label}.heads.pack[{beat}]")
        x = merge(step, c, "ah", heads, first, min(LANES, s.attn.shard - first))
        c.store(x, step.at("sh.attn", beat * s.tokens * s.attn.width, s.attn.width), s.act, s.attn.width)
        c.end()
    all_gather(step, f"{label}.heads", "sh.attn", "in.attn", s.attn, col.PATTERN_HEADS)
    assemble(step, f"{label}.heads", ("in.attn", "a"), s.attn)
