"""The dataflow digest of a graph: one sha256 of what a step computes, from whole tensors, by the rows of numerics.md.

It knows no chip, bank, chain or cycle; docs/dataflow.md is the page that it and `verify.dataflow` are both written from.
"""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ticktrue.errors import Bug
from ticktrue.graph import digest_kernel as kernel
from ticktrue.graph.types import Graph, Node, NodeKind
from ticktrue.program.hashing import base, mix, tag

Hashes = npt.NDArray[np.uint64]

BLOCK = 64
ROPE_ROWS = 512
TOKEN, P_DIV, P_MOD, LAST = 1, 2, 3, 5
"""Numbers of the register functions in docs/dataflow.md."""


class Part(NamedTuple):
    """One tensor of the digest: its name and the sha256 of its hashes."""

    name: str
    sha256: str


class _Tags(NamedTuple):
    """Constants of the attention kernel; CONVERT is 0 where nothing is rounded."""

    PASS: np.uint64
    SCALED: np.uint64
    MASK: np.uint64
    MAX: np.uint64
    EXP: np.uint64
    CONVERT: np.uint64
    COMBINE: np.uint64
    DIVIDE: np.uint64
    ONE: np.uint64


def graph_digest(graph: Graph) -> str:
    """The dataflow digest of one step: the same for every plan, image and timetable that computes it."""
    return joined(graph_parts(graph))


def joined(parts: tuple[Part, ...]) -> str:
    """The digest over the parts, in order."""
    return hashlib.sha256("\n".join(part.sha256 for part in parts).encode()).hexdigest()


def graph_parts(graph: Graph) -> tuple[Part, ...]:
    """Logits, next_token (where the chips choose it), then K and V of each layer: what the digest covers, one sha256 each."""
    walk = _Walk(graph)
    for node in graph.nodes:
        walk.visit(node)
    return walk.parts()


def _bits(value: float) -> np.uint64:
    """Bit pattern of a float32."""
    return np.uint64(np.float32(value).view(np.uint32))


