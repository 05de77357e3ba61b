"""Packed narrow shards: pieces of one network phase side by side in tiles of 320 columns."""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ticktrue.isa.ops import LANES


@dataclass(frozen=True, slots=True)
class Matrix:
    """One matrix of a phase on one rank: `inputs` K, columns first .. first + count - 1 of its shard."""

    tensor: int
    inputs: int
    first: int
    count: int


class Piece(NamedTuple):
    """Columns of one K tile of one record that lie in one tile: lanes lane .. lane + cols - 1.

    `record` counts 320-column records of the matrix from `Matrix.first`; `column` is the shard column of the first lane;
    `to_lane` its lane in the record; `partial` the number of its partial sum among those of the record. A named tuple, for a
    large model on few chips has thousands.
    """

    matrix: int
    k_tile: int
    rows: int
    record: int
    column: int
    cols: int
    lane: int
    to_lane: int
    partial: int


@dataclass(frozen=True, slots=True)
class Tile:
    """A weight tile at `vector` of its region: `rows` rows, as tall as its tallest piece, `per_row` vectors each."""

    vector: int
    rows: int
    per_row: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Packed:
    """All tiles of one phase. `partials[matrix][record]` counts partial sums; `vectors` is the region's size."""

    matrices: tuple[Matrix, ...]
    tiles: tuple[Tile, ...]
    partials: tuple[tuple[int, ...], ...]
    vectors: int

    def first_partial(self, matrix: int, record: int) -> int:
        """Index of the first partial of a record among all partials of the phase."""
        before = sum(sum(p) for p in self.partials[:matrix])
        return before + sum(self.partials[matrix][:record])

    @property
    def total_partials(self) -> int:
        """Partials of the whole phase."""
        return sum(sum(p) for p in self.partials)


class _Whole(NamedTuple):
    """A piece before it meets tile edges."""

    rows: int
    matrix: int
    k_tile: int
    column: int
    cols: int
    record: int


def _wholes(matrices: tuple[Matrix, ...], depth: int) -> list[_Whole]:
    out = []
    for m, matrix in enumerate(matrices):
        for k_tile in range(-(-matrix.inputs // depth)):
            rows = min(depth, matrix.inputs - k_tile * depth)
            for record, start in enumerate(range(0, matrix.count, LANES)):
                cols = min(LANES, matrix.count - start)
                out.append(_Whole(rows, m, k_tile, matrix.first + start, cols, record))
    return sorted(out, key=lambda w: (-w.rows, w.matrix, w.k_tile, w.column))


@lru_cache(maxsize=256)
def pack(matrices: tuple[Matrix, ...], depth: int, lanes: int = 160) -> Packed:
    """Packs the pieces of one phase.

    `depth` is the matrix unit's K (320 in 8 bits, 160 bf16, 80 float32), `lanes` the columns in a vector (320 in 8 bits, 160
    bf16).

    Tall pieces come first, so tails of K fill the lanes that the last tall tile leaves free; a tile stores as many rows as its
    tallest piece and as many vectors per row as its lanes need. A piece that straddles two tiles gives two partials.
    """
    raw: list[list[tuple[_Whole, int, int, int]]] = []  # per tile: (whole, offset in whole, cols, lane)
    lane = LANES
    for whole in _wholes(matrices, depth):
        done = 0
        while done < whole.cols:
            if lane == LANES:
                raw.append([])
                lane = 0
            take = min(whole.cols - done, LANES - lane)
            raw[-1].append((whole, done, take, lane))
            lane += take
            done += take
    order: dict[tuple[int, int], list[tuple[int, int, int, int]]] = {}
    for t, parts in enumerate(raw):
        for i, (whole, done, _, _) in enumerate(parts):
            order.setdefault((whole.matrix, whole.record), []).append((whole.k_tile, done, t, i))
    number = {(t, i): n for found in order.values() for n, (_, _, t, i) in enumerate(sorted(found))}
    tiles, vector = [], 0
    for t, parts in enumerate(raw):
        pieces = tuple(
            Piece(w.matrix, w.k_tile, w.rows, w.record, w.column + done, take, at, done, number[t, i])
            for i, (w, done, take, at) in enumerate(parts)
        )
        per_row = -(-(pieces[-1].lane + pieces[-1].cols) // lanes)
        tiles.append(Tile(vector, parts[0][0].rows, per_row, pieces))
        vector += parts[0][0].rows * per_row
    partials = tuple(
        tuple(len(order[m, r]) for r in range(-(-matrix.count // LANES))) for m, matrix in enumerate(matrices)
    )
    return Packed(matrices, tuple(tiles), partials, vector)
