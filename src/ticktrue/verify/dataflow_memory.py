"""The SRAM of a program as tables for the kernels: where each region lies, what its elements hash to, what a step may write."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ticktrue.isa import Dtype, OpTable
from ticktrue.isa.ops import lanes_of
from ticktrue.program import Image, Packing, Region, RegionClass, StepKind, Timetable, class_regions
from ticktrue.program import columns as col
from ticktrue.program.hashing import base, tag
from ticktrue.units import ceil_div
from ticktrue.verify import dataflow_memory_kernel as kernel

Hashes = npt.NDArray[np.uint64]
Int64 = npt.NDArray[np.int64]

BLOCK = 64
HALVES = 160
KV_TYPES = {"bf16": Dtype.BF16, "f32": Dtype.F32, "fp8": Dtype.E4M3}
BEAT = 320
BEAT_VECTORS = 4
PART = 256
"""Values of a part of a head that leaves a beat no two free lanes."""
NOWHERE = -(1 << 62)
"""Below every address."""


class Memory(NamedTuple):
    """All chips' memory: of each kept vector the type it holds (-1: nothing) and its first `filled` elements; the rest is tables.

    `cells` is uint64[chips, kept vectors, 160].
    """

    cells: Hashes
    kind: npt.NDArray[np.int8]
    filled: npt.NDArray[np.int16]
    regions: Int64
    tiles: Int64
    pieces: Int64
    tensors: Int64
    bases: Hashes
    model: Int64
    tag_gather: np.uint64
    stray: Int64


def memory_of(image: Image, timetable: Timetable, table: OpTable) -> Memory:
    """The memory before the step: nothing written, state and weights as leaves."""
    key, kind = image.key, timetable.kind
    regions = class_regions(image, timetable)
    rows = _region_rows(image, regions, table)
    kept = _place_cells(rows, regions, _kept_of(rows, kind))
    tiles, pieces, distinct = _tiles(image, rows)
    tensors = np.array(
        [[t.outputs, t.inputs, t.shard, i] for i, t in enumerate(image.tensors)] or [[0] * 4], np.int64
    )
    bases = _bases(image, regions, rows, kind.slots)
    model = (key.plan.chips, key.vocab, int(KV_TYPES[key.kv]), kind.tokens, kind.blocks, kind.slots)
    width = HALVES if key.fmt in {"bf16", "f32"} and key.kv != "fp8" else BEAT
    return Memory(
        cells=np.empty((key.plan.chips, kept, width), np.uint64),
        kind=np.full((key.plan.chips, kept), -1, np.int8), filled=np.zeros((key.plan.chips, kept), np.int16),
        regions=rows, tiles=tiles, pieces=pieces, tensors=tensors,
        bases=bases,
        model=np.array(model, np.int64), tag_gather=tag("GATHER"), stray=np.array([not distinct], np.int64),
    )  # fmt: skip


def _kept_of(rows: Int64, kind: StepKind) -> Int64:
    """Vectors of each state region that a step of `kind` can need: its slots, of each the places of the bucket or the ring."""
    ring = rows[:, kernel.R_RING]
    blocks = np.where(ring > 0, np.minimum(kind.blocks, ring), kind.blocks)
    places = -(-blocks // rows[:, kernel.R_CP]) * BLOCK
    kept: Int64 = ((kind.slots - 1) * rows[:, kernel.R_PLACES] + places) * rows[:, kernel.R_STRIDE]
    return kept


def _state_row(image: Image, r: Region, row: Int64) -> None:
    """What the leaves of a state region need: elements of a record, of a position on one chip and on all, places of a slot."""
    key = image.key
    of, grid = key.of_layer(r.p0 // 2), key.grid_of(r.p0 // 2)
    # a record of scales has four float32 vectors for the 320 lanes of one vector of the state
    lanes = (
        BEAT * r.stride // BEAT_VECTORS
        if r.packing == Packing.KV_SCALE
        else r.stride * lanes_of(KV_TYPES[key.kv])
    )
    local = of.kv_heads // grid.h * of.head_dim
    heads = min(max(1, min(lanes, BEAT - 1) // of.head_dim) * of.head_dim, local - r.p1)
    part = r.p0 % 2 == 1 and of.head_dim + 2 > BEAT
    size = ceil_div(of.head_dim, ceil_div(of.head_dim, PART))
    row[kernel.R_ELEMENTS] = min(size, of.head_dim - r.p1 % of.head_dim) if part else heads
    row[kernel.R_TOTAL], row[kernel.R_LOCAL] = of.kv_heads * of.head_dim, local
    row[kernel.R_PLACES], row[kernel.R_RING], row[kernel.R_CP] = (
        max(1, r.count // key.slots),
        of.ring,
        grid.cp,
    )


def _region_rows(image: Image, regions: tuple[Region, ...], table: OpTable) -> Int64:
    rows = np.zeros((max(1, len(regions)), kernel.R_COLUMNS), np.int64)
    rows[:, kernel.R_CP] = 1
    for i, r in enumerate(regions):
        packing = r.packing if _readable(image, r) else Packing.NONE
        rows[i, kernel.R_CLASS], rows[i, kernel.R_PACKING] = r.cls, packing
        rows[i, kernel.R_START] = r.group * table.group_vectors + r.base
        rows[i, kernel.R_VECTORS], rows[i, kernel.R_STRIDE] = r.vectors, max(1, r.stride)
        rows[i, kernel.R_TENSOR], rows[i, kernel.R_P0], rows[i, kernel.R_P1] = r.tensor, r.p0, r.p1
        rows[i, kernel.R_DIM], rows[i, kernel.R_PLACES] = r.p0, 1
        if packing in {Packing.KV, Packing.KV_SCALE}:
            _state_row(image, r, rows[i])
        if packing == Packing.KV_SCALE:
            rows[i, kernel.R_DIM] = image.key.of_layer(r.p0 // 2).head_dim
    return rows


def _bases(image: Image, regions: tuple[Region, ...], rows: Int64, slots: int) -> Hashes:
    """Base hashes of the tensors, the rope tables and the state; fills the place of each region's own.

    State has one for each slot of the step, one after the other.
    """
    names = [t.name for t in image.tensors]
    place: dict[str, int] = {}
    for i, r in enumerate(regions):
        match rows[i, kernel.R_PACKING]:
            case Packing.KV:
                name = f"kv.{r.p0}"
            case Packing.KV_SCALE:
                name = f"kv_scale.{r.p0}"
            case Packing.ROPE_A | Packing.ROPE_B:
                name = "rope_a" if r.packing == Packing.ROPE_A else "rope_b"
                name += f".{r.p1}" if r.p1 else ""
            case Packing.ROWS | Packing.LANES | Packing.SHARD:
                name = image.tensors[r.tensor].name
            case _:
                continue
        rows[i, kernel.R_BASE] = place.setdefault(name, len(names) + len(place))
        for slot in range(1, slots if r.packing == Packing.KV else 1):
            place.setdefault(f"{name}.{slot}", len(names) + len(place))
    return np.array([base(name) for name in [*names, *place, ""]], np.uint64)


def _readable(image: Image, r: Region) -> bool:
    """Whether the packing of a region names things that exist."""
    match r.packing:
        case Packing.ROWS | Packing.LANES | Packing.SHARD:
            return 0 <= r.tensor < len(image.tensors)
        case Packing.KV | Packing.KV_SCALE:
            if not 0 <= r.p0 // 2 < len(image.key.layer_kinds):
                return False
            of, grid = image.key.of_layer(r.p0 // 2), image.key.grid_of(r.p0 // 2)
            return 0 <= r.p1 < of.kv_heads // grid.h * of.head_dim
        case _:
            return True


def _place_cells(rows: Int64, regions: tuple[Region, ...], state: Int64) -> int:
    """Gives kept vectors to scratch, inbox and state (at most state[i] of them): equal addresses, equal cells. Their number."""
    written = [
        i for i, r in enumerate(regions)
        if r.cls in {RegionClass.SCRATCH, RegionClass.INBOX} or (r.cls == RegionClass.STATE and r.vectors)
    ]  # fmt: skip
    written.sort(key=lambda i: int(rows[i, kernel.R_START]))
    used, end = 0, NOWHERE
    for i in written:
        r = regions[i]
        start, count = int(rows[i, kernel.R_START]), max(0, r.vectors)
        if r.cls == RegionClass.STATE:
            count = min(count, int(state[i]))
        if start < end:  # shares cells with the regions before it
            first = used - (end - start)
            used, end = used + max(0, start + count - end), max(end, start + count)
        else:
            first, used, end = used, used + count, start + count
        rows[i, kernel.R_CELLS], rows[i, kernel.R_KEPT] = first, count
    return used


def _tiles(image: Image, rows: Int64) -> tuple[Int64, Int64, bool]:
    """The tile table, the pieces in its order, and whether each has a place of its own; fills the tile range of each region."""
    p = image.pieces.astype(np.int64)
    ok = (p[:, col.P_REGION] >= 0) & (p[:, col.P_REGION] < len(image.regions))
    ok &= (p[:, col.P_TENSOR] >= 0) & (p[:, col.P_TENSOR] < len(image.tensors))
    ok &= (p[:, col.P_LANE] >= 0) & (p[:, col.P_LANE] + p[:, col.P_COLS] <= 2 * HALVES)
    ok &= (p[:, col.P_K0] >= 0) & (p[:, col.P_COL0] >= 0) & (p[:, col.P_COLS] > 0) & (p[:, col.P_ROWS] > 0)
    p = p[ok]
    p = p[np.lexsort((p[:, col.P_LANE], p[:, col.P_VECTOR], p[:, col.P_REGION]))]
    if len(p) == 0:
        return np.zeros((1, 5), np.int64), np.zeros((1, col.P_COLUMNS), np.int64), bool(ok.all())
    new = np.ones(len(p), bool)
    new[1:] = (p[1:, [col.P_REGION, col.P_VECTOR]] != p[:-1, [col.P_REGION, col.P_VECTOR]]).any(axis=1)
    first = np.flatnonzero(new)
    depth = np.maximum.reduceat(p[:, col.P_ROWS], first)
    region, vector = p[first, col.P_REGION], p[first, col.P_VECTOR]
    lanes = np.where(rows[region, kernel.R_P0] >= Dtype.INT8, 2 * HALVES, HALVES)
    per_row = -(-np.maximum.reduceat(p[:, col.P_LANE] + p[:, col.P_COLS], first) // lanes)
    tiles = np.stack([vector, depth, first, np.append(first[1:], len(p)), per_row], axis=1).astype(np.int64)
    every = np.arange(len(rows))
    rows[:, kernel.R_TILE0] = np.searchsorted(region, every, side="left")
    rows[:, kernel.R_TILE1] = np.searchsorted(region, every, side="right")
    end = vector + per_row * depth
    record = np.minimum(rows[region, kernel.R_STRIDE], rows[region, kernel.R_VECTORS])
    inside = (vector >= 0) & (end <= record)
    apart = (region[1:] != region[:-1]) | (vector[1:] >= end[:-1])
    beside = new[1:] | (p[1:, col.P_LANE] >= p[:-1, col.P_LANE] + p[:-1, col.P_COLS])
    return tiles, np.ascontiguousarray(p), bool(ok.all() and inside.all() and apart.all() and beside.all())
