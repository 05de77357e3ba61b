"""Model -> graph: one small builder per block; what a family has or leaves out is asked of its ModelSpec."""

from ticktrue.graph.experts import check_format, experts_of
from ticktrue.graph.types import Graph, Node, NodeKind
from ticktrue.model import ModelSpec
from ticktrue.program import StepKind


class _Builder:
    """Collects nodes; `add` gives back the id of the new node."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self.nodes: list[Node] = []
        self.tables: tuple[int, ...] = ()

    def add(self, kind: NodeKind, name: str, inputs: tuple[int, ...], outputs: int, **more: object) -> int:
        layer = int(str(more.get("layer", -1)))
        if layer >= 0:
            more["kind_index"] = self.spec.kinds.index(self.spec.kind(layer))
        node = Node(
            len(self.nodes), kind, name, inputs, layer, str(more.get("tensor", "")), outputs,
            bool(more.get("rounded", False)), str(more.get("bias", "")), int(str(more.get("kind_index", 0))),
        )  # fmt: skip
        self.nodes.append(node)
        return node.id

    def norm(self, layer: int, part: str, x: int) -> int:
        """Row 5 over the hidden dimension."""
        return self.add(NodeKind.NORM, f"L{layer}.{part}", (x,), self.spec.hidden, layer=layer,
                        tensor=f"layers.{layer}.{part}", rounded=True)  # fmt: skip

    def linear(self, layer: int, part: str, x: int, outputs: int, **more: object) -> int:
        """Rows 7 to 10."""
        return self.add(
            NodeKind.LINEAR,
            f"L{layer}.{part}",
            (x,),
            outputs,
            layer=layer,
            tensor=f"layers.{layer}.{part}",
            **more,
        )


def _heads(b: _Builder, layer: int, part: str, x: int, outputs: int) -> int:
    """A norm of each head where the family has one; the V norm has no weight."""
    spec = b.spec
    if not (spec.v_norm if part == "v" else spec.qk_norm):
        return x
    tensor = "" if part == "v" else f"layers.{layer}.{part}_norm"
    return b.add(
        NodeKind.HEAD_NORM,
        f"L{layer}.{part}_norm",
        (x,),
        outputs,
        layer=layer,
        tensor=tensor,
        rounded=part == "v",
    )


def _attention_block(b: _Builder, layer: int, x: int) -> int:
    spec = b.spec
    at, table = spec.attention(layer), b.tables[spec.kinds.index(spec.kind(layer))]
    q_width, kv_width = at.heads * at.head_dim, at.kv_heads * at.head_dim

    def bias(part: str) -> str:
        return f"layers.{layer}.{part}_bias" if spec.attention_bias else ""

    h = b.norm(layer, "attn_norm", x)
    q = b.linear(layer, "q", h, q_width, bias=bias("q"))
    k = b.linear(layer, "k", h, kv_width, bias=bias("k"))
    v = k if at.k_is_v else b.linear(layer, "v", h, kv_width, bias=bias("v"), rounded=not spec.v_norm)
    q, v = _heads(b, layer, "q", q, q_width), _heads(b, layer, "v", v, kv_width)
    k = _heads(b, layer, "k", k, kv_width)
    q = b.add(NodeKind.ROPE, f"L{layer}.q_rope", (q, table), q_width, layer=layer, rounded=True)
    k = b.add(NodeKind.ROPE, f"L{layer}.k_rope", (k, table), kv_width, layer=layer, rounded=True)
    kv = b.add(NodeKind.APPEND, f"L{layer}.append", (k, v), kv_width, layer=layer)
    a = b.add(NodeKind.ATTENTION, f"L{layer}.attn", (q, kv), q_width, layer=layer, rounded=True)
    o_bias = f"layers.{layer}.o_bias" if spec.output_bias else ""
    y = b.linear(layer, "o", a, spec.hidden, bias=o_bias, rounded=True)
    if spec.post_norms:
        y = b.norm(layer, "post_attn_norm", y)
    return b.add(NodeKind.RESIDUAL, f"L{layer}.x_attn", (x, y), spec.hidden, layer=layer)


def _ffn_block(b: _Builder, layer: int, x: int) -> int:
    spec = b.spec
    h = b.norm(layer, "ffn_norm", x)
    y = _mixture(b, layer, h) if experts_of(spec, layer) else _dense(b, layer, h)
    if spec.post_norms:
        y = b.norm(layer, "post_ffn_norm", y)
    x = b.add(NodeKind.RESIDUAL, f"L{layer}.x_ffn", (x, y), spec.hidden, layer=layer)
    if spec.layer_scalar:
        x = b.add(NodeKind.LAYER_SCALAR, f"L{layer}.scalar", (x,), spec.hidden, layer=layer,
                  tensor=f"layers.{layer}.layer_scalar")  # fmt: skip
    return x


def _dense(b: _Builder, layer: int, h: int) -> int:
    g = b.linear(layer, "gate", h, b.spec.ffn)
    u = b.linear(layer, "up", h, b.spec.ffn)
    f = b.add(NodeKind.GATE, f"L{layer}.act", (g, u), b.spec.ffn, layer=layer, rounded=True)
    return b.linear(layer, "down", f, b.spec.hidden, rounded=True)


def _mixture(b: _Builder, layer: int, h: int) -> int:
    """Rows 27 and 28: logits of the router, the choice of each row, and its experts."""
    experts = experts_of(b.spec, layer)
    count, k = (experts.count, experts.per_token) if experts else (0, 0)
    logits = b.linear(layer, "router", h, count)
    chosen = b.add(NodeKind.ROUTER, f"L{layer}.route", (logits,), 2 * k, layer=layer)
    return b.add(NodeKind.EXPERTS, f"L{layer}.experts", (h, chosen), b.spec.hidden, layer=layer,
                 tensor=f"layers.{layer}.experts", rounded=True)  # fmt: skip


def build_graph(
    spec: ModelSpec, kind: StepKind, fmt: str, rings: tuple[int, ...] | None = None, kv: str = "bf16",
    *, kv_scaled: bool = False,
) -> Graph:  # fmt: skip
    """The graph of one step of a model. `rings`, `kv`, `kv_scaled`: as of `Graph`; no rings by default."""
    check_format(spec, fmt)
    b = _Builder(spec)
    x = b.add(NodeKind.EMBED, "embed", (), spec.hidden, tensor="embed")
    b.tables = tuple(
        b.add(NodeKind.ROPE_TABLE, "rope", (), spec.attention_of(k).head_dim, kind_index=i)
        for i, k in enumerate(spec.kinds)
    )
    for layer in range(spec.layers):
        x = _attention_block(b, layer, x)
        x = _ffn_block(b, layer, x)
    if kind.logits == "last":
        x = b.add(NodeKind.LAST_ROW, "last_row", (x,), spec.hidden)
    h = b.add(NodeKind.NORM, "final_norm", (x,), spec.hidden, tensor="final_norm", rounded=True)
    logits = b.add(NodeKind.LOGITS, "logits", (h,), spec.vocab, tensor="lm_head")
    if kind.sampler == "chip":
        z = b.add(NodeKind.NOISE, "noise", (logits,), spec.vocab)
        chosen = b.add(NodeKind.GREEDY, "greedy", (z,), 1)
        if kind.logits == "all":
            b.add(NodeKind.ACCEPT, "accept", (chosen,), 1)
    return Graph(spec, kind, fmt, tuple(b.nodes), rings or (0,) * len(spec.kinds), kv, kv_scaled)
