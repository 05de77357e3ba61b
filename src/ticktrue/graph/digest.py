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
from ticktrue.graph.experts import Mixture, experts_of
from ticktrue.graph.types import Graph, Node, NodeKind
from ticktrue.model import Activation
from ticktrue.program.hashing import base, leaf, mix, tag

Hashes = npt.NDArray[np.uint64]

BLOCK = 64
PAIRS = 160
ROPE_ROWS = 512
TOKEN, P_DIV, P_MOD, LAST = 1, 2, 3, 5
"""Numbers of the register functions in docs/dataflow.md."""
TYPES = {"bf16": 0, "f32": 1, "int8": 2, "fp8": 3}
"""Numbers of the element types in docs/dataflow.md, by the format that passes them."""
GATES = {Activation.SILU: "SILU_MUL", Activation.GELU_TANH: "GELU_MUL"}


class Part(NamedTuple):
    """One tensor of the digest: its name and the sha256 of its hashes."""

    name: str
    sha256: str


class _Tags(NamedTuple):
    """Constants of the attention kernel; CONVERT is 0 where nothing is rounded, CAPPED where nothing is capped."""

    PASS: np.uint64
    SCALED: np.uint64
    CAPPED: np.uint64
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
    """Logits, next_token (where the chips choose it), accept (of all rows), then K and V of each layer: one sha256 each."""
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
        self._bf16 = graph.fmt != "f32"
        if graph.fmt not in TYPES:
            raise Bug(f"no dataflow digest for format {graph.fmt!r}", code="T502")
        self._type = TYPES[graph.fmt]
        self._tile = 160 if self._bf16 else 80
        self._values: dict[int, Hashes] = {}
        self._kv: list[tuple[Hashes, Hashes]] = []
        self._state: list[Part] = []
        self._ends: dict[str, Part] = {}

    def parts(self) -> tuple[Part, ...]:
        """The parts in the order of the digest."""
        return (*self._ends.values(), *self._state)

    def visit(self, node: Node) -> None:
        """Computes the value of a node from those of its inputs."""
        if node.kind == NodeKind.APPEND:
            self._append(node)
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
            NodeKind.LINEAR: self._linear, NodeKind.HEAD_NORM: self._head_norm, NodeKind.ROPE: self._rope,
            NodeKind.ATTENTION: self._attention, NodeKind.RESIDUAL: self._residual, NodeKind.GATE: self._gate,
            NodeKind.LAYER_SCALAR: self._layer_scalar, NodeKind.LAST_ROW: self._last_row, NodeKind.LOGITS: self._logits,
            NodeKind.NOISE: self._noise, NodeKind.GREEDY: self._greedy, NodeKind.ROUTER: self._route,
            NodeKind.EXPERTS: self._experts,
            NodeKind.ACCEPT: self._accept,
        }  # fmt: skip
        rule = rules.get(node.kind)
        if rule is None:
            raise Bug(f"no dataflow rule for node {node.name} ({node.kind})", code="T502")
        return rule(node, *(self._values[i] for i in node.inputs if i in self._values))

    def _norm(self, node: Node, x: Hashes) -> Hashes:
        return self._normed(node.tensor, x)

    def _normed(self, tensor: str, x: Hashes) -> Hashes:
        """Row 5 over the rows of x."""
        tags = (tag("LANE_SUM"), tag("MEAN_RSQRT"))
        of = base(tensor) if tensor else np.uint64(0)
        return _array(kernel.norm(x, of, tags, _bits(float(x.shape[1])), _bits(self._spec.rms_eps)))

    def _head_norm(self, node: Node, x: Hashes) -> Hashes:
        d = self._spec.attention(node.layer).head_dim
        return self._normed(node.tensor, x.reshape(-1, d)).reshape(x.shape)

    def _linear(self, node: Node, x: Hashes) -> Hashes:
        if self._graph.eight_bits:
            keys = tuple(
                np.uint64(mix(tag(name), np.uint64(self._type))) for name in ("TILE_SCALE", "QUANTISE")
            )
            q, scales = kernel.quantised(x, keys)
            y = _array(kernel.linear8(q, scales, base(node.tensor), node.outputs, tag("PASS")))
            kernel.times_vector(y, base(f"{node.tensor}.scale"))
        else:
            y = _array(kernel.linear(x, base(node.tensor), node.outputs, self._tile, tag("PASS")))
        if node.bias:
            kernel.add_vector(y, base(node.bias))
        return y

    def _logits(self, node: Node, x: Hashes) -> Hashes:
        y = self._linear(node, x)
        if (cap := self._spec.final_softcap) > 0:
            kernel.keyed(y, np.uint64(mix(tag("SOFTCAP"), _bits(cap))))
        return y

    def _layer_scalar(self, node: Node, x: Hashes) -> Hashes:
        return _array(kernel.times(x, np.uint64(leaf(base(node.tensor), np.uint64(0)))))

    def _rope(self, node: Node, x: Hashes, table: Hashes) -> Hashes:
        d = self._spec.attention(node.layer).head_dim
        return _array(kernel.rope(x, table, d, (tag("ROPE_1"), tag("ROPE_2"))))

    def _residual(self, _: Node, x: Hashes, y: Hashes) -> Hashes:
        return _array(kernel.residual(x, y))

    def _gate(self, _: Node, g: Hashes, u: Hashes) -> Hashes:
        return _array(kernel.gate(g, u, tag(GATES[self._spec.activation])))

    def _mixture(self, node: Node) -> Mixture:
        experts = experts_of(self._spec, node.layer)
        if experts is None:
            raise Bug(f"node {node.name} of a layer without experts", code="T502")
        convert = tag("CONVERT") if self._bf16 else np.uint64(0)
        return Mixture(experts, self._tile, convert, tag(GATES[self._spec.activation]))

    def _route(self, node: Node, logits: Hashes) -> Hashes:
        return self._mixture(node).route(logits)

    def _experts(self, node: Node, h: Hashes, chosen: Hashes) -> Hashes:
        return self._mixture(node).mixed(node, h, chosen)

    def _last_row(self, _: Node, x: Hashes) -> Hashes:
        slots = x.reshape(self._kind.slots, self._kind.tokens, -1)
        rows = [
            self._gathered(kernel.gather_rows(of, self._tag_of(LAST)), LAST, i, len(of))
            for i, of in enumerate(slots)
        ]
        return np.stack(rows)

    def _noise(self, _: Node, logits: Hashes) -> Hashes:
        one_of_many = self._kind.logits == "last" and self._kind.tokens > 1
        return _array(kernel.noise(logits, one_of_many, tag("NOISE")))

    def _greedy(self, _: Node, logits: Hashes) -> Hashes:
        chosen = _array(kernel.greedy(logits, tag("ARGMAX")))
        self._ends["next_token"] = _part("next_token", chosen)
        return chosen

    def _accept(self, _: Node, chosen: Hashes) -> Hashes:
        accepted = _array(kernel.accept(chosen.reshape(self._kind.slots, self._kind.tokens), tag("ACCEPT")))
        self._ends["accept"] = _part("accept", accepted)
        return accepted

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
        x = np.stack([self._gathered(total, TOKEN, row, spec.vocab) for row in range(self._graph.rows)])
        if spec.embed_scale != 1.0:
            kernel.keyed(x, np.uint64(mix(tag("SCALE"), _bits(spec.embed_scale))))
        return x

    def _rope_table(self, node: Node) -> Hashes:
        rows, d, tokens = [], node.outputs, self._kind.tokens
        suffix, order = f".{node.kind_index}" if node.kind_index else "", _chunked(d)
        for row in range(self._graph.rows):
            t = row % tokens
            p = np.arange(t, self._positions - tokens + t + 1, dtype=np.int64)
            pair = []
            for name, function, values in (
                ("rope_a", P_DIV, np.unique(p // ROPE_ROWS)),
                ("rope_b", P_MOD, np.unique(p % ROPE_ROWS)),
            ):
                total = kernel.gather_leaves(base(name + suffix), d, d, self._tag_of(function), values)
                pair.append(self._gathered(total, function, row, len(values))[order])
            rows.append(kernel.rope_table(*pair, (tag("CMUL_C"), tag("CMUL_S"))))
        return np.stack(rows)

    def _ring(self, layer: int) -> int:
        """Blocks of a layer's ring, 0 where it keeps every position."""
        return self._graph.rings[self._spec.kinds.index(self._spec.kind(layer))]

    def _append(self, node: Node) -> None:
        """K and V of every slot; their hashes are two parts of the digest."""
        tokens, ring = self._kind.tokens, self._ring(node.layer)
        places = min(self._positions, BLOCK * ring) if ring else self._positions
        both = []
        for which, name in ((0, "K"), (1, "V")):
            new, states = self._values[node.inputs[which]], []
            if self._graph.kv == "fp8":
                new = new.copy()
                self._scale(new, 2 * node.layer + which, 0)
                kernel.convert(new, np.uint64(mix(tag("CONVERT"), np.uint64(TYPES["fp8"]))))
            for slot in range(self._kind.slots):
                old = base(f"kv.{2 * node.layer + which}" + (f".{slot}" if slot else ""))
                rows = new[slot * tokens : (slot + 1) * tokens]
                span = (places, self._positions)
                states.append(_array(kernel.append(old, rows, span, slot * tokens, tag("SCATTER"))))
            self._state.append(_part(f"L{node.layer}.{name}", np.concatenate(states)))
            if self._graph.kv == "fp8":  # widened again where it is read; what is kept is hashed already
                for state in states:
                    self._scale(state, 2 * node.layer + which, 1)
                    kernel.convert(state, tag("CONVERT"))
            both.append(states)
        self._kv = list(zip(*both, strict=True))

    def _scale(self, x: Hashes, state: int, record: int) -> None:
        """Each KV head of K (even `state`) or V times its factor, in place: record 0 divides by the scale, 1 multiplies."""
        if self._graph.kv_scaled:
            kernel.scale_heads(
                x, base(f"kv_scale.{state}"), record, self._spec.attention(state // 2).head_dim
            )

    def _attention(self, node: Node, q: Hashes) -> Hashes:
        spec, at, tokens = self._spec, self._spec.attention(node.layer), self._kind.tokens
        if not self._kv:
            raise Bug("attention before any append", code="T502")
        capped = mix(tag("SOFTCAP"), _bits(spec.score_softcap)) if spec.score_softcap > 0 else 0
        tags = _Tags(
            PASS=tag("PASS"), SCALED=np.uint64(mix(tag("SCALE"), _bits(at.scale))), CAPPED=np.uint64(capped),
            MASK=tag("MASK"), MAX=tag("MAX"), EXP=tag("EXP"), CONVERT=tag("CONVERT") if self._bf16 else np.uint64(0),
            COMBINE=tag("COMBINE"), DIVIDE=tag("DIVIDE"), ONE=base("one"),
        )  # fmt: skip
        shape = (at.heads, at.kv_heads, at.head_dim, self._tile)
        out = []
        for slot, kv in enumerate(self._kv):
            first = slot * tokens
            span = (first, self._positions, at.window, self._ring(node.layer))
            out.append(_array(kernel.attention(q[first : first + tokens], *kv, shape, span, tags)))
        return np.concatenate(out)


def _chunked(head_dim: int) -> npt.NDArray[np.int64]:
    """Place of element e of a row of a RoPE table: chunks of up to 160 pairs, cosines, then sines of each."""
    half, out = head_dim // 2, np.empty(head_dim, np.int64)
    for first in range(0, half, PAIRS):
        pairs = np.arange(min(PAIRS, half - first))
        out[first + pairs] = 2 * first + pairs
        out[half + first + pairs] = 2 * first + len(pairs) + pairs
    return out


def _array(value: object) -> Hashes:
    return np.asarray(value, np.uint64)


def _part(name: str, value: Hashes) -> Part:
    """Hashes of an array, little endian, in C order."""
    return Part(name, hashlib.sha256(np.ascontiguousarray(value, "<u8").data).hexdigest())
