"""Model -> program: graph, shards, places, chains, cycles."""

from ticktrue.compile.pipeline import (
    FORMATS,
    T_MAX,
    TOKENS,
    Options,
    assemble,
    bucket,
    bucket_edges,
    compile_image,
    compile_program,
    compile_timetable,
    graph_of,
    image_blocks,
    tokens_kind,
    unproved_timetable,
)

__all__ = [
    "FORMATS", "TOKENS", "T_MAX", "Options", "assemble", "bucket", "bucket_edges", "compile_image", "compile_program",
    "compile_timetable", "graph_of", "image_blocks", "tokens_kind", "unproved_timetable",
]  # fmt: skip
