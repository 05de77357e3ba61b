"""What `ticktrue inspect` does: a summary of image and timetables, the text form, or a layer's timeline."""

import sys
from dataclasses import dataclass

from ticktrue.cli.documents import InspectDocument, LoopPart, RegionClassPart, TimetablePart, encode, header
from ticktrue.cli.output import Terminal
from ticktrue.cli.program_file import (
    ProgramFile,
    degrees,
    machine_of,
    pick_timetable,
    read_file,
    tell_hypothetical,
)
from ticktrue.errors import UsageError
from ticktrue.isa.ops import VECTOR_BYTES
from ticktrue.program import Timetable, timetable_digest
from ticktrue.program.text import to_text


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be shown."""

    layer: int | None
    step: str
    text: bool


def perform(file: str, asked: Asked, terminal: Terminal) -> int:
    """Shows it; gives the exit status."""
    source = read_file(file)
    if asked.text:
        if terminal.json:
            raise UsageError("--text and --json both want standard output", code="T105", where="--text")
        terminal.raw(to_text(source.program))
    elif asked.layer is not None:
        terminal.line(_timeline(source, asked.layer, asked.step, terminal))
    elif terminal.json:
        terminal.document(encode(_document(source)))
    else:
        _summary(source, terminal)
    return 0


def _timeline(source: ProgramFile, layer: int, step: str, terminal: Terminal) -> str:
    from ticktrue.cli.kernels_watch import watch_kernels
    from ticktrue.cli.prove import require_legal
    from ticktrue.report import timeline

    system = machine_of(source)
    timetable = pick_timetable(source, step, None)
    if timetable is None:
        have = ", ".join(t.kind.label() for t in source.program.timetables) or "none"
        raise UsageError(f"expected --step, one of: {have}", code="T104", where="--step")
    with watch_kernels(terminal):
        require_legal(source.program, (timetable,), system, source.where)
        width = max(40, min(terminal.width, 200) - 24)
        return timeline(source.program, system, layer, timetable, width)


def bytes_by_class(source: ProgramFile) -> tuple[RegionClassPart, ...]:
    """Bytes of one chip that each class of regions takes."""
    classes: dict[str, tuple[int, int]] = {}
    for r in source.program.image.regions:
        count, size = classes.get(r.cls.name.lower(), (0, 0))
        classes[r.cls.name.lower()] = (count + 1, size + r.vectors * VECTOR_BYTES)
    return tuple(
        RegionClassPart(name=n, regions=c, bytes_per_chip=b) for n, (c, b) in sorted(classes.items())
    )


def timetable_part(t: Timetable) -> TimetablePart:
    """A timetable in numbers."""
    return TimetablePart(
        kind=t.kind.label(), sha256=timetable_digest(t), chains=len(t.chains), templates=max(0, len(t.template_start) - 1),
        stored_rows=len(t.rows), loops=loop_parts(t), scratch_regions=len(t.scratch), sim_cycles=t.duration,
        dataflow=t.dataflow,
    )  # fmt: skip


def loop_parts(t: Timetable) -> tuple[LoopPart, ...]:
    """The loops of a timetable."""
    return tuple(LoopPart(first=x.first, last=x.last, count=x.count, period_cycles=x.period) for x in t.loops)


def _document(source: ProgramFile) -> InspectDocument:
    image = source.program.image
    grids = image.key.plan.grids
    return InspectDocument(
        **header(sys.argv[1:]), file=source.where, program_sha256=source.decoded.computed, intact=source.decoded.intact,
        model=image.key.model, spec_sha256=image.key.spec, weights_sha256=image.key.weights, system=image.key.system,
        facts_sha256=image.key.facts, format=image.key.fmt, hypothetical=image.key.hypothetical, chips=image.key.plan.chips,
        heads_degree=grids[0].h, context_degree=grids[0].cp, head_groups=tuple(g.h for g in grids),
        max_model_len=image.key.max_context, regions=bytes_by_class(source), pieces=len(image.pieces), tensors=len(image.tensors),
        timetables=tuple(timetable_part(t) for t in source.program.timetables),
    )  # fmt: skip


def _summary(source: ProgramFile, terminal: Terminal) -> None:
    d = _document(source)
    terminal.line(f"program    {d.file}, sha256 {d.program_sha256}")
    if not d.intact:
        terminal.line("           V140: these are not the bytes that were sealed")
    terminal.line(f"model      {d.model}, {d.format}, context up to {d.max_model_len:,}")
    terminal.line(f"           spec {d.spec_sha256}")
    terminal.line(
        f"           weights {d.weights_sha256 or 'none: it can be verified and timed, not executed'}"
    )
    terminal.line(f"system     {d.system}, {d.chips} chips ({degrees(source.program.image.key)})")
    terminal.line(f"           facts {d.facts_sha256}")
    tell_hypothetical(source.program.image.key, terminal)
    terminal.line()
    total = sum(r.bytes_per_chip for r in d.regions)
    rows = [(r.name, f"{r.regions:,}", f"{r.bytes_per_chip:,}") for r in d.regions]
    terminal.table(
        ("region class", "regions", "bytes per chip"),
        [*rows, ("all", str(sum(r.regions for r in d.regions)), f"{total:,}")],
    )
    terminal.line()
    head = ("timetable", "chains", "templates", "stored rows", "scratch regions", "cycles")
    terminal.table(head, [
        (t.kind, f"{t.chains:,}", f"{t.templates:,}", f"{t.stored_rows:,}", f"{t.scratch_regions:,}", f"{t.sim_cycles:,}")
        for t in d.timetables
    ])  # fmt: skip
    for t in d.timetables:
        for x in t.loops:
            chains = f"chains {x.first:,} to {x.last:,}"
            terminal.line(f"{t.kind}: {chains} run {x.count:,} times, {x.period_cycles:,} cycles apart")
    terminal.note("--text prints everything; --layer N shows a layer over time")
