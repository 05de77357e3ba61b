"""Whether an image holds together: its key, its regions within the bank groups, and the packing table of its weights."""

import numpy as np

from ticktrue.hw import System
from ticktrue.isa import Dtype
from ticktrue.isa.ops import BLOCK, LANE_BLOCKS, LANES, ROPE_ROWS, VECTOR_BYTES, lanes_of
from ticktrue.program import Image, Packing, Region, RegionClass, Tensor
from ticktrue.program import columns as col
from ticktrue.program.types import KV_EXPONENT
from ticktrue.units import ceil_div
from ticktrue.verify.verdict import Findings

GREATEST = 2**31 - 1
BF16_LANES = VECTOR_BYTES // 2
BEAT_VECTORS = 4
WEIGHTS = {"bf16": Dtype.BF16, "f32": Dtype.BF16, "int8": Dtype.INT8, "fp8": Dtype.E4M3}
KV_TYPES = {"bf16": Dtype.BF16, "f32": Dtype.F32, "fp8": Dtype.E4M3}
PART = 256  # values of a part of a head that leaves a beat no two free lanes
MAX_SLOTS = 1 << 12
MAX_WIDTH = 1 << 22
EXPERTS = ("cut", "parallel")
_PACKINGS = {
    RegionClass.WEIGHT: {Packing.TILES, Packing.ROWS},
    RegionClass.CONST: {Packing.LANES, Packing.SHARD, Packing.ROPE_A, Packing.ROPE_B, Packing.KV_SCALE},
    RegionClass.STATE: {Packing.KV},
}


def whole(value: object, low: int, high: int = GREATEST) -> bool:
    """Whether a value is an integer of that range."""
    return isinstance(value, int | np.integer) and low <= int(value) <= high


def check_image(image: Image, system: System, findings: Findings) -> bool:
    """Finds what is wrong with an image; whether timetables over it can be looked at."""
    before = findings.total
    if _key_ranges(image, system, findings):
        _plan(image, system, findings)
    groups = system.chip.value("mem_groups")
    size = system.chip.value("sram_bytes") // system.chip.value("vector_bytes") // groups
    tensors = [t for t in image.tensors if _tensor(t, findings)]
    sound = [check_region(r, groups, size, findings) for r in image.regions]
    if not all(sound) or findings.total > before or len(tensors) < len(image.tensors):
        return False
    _overlap(image.regions, findings)
    for r in image.regions:
        _packing(image, r, findings)
    if pieces_form(image, findings) and findings.total == before:
        _pieces(image, findings)
    return findings.total == before


def _key_ranges(image: Image, system: System, findings: Findings) -> bool:
    key, fine = image.key, True
    for name in ("max_context", "slots", "t_max", "vocab"):
        high = MAX_SLOTS if name == "slots" else GREATEST
        if not whole(getattr(key, name), 1, high):
            findings.field("V112", f"key.{name}", f"expected 1 to {high:_}, found {getattr(key, name)!r}")
            fine = False
    fine &= _kinds(image, findings)
    known = fine
    fine &= _grids(image, findings)
    if key.experts not in EXPERTS:
        findings.field("V112", "key.experts", f"expected one of {', '.join(EXPERTS)}, found {key.experts!r}")
        fine = False
    absent = {f.format for f in system.chip.mxm_formats if f.absent}
    if key.fmt in absent and not key.hypothetical:
        findings.field(
            "V100", "key.hypothetical", f"expected true, for the chip is known not to have {key.fmt}"
        )
        fine = False
    if key.fmt not in WEIGHTS:
        findings.field("V112", "key.fmt", f"expected one of {', '.join(WEIGHTS)}, found {key.fmt!r}")
        fine = False
    own = "f32" if key.fmt == "f32" else "bf16"
    if key.kv not in {own, "fp8"} or (own == "f32" and key.kv != own):
        findings.field("V112", "key.kv", f"expected a cache that format {key.fmt} has, found {key.kv!r}")
        fine = False
    return (not known or _kv_scales(image, findings)) and fine


