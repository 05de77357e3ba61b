"""Shards -> chips and banks: packed tiles, the image's regions, the scratch of a timetable."""

from ticktrue.place.image import BEAT_VECTORS, kv_name, kv_scale_name, place_image, place_scratch
from ticktrue.place.layout import CHUNK, Phase, half_width, head_width, phases_of, rope_width, route_width
from ticktrue.place.packing import Matrix, Packed, Piece, Tile, pack

__all__ = [
    "BEAT_VECTORS",
    "CHUNK",
    "Matrix",
    "Packed",
    "Phase",
    "Piece",
    "Tile",
    "half_width",
    "head_width",
    "kv_name",
    "kv_scale_name",
    "pack",
    "phases_of",
    "place_image",
    "place_scratch",
    "rope_width",
    "route_width",
]
