"""The pipeline in reading order: build > partition > place > build chains > schedule > assemble. Same inputs, same bytes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ticktrue.compile.build import build_chains
from ticktrue.compile.loops import looped_timetable
from ticktrue.errors import UsageError
from ticktrue.graph.build import build_graph
from ticktrue.graph.digest import graph_digest
from ticktrue.graph.types import Graph
from ticktrue.hw import System, formats_allowed
from ticktrue.model import ModelSpec
from ticktrue.partition import kv_heads, make_plan, partition, rings_of
from ticktrue.place import place_image
from ticktrue.program import AttentionKey, Image, ImageKey, Program, StepKind, Timetable
from ticktrue.schedule import schedule
from ticktrue.units import ceil_div

BLOCK = 64
T_MAX = 64
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
FORMATS = ("bf16", "f32", "int8", "fp8")
KV_FORMATS = ("auto", "fp8")

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """What a user chooses.

    Format, longest context, whether an absent number format may be pretended, sequences held at once, the most tokens of
    each in one step, and the type of K and V in the cache: "auto" for that of activations, or "fp8". `loops`: equal layers
    are stored once where they can be. `heads`: head groups of each kind of attention (in the order of `ModelSpec.kinds`), or one
    number for all; empty for the most that its KV heads allow.
    """

    fmt: str = "bf16"
    max_context: int = 2048
    hypothetical: bool = False
    slots: int = 1
    t_max: int = T_MAX
    kv: str = "auto"
    loops: bool = True
    heads: tuple[int, ...] = ()


def image_blocks(max_context: int, t_max: int = T_MAX) -> int:
    """NB: blocks the image holds, room for a whole chunk past the longest context included."""
    return ceil_div(max_context + t_max, BLOCK)


def bucket_edges(limit: int) -> tuple[int, ...]:
    """Block counts that timetables are compiled for: 1..8, then four per octave, then `limit` itself."""
    edges, octave = list(range(1, 9)), 8
    while octave < limit:
        edges += [octave * 5 // 4, octave * 6 // 4, octave * 7 // 4, octave * 2]
        octave *= 2
    return tuple(sorted({e for e in edges if e < limit} | {limit}))


def bucket(positions: int, limit: int) -> int:
    """The smallest bucket that holds `positions` (pos + T) positions.

    Raises:
        UsageError: T121 if the image holds fewer.
    """
    need = ceil_div(positions, BLOCK)
    for edge in bucket_edges(limit):
        if edge >= need:
            return edge
    raise UsageError(f"{positions} positions exceed the {limit * BLOCK} that the image holds", code="T121")


def tokens_kind(count: int) -> int:
    """The smallest T a timetable exists for that takes `count` tokens."""
    return next(t for t in TOKENS if t >= count)


def _check(spec: ModelSpec, system: System, options: Options) -> None:
    if options.fmt not in FORMATS:
        raise UsageError(f"expected a format of {', '.join(FORMATS)}, found {options.fmt!r}", code="T122",
                         where="--format")  # fmt: skip
    if options.kv not in KV_FORMATS or (options.kv == "fp8" and options.fmt == "f32"):
        raise UsageError(f"expected a cache format of {', '.join(KV_FORMATS)} (f32 has no other), found {options.kv!r}",
                         code="T122", where="--kv-format")  # fmt: skip
    formats_allowed(system.chip, options.fmt, options.hypothetical)
    if not 1 <= options.max_context <= spec.max_positions:
        raise UsageError(
            f"expected a context of 1 to {spec.max_positions} (what {spec.name} was made for), found {options.max_context}",
            code="T123", where="--max-model-len",
        )  # fmt: skip


def compile_image(spec: ModelSpec, system: System, options: Options, weights_digest: str = "") -> Image:
    """The image of a model on all chips of `system`.

    Raises:
        UsageError: T120..T123, T126 for an illegal degree, format, context or head groups.
        DoesNotFit: T310.
    """
    _check(spec, system, options)
    limit, tray = system.gather_chips, system.tray_chips
    plan = make_plan(kv_heads(spec), system.chips, heads=options.heads, limit=limit, tray=tray)
    kv = "fp8" if options.kv == "fp8" else "f32" if options.fmt == "f32" else "bf16"
    rings = rings_of(spec, plan, options.t_max)
    blocks = image_blocks(options.max_context, options.t_max)
    largest = StepKind(options.t_max, options.slots, blocks, "all", "chip")
    sharded = partition(build_graph(spec, largest, options.fmt, rings, kv), plan)
    kinds = [spec.attention_of(k) for k in spec.kinds]
    attention = tuple(
        AttentionKey(a.heads, a.kv_heads, a.head_dim, a.window, ring)
        for a, ring in zip(kinds, rings, strict=True)
    )
    key = ImageKey(
        model=spec.name, spec=spec.digest(), weights=weights_digest, system=system.name, facts=system.fact_digest(),
        fmt=options.fmt, kv=kv, hypothetical=options.hypothetical, plan=plan, max_context=options.max_context,
        slots=options.slots, t_max=options.t_max, vocab=spec.vocab, attention=attention, layer_kinds=sharded.shapes.kind_of,
    )  # fmt: skip
    return place_image(sharded, system, key)


def graph_of(spec: ModelSpec, image: Image, kind: StepKind) -> Graph:
    """The graph of one step over an image: its formats and rings."""
    return build_graph(spec, kind, image.key.fmt, tuple(a.ring for a in image.key.attention), image.key.kv)


def unproved_timetable(
    spec: ModelSpec, system: System, image: Image, kind: StepKind, *, loops: bool = True
) -> Timetable:
    """The timetable of one step kind over `image`, without the graph's digest: it can be timed and executed, not proved.

    `loops`: equal layers are stored once, where there are enough of them and they repeat with one period.
    """
    sharded = partition(graph_of(spec, image, kind), image.key.plan)
    looped = looped_timetable(sharded, image, system) if loops else None
    return looped or schedule(image, build_chains(sharded, image, system), system)


def compile_timetable(
    spec: ModelSpec, system: System, image: Image, kind: StepKind, *, loops: bool = True
) -> Timetable:
    """The timetable of one step kind over `image`, with the graph's dataflow digest; `loops` as in `unproved_timetable`."""
    digest = graph_digest(graph_of(spec, image, kind))
    return replace(unproved_timetable(spec, system, image, kind, loops=loops), dataflow=digest)


def assemble(image: Image, timetables: Iterable[Timetable]) -> Program:
    """One program: the image and its timetables sorted by kind."""
    return Program(image, tuple(sorted(timetables, key=lambda t: t.kind)))


def compile_program(
    spec: ModelSpec, system: System, options: Options, kinds: Iterable[StepKind], weights_digest: str = ""
) -> Program:
    """A program with a timetable for each of `kinds`."""
    image = compile_image(spec, system, options, weights_digest)
    return assemble(
        image, [compile_timetable(spec, system, image, k, loops=options.loops) for k in sorted(set(kinds))]
    )
