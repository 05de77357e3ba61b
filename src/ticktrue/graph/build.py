"""Model -> graph: one small builder per block of the Llama family."""

from ticktrue.graph.types import Graph, Node, NodeKind
from ticktrue.model import ModelSpec
from ticktrue.program import StepKind


class _Builder:
    """Collects nodes; `add` gives back the id of the new node."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, kind: NodeKind, name: str, inputs: tuple[int, ...], outputs: int, **more: object) -> int:
        layer, tensor = int(str(more.get("layer", -1))), str(more.get("tensor", ""))
        node = Node(
            len(self.nodes), kind, name, inputs, layer, tensor, outputs, bool(more.get("rounded", False))
        )
        self.nodes.append(node)
        return node.id


def _attention_block(b: _Builder, spec: ModelSpec, layer: int, x: int, table: int) -> int:
    pre, q_width, kv_width = f"layers.{layer}", spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    h = b.add(NodeKind.NORM, f"L{layer}.attn_norm", (x,), spec.hidden, layer=layer, tensor=f"{pre}.attn_norm",
              rounded=True)  # fmt: skip
    q = b.add(NodeKind.LINEAR, f"L{layer}.q", (h,), q_width, layer=layer, tensor=f"{pre}.q")
    k = b.add(NodeKind.LINEAR, f"L{layer}.k", (h,), kv_width, layer=layer, tensor=f"{pre}.k")
    v = b.add(NodeKind.LINEAR, f"L{layer}.v", (h,), kv_width, layer=layer, tensor=f"{pre}.v", rounded=True)
    q = b.add(NodeKind.ROPE, f"L{layer}.q_rope", (q, table), q_width, layer=layer, rounded=True)
    k = b.add(NodeKind.ROPE, f"L{layer}.k_rope", (k, table), kv_width, layer=layer, rounded=True)
    kv = b.add(NodeKind.APPEND, f"L{layer}.append", (k, v), kv_width, layer=layer)
    a = b.add(NodeKind.ATTENTION, f"L{layer}.attn", (q, kv), q_width, layer=layer, rounded=True)
    y = b.add(NodeKind.LINEAR, f"L{layer}.o", (a,), spec.hidden, layer=layer, tensor=f"{pre}.o", rounded=True)
    return b.add(NodeKind.RESIDUAL, f"L{layer}.x_attn", (x, y), spec.hidden, layer=layer)


def _ffn_block(b: _Builder, spec: ModelSpec, layer: int, x: int) -> int:
    pre = f"layers.{layer}"
    h = b.add(NodeKind.NORM, f"L{layer}.ffn_norm", (x,), spec.hidden, layer=layer, tensor=f"{pre}.ffn_norm",
              rounded=True)  # fmt: skip
    g = b.add(NodeKind.LINEAR, f"L{layer}.gate", (h,), spec.ffn, layer=layer, tensor=f"{pre}.gate")
    u = b.add(NodeKind.LINEAR, f"L{layer}.up", (h,), spec.ffn, layer=layer, tensor=f"{pre}.up")
    f = b.add(NodeKind.GATE, f"L{layer}.act", (g, u), spec.ffn, layer=layer, rounded=True)
    y = b.add(
        NodeKind.LINEAR, f"L{layer}.down", (f,), spec.hidden, layer=layer, tensor=f"{pre}.down", rounded=True
    )
    return b.add(NodeKind.RESIDUAL, f"L{layer}.x_ffn", (x, y), spec.hidden, layer=layer)


def build_graph(spec: ModelSpec, kind: StepKind, fmt: str) -> Graph:
    """The graph of one step of a Llama-family model."""
    b = _Builder()
    x = b.add(NodeKind.EMBED, "embed", (), spec.hidden, tensor="embed")
    table = b.add(NodeKind.ROPE_TABLE, "rope", (), spec.head_dim)
    for layer in range(spec.layers):
        x = _attention_block(b, spec, layer, x, table)
        x = _ffn_block(b, spec, layer, x)
    if kind.logits == "last":
        x = b.add(NodeKind.LAST_ROW, "last_row", (x,), spec.hidden)
    h = b.add(NodeKind.NORM, "final_norm", (x,), spec.hidden, tensor="final_norm", rounded=True)
    logits = b.add(NodeKind.LOGITS, "logits", (h,), spec.vocab, tensor="lm_head")
    if kind.sampler == "chip":
        z = b.add(NodeKind.NOISE, "noise", (logits,), spec.vocab)
        b.add(NodeKind.GREEDY, "greedy", (z,), 1)
    return Graph(spec, kind, fmt, tuple(b.nodes))
