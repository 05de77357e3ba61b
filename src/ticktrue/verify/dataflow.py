"""The second proof: the flat rows of a timetable, evaluated in the hash algebra, give the digest that the graph gave.

`verify` proves that a program breaks no rule of the machine; it cannot know that a legal read is the right read. Here every
element is a hash of how it came about, for all values of the runtime registers at once. Knows no model, only the image's
names and shapes; docs/dataflow.md is the page that it and `graph.digest` are both written from.
"""

import hashlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ticktrue.hw import System
from ticktrue.isa import Op
from ticktrue.program import Flat, Image, Packing, Program, Timetable, expand
from ticktrue.program import columns as col
from ticktrue.program.hashing import BAD, base, mix, tag
from ticktrue.verify import dataflow_kernel, dataflow_memory_kernel, dataflow_plan_kernel
from ticktrue.verify.dataflow_memory import BLOCK, Hashes, Int64, Memory, memory_of
from ticktrue.verify.shape import output_names
from ticktrue.verify.verdict import Violation

WIDE = 320  # elements of the widest vector
PLANE = 512  # at least the rows of a plane and its columns
RANKS = 160  # whose weights and ids fit a beat


class Part(NamedTuple):
    """One tensor of the digest: its name and the sha256 of its hashes."""

    name: str
    sha256: str


class _Run(NamedTuple):
    """What the interpreter works on; the last four are room for one event or one plane.

    `rank` [patterns, chips] of a chip in a pattern, `size` [patterns] of its group.

    `register`, `columns` [chips, token rows, ranks]: the hash that an expert register holds, of one of how many (0: nothing).
    """

    mem: Memory
    tags: Hashes
    pool: Hashes
    address: Int64
    peer: Int64
    rank: Int64
    size: Int64
    lane: Hashes
    column: Hashes
    spare: Hashes
    register: Hashes
    columns: Int64
    keys: Hashes
    scaled: Hashes
    present: npt.NDArray[np.bool_]
    regular: npt.NDArray[np.bool_]


def check_dataflow(program: Program, system: System) -> tuple[Violation, ...]:
    """V141 for every timetable whose rows compute another expression than the graph that it was compiled from.

    Only for a program that `verify` finds legal: the rows are taken in the order of their stated issue.
    """
    out = []
    for timetable in program.timetables:
        found = rows_digest(program, timetable, system)
        if found != timetable.dataflow:
            message = (
                f"expected dataflow digest {timetable.dataflow} (the graph's), found {found} (the rows')"
            )
            where = timetable.kind.label()
            out.append(Violation("V141", message, -1, -1, where, "", where))
    return tuple(out)


def rows_digest(program: Program, timetable: Timetable, system: System) -> str:
    """The dataflow digest of one timetable, from its flat rows on every chip."""
    return joined(rows_parts(program, timetable, system))


def joined(parts: tuple[Part, ...]) -> str:
    """The digest over the parts, in order."""
    return hashlib.sha256("\n".join(part.sha256 for part in parts).encode()).hexdigest()


def rows_parts(program: Program, timetable: Timetable, system: System) -> tuple[Part, ...]:
    """Logits, next_token (where the chips choose it), accept (of all rows), then K and V of each layer: one sha256 each."""
    flat = expand(program.image, timetable, system)
    memory = memory_of(program.image, timetable, flat.table)
    _evaluate(flat, memory)
    parts = [_logits(program.image, timetable, memory)]
    parts += [_next_token(timetable, memory)] if timetable.kind.sampler == "chip" else []
    parts += [_accept(timetable, memory)] if output_names(timetable.kind)[-1] == "accept" else []
    parts += _state(program.image, timetable, memory)
    if memory.stray[0]:  # something was written that no part shows
        parts.append(Part("stray", str(int(memory.stray[0]))))
    return tuple(parts)


