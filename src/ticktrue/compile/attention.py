"""Chains of attention on one chip: KV append, score, softmax numerators, values, and the fixed combine order."""

from dataclasses import dataclass, replace

from ticktrue.compile.chains import Chain, Keep, progress
from ticktrue.compile.rows import assemble, float_bits
from ticktrue.compile.step import Step, all_gather, merge, packets, relay
from ticktrue.isa import Dtype, Op, RegFn
from ticktrue.isa.ops import BLOCK, LANE_BLOCKS, LANES
from ticktrue.partition import AttentionShapes, Cut
from ticktrue.place import BEAT_VECTORS, kv_name, kv_scale_name
from ticktrue.program import columns as col


@dataclass(frozen=True, slots=True)
class Attending:
    """One layer's attention under construction."""

    step: Step
    label: str
    layer: int
    a: AttentionShapes

    def name(self, region: str) -> str:
        """A region of this kind of attention."""
        return region + self.a.suffix

    @property
    def units(self) -> list[tuple[int, int, int, int]]:
        """(unit, slot, local KV head, first local q head) of everything attended separately."""
        a = self.a
        return [
            ((slot * a.local_kv + kv) * a.rounds + r, slot, kv, kv * a.group_heads + r * a.round_heads)
            for slot in range(self.step.s.slots) for kv in range(a.local_kv) for r in range(a.rounds)
        ]  # fmt: skip

    @property
    def width(self) -> int:
        """Vectors of a row of scores."""
        return -(-self.a.q_rows * 4 // 320)

    def slot_base(self, slot: int, width: int) -> int:
        """First vector of a slot's positions in a state region of `width` vectors per position."""
        writer = self.step.writer
        count = writer.regions[writer.index[kv_name(self.layer, 0, 0)]].count
        return slot * (count // self.step.image_slots) * width


def _scaled(t: Attending, c: Chain, x: int, which: tuple[str, int, int]) -> int:
    """A beat of K or V times the factors of its KV heads; x where all scales are 1. which = (state region, record, beat)."""
    if not t.step.sharded.graph.kv_scaled:
        return x
    state, record, beat = which
    region = t.step.writer.regions[t.step.writer.index[kv_scale_name(state)]]
    at = t.step.at(kv_scale_name(state), record * region.stride + beat * BEAT_VECTORS)
    return c.op(Op.MUL, x, c.load(at, c.out(x), Dtype.F32, BEAT_VECTORS))


def _pace(t: Attending, c: Chain, width: int) -> int:
    """Cycles between events of `width` vectors of the cache, and of their factors where there are some."""
    return c.pace(max(width, BEAT_VECTORS) if t.step.sharded.graph.kv_scaled else width)


def append(t: Attending) -> None:
    """Predicated SCATTER of the new K and V of the chip's head group; the owner among the context lanes stores."""
    s, a = t.step.s, t.a
    for which, source, groups in ((0, "kr", a.kv_groups), (1, "vm", a.v_groups)):
        made, kept = (a.kr_width, a.vg) if which == 0 else (a.vm_width, a.v_width)
        # a change of type is made on a beat; without one a record goes through whole
        beats = 1 if a.stored == a.act else -(-kept // (LANES // a.kl))
        for slot in range(s.slots):
            for group in range(groups):
                for beat in range(beats):
                    number = f"{slot}.{group}.{beat}" if beats > 1 else f"{slot}.{group}"
                    name = f"{t.label}.append_{'kv'[which]}[{number}]"
                    _append(t, name, (which, source, slot, group), (made, kept, groups, beat, beats))


def _append(
    t: Attending, label: str, what: tuple[int, str, int, int], size: tuple[int, int, int, int, int]
) -> None:
    s, a, step = t.step.s, t.a, t.step
    (which, source, slot, group), (made, kept, groups, beat, beats) = what, size
    first = beat * s.per_beat
    width, to = (
        (made, kept) if beats == 1 else (min(s.per_beat, made - first), min(LANES // a.kl, kept - beat))
    )
    base = (group * s.rows + slot * s.tokens) * made + first
    at = step.at(t.name(source), base, made, pattern=a.across, rank_fn=col.RANK_OWN,
                 rank_stride=groups * s.rows * made)  # fmt: skip
    c = step.chain(label)
    x = c.load(at, progress(s.tokens, p=_pace(t, c, max(width, to))), s.act, width)
    name = kv_name(t.layer, which, group)
    if a.stored != a.act:
        x = c.op(Op.CONVERT, _scaled(t, c, x, (name, 0, beat)), dtype=a.stored)
    there = step.at(
        name, t.slot_base(slot, kept) + beat, reg_fn=int(RegFn.KV), reg_stride=kept,
        pattern=a.context, row=slot * s.tokens, ring=a.ring,
    )  # fmt: skip
    c.store(x, there, a.stored, to)
    c.end()


def score(t: Attending) -> None:
    """Scores of every unit: q installed, K streamed past it, scaled, masked last, stored; block maxima beside."""
    tiles = -(-t.a.head_dim // t.step.s.ka)
    for unit in t.units:
        for k_tile in range(tiles):
            _score_tile(t, f"{t.label}.score[{unit[0]}.{k_tile}]", unit, (k_tile, tiles))


def _score_tile(t: Attending, label: str, what: tuple[int, int, int, int], which: tuple[int, int]) -> None:
    (unit, slot, kv, head), (k_tile, tiles), s, a, step = what, which, t.step.s, t.a, t.step
    rows, blocks, width = a.q_rows, a.local_blocks, t.width
    lane = (kv % a.hv) * a.head_dim if tiles == 1 and a.stored == a.act else 0
    depth = min(s.ka, a.head_dim - k_tile * s.ka)
    c = step.chain(label)
    base = (slot * a.heads + head) * s.tokens * a.vq + k_tile
    q_at = step.at(t.name("q"), base, a.vq, pattern=a.across, rank_fn=col.RANK_OWN,
                   rank_stride=a.local_heads * s.tokens * a.vq)  # fmt: skip
    q = c.load(q_at, progress(rows), s.act, 1)
    turned = c.op(Op.TRANSPOSE, q, x=(depth, 0), dtype=s.act)
    q_width = -(-rows * (4 if s.act == Dtype.F32 else 2) // 320)
    plane = c.install(turned, s.act, Keep(0, rows, row=lane), per_row=0, width=q_width)
    y = c.matmul(_key_tile(t, c, what, (k_tile, depth)), plane)
    at = step.at(t.name("s"), unit * blocks * BLOCK * width, width, BLOCK * width)
    if k_tile > 0:
        y = c.op(Op.ADD, c.load(at, c.out(y), Dtype.F32, width), y)
    if k_tile == tiles - 1:
        y = c.op(Op.SCALE, y, x=(float_bits(a.scale), 0))
        if (cap := step.sharded.graph.spec.score_softcap) > 0:
            y = c.op(Op.SOFTCAP, y, x=(float_bits(cap), 0))
        y = c.op(Op.MASK, y, x=(s.tokens, 0), a=(0, a.window, a.ring, slot))
        c.set_pattern(y, a.context)
        c.store(c.op(Op.MAX, y), step.at(t.name("m"), unit * blocks * width, width), Dtype.F32, width)
    c.store(y, at, Dtype.F32, width)
    c.end()


def _key_tile(t: Attending, c: Chain, what: tuple[int, int, int, int], which: tuple[int, int]) -> int:
    """K of every position, block by block, one tile of it as the matrix unit takes it. which = (tile, elements)."""
    (_, slot, kv, _), (k_tile, depth), s, a, step = what, which, t.step.s, t.a, t.step
    first = (kv % a.hv) * a.head_dim + k_tile * s.ka if a.stored != a.act else k_tile * a.kl
    base = t.slot_base(slot, a.vg) + first // a.kl
    name = kv_name(t.layer, 0, kv // a.hv)
    at = step.at(name, base, a.vg, BLOCK * a.vg)
    k = c.load(at, progress(BLOCK, t.a.local_blocks, p=_pace(t, c, 1)), a.stored, 1)
    if a.stored == a.act:
        return k
    k = _scaled(t, c, k, (name, 1, first // a.kl))
    return c.op(Op.MOVE, c.op(Op.CONVERT, k, dtype=s.act), a=(first % a.kl, depth, 0))


def softmax(t: Attending) -> None:
    """P = exp(s - m) of every unit, rounded, turned so that a row's 64 positions of a block lie in one vector."""
    s, rows, blocks, width, step = t.step.s, t.a.q_rows, t.a.local_blocks, t.width, t.step
    p_width = -(-BLOCK // s.ka)
    for unit, *_ in t.units:
        c = step.chain(f"{t.label}.softmax[{unit}]")
        pr = progress(BLOCK, blocks, q=max(BLOCK, rows))
        x = c.load(
            step.at(t.name("s"), unit * blocks * BLOCK * width, width, BLOCK * width), pr, Dtype.F32, width
        )
        m = c.load(step.at(t.name("m"), unit * blocks * width, 0, width), pr, Dtype.F32, width)
        p = step.rounded(c, c.op(Op.EXP, x, m))
        p = c.op(Op.TRANSPOSE, p, x=(rows, 0), dtype=s.act)
        c.store(
            p, step.at(t.name("p"), unit * blocks * rows * p_width, p_width, rows * p_width), s.act, p_width
        )
        c.end()


def values(t: Attending) -> None:
    """Per unit, part of a head and block: V installed with a column of ones, p passed through; a beat (o, l, m) a row."""
    for what in t.units:
        for part in range(t.a.parts):
            _values(t, f"{t.label}.value[{what[0]}.{part}]", what, part)


def _values(t: Attending, label: str, what: tuple[int, int, int, int], part: int) -> None:
    (unit, slot, kv, _), s, a, step = what, t.step.s, t.a, t.step
    rows, blocks, d = a.q_rows, a.local_blocks, a.part_values(part)
    c = step.chain(label)
    width, p_width, w, table = t.width, -(-BLOCK // s.ka), a.partial_width, step.writer.table
    v_vectors = BLOCK * a.v_width
    hold = -(-v_vectors * 320 // table.weight_load_bytes)
    if a.stored != a.act:
        # a beat at a time, widened on the way
        hold = BLOCK * max(-(-320 * s.per_beat // table.weight_load_bytes), _pace(t, c, 1))
    period = max(hold, -(-v_vectors // int(table.port_vectors[0]))) + int(table.latency[Op.INSTALL]) + rows
    lane = (kv % a.hv) * d if a.parts == 1 and a.head_dim <= a.kl else 0
    region, base = kv_name(t.layer, 1, kv // a.hv * a.parts + part), t.slot_base(slot, a.v_width)
    if a.stored == a.act:
        v_at = step.at(region, base, 0, v_vectors)
        v = c.load(v_at, progress(1, blocks, q=period), s.act, v_vectors, wide=True)
        plane = c.install(v, s.act, Keep(lane, lane + d, ones=True), per_row=a.v_width)
    else:
        pr = progress(BLOCK, blocks, p=hold // BLOCK, q=period)
        v = c.load(step.at(region, base, a.v_width, v_vectors), pr, a.stored, 1)
        v = c.op(Op.CONVERT, _scaled(t, c, v, (region, 1, 0)), dtype=s.act)
        plane = c.install(v, s.act, Keep(lane, lane + d, ones=True), per_row=0, width=s.per_beat)
    pr = progress(rows, blocks, q=period)
    p_at = step.at(t.name("p"), unit * blocks * rows * p_width, p_width, rows * p_width)
    p = c.load(p_at, pr, s.act, p_width)
    o = c.op(Op.MOVE, c.matmul(p, plane), a=(lane, d + 1, 0))
    m = c.load(
        step.at(t.name("m"), unit * blocks * width, 0, width), progress(1, blocks, q=period), Dtype.F32, width
    )
    partial = c.op(Op.INSERT, o, c.op(Op.SPREAD, m, x=(rows, 0)), x=(d + 1, 0))
    base = (unit * a.parts + part) * blocks * rows * w
    c.store(partial, step.at(t.name("olm"), base, w, rows * w), Dtype.F32, w)
    c.end()


def _combine(t: Attending, label: str, region: str, pair: tuple[int, int], run: tuple[int, int]) -> None:
    """Acc = combine(acc, other) over consecutive partials of a region, in place. run = (partials, values of each)."""
    w, (acc, other), (count, d) = t.a.partial_width, pair, run
    c = t.step.chain(label)
    pr = progress(count)
    a = c.load(t.step.at(region, acc, w), pr, Dtype.F32, w)
    b = c.load(t.step.at(region, other, w), pr, Dtype.F32, w)
    c.store(c.op(Op.COMBINE, a, b, x=(d, 0)), t.step.at(region, acc, w), Dtype.F32, w)
    c.end()


def combine_local(t: Attending) -> None:
    """The chip's own blocks: ascending inside a lane, then the tree over its lanes (numerics row 19)."""
    a, blocks, rows = t.a, t.a.local_blocks, t.a.q_rows
    lanes = LANE_BLOCKS // a.cp
    record, region = rows * a.partial_width, t.name("olm")
    for number in range(len(t.units) * a.parts):
        base, d = number * blocks * record, a.part_values(number % a.parts)
        for start in range(lanes, blocks, lanes):
            count = min(lanes, blocks - start)
            label = f"{t.label}.lane[{number}.{start}]"
            _combine(t, label, region, (base, base + start * record), (count * rows, d))
        present, half = min(blocks, lanes), lanes // 2
        while half:
            count = min(half, present - half)
            if count > 0:
                label = f"{t.label}.tree[{number}.{half}]"
                _combine(t, label, region, (base, base + half * record), (count * rows, d))
                present = half
            half //= 2


def _gather_partials(t: Attending, units: int, per_unit: int) -> None:
    """The chip's one partial per row, to its own slot and to every peer's of the context group."""
    step, w, rows, label = t.step, t.a.partial_width, t.a.q_rows, t.label
    at = step.at(t.name("in.partial"), 0, w, rows * w, pattern=t.a.context, rank_stride=units * rows * w)

    def load(c: Chain, pace: int, first: int, width: int) -> int:
        both = rows > 1 and units > 1  # else one run of equal steps: one row of each unit, or all of one
        pr = progress(rows, units, p=pace) if both else progress(rows * units, p=pace)
        return c.load(
            step.at(t.name("olm"), first, w if rows > 1 else per_unit, per_unit), pr, Dtype.F32, width
        )

    c = step.chain(f"{label}.partial.keep")
    c.store(load(c, c.pace(w), 0, w), replace(at, rank_fn=col.RANK_OWN), Dtype.F32, w)
    c.end()
    near = step.near(t.a.context)
    for name, first, width in packets(step, f"{label}.partial", w):
        c = step.chain(f"{name}.gather")
        x = c.exchange(load(c, step.writer.slots[near] * width, first, width), near, Dtype.F32, width)
        there = replace(at, base=at.base + first, pattern=near, rank_fn=col.RANK_FROM)
        c.store(x, there, Dtype.F32, width, peers=True)
        c.end()
    relay(step, f"{label}.partial", at, (units * rows, Dtype.F32, w))


def combine_remote(t: Attending) -> None:
    """One all-gather of (o, l, m) in the context group, the last tree levels on every chip, then o / l."""
    a, cp, blocks = t.a, t.a.cp, t.a.local_blocks
    w, rows = a.partial_width, a.q_rows
    units = len(t.units) * a.parts
    source, per_unit = t.name("olm"), blocks * rows * w
    if cp > 1:
        stride = units * rows * w
        source = t.name("in.partial")
        _gather_partials(t, units, per_unit)
        half = cp // 2
        while half:
            _across(t, half, stride, units)
            half //= 2
        per_unit = rows * w
    _divide(t, source, per_unit)


def _across(t: Attending, half: int, stride: int, units: int) -> None:
    """One tree level over chips; parts of unequal size, of one head each, are combined part by part."""
    a, source = t.a, t.name("in.partial")
    label = f"{t.label}.across[{half}]"
    if a.even:
        _combine(t, label, source, (0, half * stride), (half * units * a.q_rows, a.value_dim))
        return
    record = a.q_rows * a.partial_width
    for number in range(half * units):
        pair = (number * record, half * stride + number * record)
        _combine(t, f"{label}[{number}]", source, pair, (a.q_rows, a.part_values(number % a.parts)))


def _divide(t: Attending, source: str, per_unit: int) -> None:
    """O / l, rounded: ah[head][part][row]."""
    step, s, a = t.step, t.step.s, t.a
    w, rows, units = a.partial_width, a.q_rows, len(t.units)
    vd = -(-a.value_dim // s.ka)
    if s.slots == 1 and a.parts == 1:
        c = step.chain(f"{t.label}.divide")
        pr = progress(rows, units) if units > 1 else progress(rows)
        x = c.load(step.at(source, 0, w, per_unit), pr, Dtype.F32, w)
        y = step.rounded(c, c.op(Op.DIVIDE, x, x=(a.head_dim, 0)))
        c.store(y, step.at(t.name("ah"), 0, vd, rows * vd), s.act, vd)
        c.end()
        return
    for unit, slot, _, head in t.units:
        for part in range(a.parts):
            c = step.chain(f"{t.label}.divide[{unit}.{part}]")
            pr = progress(s.tokens, a.round_heads) if a.round_heads > 1 else progress(s.tokens)
            x = c.load(step.at(source, (unit * a.parts + part) * per_unit, w, s.tokens * w), pr, Dtype.F32, w)
            y = step.rounded(c, c.op(Op.DIVIDE, x, x=(a.part_values(part), 0)))
            base = ((head * a.parts + part) * s.rows + slot * s.tokens) * vd
            c.store(y, step.at(t.name("ah"), base, vd, a.parts * s.rows * vd), s.act, vd)
            c.end()


def _heads(t: Attending) -> tuple[str, Cut]:
    """The chip's heads as beats that follow each other; where the last part of each is shorter, heads are made whole first."""
    step, s, a = t.step, t.step.s, t.a
    parts = Cut(a.local_heads * a.parts * a.value_dim, a.value_dim, s.act, 1, -(-a.value_dim // s.ka))
    if a.even:
        return t.name("ah"), parts
    whole = Cut.of(a.local_heads * a.head_dim, a.local_heads, s.act)
    for head in range(a.local_heads):
        for beat, first in enumerate(range(0, a.head_dim, LANES)):
            c = step.chain(f"{t.label}.head[{head}.{beat}]")
            columns = head * a.parts * a.value_dim + first, min(LANES, a.head_dim - first)
            x = merge(step, c, t.name("ah"), parts, columns)
            base = (head * whole.beats + beat) * s.rows * whole.width
            c.store(x, step.at(t.name("whole"), base, whole.width), s.act, whole.width)
            c.end()
    return t.name("whole"), whole


def collect(t: Attending) -> None:
    """Heads to full attention rows `a`: a merge on the chip, and a gather over head groups where h > 1."""
    step, s, a = t.step, t.step.s, t.a
    source, heads = _heads(t)
    if a.h == 1:
        assemble(step, f"{t.label}.heads", (source, t.name("a")), heads)
        return
    for beat, first in enumerate(range(0, a.attn.shard, LANES)):
        c = step.chain(f"{t.label}.heads.pack[{beat}]")
        x = merge(step, c, source, heads, (first, min(LANES, a.attn.shard - first)))
        base = beat * s.rows * a.attn.width
        c.store(x, step.at(t.name("sh.attn"), base, a.attn.width), s.act, a.attn.width)
        c.end()
    all_gather(step, f"{t.label}.heads", t.name("sh.attn"), t.name("in.attn"), a.attn, a.across)
    assemble(step, f"{t.label}.heads", (t.name("in.attn"), t.name("a")), a.attn)
