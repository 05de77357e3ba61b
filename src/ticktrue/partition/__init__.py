"""Graph -> shards: legal degrees, the cut of every product, and the sizes that follow."""

from ticktrue.partition.plan import MAX_DEGREE, heads_degree, legal_degrees, make_plan
from ticktrue.partition.shard import Cut, Shapes, ShardedGraph, partition, shapes_of

__all__ = [
    "MAX_DEGREE",
    "Cut",
    "Shapes",
    "ShardedGraph",
    "heads_degree",
    "legal_degrees",
    "make_plan",
    "partition",
    "shapes_of",
]
