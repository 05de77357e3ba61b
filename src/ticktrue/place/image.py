"""Shards -> SRAM: which region lies in which bank group, what does not fit, and the scratch of one timetable."""

from dataclasses import dataclass, replace

import numpy as np

from ticktrue.errors import DoesNotFit
from ticktrue.graph.experts import PARTS
from ticktrue.graph.types import Graph, NodeKind
from ticktrue.hw import System
from ticktrue.isa import OpTable
from ticktrue.isa.ops import BLOCK, LANES, ROPE_ROWS, lanes_of
from ticktrue.partition import (
    ShardedGraph,
    kv_heads,
    legal_degrees,
    make_plan,
    partition,
    rings_of,
    scale_name,
)
from ticktrue.place.fill import Wanted, fill_groups, layer_of
from ticktrue.place.layout import (
    ROWS_APART,
    Phase,
    Slot,
    inbox_slots,
    phases_of,
    piece_streams,
    rope_width,
    scratch_slots,
    turns,
)
from ticktrue.program import Image, ImageKey, KvScales, Packing, Region, RegionClass
from ticktrue.program import columns as col
from ticktrue.units import ceil_div

CODE_ROWS_MARGIN = 4096
BEAT_VECTORS = 4
"""Vectors of 320 float32 lanes."""


_WHOLE = frozenset({NodeKind.NORM, NodeKind.HEAD_NORM, NodeKind.LAYER_SCALAR})
_PRODUCTS = frozenset({NodeKind.LINEAR, NodeKind.LOGITS})


def _vectors(graph: Graph) -> tuple[set[str], set[str]]:
    """Names of the vectors that a step takes: those that every chip has whole, and those cut over outputs with a product.

    What a node does with a tensor decides, not its shape: a matrix may have one row or one column.
    """
    whole = {node.tensor for node in graph.nodes if node.kind in _WHOLE}
    products = [node for node in graph.nodes if node.kind in _PRODUCTS]
    matrices = {node.tensor for node in products}
    matrices |= {
        f"{node.tensor}.{part}" for node in graph.nodes if node.kind == NodeKind.EXPERTS for part in PARTS
    }
    return whole, {node.bias for node in products} | {scale_name(tensor) for tensor in matrices}


def _consts(sharded: ShardedGraph, max_positions: int) -> list[Region]:
    out = []
    whole, cut = _vectors(sharded.graph)
    for i, t in enumerate(sharded.tensors):
        if t.name in whole:
            out.append(
                Region(t.name, RegionClass.CONST, -1, 0, 4, ceil_div(t.inputs, LANES), Packing.LANES, i)
            )
        elif t.name in cut:  # of a stack, one share after another
            beats = t.records * ceil_div(t.shard, LANES)
            out.append(Region(t.name, RegionClass.CONST, -1, 0, 4, beats, Packing.SHARD, i))
    rows_a = ceil_div(max_positions, ROPE_ROWS)
    for index, kind in enumerate(sharded.shapes.kinds):
        d, stride = kind.head_dim, rope_width(kind.head_dim)
        for name, packing, rows in (("a", Packing.ROPE_A, rows_a), ("b", Packing.ROPE_B, ROPE_ROWS)):
            out.append(
                Region(
                    f"rope_{name}{kind.suffix}", RegionClass.CONST, -1, 0, stride, rows, packing, -1, d, index
                )
            )
    return out


def _weights(sharded: ShardedGraph, phases: tuple[Phase, ...]) -> list[Region]:
    cut = sharded.shapes.embed
    rows = Region(
        "embed", RegionClass.WEIGHT, -1, 0, cut.beats * cut.width, sharded.shapes.vocab, Packing.ROWS, 0
    )
    out = [rows]
    for phase in phases:
        r = Region(
            phase.name,
            RegionClass.WEIGHT,
            -1,
            0,
            phase.packed.vectors,
            phase.stack,
            Packing.TILES,
            p0=int(phase.weight),
        )
        out.append(r)
    return out


def kv_name(layer: int, which: int, group: int) -> str:
    """Name of the state region of K (0) or V (1) of a layer, vector group (or part of a head) `group`."""
    return f"L{layer}.{'kv'[which]}{group}"


def _state(sharded: ShardedGraph, slots: int) -> list[Region]:
    out = []
    for layer in range(sharded.shapes.layers):
        s = sharded.shapes.attention(layer)
        blocks = s.ring or sharded.graph.kind.blocks
        count = slots * ceil_div(blocks, s.cp) * BLOCK
        out += [
            Region(kv_name(layer, 0, group), RegionClass.STATE, -1, 0, s.vg, count, Packing.KV, -1, 2 * layer,
                   group * s.hv * s.head_dim)
            for group in range(s.kv_groups)
        ]  # fmt: skip
        for group in range(s.v_groups):
            head, part = divmod(group, s.parts)
            first = head * s.hv * s.head_dim + part * s.value_dim
            out.append(Region(kv_name(layer, 1, group), RegionClass.STATE, -1, 0, s.v_width, count, Packing.KV, -1,
                              2 * layer + 1, first))  # fmt: skip
    return out


