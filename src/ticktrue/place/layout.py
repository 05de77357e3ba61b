"""Where scratch and inboxes lie: one list of (name, bank group, vectors per record, records) per step kind."""

from dataclasses import dataclass, replace

from ticktrue.isa.ops import BLOCK
from ticktrue.partition import Cut, Shapes, ShardedGraph
from ticktrue.place.packing import Matrix, Packed, pack

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
    """One network phase: the packed tiles of its matrices."""

    name: str
    packed: Packed

    @property
    def partial_width(self) -> int:
        """Vectors of one float32 partial: as wide as the widest record of the phase needs."""
        return -(-min(320, max(m.count for m in self.packed.matrices)) * 4 // 320)


def phases_of(sharded: ShardedGraph) -> tuple[Phase, ...]:
    """Every phase of the step in order: per layer qkv, o, gate and up, down; then the logits in segments."""
    index = {t.name: i for i, t in enumerate(sharded.tensors)}
    depth = sharded.shapes.ka

    def matrix(name: str) -> Matrix:
        t = sharded.tensors[index[name]]
        return Matrix(index[name], t.inputs, 0, t.shard)

    groups = (("qkv", ("q", "k", "v")), ("o", ("o",)), ("gu", ("gate", "up")), ("down", ("down",)))
    # every layer has the same shapes, so one packing serves all; only the tensors differ
    packed = {name: pack(tuple(matrix(f"layers.0.{p}") for p in parts), depth) for name, parts in groups}
    out: list[Phase] = []
    for layer in range(sharded.shapes.layers):
        for name, parts in groups:
            matrices = tuple(matrix(f"layers.{layer}.{p}") for p in parts)
            out.append(Phase(f"L{layer}.{name}", replace(packed[name], matrices=matrices)))
    head = sharded.tensors[index["lm_head"]]
    step = SEGMENT_RECORDS * 320
    for i, first in enumerate(range(0, head.shard, step)):
        part = Matrix(index["lm_head"], head.inputs, first, min(step, head.shard - first))
        out.append(Phase(f"logits.{i}", pack((part,), depth)))
    return tuple(out)


def _gathered(name: str, cut: Cut, tokens: int, sources: int) -> Slot:
    return Slot(name, INBOX, tokens * cut.width, sources * cut.beats)


def inbox_slots(s: Shapes, g: int, h: int, cp: int) -> list[Slot]:
    """Inboxes: [source][beat][token] of each gather."""
    t = s.tokens
    return [
        _gathered("in.embed", s.embed, t, g), _gathered("in.q", s.q, t, g), _gathered("in.k", s.k, t, g),
        _gathered("in.v", s.v, t, g), _gathered("in.attn", s.attn, t, h), _gathered("in.o", s.y, t, g),
        _gathered("in.ffn", s.ffn_cut, t, g), _gathered("in.down", s.y, t, g),
        Slot("in.partial", INBOX, s.partial_width * t * s.local_heads, cp), Slot("in.winner", INBOX, t, g),
    ]  # fmt: skip


def scratch_slots(s: Shapes, phases: tuple[Phase, ...], h: int) -> list[Slot]:
    """Scratch of one timetable. Layouts are [unit][token], so that a record is written by one chain."""
    t, act, blocks = s.tokens, s.per_beat, s.local_blocks
    ffn_beats, attn_beats = -(-s.ffn // 320), -(-(s.heads * s.head_dim) // 320)
    units = s.local_kv * s.rounds
    rows = s.q_rows
    score_width = -(-rows * 4 // 320)
    p_width = -(-BLOCK // s.ka)
    by_phase: dict[str, tuple[int, int]] = {}
    for phase in phases:
        kind = phase.name.split(".")[0 if phase.name.startswith("logits") else 1]
        wide, count = by_phase.get(kind, (0, 0))
        by_phase[kind] = (max(wide, phase.partial_width), max(count, phase.packed.total_partials))
    out = [Slot(f"part.{k}", PARTIAL, t * w, n) for k, (w, n) in sorted(by_phase.items()) if k != "logits"]
    w, n = by_phase["logits"]
    out += [Slot(f"part.logits.{i}", PARTIAL, t * w, n) for i in range(2)]
    out += [
        Slot("x", X, 4 * t, s.x_beats), Slot("r", H, t, 1), Slot("h", H, act * t, s.x_beats),
        Slot("sh.q", SHARD, t * s.q.width, s.q.beats), Slot("sh.k", SHARD, t * s.k.width, s.k.beats),
        Slot("sh.v", SHARD, t * s.v.width, s.v.beats), Slot("sh.attn", SHARD, t * s.attn.width, s.attn.beats),
        Slot("sh.o", SHARD, t * s.y.width, s.y.beats), Slot("sh.ffn", SHARD, t * s.ffn_cut.width, s.ffn_cut.beats),
        Slot("sh.down", SHARD, t * s.y.width, s.y.beats),
        Slot("rope", H, t * -(-s.head_dim * 4 // 320), 1), Slot("q", X, t * s.vq, s.heads),
        Slot("kr", X, t * s.vg, h * s.kv_groups), Slot("vm", X, t * s.vg, h * s.kv_groups),
        Slot("s", SCORE, BLOCK * score_width, blocks * units), Slot("m", SCORE, score_width, blocks * units),
        Slot("p", PARTIAL, rows * p_width, blocks * units), Slot("olm", H, rows * s.partial_width, blocks * units),
        Slot("ah", X, t * s.vq, s.local_heads), Slot("a", H, act * t, attn_beats), Slot("f", H, act * t, ffn_beats),
        Slot("logits", SCORE, 4 * t, s.logits.beats), Slot("cand", X, t, 1), Slot("next", X, t, 1),
    ]  # fmt: skip
    return out
