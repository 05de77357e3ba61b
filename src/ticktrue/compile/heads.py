"""Chains that make heads of gathered q, k and v: norm of each head, RoPE, rounding, the layouts that attention reads.

Where a head has no norm and fits a beat, one chain per head does it all. Otherwise heads are merged first (`hm`: [head][row], a
row as whole beats), normed (`hn`), turned by chunks of 160 pairs into halves (`turn`) where one is wider than a beat, and packed.
"""

from ticktrue.compile.chains import Chain, progress
from ticktrue.compile.rows import chunks, mean_root, normed
from ticktrue.compile.step import Step, merge
from ticktrue.isa import Dtype, Op
from ticktrue.isa.ops import LANES
from ticktrue.partition import AttentionShapes, Cut
from ticktrue.place import CHUNK, half_width, head_width, rope_width


def queries(step: Step, label: str, layer: int) -> None:
    """Every q head, rotated and rounded: q[slot][head][token]."""
    s, spec = step.s, step.sharded.graph.spec
    a = s.attention(layer)
    weight = f"layers.{layer}.q_norm" if spec.qk_norm else ""
    if weight or a.head_dim > LANES or s.slots > 1:
        source = _staged(step, f"{label}.q", a, (weight, f"in.q{a.suffix}", a.q, a.heads))
        if a.head_dim > LANES:
            _turn_wide(step, f"{label}.q", a, (source, a.heads))
            _pack_wide_queries(step, f"{label}.q_pack", a)
        else:
            _turn_queries(step, f"{label}.q_rope", a, source)
        return
    width = rope_width(a.head_dim)
    for head in range(a.heads):
        c = step.chain(f"{label}.q_rope[{head}]")
        x = merge(step, c, f"in.q{a.suffix}", a.q, (head * a.head_dim, a.head_dim))
        cs = c.load(step.at(f"rope{a.suffix}", 0, width), c.out(x), Dtype.F32, width)
        y = step.rounded(c, c.op(Op.ROPE, x, cs, x=(a.head_dim, 1)))
        c.store(y, step.at(f"q{a.suffix}", head * s.tokens * a.vq, a.vq), s.act, a.vq)
        c.end()


def keys(step: Step, label: str, layer: int) -> None:
    """New K, rotated and rounded, of every vector group of every head group: kr[head group][vector group][row]."""
    a, spec = step.s.attention(layer), step.sharded.graph.spec
    groups = [(i, j) for i in range(a.h) for j in range(a.kv_groups)]
    weight = f"layers.{layer}.k_norm" if spec.qk_norm else ""
    if not weight and a.head_dim <= LANES:
        for hg, group in groups:
            _plain_key(step, f"{label}.k_rope[{hg}.{group}]", a, (hg, group))
        return
    source = _staged(step, f"{label}.k", a, (weight, f"in.k{a.suffix}", a.k, a.kv_heads))
    if a.head_dim > LANES:
        _turn_wide(step, f"{label}.k", a, (source, a.kv_heads))
        for head in range(a.kv_heads):
            _pack_wide(step, f"{label}.k_pack[{head}]", a, ("k", head, head * step.s.rows * a.kr_width, None))
    else:
        _turn_keys(step, f"{label}.k_rope", a, source)
        if a.hv > 1:
            for hg, group in groups:
                _pack_keys(step, f"{label}.k_pack[{hg}.{group}]", a, (hg, group, source))


def values(step: Step, label: str, layer: int) -> None:
    """New V of every vector group (or part of a head) of every head group: vm[head group][vector group][row]."""
    s, spec = step.s, step.sharded.graph.spec
    a, k_is_v = s.attention(layer), spec.attention(layer).k_is_v
    inbox, cut = (f"in.k{a.suffix}", a.k) if k_is_v else (f"in.v{a.suffix}", a.v)
    if spec.v_norm:
        inbox = _normed_heads(step, f"{label}.v", a, ("", inbox, cut, a.kv_heads))
    for hg, group in [(i, j) for i in range(a.h) for j in range(a.v_groups)]:
        columns = _values_of(a, hg, group)
        c = step.chain(f"{label}.v_merge[{hg}.{group}]")
        y = (
            step.rounded(c, _from_heads(step, c, a, inbox, columns))
            if spec.v_norm
            else merge(step, c, inbox, cut, columns)
        )
        base = (hg * a.v_groups + group) * s.rows * a.vm_width
        c.store(y, step.at(f"vm{a.suffix}", base, a.vm_width), s.act, a.vm_width)
        c.end()