def kv_scale_name(state: str) -> str:
    """Name of the region with the scales of a state region."""
    return f"{state}.scale"


def _scales(state: list[Region]) -> list[Region]:
    """Of each state region two records of float32 lanes, as a record of it has: what divides by the scale, and the scale."""
    return [
        Region(kv_scale_name(r.name), RegionClass.CONST, -1, 0, BEAT_VECTORS * r.stride, 2, Packing.KV_SCALE, -1, r.p0, r.p1)
        for r in state
    ]  # fmt: skip


def _wanted(region: Region) -> Wanted:
    keys = region.cls == RegionClass.STATE and region.p0 % 2 == 0
    return Wanted(region.name, *layer_of(region.name), region.vectors, keys)


def _place_all(
    wanted: list[Region], fixed: list[list[Region]], table: OpTable
) -> tuple[list[Region], list[int]]:
    """Gives every region a bank group and a base; `fixed[g]` regions come first in group g. Also the fill of each group."""
    start = [0] * table.mem_groups
    out: list[Region] = []
    for group, regions in enumerate(fixed):
        for r in regions:
            out.append(replace(r, group=group, base=start[group]))
            start[group] += r.vectors
    filled = fill_groups([_wanted(r) for r in wanted], start, table.group_vectors)
    out += [replace(wanted[s.index], group=s.group, base=s.base) for s in filled.spots]
    return out, list(filled.fill)


def _arenas(slots: list[Slot], groups: int) -> list[int]:
    size = [0] * groups
    for slot in slots:
        size[slot.role % groups] += slot.vectors
    return size


def _tile_rows(sharded: ShardedGraph, phases: tuple[Phase, ...], streams: int) -> int:
    """Rows of the chains of all tiles, where they are most: those of narrow experts with a chain for each token row."""
    s, out = sharded.shapes, 0
    for phase in phases:
        each, fit = 7 if phase.eight_bits else 4, streams // piece_streams(eight_bits=phase.eight_bits)
        x = s.experts if phase.of_experts else None
        slots, named = (x.slots, x.named) if x else (1, False)
        for tile in phase.packed.tiles:
            n = len(tile.pieces)
            most = len(turns(n, min(s.rows, ROWS_APART), fit)) if named else 1
            out += slots * most * (2 + each * n)
        if x and phase.eight_bits:  # their scales are gathered first
            out += slots * 2 * sum(len(r) for r in phase.packed.partials)
        if x and x.held:  # what every chip made is gathered, and the one that is named taken
            out += (6 * sharded.plan.chips + 4 * x.per_token) * x.y.beats
    return out


def _row_estimate(sharded: ShardedGraph, phases: tuple[Phase, ...], streams: int) -> int:
    """Rows of the largest timetable, rounded up: 16 bytes each are reserved as code."""
    s, plan = sharded.shapes, sharded.plan
    folds = 7 * sum(len(r) for p in phases for r in p.packed.partials)
    out = _tile_rows(sharded, phases, streams) + folds + CODE_ROWS_MARGIN
    for layer in range(s.layers):
        a = s.attention(layer)
        out += 6 * (3 * plan.chips + 4) * max(s.y.beats, a.q.beats, s.ffn_cut.beats, 1)
        out += 24 * (a.heads + 2 * a.h * a.v_groups) + 12 * s.x_beats * 4 + 8 * ceil_div(s.ffn, 320)
        out += (
            s.slots * a.units * a.parts * (48 + 8 * a.local_blocks.bit_length()) + 8 * s.slots * a.local_heads
        )
        out += 16 * s.slots * a.v_groups + (0 if a.even else 8 * a.local_heads)
    return out


def _piece_table(
    regions: list[Region], phases: tuple[Phase, ...]
) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
    index = {r.name: i for i, r in enumerate(regions)}
    rows = []
    for phase in phases:
        for tile in phase.packed.tiles:
            for p in tile.pieces:
                m = phase.packed.matrices[p.matrix]
                row = [0] * col.P_COLUMNS
                row[col.P_REGION], row[col.P_VECTOR], row[col.P_ROWS] = (
                    index[phase.name],
                    tile.vector,
                    p.rows,
                )
                row[col.P_LANE], row[col.P_COLS], row[col.P_TENSOR] = p.lane, p.cols, m.tensor
                row[col.P_K0] = p.k_tile * lanes_of(phase.passed)
                row[col.P_COL0] = p.column
                rows.append(row)
    rows.sort()
    return np.array(rows, dtype=np.int32).reshape(-1, col.P_COLUMNS)


@dataclass(frozen=True, slots=True)
class _Arranged:
    """Regions with their places, and the fill of each bank group in vectors."""

    regions: list[Region]
    fill: list[int]
    phases: tuple[Phase, ...]


