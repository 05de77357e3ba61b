"""Whether the tables of a timetable can be read at all: after these checks, expansion and every later pass is safe.

Each index points into its table, each number lies in a range in which int64 arithmetic cannot overflow. What the numbers mean
is looked at later.
"""

import numpy as np

from ticktrue.hw import System
from ticktrue.isa import OPS, OpTable, RegFn
from ticktrue.isa.ops import BLOCK, LANES
from ticktrue.program import Image, RegionClass, StepKind, Timetable, class_regions
from ticktrue.program import columns as col
from ticktrue.program.types import Int64
from ticktrue.units import ceil_div
from ticktrue.verify.image import GREATEST, check_region, whole
from ticktrue.verify.loops import check_loops
from ticktrue.verify.stored import ELEMENT_BYTES, Stored
from ticktrue.verify.verdict import Findings

MAX_CYCLE = 1 << 44
"""No step takes three hours at 1.5 GHz; sums of a few such numbers stay far from 2^63."""
MAX_EVENTS = 1 << 24
"""Greatest n and m of one row."""
MAX_WIDTH = 1 << 12
"""Greatest vectors of one event: a float32 tile has 1,280."""
BLOCK_LIMIT = 1 << 20
OUTPUT_VECTORS = {"logits": 4, "next_token": 1, "accept": 1}
"""What the host reads after a step, by name: vectors of one record. Records are ordered [record of a row][row]."""
LOGITS = ("last", "all")
SAMPLERS = ("chip", "host")


def stored_rows(image: Image, timetable: Timetable, system: System, findings: Findings) -> Stored | None:
    """The rows of a timetable with their templates, or None where a table is malformed; what is wrong is found on the way."""
    before = findings.total
    where = timetable.kind.label()
    _kind(image, timetable.kind, where, findings)
    if not _arrays(timetable, where, findings):
        return None
    _scratch(image, timetable, system, findings)
    if findings.total > before or not _indices(timetable, where, findings):
        return None
    if not check_loops(image, timetable, findings):
        return None
    stored = _join(image, timetable, system)
    _ranges(stored, findings)
    if findings.total == before:
        _operands(stored, findings)
    return stored if findings.total == before else None


def _kind(image: Image, kind: StepKind, where: str, findings: Findings) -> None:
    limits = (("tokens", 1, image.key.t_max), ("slots", 1, image.key.slots), ("blocks", 1, BLOCK_LIMIT))
    for name, low, high in limits:
        if not whole(getattr(kind, name), low, high):
            findings.field(
                "V112", f"{where}, kind.{name}", f"expected {low} to {high}, found {getattr(kind, name)!r}"
            )
            return
    held = ceil_div(image.key.max_context + image.key.t_max, BLOCK)
    if kind.blocks > held:
        findings.field(
            "V112",
            f"{where}, kind.blocks",
            f"expected at most the {held} blocks of the image, found {kind.blocks}",
        )
    elif kind.tokens > BLOCK * kind.blocks:
        findings.field(
            "V112",
            f"{where}, kind.tokens",
            f"expected at most the {BLOCK * kind.blocks} positions of the blocks",
        )
    if kind.logits not in LOGITS or kind.sampler not in SAMPLERS:
        findings.field(
            "V112",
            f"{where}, kind",
            f"expected logits last or all, sampler chip or host, found {kind.label()}",
        )


def _arrays(t: Timetable, where: str, findings: Findings) -> bool:
    """Whether the four tables have their shapes, and what is not a column its type."""
    shapes = (("templates", t.templates, 2, col.T_COLUMNS), ("template_start", t.template_start, 1, 0),
              ("chains", t.chains, 2, 3), ("rows", t.rows, 2, col.V_COLUMNS))  # fmt: skip
    fine = True
    for name, a, dims, width in shapes:
        ok = a.dtype.kind == "i" and a.ndim == dims
        if not ok or (width and a.shape[1] != width):
            findings.field(
                "V112",
                f"{where}, {name}",
                f"expected integers [*, {width}]" if width else "expected integers [*]",
            )
            fine = False
    if not whole(t.duration, 0, MAX_CYCLE):
        findings.field(
            "V112", f"{where}, duration", f"expected 0 to {MAX_CYCLE:_} cycles, found {t.duration!r}"
        )
        fine = False
    if not whole(t.deskew, 0, MAX_CYCLE):
        findings.field("V112", f"{where}, deskew", f"expected 0 to {MAX_CYCLE:_} cycles, found {t.deskew!r}")
        fine = False
    return fine