class _Walk:
    """The values of the nodes visited so far; state is hashed as soon as it is appended and read by attention."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._spec, self._kind = graph, graph.spec, graph.kind
        self._positions = BLOCK * graph.kind.blocks
        self._bf16 = graph.fmt == "bf16"
        if graph.fmt not in {"bf16", "f32"}:
            raise Bug(f"no dataflow digest for format {graph.fmt!r}", code="T502")
        self._tile = 160 if self._bf16 else 80
        self._values: dict[int, Hashes] = {}
        self._kv: tuple[Hashes, Hashes] | None = None
        self._state: list[Part] = []
        self._ends: dict[str, Part] = {}

    def parts(self) -> tuple[Part, ...]:
        """The parts in the order of the digest."""
        return (*self._ends.values(), *self._state)

    def visit(self, node: Node) -> None:
        """Computes the value of a node from those of its inputs."""
        if node.kind == NodeKind.APPEND:
            self._kv = self._append(node)
            return
        value = self._value(node)
        if node.rounded and self._bf16:
            kernel.convert(value, tag("CONVERT"))
        self._values[node.id] = value
        if node.kind == NodeKind.LOGITS:
            self._ends["logits"] = _part("logits", value)

    def _value(self, node: Node) -> Hashes:
        """The result of a node, not yet rounded."""
        rules: dict[NodeKind, Callable[..., Hashes]] = {
            NodeKind.EMBED: self._embed, NodeKind.ROPE_TABLE: self._rope_table, NodeKind.NORM: self._norm,
            NodeKind.LINEAR: self._linear, NodeKind.ROPE: self._rope, NodeKind.ATTENTION: self._attention,
            NodeKind.RESIDUAL: self._residual, NodeKind.GATE: self._gate, NodeKind.LAST_ROW: self._last_row,
            NodeKind.LOGITS: self._linear, NodeKind.GREEDY: self._greedy,
            NodeKind.NOISE: self._noise,
        }  # fmt: skip
        rule = rules.get(node.kind)
        if rule is None:
            raise Bug(f"no dataflow rule for node {node.name} ({node.kind})", code="T502")
        return rule(node, *(self._values[i] for i in node.inputs if i in self._values))

    def _norm(self, node: Node, x: Hashes) -> Hashes:
        size = (_bits(float(self._spec.hidden)), _bits(self._spec.rms_eps))
        return _array(kernel.norm(x, base(node.tensor), (tag("LANE_SUM"), tag("MEAN_RSQRT")), *size))

    def _linear(self, node: Node, x: Hashes) -> Hashes:
        return _array(kernel.linear(x, base(node.tensor), node.outputs, self._tile, tag("PASS")))

    def _rope(self, _: Node, x: Hashes, table: Hashes) -> Hashes:
        return _array(kernel.rope(x, table, self._spec.head_dim, (tag("ROPE_1"), tag("ROPE_2"))))

    def _residual(self, _: Node, x: Hashes, y: Hashes) -> Hashes:
        return _array(kernel.residual(x, y))

    def _gate(self, _: Node, g: Hashes, u: Hashes) -> Hashes:
        return _array(kernel.gate(g, u, tag("SILU_MUL")))

    def _last_row(self, _: Node, x: Hashes) -> Hashes:
        total = kernel.gather_rows(x, self._tag_of(LAST))
        return self._gathered(total, LAST, 0, len(x))[None, :]

    def _noise(self, _: Node, logits: Hashes) -> Hashes:
        one_of_many = self._kind.logits == "last" and self._kind.tokens > 1
        return _array(kernel.noise(logits, one_of_many, tag("NOISE")))

    def _greedy(self, _: Node, logits: Hashes) -> Hashes:
        chosen = _array(kernel.greedy(logits, tag("ARGMAX")))
        self._ends["next_token"] = _part("next_token", chosen)
        return chosen

    @staticmethod
    def _tag_of(function: int) -> np.uint64:
        return np.uint64(mix(tag("GATHER"), np.uint64(function)))

    def _gathered(self, total: Hashes, function: int, row: int, values: int) -> Hashes:
        """What a register function of row t gives, from its sum over all values; a single value is the element itself."""
        if values == 1:
            return total
        key = np.uint64(mix(self._tag_of(function), np.uint64(row)))
        return np.array([mix(key, e) if e else 0 for e in total], np.uint64)

    def _embed(self, _: Node) -> Hashes:
        spec = self._spec
        values = np.arange(spec.vocab, dtype=np.int64)
        total = kernel.gather_leaves(base("embed"), spec.hidden, spec.hidden, self._tag_of(TOKEN), values)
        return np.stack([self._gathered(total, TOKEN, t, spec.vocab) for t in range(self._kind.tokens)])

    def _rope_table(self, _: Node) -> Hashes:
        rows, d = [], self._spec.head_dim
        for t in range(self._kind.tokens):
            p = np.arange(t, self._positions - self._kind.tokens + t + 1, dtype=np.int64)
            pair = []
            for name, function, values in (
                ("rope_a", P_DIV, np.unique(p // ROPE_ROWS)),
                ("rope_b", P_MOD, np.unique(p % ROPE_ROWS)),
            ):
                total = kernel.gather_leaves(base(name), d, d, self._tag_of(function), values)
                pair.append(self._gathered(total, function, t, len(values)))
            rows.append(kernel.rope_table(*pair, (tag("CMUL_C"), tag("CMUL_S"))))
        return np.stack(rows)

    def _append(self, node: Node) -> tuple[Hashes, Hashes]:
        out = []
        for which, name in ((0, "K"), (1, "V")):
            new = self._values[node.inputs[which]]
            old = base(f"kv.{2 * node.layer + which}")
            state = _array(kernel.append(old, new, self._positions, tag("SCATTER")))
            self._state.append(_part(f"L{node.layer}.{name}", state))
            out.append(state)
        return out[0], out[1]

    def _attention(self, _: Node, q: Hashes) -> Hashes:
        spec, kv = self._spec, self._kv
        if kv is None:
            raise Bug("attention before any append", code="T502")
        scale = np.float32(1) / np.sqrt(np.float32(spec.head_dim))
        tags = _Tags(
            PASS=tag("PASS"), SCALED=np.uint64(mix(tag("SCALE"), _bits(float(scale)))), MASK=tag("MASK"), MAX=tag("MAX"),
            EXP=tag("EXP"), CONVERT=tag("CONVERT") if self._bf16 else np.uint64(0), COMBINE=tag("COMBINE"),
            DIVIDE=tag("DIVIDE"), ONE=base("one"),
        )  # fmt: skip
        shape = (spec.heads, spec.kv_heads, spec.head_dim)
        return _array(kernel.attention(q, *kv, shape, self._tile, tags))


def _array(value: object) -> Hashes:
    return np.asarray(value, np.uint64)


def _part(name: str, value: Hashes) -> Part:
    """Hashes of an array, little endian, in C order."""
    return Part(name, hashlib.sha256(np.ascontiguousarray(value, "<u8").data).hexdigest())
