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
    ROPE = "rope"
    APPEND = "append"
    ATTENTION = "attention"
    RESIDUAL = "residual"
    GATE = "gate"
    LAST_ROW = "last_row"
    LOGITS = "logits"
    GREEDY = "greedy"
    NOISE = "noise"


@dataclass(frozen=True, slots=True)
class Node:
    """One op on whole tensors. `inputs` are ids of earlier nodes; `tensor` names its weights ('' if none).

    `outputs` is the width of a row of the result; `rounded` says whether the result is rounded to the activation type.
    """

    id: int
    kind: NodeKind
    name: str
    inputs: tuple[int, ...]
    layer: int
    tensor: str
    outputs: int
    rounded: bool


@dataclass(frozen=True, slots=True)
class Graph:
    """The nodes of one step of `kind`, in an order in which each follows its inputs."""

    spec: ModelSpec
    kind: StepKind
    fmt: str
    nodes: tuple[Node, ...]

    @property
    def logit_rows(self) -> int:
        """Rows of logits: one, or one per token."""
        return self.kind.tokens if self.kind.logits == "all" else 1