def _scratch(image: Image, timetable: Timetable, system: System, findings: Findings) -> None:
    groups = system.chip.value("mem_groups")
    size = system.chip.value("sram_bytes") // system.chip.value("vector_bytes") // groups
    arenas = {r.group: r for r in image.regions if r.cls == RegionClass.ARENA}
    where = timetable.kind.label()
    for r in timetable.scratch:
        if r.cls != RegionClass.SCRATCH:
            findings.field("V112", f"{where}, region {r.name}", f"expected class scratch, found {r.cls!r}")
        elif check_region(r, groups, size, findings):
            arena = arenas.get(r.group)
            inside = (
                arena is not None
                and arena.base <= r.base
                and r.base + r.vectors <= arena.base + arena.vectors
            )
            if r.vectors and not inside:
                findings.field("V109", f"{where}, region {r.name}",
                               f"expected a place inside the arena of bank group {r.group}, found vectors {r.base:_} to "
                               f"{r.base + r.vectors:_}")  # fmt: skip
            if (r.packing, r.tensor, r.p0, r.p1) != (0, -1, 0, 0):
                findings.field(
                    "V100", f"{where}, region {r.name}", "expected no packing and no tensor in scratch"
                )
    _outputs(image, timetable, findings)


def output_records(image: Image) -> dict[str, int]:
    """Records of a row of each output: the beats of a chip's shard of the logits; one (value, column) pair; one count."""
    beats = ceil_div(ceil_div(image.key.vocab, image.key.plan.chips), LANES)
    return {"logits": beats, "next_token": 1, "accept": 1}


def output_names(kind: StepKind) -> tuple[str, ...]:
    """What a step leaves for the host: logits; tokens where the chips choose; accepted ones where every row has logits."""
    if kind.sampler != "chip":
        return ("logits",)
    return ("logits", "next_token", "accept") if kind.logits == "all" else ("logits", "next_token")


def _outputs(image: Image, timetable: Timetable, findings: Findings) -> None:
    regions, where, kind = class_regions(image, timetable), timetable.kind.label(), timetable.kind
    of_logits = kind.slots * (kind.tokens if kind.logits == "all" else 1)
    for o in timetable.outputs:
        rows = kind.slots if o.name == "accept" else of_logits
        place = f"{where}, output {o.name}"
        if not all(whole(x, 0) for x in (o.region, o.base, o.rows, o.vectors)) or o.region >= len(regions):
            findings.field("V112", place, f"expected a region below {len(regions)}, found {o.region!r}")
            continue
        r = regions[o.region]
        if r.cls not in {RegionClass.SCRATCH, RegionClass.INBOX}:
            findings.field("V100", place, f"expected a scratch or inbox region, found {r.name}")
        elif o.rows != rows:
            findings.field("V100", place, f"expected {rows} rows for logits {kind.logits}, found {o.rows}")
        elif o.vectors != output_records(image).get(o.name, o.vectors):
            findings.field(
                "V100", place, f"expected {output_records(image)[o.name]} records a row, found {o.vectors}"
            )
        elif o.base + o.rows * o.vectors * OUTPUT_VECTORS.get(o.name, 1) > r.vectors:
            findings.field(
                "V120",
                place,
                f"{o.rows} x {o.vectors} records end beyond region {r.name} of {r.vectors:_} vectors",
            )
    names = sorted(o.name for o in timetable.outputs)
    expected = output_names(kind)
    if names != sorted(expected):
        findings.field(
            "V100", f"{where}, outputs", f"expected {', '.join(expected)}, found {', '.join(names)}"
        )


def _indices(t: Timetable, where: str, findings: Findings) -> bool:
    """Whether templates, chains and class rows fit together."""
    start, chains = t.template_start.astype(np.int64), t.chains
    lengths = start[1:] - start[:-1]
    fine = len(start) > 0 and start[0] == 0 and start[-1] == len(t.templates) and bool((lengths > 0).all())
    if not fine:
        findings.field(
            "V112", f"{where}, template_start", f"expected ascending offsets from 0 to {len(t.templates)}"
        )
        return False
    if not len(chains):
        findings.field("V112", f"{where}, chains", "expected at least one chain")
        return False
    wrong = (
        (chains[:, 0] < 0) | (chains[:, 0] >= len(lengths)) | (chains[:, 1] < 0) | (chains[:, 1] > MAX_CYCLE)
    )
    wrong |= (chains[:, 2] < col.ON_TIME) | (chains[:, 2] > col.LATE_QUEUE)
    for c in np.flatnonzero(wrong)[: max(findings.room, 1)].tolist():
        found = ", ".join(str(int(x)) for x in chains[c])
        findings.field(
            "V112", f"{where}, chains[{c}]", f"expected a template, a cycle and a reason, found {found}"
        )
    if wrong.any():
        return False
    rows = int(lengths[chains[:, 0]].sum())
    if rows != len(t.rows):
        findings.field(
            "V112", f"{where}, rows", f"expected {rows} rows for these chains, found {len(t.rows)}"
        )
        return False
    if len(t.labels) != len(chains):
        findings.field(
            "V100", f"{where}, labels", f"expected {len(chains)} labels, one a chain, found {len(t.labels)}"
        )
        return False
    return True


