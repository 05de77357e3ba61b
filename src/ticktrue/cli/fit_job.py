"""What `ticktrue fit` does."""

import sys

from ticktrue.cli.documents import encode, header
from ticktrue.cli.fit import Load
from ticktrue.cli.output import Terminal
from ticktrue.cli.plan_documents import (
    ClassPart,
    FitDocument,
    FitRowPart,
    KvPart,
    MemoryRowPart,
    PrecisionPart,
    SkippedPart,
)
from ticktrue.cli.surroundings import model_cache
from ticktrue.errors import EnvironmentProblem, UsageError
from ticktrue.hw import System, gpu_names, load_gpu, load_system
from ticktrue.model.count import active_parameters, kv_elements, parameters
from ticktrue.model.spec import ModelSpec
from ticktrue.plan.fit import Fit, Question, Row, by_system, fit
from ticktrue.plan.memory import MemorySystem
from ticktrue.plan.precision import SIZES, kv_by_context
from ticktrue.plan.reference import find_spec

DEFAULT_SYSTEMS, DEFAULT_GPUS = ("groq3-lpx",), ("h200", "b200", "gb300-nvl72", "rubin-nvl72")
DEFAULT_CONTEXT = 100_000
MB = 1e6


def perform(ref: str, load: Load, where: tuple[tuple[str, ...], int | None], terminal: Terminal) -> int:
    """Weighs, prints, and says whether anything holds the model. `where`: names of systems, number of chips."""
    names, chips = where
    if chips is not None and chips < 1:
        raise UsageError(f"expected at least 1 chip, found {chips}", code="T111", where="--chips")
    systems, memories = _systems(names or DEFAULT_SYSTEMS + (() if chips else DEFAULT_GPUS))
    spec = known(ref)
    context = min(DEFAULT_CONTEXT, spec.max_positions) if load.context is None else load.context
    formats = tuple(dict.fromkeys(load.format)) or tuple(SIZES)
    question = Question(context, load.slots, load.tokens, formats, load.kv_format, chips or 0)
    found = fit(spec, question, systems, memories)
    if terminal.json:
        terminal.document(encode(_document(ref, found)))
    else:
        _tell(ref, found, terminal)
    return 0 if found.held else 1


def known(ref: str) -> ModelSpec:
    """The shape that `ref` names; registry models only from the cache."""
    try:
        cache = model_cache()
    except EnvironmentProblem:
        cache = None
    return find_spec(ref, cache)


def _systems(names: tuple[str, ...]) -> tuple[list[System], list[MemorySystem]]:
    """Systems of LPU chips and of GPUs, in the order of their names."""
    split = [part for name in names for part in name.split(",")]
    gpus = gpu_names()
    chips, memories = [], []
    for name in dict.fromkeys(split):
        if name in gpus:
            gpu = load_gpu(name)
            memories.append(
                MemorySystem(name, gpu.title, int(gpu.fact("domain_gpus").value), gpu.fact("memory_bytes"))
            )
        else:
            chips.append(load_system(name))
    return chips, memories


def _document(ref: str, found: Fit) -> FitDocument:
    spec, q = found.spec, found.question
    return FitDocument(
        **header(sys.argv[1:]), ref=ref, name=spec.name, family=spec.family.value, spec_sha256=spec.digest(),
        parameters=parameters(spec), active_parameters=active_parameters(spec), context_tokens=q.context, slots=q.slots,
        step_tokens=q.tokens, kv_elements=q.slots * kv_elements(spec, q.context), held=found.held,
        precisions=tuple(
            PrecisionPart(format=p.format, weights_bytes=p.weights_bytes, kv_bytes=p.kv_bytes,
                          activation_bytes=p.activation_bytes, total_bytes=p.total_bytes)
            for p in found.precisions
        ),
        kv_by_context=tuple(KvPart(context_tokens=c, kv_elements=n) for c, n in kv_by_context(spec, q.context, q.slots)),
        rows=tuple(_row_part(row, found) for row in found.rows),
        memories=tuple(
            MemoryRowPart(system=m.system, title=m.title, format=m.format, capacity_bytes=m.capacity_bytes,
                          needed_devices=m.needed_devices, devices=m.devices, bytes_per_device=m.bytes_per_device, fits=m.fits)
            for m in found.memories
        ),
        skipped=tuple(SkippedPart(system=s.system, format=s.format, why=s.why) for s in found.skipped),
    )  # fmt: skip


def _row_part(row: Row, found: Fit) -> FitRowPart:
    return FitRowPart(
        system=row.system, format=row.format, kv_format=row.kv_format, chips=row.chips, stages=row.stages,
        group_chips=row.group_chips, systems=row.systems, bytes_per_chip=row.bytes_per_chip, capacity_bytes=row.capacity_bytes,
        over_bytes=row.over_bytes, largest=row.largest, largest_bytes=row.largest_bytes, group_bytes=row.group_bytes,
        fits=row.fits, compiled=row.compiled, why="; ".join(row.why),
        smallest=row == found.smallest(row.system, row.format),
        bytes_by_class=tuple(ClassPart(name=n, bytes_per_chip=b) for n, b in sorted(row.by_class.items())),
    )  # fmt: skip


