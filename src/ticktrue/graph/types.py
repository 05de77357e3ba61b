"""A model's step as a graph of whole-tensor ops: what is to be computed, before anything is cut or placed.

The graph knows the numerics' tensors and their order; it knows no chip, bank or cycle.
"""

from dataclasses import dataclass
from enum import StrEnum

from ticktrue.model import ModelSpec
from ticktrue.program import StepKind


class NodeKind(StrEnum):
    """One entry per kind of block."""

    EMBED = "embed"
    ROPE_TABLE = "rope_table"
    NORM = "norm"
    LINEAR = "linear"
    HEAD_NORM = "head_norm"
    ROPE = "rope"
    APPEND = "append"
    ATTENTION = "attention"
    RESIDUAL = "residual"
    LAYER_SCALAR = "layer_scalar"
    GATE = "gate"
    LAST_ROW = "last_row"
    LOGITS = "logits"
    GREEDY = "greedy"
    NOISE = "noise"
    ROUTER = "router"
    EXPERTS = "experts"
    ACCEPT = "accept"


@dataclass(frozen=True, slots=True)
class Node:
    """One op on whole tensors. `inputs` are ids of earlier nodes; `tensor` names its weights, `bias` its bias ('' if none).

    `outputs` is the width of a row of the result; `rounded` says whether the result is rounded to the activation type.
    `kind_index` numbers the kind of attention (of `ModelSpec.kinds`) that the node's layer has, or that ROPE_TABLE belongs to.
    """

    id: int
    kind: NodeKind
    name: str
    inputs: tuple[int, ...]
    layer: int
    tensor: str
    outputs: int
    rounded: bool
    bias: str = ""
    kind_index: int = 0


@dataclass(frozen=True, slots=True)
class Graph:
    """The nodes of one step of `kind`, in an order in which each follows its inputs.

    `rings`: blocks of the ring in which each kind of attention keeps its window, 0 where it keeps every position; what the
    graph knows of an image. `kv`: the type of K and V in the cache, "fp8" for e4m3, else that of activations. `kv_scaled`:
    whether the KV heads of such a cache have scales of their own, which the image holds.
    """

    spec: ModelSpec
    kind: StepKind
    fmt: str
    nodes: tuple[Node, ...]
    rings: tuple[int, ...]
    kv: str = "bf16"
    kv_scaled: bool = False

    @property
    def eight_bits(self) -> bool:
        """Whether weights, and activations in products with them, have 8 bits and scales."""
        return self.fmt in {"int8", "fp8"}

    @property
    def rows(self) -> int:
        """Token rows of the step: row s * T + t is token t of slot s."""
        return self.kind.slots * self.kind.tokens

    @property
    def logit_rows(self) -> int:
        """Rows of logits: one a slot, or one per token."""
        return self.rows if self.kind.logits == "all" else self.kind.slots