def _evaluate(flat: Flat, memory: Memory) -> None:
    """Runs all rows; `memory` holds what they wrote."""
    rows = flat.rows
    if len(rows) == 0:
        return
    order = np.lexsort((np.arange(len(rows)), rows[:, col.C_ISSUE]))
    stat = dataflow_plan_kernel.analyse(rows, order, _whole_tiles(rows, memory))
    words = int(dataflow_plan_kernel.place(rows, order, stat))
    chips = range(flat.plan.chips)
    model = memory.model
    token_rows = model[dataflow_memory_kernel.M_SLOTS] * model[dataflow_memory_kernel.M_TOKENS]
    registers = (flat.plan.chips, int(token_rows), RANKS if (rows[:, col.C_OP] == Op.LATCH).any() else 0)
    lanes = int(stat[:, dataflow_plan_kernel.S_ACTIVE].max()) + 1
    events = int(stat[rows[:, col.C_OP] == Op.PASS, dataflow_plan_kernel.S_EVENTS].max(initial=1))
    run = _Run(
        mem=memory, tags=np.array([*map(tag, dataflow_plan_kernel.TAG_NAMES), base("one")], np.uint64),
        pool=np.empty((flat.plan.chips, max(1, words)), np.uint64),
        address=np.stack([flat.address(c) for c in chips]), peer=np.stack([flat.peer(c) for c in chips]),
        rank=np.array([[flat.plan.rank(k, c) for c in chips] for k in range(flat.plan.patterns)], np.int64),
        size=np.array([flat.plan.size(k) for k in range(flat.plan.patterns)], np.int64),
        lane=np.empty(max(lanes, PLANE), np.uint64), column=np.empty(PLANE, np.uint64),
        spare=np.empty((2, WIDE), np.uint64), register=np.zeros(registers, np.uint64), columns=np.zeros(registers, np.int64),
        keys=np.empty(1, np.uint64),
        scaled=np.empty(events * WIDE, np.uint64), present=np.zeros(PLANE, np.bool_),
        regular=np.zeros(PLANE, np.bool_),
    )  # fmt: skip
    dataflow_kernel.evaluate(run, rows, order, stat)


def _whole_tiles(rows: Int64, memory: Memory) -> Int64:
    """Vectors per row for each LOAD of exactly one whole weight tile at a fixed address, else 0: int64[R]."""
    k, regions = dataflow_memory_kernel, memory.regions
    region = np.clip(rows[:, col.C_REGION], 0, len(regions) - 1)
    lazy = (rows[:, col.C_OP] == Op.LOAD) & (rows[:, col.C_REGION] >= 0)
    lazy &= regions[region, k.R_PACKING] == Packing.TILES
    lazy &= (rows[:, col.C_N] == 1) & (rows[:, col.C_M] == 1) & (rows[:, col.C_RANKFN] == col.RANK_NONE)
    lazy &= rows[:, col.C_DTYPE] == regions[region, k.R_P0]  # the type of its elements
    offset = rows[:, col.C_ABS] - regions[region, k.R_START]
    key = region << 40 | np.clip(offset, 0, (1 << 40) - 1)
    tile_region = np.repeat(np.arange(len(regions)), regions[:, k.R_TILE1] - regions[:, k.R_TILE0])
    if len(tile_region) == 0:
        return np.zeros(len(rows), np.int64)
    tile_key = tile_region << 40 | memory.tiles[:, k.W_VECTOR]
    at = np.clip(np.searchsorted(tile_key, key), 0, len(tile_key) - 1)
    whole = (tile_key[at] == key) & (
        rows[:, col.C_WIDTH] == memory.tiles[at, k.W_STRIDE] * memory.tiles[at, k.W_ROWS]
    )
    out: Int64 = np.where(lazy & whole & (offset >= 0), memory.tiles[at, k.W_STRIDE], 0).astype(np.int64)
    return out


def _part(name: str, value: Hashes) -> Part:
    return Part(name, hashlib.sha256(np.ascontiguousarray(value, "<u8").data).hexdigest())


