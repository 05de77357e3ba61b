"""Graph -> shards: legal degrees, the cut of every product, and the sizes that follow."""

from ticktrue.partition.plan import MAX_DEGREE, heads_degree, legal_degrees, legal_heads, make_plan
from ticktrue.partition.shard import (
    AttentionShapes,
    Cut,
    ExpertShapes,
    Shapes,
    ShardedGraph,
    kv_heads,
    partition,
    ring_blocks,
    rings_of,
    scale_name,
    shapes_of,
)

__all__ = [
    "MAX_DEGREE",
    "AttentionShapes",
    "Cut",
    "ExpertShapes",
    "Shapes",
    "ShardedGraph",
    "heads_degree",
    "kv_heads",
    "legal_degrees",
    "legal_heads",
    "make_plan",
    "partition",
    "ring_blocks",
    "rings_of",
    "scale_name",
    "shapes_of",
]
