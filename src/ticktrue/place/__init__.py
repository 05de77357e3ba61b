"""Shards -> chips and banks: packed tiles, the image's regions, the scratch of a timetable."""

from ticktrue.place.image import kv_name, place_image, place_scratch
from ticktrue.place.layout import Phase, phases_of
from ticktrue.place.packing import Matrix, Packed, Piece, Tile, pack

__all__ = [
    "Matrix",
    "Packed",
    "Phase",
    "Piece",
    "Tile",
    "kv_name",
    "pack",
    "phases_of",
    "place_image",
    "place_scratch",
]