def _join(image: Image, timetable: Timetable, system: System) -> Stored:
    start = timetable.template_start.astype(np.int64)
    template = timetable.chains[:, 0].astype(np.int64)
    lengths = (start[1:] - start[:-1])[template]
    chain = np.repeat(np.arange(len(template), dtype=np.int64), lengths)
    first = np.cumsum(lengths) - lengths
    local = np.arange(len(chain), dtype=np.int64) - first[chain]
    t = timetable.templates.astype(np.int64)[start[template[chain]] + local]
    v = timetable.rows.astype(np.int64)
    # the name of an op is needed to report anything, so an op that does not exist is looked at first
    return Stored(
        image, timetable, system, OpTable.of(system.chip), class_regions(image, timetable), t, v, chain, local
    )


_LIMITS = (
    (col.T_WIDE, 0, 1), (col.T_GROUP, -1, 1 << 16), (col.T_DTYPE, 0, len(ELEMENT_BYTES) - 1), (col.T_OFFSET, 0, GREATEST),
    (col.T_N, 1, MAX_EVENTS), (col.T_P, 0, GREATEST), (col.T_M, 1, MAX_EVENTS), (col.T_Q, 0, GREATEST),
    (col.T_WIDTH, 0, MAX_WIDTH), (col.T_STEP, -GREATEST, GREATEST), (col.T_STEP2, -GREATEST, GREATEST),
    (col.T_PEERS, 0, 1), (col.T_RANKFN, 0, 2), (col.T_RANKSTRIDE, -GREATEST, GREATEST), (col.T_REGFN, 0, len(RegFn) - 1),
    (col.T_REGSTRIDE, -GREATEST, GREATEST),
)  # fmt: skip


def _ranges(s: Stored, findings: Findings) -> None:
    """V112 for a field out of its range; an op that does not exist is reported by field, for it has no name."""
    wrong = (s.op < 0) | (s.op >= len(OPS))
    for row in np.flatnonzero(wrong)[: max(findings.room, 1)].tolist():
        place = f"{s.where}, chain {int(s.chain[row])} row {int(s.local[row])}"
        findings.field("V112", place, f"expected an op below {len(OPS)}, found {int(s.op[row])}")
    if wrong.any():
        return
    for column, low, high in _LIMITS:
        values = s.t[:, column]
        bad = (values < low) | (values > high)
        s.each(
            findings, "V112", bad, f"expected {col.T_NAMES[column]} of {low} to {high}, found {{}}", values
        )
    pattern, plan = s.t[:, col.T_PATTERN], s.image.key.plan
    known = [k for k in range(plan.patterns) if plan.has(k)]
    s.each(findings, "V112", ~np.isin(pattern, known), "expected a pattern of the plan, found {}", pattern)
    regions, bases = s.v[:, col.V_REGION], s.v[:, col.V_BASE]
    s.each(findings, "V112", (regions < -1) | (regions >= len(s.regions)),
           f"expected a region below {len(s.regions)}, found {{}}", regions)  # fmt: skip
    s.each(
        findings,
        "V112",
        (bases < 0) | (bases > GREATEST),
        "expected a first vector of 0 or more, found {}",
        bases,
    )


def source_of(s: Stored, column: int) -> Int64:
    """Stored row that an operand names; -1 for none."""
    rel = s.t[:, column]
    return np.where(rel >= 0, np.arange(len(rel), dtype=np.int64) - s.local + rel, -1)


def _operands(s: Stored, findings: Findings) -> None:
    """Operands are named by an earlier row of the chain; a peer's copy hears a copy of the same pattern."""
    for column, name in ((col.T_S0, "s0"), (col.T_S1, "s1")):
        rel = s.t[:, column]
        bad = (rel < -1) | (rel >= s.local)
        s.each(findings, "V112", bad, f"expected {name} to name an earlier row of the chain, found {{}}", rel)
        source = source_of(s, column)
        ok = ~bad & (source >= 0)
        peered, heard = s.t[:, col.T_PEERS] > 0, np.where(ok, source, 0)
        from_peered = ok & (s.t[heard, col.T_PEERS] > 0)
        s.each(
            findings,
            "V112",
            from_peered & ~peered,
            f"{name} names a row that stands for a copy per peer",
            rel,
        )
        differ = from_peered & peered & (s.t[:, col.T_PATTERN] != s.t[heard, col.T_PATTERN])
        s.each(findings, "V112", differ, f"{name} names a row of copies in another pattern", rel)
