"""Where scratch and inboxes lie: one list of (name, bank group, vectors per record, records) per step kind."""

from dataclasses import dataclass, replace

from ticktrue.graph.experts import experts_of
from ticktrue.isa.ops import BLOCK, LANES, lanes_of
from ticktrue.partition import AttentionShapes, Cut, ExpertShapes, Shapes, ShardedGraph
from ticktrue.place.packing import Matrix, Packed, pack
from ticktrue.program import Plan

EIGHT = ("h", "a", "f")  # activations that products take
CHUNK = 160  # pairs that one ROPE turns: twice as many lanes fill a beat

SEGMENT_RECORDS = 8  # logits are produced in segments so that their partial sums need not all be kept


@dataclass(frozen=True, slots=True)
class Slot:
    """A region to be: `stride` vectors per record, `count` records in the bank group of its `role`."""

    name: str
    role: int
    stride: int
    count: int

    @property
    def vectors(self) -> int:
        """Vectors it takes."""
        return self.stride * self.count


# Roles spread over the bank groups (role mod groups), so that what is read together lies apart.
X, H, PARTIAL, SHARD, INBOX, SCORE = 0, 1, 2, 1, 3, 0


@dataclass(frozen=True, slots=True)
class Phase:
    """One network phase: the packed tiles of its matrices, of `stack` experts one after another."""

    name: str
    packed: Packed
    stack: int = 1

    @property
    def partial_width(self) -> int:
        """Vectors of one float32 partial: as wide as the widest record of the phase needs."""
        return -(-min(320, max(m.count for m in self.packed.matrices)) * 4 // 320)


DENSE_PHASES = (("gu", ("gate", "up")), ("down", ("down",)))
EXPERT_PHASES = (
    ("router", ("router",)),
    ("xgu", ("experts.gate", "experts.up")),
    ("xdown", ("experts.down",)),
)
STACKED = frozenset({"xgu", "xdown"})
"""Phases whose rows are (rank, token row): each runs once for every rank of every token row."""


def rope_width(head_dim: int) -> int:
    """Vectors of a row of a RoPE table: per chunk of up to 160 pairs a beat, its cosines, then its sines."""
    whole, rest = divmod(head_dim // 2, CHUNK)
    return 4 * whole + -(-2 * rest * 4 // 320)


def head_width(head_dim: int) -> int:
    """Vectors of one head in float32: whole beats where it needs more than one."""
    beats = -(-head_dim // LANES)
    return 4 * beats if beats > 1 else -(-head_dim * 4 // 320)


def half_width(head_dim: int) -> int:
    """Vectors of half a head in float32."""
    return -(-head_dim // 2 * 4 // 320)


def phases_of(sharded: ShardedGraph) -> tuple[Phase, ...]:
    """Every phase of the step in order: per layer qkv, o, gate and up, down (or router and experts); then the logits."""
    index = {t.name: i for i, t in enumerate(sharded.tensors)}
    depth, lanes, spec = sharded.shapes.depth, lanes_of(sharded.shapes.weight), sharded.graph.spec

    def matrix(name: str) -> Matrix:
        t = sharded.tensors[index[name]]
        return Matrix(index[name], t.inputs, 0, t.shard)

    # layers of one kind have the same shapes, so one packing serves them all; only the tensors differ
    packed: dict[tuple[str, int], Packed] = {}
    out: list[Phase] = []
    for layer in range(sharded.shapes.layers):
        qkv = ("q", "k") if spec.attention(layer).k_is_v else ("q", "k", "v")
        experts = experts_of(spec, layer)
        for name, parts in (("qkv", qkv), ("o", ("o",)), *(EXPERT_PHASES if experts else DENSE_PHASES)):
            matrices = tuple(matrix(f"layers.{layer}.{p}") for p in parts)
            key = (name, sharded.shapes.kind_of[layer])
            if key not in packed:
                packed[key] = pack(matrices, depth, lanes)
            stack = experts.count if experts and name in STACKED else 1
            out.append(Phase(f"L{layer}.{name}", replace(packed[key], matrices=matrices), stack))
    head = sharded.tensors[index["lm_head"]]
    step = SEGMENT_RECORDS * 320
    for i, first in enumerate(range(0, head.shard, step)):
        part = Matrix(index["lm_head"], head.inputs, first, min(step, head.shard - first))
        out.append(Phase(f"logits.{i}", pack((part,), depth, lanes)))
    return tuple(out)


def _gathered(name: str, cut: Cut, rows: int, sources: int) -> Slot:
    return Slot(name, INBOX, rows * cut.width, sources * cut.beats)


def _attention_inboxes(s: AttentionShapes, rows: int, plan: Plan) -> list[Slot]:
    g, x = plan.chips, s.suffix
    out = [_gathered(f"in.q{x}", s.q, rows, g), _gathered(f"in.k{x}", s.k, rows, g), _gathered(f"in.v{x}", s.v, rows, g),
           _gathered(f"in.attn{x}", s.attn, rows, s.h)]  # fmt: skip
    out.append(Slot(f"in.partial{x}", INBOX, s.partial_width * rows * s.local_heads * s.parts, s.cp))
    return out


def inbox_slots(s: Shapes, plan: Plan) -> list[Slot]:
    """Inboxes: [source][beat][row] of each gather."""
    n, g = s.rows, plan.chips
    out = [_gathered("in.embed", s.embed, n, g)]
    for kind in s.kinds:
        out += _attention_inboxes(kind, n, plan)
    out += [
        _gathered("in.o", s.y, n, g), *([_gathered("in.ffn", s.ffn_cut, n, g)] if s.dense else []),
        _gathered("in.down", s.y, n, g), Slot("in.winner", INBOX, n, g),
    ]  # fmt: skip
    if x := s.experts:
        out += [_gathered("in.router", x.logits, n, g), _gathered("in.xffn", x.ffn_cut, n * x.per_token, g)]
    return out


def _expert_slots(x: ExpertShapes, rows: int, act: int) -> list[Slot]:
    """Scratch of a mixture of experts: logits and choice of each row, then [rank][row] of each expert's work."""
    each = rows * x.per_token
    return [
        Slot("sh.router", SHARD, rows * x.logits.width, x.logits.beats), Slot("rl", X, 4 * rows, -(-x.count // LANES)),
        Slot("route", H, rows * route_width(x.per_token), 1), Slot("sh.xffn", SHARD, each * x.ffn_cut.width, x.ffn_cut.beats),
        Slot("xf", H, act * each, -(-x.ffn // LANES)), Slot("xy", PARTIAL, each * x.y.width, x.y.beats),
    ]  # fmt: skip


def route_width(per_token: int) -> int:
    """Vectors of a row's choice: its weights, then its ids."""
    return -(-2 * per_token * 4 // 320)


def _attention_slots(s: AttentionShapes, rows: int) -> list[Slot]:
    """Scratch of one kind of attention. Layouts are [unit][row], so that a record is written by one chain."""
    act, x = LANES // s.ka, s.suffix
    units, blocks = rows // s.tokens * s.units, s.local_blocks
    score_width, p_width, q_rows = -(-s.q_rows * 4 // 320), -(-BLOCK // s.ka), s.q_rows
    staged: list[Slot] = []
    for part, heads in (("q", s.heads), ("k", s.kv_heads), ("v", s.kv_heads)):
        wide = rows * head_width(s.head_dim)
        staged += [Slot(f"hm.{part}{x}", X, wide, heads), Slot(f"hn.{part}{x}", H, wide, heads),
                   Slot(f"hr.{part}{x}", X, rows, heads),
                   Slot(f"turn.{part}{x}", SHARD, rows * half_width(s.head_dim), 2 * heads)]  # fmt: skip
    if not s.even:
        whole = Cut.of(s.head_dim, 1, s.act)
        staged.append(Slot(f"whole{x}", H, rows * whole.width, s.local_heads * whole.beats))
    return [
        *staged,
        Slot(f"sh.q{x}", SHARD, rows * s.q.width, s.q.beats), Slot(f"sh.k{x}", SHARD, rows * s.k.width, s.k.beats),
        Slot(f"sh.v{x}", SHARD, rows * s.v.width, s.v.beats), Slot(f"sh.attn{x}", SHARD, rows * s.attn.width, s.attn.beats),
        Slot(f"rope{x}", H, rows * rope_width(s.head_dim), 1), Slot(f"q{x}", X, rows * s.vq, s.heads),
        Slot(f"kr{x}", X, rows * s.kr_width, s.h * s.kv_groups), Slot(f"vm{x}", X, rows * s.vm_width, s.h * s.v_groups),
        Slot(f"s{x}", SCORE, BLOCK * score_width, blocks * units), Slot(f"m{x}", SCORE, score_width, blocks * units),
        Slot(f"p{x}", PARTIAL, q_rows * p_width, blocks * units),
        Slot(f"olm{x}", H, q_rows * s.partial_width, blocks * units * s.parts),
        Slot(f"ah{x}", X, rows * -(-s.value_dim // s.ka), s.local_heads * s.parts),
        Slot(f"a{x}", H, act * rows, -(-(s.heads * s.head_dim) // 320)),
    ]  # fmt: skip


def scratch_slots(s: Shapes, phases: tuple[Phase, ...], logit_rows: int) -> list[Slot]:
    """Scratch of one timetable. `logit_rows`: rows that logits are made of."""
    n, act = s.rows, s.per_beat
    by_phase: dict[str, tuple[int, int]] = {}
    for phase in phases:
        kind = phase.name.split(".")[0 if phase.name.startswith("logits") else 1]
        wide, count = by_phase.get(kind, (0, 0))
        by_phase[kind] = (max(wide, phase.partial_width), max(count, phase.packed.total_partials))
    each = {k: n * s.experts.per_token if s.experts and k in STACKED else n for k in by_phase}
    out = [
        Slot(f"part.{k}", PARTIAL, each[k] * w, c) for k, (w, c) in sorted(by_phase.items()) if k != "logits"
    ]
    w, c = by_phase["logits"]
    out += [Slot(f"part.logits.{i}", PARTIAL, logit_rows * w, c) for i in range(2)]
    out += [
        Slot("x", X, 4 * n, s.x_beats), Slot("y", X, 4 * n, s.x_beats), Slot("r", H, n, 1),
        Slot("h", H, act * n, s.x_beats), Slot("sh.o", SHARD, n * s.y.width, s.y.beats),
        Slot("sh.down", SHARD, n * s.y.width, s.y.beats),
    ]  # fmt: skip
    if s.dense:
        out += [
            Slot("sh.ffn", SHARD, n * s.ffn_cut.width, s.ffn_cut.beats),
            Slot("f", H, act * n, -(-s.ffn // 320)),
        ]
    if s.experts:
        out += _expert_slots(s.experts, n, act)
    if s.depth == LANES:  # 8 bits: what products take, and the scale of each tile
        wide = max([s.hidden, s.ffn, *(k.heads * k.head_dim for k in s.kinds)])
        out += [Slot(f"{name}8", H, n, -(-wide // LANES)) for name in EIGHT]
        out += [Slot(f"{name}s", PARTIAL, n, -(-wide // LANES)) for name in EIGHT]
    for attention in s.kinds:
        out += _attention_slots(attention, n)
    out += [
        Slot("logits", SCORE, 4 * logit_rows, s.logits.beats), Slot("cand", X, logit_rows, 1), Slot("next", X, logit_rows, 1),
        Slot("accept", X, s.slots, 1),
    ]  # fmt: skip
    return out