def _lanes(memory: Memory, where: tuple[int, int, int], width: int, lanes: int) -> Hashes:
    """float32 elements at (chip, region, vector)."""
    out = np.zeros(lanes, np.uint64)
    spare = np.empty(WIDE, np.uint64)
    dataflow_memory_kernel.load(memory, where, width, dataflow_plan_kernel.F32, 0, out, spare)
    return out


def _logits(image: Image, timetable: Timetable, memory: Memory) -> Part:
    """Beat b of row t of a chip's columns lies at vector 4 (b * rows + t) of its output."""
    output = next((o for o in timetable.outputs if o.name == "logits"), None)
    head = next((t for t in image.tensors if t.name == "lm_head"), None)
    rows = _logit_rows(timetable)
    if output is None or head is None or output.rows != rows or not _is_region(memory, output.region):
        return Part("logits", "missing")
    out = np.zeros((rows, head.outputs), np.uint64)
    for chip in range(image.key.plan.chips):
        count = max(0, min(head.shard, head.outputs - chip * head.shard))
        for row in range(rows):
            for beat in range(-(-count // 320)):
                lanes = min(320, count - beat * 320)
                where = (chip, output.region, output.base + 4 * (beat * rows + row))
                first = chip * head.shard + beat * 320
                out[row, first : first + lanes] = _lanes(memory, where, 4, lanes)
    return _part("logits", out)


def _next_token(timetable: Timetable, memory: Memory) -> Part:
    """Lane 1 of row t's vector: the same on every chip."""
    return _replicated(timetable, memory, ("next_token", _logit_rows(timetable), 1))


def _accept(timetable: Timetable, memory: Memory) -> Part:
    """Lane 0 of each slot's vector: the same on every chip."""
    return _replicated(timetable, memory, ("accept", timetable.kind.slots, 0))


def _replicated(timetable: Timetable, memory: Memory, what: tuple[str, int, int]) -> Part:
    """One lane of each vector of an output that every chip has. what = (name, rows, lane)."""
    name, rows, lane = what
    output = next((o for o in timetable.outputs if o.name == name), None)
    if output is None or output.rows != rows or not _is_region(memory, output.region):
        return Part(name, "missing")
    out = np.zeros(rows, np.uint64)
    for row in range(rows):
        found = [
            int(_lanes(memory, (chip, output.region, output.base + row), 1, 2)[lane])
            for chip in range(len(memory.cells))
        ]
        out[row] = found[0] if len(set(found)) == 1 else mix(np.uint64(found[0]), BAD)
    return _part(name, out)


def _logit_rows(timetable: Timetable) -> int:
    kind = timetable.kind
    return kind.slots * (kind.tokens if kind.logits == "all" else 1)


def _is_region(memory: Memory, region: int) -> bool:
    return 0 <= region < len(memory.regions)


def _state(image: Image, timetable: Timetable, memory: Memory) -> list[Part]:
    """K and V of every layer at the positions of the bucket; counts what was written anywhere else in state as stray."""
    k, key = dataflow_memory_kernel, image.key
    regions = memory.regions
    of_kv = (regions[:, k.R_PACKING] == Packing.KV) & (regions[:, k.R_KEPT] > 0)
    layers = int(regions[of_kv, k.R_P0].max(initial=-1)) // 2 + 1
    out, spare = [], np.empty(WIDE, np.uint64)
    for i in range(2 * layers):
        of, kind = key.of_layer(i // 2), timetable.kind
        places = BLOCK * (min(kind.blocks, of.ring) if of.ring else kind.blocks)
        value = np.zeros((kind.slots, places, of.kv_heads * of.head_dim), np.uint64)
        for region in np.flatnonzero(of_kv & (regions[:, k.R_P0] == i)):
            k.state(memory, int(region), value, spare)
        out.append(_part(f"L{i // 2}.{'KV'[i % 2]}", value))
    return out
