"""The artefact: image, timetables, their columns, bytes on disk, expansion into rows, and readable text."""

from ticktrue.program.codec import (
    Decoded,
    check_writable,
    decode,
    encode,
    image_digest,
    program_digest,
    read_program,
    timetable_digest,
    write_program,
)
from ticktrue.program.expand import Flat, class_regions, expand, output_progression
from ticktrue.program.loops import unroll
from ticktrue.program.types import (
    SCHEMA,
    AttentionKey,
    Grid,
    Image,
    ImageKey,
    KvScales,
    Loop,
    Output,
    Packing,
    Plan,
    Program,
    Region,
    RegionClass,
    StepKind,
    Tensor,
    Timetable,
)

__all__ = [
    "SCHEMA", "AttentionKey", "Decoded", "Flat", "Grid", "Image", "ImageKey", "KvScales", "Loop", "Output", "Packing", "Plan",
    "Program", "Region", "RegionClass", "StepKind", "Tensor", "Timetable", "check_writable", "class_regions", "decode", "encode",
    "expand", "image_digest", "output_progression", "program_digest", "read_program", "timetable_digest", "unroll",
    "write_program",
]  # fmt: skip
