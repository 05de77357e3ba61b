"""SRAM of all chips as one array, its used spans only, and the weights packed into it."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ticktrue.errors import InputError
from ticktrue.execute.pack_kernel import pack_piece, pack_rows
from ticktrue.isa import OpTable
from ticktrue.isa.ops import LANES
from ticktrue.kernels.tables import rope_tables
from ticktrue.model import Weights, rope_inv_freq
from ticktrue.program import Image, Packing, Region
from ticktrue.program import columns as col

ELEMENTS = 160  # 2-byte elements in a vector
PART = 256  # most values of a part of a head that leaves a beat no two free lanes


@dataclass(frozen=True, slots=True)
class Memory:
    """`words` uint16[chips * vectors * 160], zeroed; `group_first` int64[groups]: vector where each bank group starts."""

    words: npt.NDArray[np.uint16]
    vectors: int
    group_first: npt.NDArray[np.int64]

    @property
    def floats(self) -> npt.NDArray[np.float32]:
        """The same bytes as float32[chips * vectors * 80]."""
        return self.words.view(np.float32)

    @property
    def octets(self) -> npt.NDArray[np.int8]:
        """The same bytes as int8[chips * vectors * 320]."""
        return self.words.view(np.int8)

    def vector(self, chip: int, region: Region) -> int:
        """First vector of a region on a chip, in `words` (times 160) or `floats` (times 80)."""
        return chip * self.vectors + int(self.group_first[region.group]) + region.base


def allocate(image: Image, table: OpTable) -> Memory:
    """Zeroed memory that covers every region of the image on every chip."""
    end = np.zeros(table.mem_groups, dtype=np.int64)
    for r in image.regions:
        end[r.group] = max(end[r.group], r.base + r.vectors)
    first = np.concatenate([[0], np.cumsum(end)])
    vectors = int(first[-1])
    words = np.zeros(image.key.plan.chips * vectors * ELEMENTS, dtype=np.uint16)
    return Memory(words, vectors, first[:-1].astype(np.int64))


def load_weights(image: Image, weights: Weights, memory: Memory) -> None:
    """Packs weights, norms, embedding rows and RoPE tables of every chip.

    Raises:
        InputError: T362 if the image was made for other weights.
    """
    if image.key.weights and image.key.weights != weights.digest(image.key.fmt):
        raise InputError(
            f"the program was compiled for weights {image.key.weights[:12]}, found {weights.digest(image.key.fmt)[:12]}",
            code="T362", where=image.key.model, hint="compile it for these weights",
        )  # fmt: skip
    for chip in range(image.key.plan.chips):
        _pack_tiles(image, weights, memory, chip)
        for region in image.regions:
            _pack_region(image, weights, memory, (chip, region))


def _row_strides(image: Image) -> npt.NDArray[np.int64]:
    """Lanes between two rows of each piece's tile: as many vectors as the tile's last lane needs."""
    pieces, lanes = image.pieces, ELEMENTS if image.key.fmt in {"bf16", "f32"} else 2 * ELEMENTS
    _, tile = np.unique(pieces[:, [col.P_REGION, col.P_VECTOR]], axis=0, return_inverse=True)
    tile = tile.reshape(-1)
    end = np.zeros(len(pieces), dtype=np.int64)
    np.maximum.at(end, tile, pieces[:, col.P_LANE] + pieces[:, col.P_COLS])
    strides: npt.NDArray[np.int64] = (-(-end // lanes) * lanes)[tile]
    return strides


def _pack_tiles(image: Image, weights: Weights, memory: Memory, chip: int) -> None:
    for piece, stride in zip(image.pieces.tolist(), _row_strides(image).tolist(), strict=True):
        tensor = image.tensors[piece[col.P_TENSOR]]
        region = image.regions[piece[col.P_REGION]]
        at = memory.vector(chip, region) + piece[col.P_VECTOR]
        first, k0 = chip * tensor.shard + piece[col.P_COL0], piece[col.P_K0]
        cols = min(piece[col.P_COLS], tensor.outputs - first)
        rows = min(piece[col.P_ROWS], tensor.inputs - k0)
        if cols > 0 and rows > 0:
            eight = image.key.fmt in {"int8", "fp8"}
            bits: npt.NDArray[np.generic]
            room: npt.NDArray[np.generic]
            if eight:
                bits, room = weights.quantised(tensor.name, _eight(image)).q.view(np.int8), memory.octets
            else:
                bits, room = weights.tensor(tensor.name), memory.words
            lanes = 2 * ELEMENTS if eight else ELEMENTS
            for e in range(tensor.stack):  # matrix e of a stack in record e
                to, row = (at + e * region.stride) * lanes, e * tensor.outputs + first
                there = min(cols, bits.shape[0] - row)
                pack_piece(room, to, stride, rows, piece[col.P_LANE], there, bits, row, k0)


def _pack_region(image: Image, weights: Weights, memory: Memory, where: tuple[int, Region]) -> None:
    chip, region = where
    at = memory.vector(chip, region)
    match region.packing:
        case Packing.ROWS:
            t = image.tensors[region.tensor]
            first = chip * t.shard
            if first < t.inputs:
                pack_rows(
                    memory.words,
                    at * ELEMENTS,
                    region.stride * ELEMENTS,
                    weights.tensor(t.name),
                    first,
                    t.shard,
                )
        case Packing.LANES:
            values = weights.tensor(image.tensors[region.tensor].name)
            memory.floats[at * 80 : at * 80 + len(values)] = values
        case Packing.SHARD:
            t = image.tensors[region.tensor]
            share = _vector(image, weights, t.name)[chip * t.shard : (chip + 1) * t.shard]
            memory.floats[at * 80 : at * 80 + len(share)] = share
        case Packing.ROPE_A | Packing.ROPE_B:
            _pack_rope(image, weights, memory.floats[at * 80 : (at + region.vectors) * 80], region)
        case Packing.KV_SCALE:
            _pack_scales(image, memory.floats[at * 80 : (at + region.vectors) * 80], (chip, region))
        case _:
            pass


def _eight(image: Image) -> Literal["int8", "fp8"]:
    return "int8" if image.key.fmt == "int8" else "fp8"


def _vector(image: Image, weights: Weights, name: str) -> npt.NDArray[np.float32]:
    """A bias, or the scales of a matrix in 8 bits."""
    if name.endswith(".scale"):
        return weights.quantised(name.removesuffix(".scale"), _eight(image)).scale
    return weights.tensor(name).view(np.float32)


def _pack_rope(image: Image, weights: Weights, room: npt.NDArray[np.float32], region: Region) -> None:
    """Rows of cosines and sines of one kind of attention, in chunks of up to 160 pairs."""
    spec = weights.spec
    tables = rope_tables(rope_inv_freq(spec.attention_of(spec.kinds[region.p1])), image_positions(image))
    table = tables.coarse if region.packing == Packing.ROPE_A else tables.fine
    rows, _, half = table.shape
    view = room.reshape(region.count, region.stride * 80)
    for first in range(0, half, ELEMENTS):
        pairs = min(ELEMENTS, half - first)
        for side in range(2):
            at = 2 * first + side * pairs
            view[:rows, at : at + pairs] = table[:, side, first : first + pairs]


def _pack_scales(image: Image, room: npt.NDArray[np.float32], where: tuple[int, Region]) -> None:
    """Factors of each lane of a record of the cache: 2^-e, with which it is written, and 2^e, with which it is read."""
    (chip, region), key = where, image.key
    of, grid = key.of_layer(region.p0 // 2), key.grid_of(region.p0 // 2)
    d, lanes = of.head_dim, room.reshape(2, -1)
    local = of.kv_heads // grid.h * d
    whole = min(max(1, min(lanes.shape[1], LANES - 1) // d) * d, local - region.p1)
    if region.p0 % 2 == 1 and d + 2 > LANES:  # V of a wide head lies in equal parts
        size = -(-d // -(-d // PART))
        whole = min(size, d - region.p1 % d)
    elements = chip // grid.cp * local + region.p1 + np.arange(whole)
    exponents = np.array(image.kv_scales[region.p0])[elements // d]
    for record, sign in enumerate((-1, 1)):
        lanes[record, : len(elements)] = np.ldexp(np.float32(1), sign * exponents)


def image_positions(image: Image) -> int:
    """Positions the image's RoPE tables must serve."""
    rows = next(r.count for r in image.regions if r.packing == Packing.ROPE_A)
    return rows * 512