def _plain_key(step: Step, label: str, a: AttentionShapes, which: tuple[int, int]) -> None:
    """RoPE of the heads of one vector group, side by side in one beat."""
    width, columns = rope_width(a.head_dim), _columns_of(a, *which)
    c = step.chain(label)
    x = merge(step, c, f"in.k{a.suffix}", a.k, columns)
    cs = c.load(step.at(f"rope{a.suffix}", 0, width), c.out(x), Dtype.F32, width)
    y = step.rounded(c, c.op(Op.ROPE, x, cs, x=(a.head_dim, columns[1] // a.head_dim)))
    base = (which[0] * a.kv_groups + which[1]) * step.s.rows * a.kr_width
    c.store(y, step.at(f"kr{a.suffix}", base, a.kr_width), step.s.act, a.kr_width)
    c.end()


def _columns_of(a: AttentionShapes, hg: int, group: int) -> tuple[int, int]:
    """(first column of all KV columns, columns) of a vector group."""
    first = hg * a.local_kv + group * a.hv
    return first * a.head_dim, min(a.hv, a.local_kv - group * a.hv) * a.head_dim


def _values_of(a: AttentionShapes, hg: int, group: int) -> tuple[int, int]:
    """As `_columns_of`, for V: a vector group, or a part of a head."""
    if a.parts == 1:
        return _columns_of(a, hg, group)
    head, part = divmod(group, a.parts)
    return (hg * a.local_kv + head) * a.head_dim + part * a.value_dim, a.part_values(part)


def _own(label: str, region: str, a: AttentionShapes) -> str:
    """The scratch region that q, k or v has of its own, so that none waits for another; labels end in .q, .k or .v."""
    return f"{region}{label[-2:]}{a.suffix}"


def _staged(step: Step, label: str, a: AttentionShapes, what: tuple[str, str, Cut, int]) -> str:
    """Heads in float32, normed where there is a weight; the region they are in. what = (weight, inbox, cut, heads)."""
    if what[0]:
        return _normed_heads(step, label, a, what)
    return _merged_heads(step, label, a, what[1:])


def _merged_heads(step: Step, label: str, a: AttentionShapes, what: tuple[str, Cut, int]) -> str:
    """Heads of an inbox in `hm`. what = (inbox, cut, heads)."""
    inbox, cut, heads = what
    d, rows, width = a.head_dim, step.s.rows, head_width(a.head_dim)
    for head in range(heads):
        for beat, first in enumerate(range(0, d, LANES)):
            c = step.chain(f"{label}_merge[{head}.{beat}]")
            x = merge(step, c, inbox, cut, (head * d + first, min(LANES, d - first)))
            c.store(
                x,
                step.at(_own(label, "hm", a), head * rows * width + 4 * beat, width),
                Dtype.F32,
                min(width, 4),
            )
            c.end()
    return _own(label, "hm", a)


def _normed_heads(step: Step, label: str, a: AttentionShapes, what: tuple[str, str, Cut, int]) -> str:
    """Heads of an inbox, merged into `hm`, normed into `hn` (numerics row 11). what = (weight or '', inbox, cut, heads)."""
    weight, inbox, cut, heads = what
    _merged_heads(step, label, a, (inbox, cut, heads))
    beats, count, width = -(-a.head_dim // LANES), heads * step.s.rows, head_width(a.head_dim)
    each = width // beats
    pr = progress(beats, count) if count > 1 else progress(beats)
    c = step.chain(f"{label}_norm.r")
    x = c.load(step.at(_own(label, "hm", a), 0, each, width), pr, Dtype.F32, each)
    r = mean_root(c, x, a.head_dim, step.sharded.graph.spec.rms_eps)
    c.store(r, step.at(_own(label, "hr", a), 0, 1), Dtype.F32, 1)
    c.end()
    c = step.chain(f"{label}_norm.scale")
    x = c.load(step.at(_own(label, "hm", a), 0, each, width), pr, Dtype.F32, each)
    r = c.load(step.at(_own(label, "hr", a), 0, 0, 1), pr, Dtype.F32, 1)
    c.store(normed(step, c, x, r, weight, pr), step.at(_own(label, "hn", a), 0, each, width), Dtype.F32, each)
    c.end()
    return _own(label, "hn", a)


def _turn_queries(step: Step, label: str, a: AttentionShapes, source: str) -> None:
    """RoPE of every head: one chain over tokens and heads, or one per head over tokens and slots."""
    s, width, cs_width = step.s, head_width(a.head_dim), rope_width(a.head_dim)
    t = s.tokens
    runs = [(0, a.heads, s.rows * width, 0, t * a.vq)] if s.slots == 1 else [
        (head, s.slots, t * width, t * cs_width, a.heads * t * a.vq) for head in range(a.heads)
    ]  # fmt: skip
    for head, count, x_step, cs_step, q_step in runs:
        pr = progress(t, count) if count > 1 else progress(t)
        c = step.chain(f"{label}[{head}]")
        x = c.load(step.at(source, head * s.rows * width, width, x_step), pr, Dtype.F32, width)
        cs = c.load(step.at(f"rope{a.suffix}", 0, cs_width, cs_step), pr, Dtype.F32, cs_width)
        y = step.rounded(c, c.op(Op.ROPE, x, cs, x=(a.head_dim, 1)))
        c.store(y, step.at(f"q{a.suffix}", head * t * a.vq, a.vq, q_step), s.act, a.vq)
        c.end()


def _turn_keys(step: Step, label: str, a: AttentionShapes, source: str) -> None:
    """RoPE of every KV head: into `kr` where a vector group holds one head, else in place."""
    rows, width, cs_width = step.s.rows, head_width(a.head_dim), rope_width(a.head_dim)
    pr = progress(rows, a.kv_heads) if a.kv_heads > 1 else progress(rows)
    c = step.chain(label)
    x = c.load(step.at(source, 0, width, rows * width), pr, Dtype.F32, width)
    cs = c.load(step.at(f"rope{a.suffix}", 0, cs_width), pr, Dtype.F32, cs_width)
    y = c.op(Op.ROPE, x, cs, x=(a.head_dim, 1))
    if a.hv > 1:
        c.store(y, step.at(source, 0, width, rows * width), Dtype.F32, width)
    else:
        c.store(
            step.rounded(c, y),
            step.at(f"kr{a.suffix}", 0, a.kr_width, rows * a.kr_width),
            step.s.act,
            a.kr_width,
        )
    c.end()


def _pack_keys(step: Step, label: str, a: AttentionShapes, which: tuple[int, int, str]) -> None:
    """The turned heads of one vector group, rounded, side by side."""
    hg, group, source = which
    c = step.chain(label)
    y = step.rounded(c, _from_heads(step, c, a, source, _columns_of(a, hg, group)))
    c.store(
        y,
        step.at(f"kr{a.suffix}", (hg * a.kv_groups + group) * step.s.rows * a.kr_width, a.kr_width),
        step.s.act,
        a.kr_width,
    )
    c.end()


def _from_heads(
    step: Step, c: Chain, a: AttentionShapes, source: str, columns: tuple[int, int], gap: int = 0
) -> int:
    """Columns (first, count) of the heads in `hm` or `hn` as one beat per row; of one head where it has more beats.

    `gap`: the second half of the columns starts `gap` columns after the first instead of following it.
    """
    first, count = columns
    rows, d, width = step.s.rows, a.head_dim, head_width(a.head_dim)
    beats = -(-d // LANES)
    if beats == 1:
        return merge(step, c, source, Cut(a.heads * d, d, Dtype.F32, 1, width), columns)
    head, inside = divmod(first, d)
    v0, v1 = inside // LANES, (inside + (count // 2 + gap if gap else count) - 1) // LANES
    pr = progress(v1 - v0 + 1, rows) if rows > 1 else progress(v1 - v0 + 1)
    x = c.load(step.at(source, head * rows * width + 4 * v0, 4, width), pr, Dtype.F32, 4)
    return c.op(Op.MERGE, x, x=(beats, gap), a=(d, head * beats + v0, first, count))


def _turn_wide(step: Step, label: str, a: AttentionShapes, what: tuple[str, int]) -> None:
    """RoPE of heads wider than a beat, a chunk of pairs at a time: turn[head][half][row]. what = (source, heads)."""
    source, heads = what
    d, rows, half = a.head_dim, step.s.rows, half_width(a.head_dim)
    for head in range(heads):
        for first, pairs in chunks(d):
            c = step.chain(f"{label}_rope[{head}.{first // CHUNK}]")
            x = _from_heads(step, c, a, source, (head * d + first, 2 * pairs), d // 2)
            at, width = 4 * (first // CHUNK), -(-2 * pairs * 4 // 320)
            cs = c.load(step.at(f"rope{a.suffix}", at, rope_width(d)), c.out(x), Dtype.F32, width)
            y = c.op(Op.ROPE, x, cs, x=(2 * pairs, 1))
            for side in range(2):
                z = c.op(Op.MOVE, y, a=(side * pairs, pairs, 0))
                base = (2 * head + side) * rows * half + 2 * (first // CHUNK)
                c.store(z, step.at(_own(label, "turn", a), base, half), Dtype.F32, -(-pairs * 4 // 320))
            c.end()


def _pack_wide(
    step: Step, label: str, a: AttentionShapes, what: tuple[str, int, int, tuple[int, int] | None]
) -> None:
    """A turned head, rounded, to `base` of q or kr. what = (q or k, head, base, rows or all)."""
    part, head, base, rows = what
    d, s = a.head_dim, step.s
    halves = Cut(2 * d * a.heads, d // 2, Dtype.F32, 1, half_width(d))
    region, each = (f"q{a.suffix}", a.vq) if part == "q" else (f"kr{a.suffix}", a.kr_width)
    for beat, first in enumerate(range(0, d, LANES)):
        c = step.chain(f"{label}.{beat}")
        count = min(LANES, d - first)
        y = step.rounded(c, merge(step, c, f"turn.{part}{a.suffix}", halves, (head * d + first, count), rows))
        c.store(y, step.at(region, base + beat * s.per_beat, each), s.act, -(-count // s.ka))
        c.end()


def _pack_wide_queries(step: Step, label: str, a: AttentionShapes) -> None:
    t = step.s.tokens
    for slot in range(step.s.slots):
        for head in range(a.heads):
            base = (slot * a.heads + head) * t * a.vq
            _pack_wide(step, f"{label}[{slot}.{head}]", a, ("q", head, base, (slot * t, t)))