def _kv_scales(image: Image, findings: Findings) -> bool:
    """Whether the scales of the cache are exponents of each KV head of each layer, K and V; none where no region holds them."""
    key, scales = image.key, image.kv_scales
    heads = [key.of_layer(state // 2).kv_heads for state in range(2 * len(key.layer_kinds))] if scales else []
    fine = key.kv == "fp8" or not scales
    fine &= len(scales) == len(heads) and all(
        len(of) == n and all(whole(e, -KV_EXPONENT, KV_EXPONENT) for e in of)
        for of, n in zip(scales, heads, strict=False)
    )
    if not fine:
        text = f"expected none, or of a cache in fp8 {len(heads)} lists of exponents up to {KV_EXPONENT}, one for each KV head"
        findings.field("V112", "kv_scales", text)
    if any(r.packing == Packing.KV_SCALE for r in image.regions) != bool(scales):
        findings.field("V100", "kv_scales", "expected scales exactly where a region holds them")
        fine = False
    return fine


def _kinds(image: Image, findings: Findings) -> bool:
    """Whether the kinds of attention have sizes that can be, and each layer one of them."""
    key, fine = image.key, True
    for name in ("attention", "layer_kinds"):
        if not getattr(key, name):
            findings.field("V112", f"key.{name}", "expected at least one, found none")
            fine = False
    for i, a in enumerate(key.attention):
        for name in ("heads", "kv_heads", "head_dim", "window", "ring"):
            low, high = (0, GREATEST) if name in {"window", "ring"} else (1, MAX_WIDTH)
            if not whole(getattr(a, name), low, high):
                findings.field(
                    "V112",
                    f"key.attention[{i}].{name}",
                    f"expected {low} to {high:_}, found {getattr(a, name)!r}",
                )
                fine = False
    if not all(whole(kind, 0, len(key.attention) - 1) for kind in key.layer_kinds):
        findings.field(
            "V112", "key.layer_kinds", f"expected numbers below the {len(key.attention)} kinds of attention"
        )
        fine = False
    return fine


def _grids(image: Image, findings: Findings) -> bool:
    """Whether the plan has numbers of chips, and a grid for each kind of attention."""
    plan, kinds = image.key.plan, len(image.key.attention)
    numbers = [("chips", plan.chips, 1), ("tray", plan.tray, 0)]
    for i, grid in enumerate(plan.grids):
        numbers += [(f"grids[{i}].h", grid.h, 1), (f"grids[{i}].cp", grid.cp, 1)]
    fine = True
    for name, number, low in numbers:
        if not whole(number, low, LANE_BLOCKS * LANE_BLOCKS):
            findings.field("V112", f"key.plan.{name}", f"expected a number of chips, found {number!r}")
            fine = False
    if len(plan.grids) != kinds:
        text = f"expected one for each of {kinds} kinds of attention, found {len(plan.grids)}"
        findings.field("V112", "key.plan.grids", text)
        fine = False
    return fine


def _plan(image: Image, system: System, findings: Findings) -> None:
    key, plan = image.key, image.key.plan
    tray = system.tray_chips if plan.chips > system.tray_chips else 0
    rules = [
        ("key.plan.tray", plan.tray == tray, f"{tray}, for chips of {system.name}, found {plan.tray}"),
        ("key.plan.chips", tray == 0 or plan.chips % tray == 0, f"whole trays of {tray}, found {plan.chips} chips"),
        ("key.plan.chips", plan.chips <= system.chips, f"at most the {system.chips} chips of {system.name}, found {plan.chips}"),
        ("key.system", key.system == system.name, f"{system.name}, found {key.system}"),
        ("key.facts", key.facts == system.fact_digest(), f"the facts of {system.name}, found others"),
    ]  # fmt: skip
    for i, grid in enumerate(plan.grids):
        even = tray == 0 or grid.cp % tray == 0 or tray % grid.cp == 0
        rules += [
            (f"key.plan.grids[{i}]", plan.chips == grid.h * grid.cp,
             f"h * cp = {plan.chips} chips, found {grid.h} * {grid.cp}"),
            (f"key.plan.grids[{i}].cp", grid.cp & (grid.cp - 1) == 0 and grid.cp <= LANE_BLOCKS,
             f"a power of two up to {LANE_BLOCKS}, found {grid.cp}"),
            (f"key.plan.grids[{i}]", even, f"groups that fill whole trays of {tray}, found {grid.h} x {grid.cp} chips"),
        ]  # fmt: skip
    for where, fine, text in rules:
        if not fine:
            findings.field("V100", where, f"expected {text}")
    _shared(image, findings)


def _shared(image: Image, findings: Findings) -> None:
    """Finds heads that a grid does not share out, and rings of another size than window, context and grid ask for."""
    key = image.key
    for i, (a, grid) in enumerate(zip(key.attention, key.plan.grids, strict=True)):
        held = ceil_div(key.max_context + key.t_max, BLOCK)
        need = max(grid.cp, min(held, ceil_div(a.window + key.t_max, BLOCK) + 1))
        ring = 1 << (need - 1).bit_length() if a.window else 0
        of_kind = (
            (
                "kv_heads",
                a.kv_heads % grid.h == 0,
                f"a multiple of the degree over heads, {grid.h}, found {a.kv_heads}",
            ),
            ("heads", a.heads % a.kv_heads == 0, f"a multiple of the {a.kv_heads} KV heads, found {a.heads}"),
            ("ring", a.ring == ring, f"a ring of {ring} blocks for a window of {a.window}, found {a.ring}"),
        )
        for name, fine, text in of_kind:
            if not fine:
                findings.field("V100", f"key.attention[{i}].{name}", f"expected {text}")


def _tensor(t: Tensor, findings: Findings) -> bool:
    fine = whole(t.outputs, 1) and whole(t.inputs, 1) and whole(t.shard, 1) and whole(t.stack, 1)
    fine = fine and whole(t.held, 0)
    if not fine:
        findings.field(
            "V112",
            f"tensor {t.name}",
            f"expected positive sizes, found {t.stack} of [{t.outputs}, {t.inputs}] in {t.shard}, {t.held} held",
        )
    return fine


def check_region(r: Region, groups: int, size: int, findings: Findings) -> bool:
    """Finds numbers of a region that cannot be, and a region outside its bank group of `size` vectors."""
    numbers = (r.group, r.base, r.stride, r.count, r.tensor, r.p0, r.p1)
    if not all(whole(x, -GREATEST) for x in numbers) or r.stride < 1 or r.count < 0:
        findings.field("V112", f"region {r.name}",
                       f"expected a stride and a count, found {r.count!r} records of {r.stride!r} vectors")  # fmt: skip
        return False
    if not 0 <= r.group < groups:
        findings.field("V109", f"region {r.name}", f"expected a bank group below {groups}, found {r.group}")
        return False
    if r.base < 0 or r.base + r.vectors > size:
        findings.field("V109", f"region {r.name}", f"vectors {r.base:_} to {r.base + r.vectors:_} lie outside bank group "
                       f"{r.group} of {size:_} vectors")  # fmt: skip
        return False
    return True


def _overlap(regions: tuple[Region, ...], findings: Findings) -> None:
    ordered = sorted((r for r in regions if r.vectors), key=lambda r: (r.group, r.base))
    reach: Region | None = None
    for r in ordered:
        if reach is not None and reach.group == r.group and r.base < reach.base + reach.vectors:
            findings.field(
                "V109",
                f"regions {reach.name}, {r.name}",
                f"both hold vector {r.base:_} of bank group {r.group}",
            )
        if reach is None or reach.group != r.group or r.base + r.vectors > reach.base + reach.vectors:
            reach = r


def _packing(image: Image, r: Region, findings: Findings) -> None:
    where = f"region {r.name}"
    if r.cls == RegionClass.SCRATCH:
        findings.field("V112", where, "expected a class of the image, found scratch")
        return
    if r.packing not in _PACKINGS.get(r.cls, {Packing.NONE}):
        findings.field(
            "V100", where, f"a {r.cls.name.lower()} region is not packed as {Packing(r.packing).name}"
        )
        return
    named = r.packing in {Packing.ROWS, Packing.LANES, Packing.SHARD}
    if not (0 <= r.tensor < len(image.tensors) if named else r.tensor == -1):
        findings.field("V100", where, f"expected {'a tensor' if named else 'no tensor'}, found {r.tensor}")
        return
    for name, expected, found in _derived(image, r):
        if expected != found:
            findings.field(
                "V100", f"{where}, {name}", f"expected {expected} by its packing rule, found {found}"
            )


def _derived(image: Image, r: Region) -> list[tuple[str, int, int]]:
    """(field, what the packing rule gives, what is stored)."""
    key = image.key
    positions = BLOCK * ceil_div(key.max_context + key.t_max, BLOCK)
    match r.packing:
        case Packing.ROWS:
            t = image.tensors[r.tensor]
            beats, width = ceil_div(t.shard, LANES), ceil_div(min(t.shard, LANES), BF16_LANES)
            out = [
                ("stride", beats * width, r.stride),
                ("count", t.outputs, r.count),
                ("p0", 0, r.p0),
                ("p1", 0, r.p1),
            ]
        case Packing.LANES:
            beats = ceil_div(image.tensors[r.tensor].inputs, LANES)
            out = [
                ("stride", BEAT_VECTORS, r.stride),
                ("count", beats, r.count),
                ("p0", 0, r.p0),
                ("p1", 0, r.p1),
            ]
        case Packing.SHARD:
            t = image.tensors[r.tensor]
            out = [
                ("stride", BEAT_VECTORS, r.stride),
                ("count", t.records * ceil_div(t.shard, LANES), r.count),
                ("inputs of its tensor", 1, t.inputs),
                ("p0", 0, r.p0),
                ("p1", 0, r.p1),
            ]
        case Packing.ROPE_A | Packing.ROPE_B:
            kind = r.p1 if 0 <= r.p1 < len(key.attention) else 0
            head_dim = key.attention[kind].head_dim
            rows = ROPE_ROWS if r.packing == Packing.ROPE_B else ceil_div(positions, ROPE_ROWS)
            out = [
                ("stride", ceil_div(4 * head_dim, VECTOR_BYTES), r.stride),
                ("count", rows, r.count),
                ("p0", head_dim, r.p0),
                ("p1", kind, r.p1),
            ]
        case Packing.KV:
            out = _kv_fields(image, r, positions // BLOCK)
        case Packing.KV_SCALE:
            out = _scale_fields(image, r)
        case Packing.TILES:
            known = {int(WEIGHTS[key.fmt]), int(Dtype.BF16)}  # which of them, the tensors of its pieces tell
            out = [("p0", r.p0 if r.p0 in known else int(WEIGHTS[key.fmt]), r.p0), ("p1", 0, r.p1)]
        case _:
            out = [("p0", 0, r.p0), ("p1", 0, r.p1)]
    return out


def _kv_fields(image: Image, r: Region, blocks: int) -> list[tuple[str, int, int]]:
    """As `_derived`, of a state region: from its first element, p1, whole heads side by side, or for V a part of a wide head."""
    key = image.key
    layers = len(key.layer_kinds)
    if not 0 <= r.p0 < 2 * layers:
        return [("p0", min(max(r.p0, 0), 2 * layers - 1), r.p0)]
    of, grid = key.of_layer(r.p0 // 2), key.grid_of(r.p0 // 2)
    lanes, d = lanes_of(KV_TYPES[key.kv]), of.head_dim
    local = of.kv_heads // grid.h
    hv = min(max(1, min(lanes, LANES - 1) // d), local)
    if r.p0 % 2 == 1 and d + 2 > LANES:
        size = ceil_div(d, ceil_div(d, PART))
        width, parts = ceil_div(size, lanes), {h * d + e for h in range(local) for e in range(0, d, size)}
    else:
        width, parts = ceil_div(hv * d, lanes), set(range(0, local * d, hv * d))
    count = key.slots * BLOCK * ceil_div(of.ring or blocks, grid.cp)
    return [
        ("stride", width, r.stride),
        ("count", count, r.count),
        ("p1", r.p1 if r.p1 in parts else 0, r.p1),
    ]


def _scale_fields(image: Image, r: Region) -> list[tuple[str, int, int]]:
    """As `_derived`, of the scales of a state region: two records of its lanes as float32."""
    of_state = _kv_fields(image, r, 1)
    if len(of_state) == 1:
        return of_state
    (_, width, _), _, part = of_state
    return [("stride", BEAT_VECTORS * width, r.stride), ("count", 2, r.count), part]


def pieces_form(image: Image, findings: Findings) -> bool:
    """Whether the packing table is a table of pieces of tiles that exist."""
    p = image.pieces
    if p.dtype.kind not in "iu" or p.shape != (len(p), col.P_COLUMNS):
        findings.field("V112", "pieces", f"expected int32[*, {col.P_COLUMNS}]")
        return False
    p = p.astype(np.int64)
    tiles = np.array([r.packing == Packing.TILES for r in image.regions] + [False])
    of = np.where(
        (p[:, col.P_REGION] >= 0) & (p[:, col.P_REGION] < len(image.regions)),
        p[:, col.P_REGION],
        len(image.regions),
    )
    bad = ~tiles[of] | (p[:, col.P_TENSOR] < 0) | (p[:, col.P_TENSOR] >= len(image.tensors))
    bad |= (p[:, [col.P_VECTOR, col.P_LANE, col.P_K0, col.P_COL0]] < 0).any(axis=1)
    bad |= (p[:, [col.P_ROWS, col.P_COLS]] < 1).any(axis=1)
    for piece in np.flatnonzero(bad)[: max(findings.room, 1)].tolist():
        findings.field(
            "V112",
            f"pieces[{piece}]",
            "expected a piece of a tile region and of a tensor, found neither or a negative",
        )
    return not bad.any()


def _pieces(image: Image, findings: Findings) -> None:
    p = image.pieces.astype(np.int64)
    lanes, wrong = _types(image, p)
    vectors = np.array([r.stride for r in image.regions], dtype=np.int64)[p[:, col.P_REGION]]
    count = np.array([r.count for r in image.regions], dtype=np.int64)[p[:, col.P_REGION]]
    stack = np.array([t.records for t in image.tensors], dtype=np.int64)[p[:, col.P_TENSOR]]
    inputs, shard = (
        np.array([getattr(t, f) for t in image.tensors], dtype=np.int64) for f in ("inputs", "shard")
    )
    tensor = p[:, col.P_TENSOR]
    tests = (
        (
            wrong,
            "the tiles of its region are of another type than its tensor's: 8 bits where it has scales, else bf16",
        ),
        (_tile_ends(p, lanes) > vectors, "the tile ends beyond a record of its region"),
        (count != stack, "its region has another number of records than its tensor has matrices"),
        (p[:, col.P_LANE] + p[:, col.P_COLS] > LANES, f"the piece ends beyond lane {LANES}"),
        (p[:, col.P_K0] + p[:, col.P_ROWS] > inputs[tensor], "the piece has rows beyond the tensor's inputs"),
        (
            p[:, col.P_COL0] + p[:, col.P_COLS] > shard[tensor],
            "the piece has columns beyond the tensor's shard",
        ),
    )
    for mask, text in tests:
        for piece in np.flatnonzero(mask)[: max(findings.room, 1)].tolist():
            findings.field("V100", f"pieces[{piece}]", text)
    _tiles(p, lanes, findings)
    _shards(image, set(np.unique(tensor).tolist()), findings)
    _scales(image, findings)
    area = np.zeros(len(image.tensors), dtype=np.int64)
    np.add.at(area, tensor, p[:, col.P_ROWS] * p[:, col.P_COLS])
    for t in np.unique(tensor).tolist():
        if area[t] != inputs[t] * shard[t]:
            findings.field("V100", f"tensor {image.tensors[t].name}",
                           f"expected pieces of {inputs[t] * shard[t]:_} elements, found {area[t]:_}")  # fmt: skip


def _types(image: Image, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each piece the lanes of a vector of its tile, and whether its region is of another type than its tensor.

    In 8 bits a tensor has scales, named after it; one without them (a router) is bf16 in every format.
    """
    names = {t.name for t in image.tensors}
    own = int(WEIGHTS[image.key.fmt])
    scaled = own in {Dtype.INT8, Dtype.E4M3}
    of_tensor = np.array(
        [own if not scaled or f"{t.name}.scale" in names else int(Dtype.BF16) for t in image.tensors],
        np.int64,
    )
    of_region = np.array([r.p0 for r in image.regions], np.int64)[p[:, col.P_REGION]]
    lanes = np.where(np.isin(of_region, (Dtype.INT8, Dtype.E4M3)), LANES, BF16_LANES)
    return lanes, of_region != of_tensor[p[:, col.P_TENSOR]]


def _scales(image: Image, findings: Findings) -> None:
    """Scales are one an output of the matrix, or of each of a stack, that they are named after."""
    by_name = {t.name: t for t in image.tensors}
    for t in image.tensors:
        of = by_name.get(t.name.removesuffix(".scale"), t)
        expected = (of.outputs, of.stack, of.held)
        if of is not t and (t.outputs, t.stack, t.held) != expected:
            findings.field("V100", f"tensor {t.name}", "expected outputs, stack and held of {}, {} and {}, as its matrix has, "
                           "found {}, {} and {}".format(*expected, t.outputs, t.stack, t.held))  # fmt: skip


def _held(image: Image, i: int) -> int:
    """Matrices of a stack that a rank holds whole: ⌈stack / chips⌉ where experts are parallel, else none."""
    stack = image.tensors[i].stack
    return ceil_div(stack, image.key.plan.chips) if image.key.experts == "parallel" and stack > 1 else 0


def _shards(image: Image, cut: set[int], findings: Findings) -> None:
    """Tiles hold ⌈outputs / chips⌉ outputs per rank, rows ⌈inputs / chips⌉ columns; vectors of lanes, held matrices are whole."""
    chips = image.key.plan.chips

    def share(i: int) -> int:
        return ceil_div(image.tensors[i].outputs, 1 if _held(image, i) else chips)

    rules = [(i, share(i)) for i in sorted(cut)]
    for r in image.regions:
        if r.packing == Packing.ROWS:
            rules.append((r.tensor, ceil_div(image.tensors[r.tensor].inputs, chips)))
        elif r.packing == Packing.SHARD:
            rules.append((r.tensor, share(r.tensor)))
        elif r.packing == Packing.LANES:
            rules.append((r.tensor, image.tensors[r.tensor].inputs * image.tensors[r.tensor].outputs))
    shares = {r.tensor for r in image.regions if r.packing == Packing.SHARD}
    for i, expected in rules:
        t = image.tensors[i]
        if t.stack > 1 and i not in cut | shares:
            findings.field(
                "V100", f"tensor {t.name}, stack", f"expected 1 outside tiles and shares, found {t.stack}"
            )
        if t.held != _held(image, i):
            findings.field(
                "V100", f"tensor {t.name}, held", f"expected {_held(image, i)} whole, found {t.held}"
            )
        if t.shard != expected:
            findings.field("V100", f"tensor {t.name}, shard", f"expected {expected}, found {t.shard}")


def _tile_ends(p: np.ndarray, vector_lanes: np.ndarray) -> np.ndarray:
    """First vector after the tile of each piece: as many rows as its tallest piece, as many vectors as its last lane needs."""
    _, tile = np.unique(p[:, [col.P_REGION, col.P_VECTOR]], axis=0, return_inverse=True)
    tile = tile.reshape(-1)
    rows, lanes = (np.zeros(len(p), dtype=np.int64) for _ in range(2))
    np.maximum.at(rows, tile, p[:, col.P_ROWS])
    np.maximum.at(lanes, tile, p[:, col.P_LANE] + p[:, col.P_COLS])
    return np.asarray(p[:, col.P_VECTOR] + rows[tile] * -(-lanes[tile] // vector_lanes))


def _tiles(p: np.ndarray, lanes: np.ndarray, findings: Findings) -> None:
    """Pieces of one tile have their own lanes; tiles follow each other."""
    order = np.lexsort((p[:, col.P_LANE], p[:, col.P_VECTOR], p[:, col.P_REGION]))
    p, lanes = p[order], lanes[order]
    a, b = p[:-1], p[1:]
    region = a[:, col.P_REGION] == b[:, col.P_REGION]
    tile = region & (a[:, col.P_VECTOR] == b[:, col.P_VECTOR])
    tests = (
        (
            tile & (a[:, col.P_LANE] + a[:, col.P_COLS] > b[:, col.P_LANE]),
            "two pieces of one tile share lanes",
        ),
        (
            region & ~tile & (_tile_ends(p, lanes)[:-1] > b[:, col.P_VECTOR]),
            "two tiles overlap",
        ),
    )
    for mask, text in tests:
        for at in np.flatnonzero(mask)[: max(findings.room, 1)].tolist():
            findings.field(
                "V100",
                f"pieces of region {int(b[at, col.P_REGION])}, vector {int(b[at, col.P_VECTOR])}",
                text,
            )