def _arrange(sharded: ShardedGraph, system: System) -> _Arranged:
    table, plan = OpTable.of(system.chip), sharded.plan
    phases = phases_of(sharded)
    blocks = sharded.shapes.blocks
    fixed: list[list[Region]] = [[] for _ in range(table.mem_groups)]
    for slot in inbox_slots(sharded.shapes, plan):
        fixed[slot.role % table.mem_groups].append(
            Region(slot.name, RegionClass.INBOX, 0, 0, slot.stride, slot.count)
        )
    for group, vectors in enumerate(
        _arenas(scratch_slots(sharded.shapes, phases, sharded.graph.logit_rows), table.mem_groups)
    ):
        if vectors:
            fixed[group].append(Region(f"arena.{group}", RegionClass.ARENA, group, 0, 1, vectors))
    code = ceil_div(
        _row_estimate(sharded, phases, system.chip.value("streams"))
        * system.chip.value("code_bytes_per_row"),
        320,
    )
    wanted = _weights(sharded, phases) + _consts(sharded, blocks * BLOCK)
    state = _state(sharded, sharded.shapes.slots)
    wanted += state + (_scales(state) if sharded.graph.kv_scaled else [])
    wanted.append(Region("code", RegionClass.CODE, -1, 0, 1, code))
    regions, fill = _place_all(wanted, fixed, table)
    return _Arranged(regions, fill, phases)


def place_image(sharded: ShardedGraph, system: System, key: ImageKey, kv_scales: KvScales = ()) -> Image:
    """The image for the largest step kind that `sharded` was cut for (T_max tokens, NB blocks, all logits).

    Raises:
        DoesNotFit: T310, with the bytes over, by region class, and how many chips would do.
    """
    arranged = _arrange(sharded, system)
    if max(arranged.fill) > OpTable.of(system.chip).group_vectors:
        raise _does_not_fit(sharded, system, key, arranged.regions)
    regions = sorted(arranged.regions, key=lambda r: (r.cls, r.group, r.base))
    return Image(
        key,
        sharded.tensors,
        tuple(regions),
        _piece_table(regions, arranged.phases),
        kv_scales,
    )


def _bytes_by_class(regions: list[Region]) -> dict[str, int]:
    out: dict[str, int] = {}
    for r in regions:
        out[r.cls.name.lower()] = out.get(r.cls.name.lower(), 0) + r.vectors * 320
    return out


def _does_not_fit(sharded: ShardedGraph, system: System, key: ImageKey, regions: list[Region]) -> DoesNotFit:
    capacity = system.chip.value("sram_bytes")
    by_class = _bytes_by_class(regions)
    total = sum(by_class.values())
    detail = ", ".join(f"{name} {size:,}" for name, size in sorted(by_class.items(), key=lambda kv: -kv[1]))
    over = total - capacity
    why = f"{over:,} bytes too many" if over > 0 else "the regions do not divide over the bank groups"
    enough = _smallest_that_fits(sharded, system)
    hint = f"{enough} chips would do" if enough else "no legal number of chips of this system would do"
    return DoesNotFit(
        f"{key.model} ({key.fmt}, context {key.max_context}) needs {total:,} bytes per chip on {sharded.plan.chips} chips, "
        f"each holds {capacity:,}: {why} ({detail})",
        where=f"system {key.system}", hint=f"{hint}; or a shorter --max-model-len",
    )  # fmt: skip


def _smallest_that_fits(sharded: ShardedGraph, system: System) -> int:
    """The smallest legal degree above this one that the system has and that fits; 0 if none."""
    spec, limit, tray = sharded.graph.spec, system.gather_chips, system.tray_chips
    for chips in legal_degrees(kv_heads(spec), limit, tray):
        if chips <= sharded.plan.chips or chips > system.full_chips:
            continue
        plan = make_plan(kv_heads(spec), chips, limit=limit, tray=tray)
        homes = chips if sharded.graph.homes else 0
        step = sharded.graph.kind
        graph = replace(sharded.graph, rings=rings_of(spec, plan, step.tokens, step.blocks), homes=homes)
        if max(_arrange(partition(graph, plan), system).fill) <= OpTable.of(system.chip).group_vectors:
            return chips
    return 0


def place_scratch(sharded: ShardedGraph, image: Image) -> tuple[Region, ...]:
    """Scratch regions of one timetable inside the image's arenas, in a fixed order."""
    arenas = {r.group: r for r in image.regions if r.cls == RegionClass.ARENA}
    groups = max(arenas) + 1
    used = {g: r.base for g, r in arenas.items()}
    out = []
    shapes, rows = sharded.shapes, sharded.graph.logit_rows
    for slot in scratch_slots(shapes, phases_of(sharded), rows):
        group = slot.role % max(groups, 4)
        out.append(Region(slot.name, RegionClass.SCRATCH, group, used[group], slot.stride, slot.count))
        used[group] += slot.vectors
    return tuple(out)