def _tell(ref: str, found: Fit, terminal: Terminal) -> None:
    spec, q = found.spec, found.question
    terminal.line(
        f"{ref}: {parameters(spec):,} parameters ({active_parameters(spec):,} of a token), {spec.layers} layers, "
        f"{spec.family.value}"
    )
    terminal.line(
        f"held: {q.slots:,} x {q.context:,} positions ({q.slots * kv_elements(spec, q.context):,} numbers of KV), "
        f"steps of up to {q.tokens} token{'s' * (q.tokens > 1)}"
    )
    terminal.line()
    rows = [(p.format, *(f"{b / 1e9:,.2f}" for b in (p.weights_bytes, p.kv_bytes)), f"{p.activation_bytes / MB:,.2f}",
             f"{p.total_bytes / 1e9:,.2f}") for p in found.precisions]  # fmt: skip
    terminal.table(("numbers alone", "weights GB", "KV GB", "activations MB", "all GB"), rows)
    terminal.line()
    caches = [(f"{c:,}", f"{n:,}", *(f"{n * size / 1e9:,.2f}" for size in SIZES.values()))
              for c, n in kv_by_context(spec, q.context, q.slots)]  # fmt: skip
    terminal.table(("context", "KV numbers", *(f"{name} GB" for name in SIZES)), caches, left=0)
    _tell_chips(found, terminal)
    if found.memories:
        terminal.line()
        table = [(m.system, m.format, "fits" if m.fits else "too few", f"{m.needed_devices:,}", f"{m.devices:,}",
                  f"{m.bytes_per_device / 1e9:,.1f}", f"{m.capacity_bytes / 1e9:,.1f}") for m in found.memories]  # fmt: skip
        head = ("system, by capacity alone", "format", "state", "needed", "has", "GB each", "holds GB")
        terminal.table(head, table, left=3)
    for line in _answers(found):
        terminal.line(line)


def _tell_chips(found: Fit, terminal: Terminal) -> None:
    if not found.rows:
        return
    terminal.line()
    table = []
    for r in found.rows:
        scratch = sum(r.by_class.get(n, 0) for n in ("inbox", "arena", "code", "const"))
        parts = (
            r.by_class.get("weight", 0),
            r.by_class.get("state", 0),
            scratch,
            r.bytes_per_chip,
            r.capacity_bytes,
        )
        table.append((r.system, r.format, r.kv_format, _state(r), f"{r.chips:,}", f"{r.stages:,} x {r.group_chips:,}",
                      f"{r.systems:,}", *(f"{b / MB:,.1f}" for b in parts)))  # fmt: skip
    head = ("placed on", "format", "KV", "state", "chips", "stages x group", "systems", "weights MB", "KV MB", "other MB",
            "chip MB", "of")  # fmt: skip
    terminal.table(head, table, left=4)


def _state(row: Row) -> str:
    if not row.fits:
        return "too much"
    return "fits" if row.compiled else "would fit"


def _cause(row: Row) -> str:
    """Why the fullest chip of a row does not hold its part."""
    if row.bytes_per_chip > row.capacity_bytes:
        return f"{row.over_bytes:,} bytes a chip too many"
    if row.largest_bytes > row.group_bytes:
        return f"{row.largest} takes {row.largest_bytes:,} bytes in one piece, a bank group holds {row.group_bytes:,}"
    return f"its regions do not divide over the bank groups, {row.over_bytes:,} bytes too many in the fullest"


def _answers(found: Fit) -> list[str]:
    """What follows, in sentences: the smallest number of chips, the bytes of each refusal, what no program does yet."""
    out = [""]
    for (system, fmt), rows in by_system(found.rows):
        best = found.smallest(system, fmt)
        refused = [r for r in rows if not r.fits]
        out += [f"{system}, {fmt}: {r.chips:,} chips do not hold it: {_cause(r)}" for r in refused]
        if best is not None:
            how = (
                "one group"
                if best.stages == 1
                else f"{best.stages} groups of {best.group_chips}, one after another"
            )
            out.append(f"{system}, {fmt}: {best.chips:,} chips hold it, {how}"
                       f"{f' ({best.systems} systems)' * (best.systems > 1)}")  # fmt: skip
    out += [f"{s.system}, {s.format}: {s.why}" for s in found.skipped]
    reasons = dict.fromkeys(why for row in found.rows for why in row.why)
    out += [f"no program yet: {why}" for why in reasons]
    return out if len(out) > 1 else []
