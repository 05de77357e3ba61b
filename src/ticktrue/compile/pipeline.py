"""The pipeline in reading order: build > partition > place > build chains > schedule > assemble. Same inputs, same bytes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ticktrue.compile.build import build_chains
from ticktrue.compile.loops import looped_timetable
from ticktrue.errors import UnsupportedModel, UsageError
from ticktrue.graph.build import build_graph
from ticktrue.graph.digest import graph_digest
from ticktrue.graph.types import Graph
from ticktrue.hw import System, formats_allowed
from ticktrue.model import ModelSpec
from ticktrue.partition import kv_heads, make_plan, partition, rings_of
from ticktrue.place import place_image
from ticktrue.program import AttentionKey, Image, ImageKey, KvScales, Program, StepKind, Timetable
from ticktrue.program.types import KV_EXPONENT
from ticktrue.schedule import schedule
from ticktrue.units import ceil_div

BLOCK = 64
T_MAX = 64
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MOST_SLOTS = 1 << 12
WIDEST_HEAD = 640  # each half is turned as one beat
FORMATS = ("bf16", "f32", "int8", "fp8")
KV_FORMATS = ("auto", "fp8")
EXPERTS = ("cut", "parallel")

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """What a user chooses.

    Format, longest context, whether an absent number format may be pretended, sequences held at once, the most tokens of
    each in one step, and the type of K and V in the cache: "auto" for that of activations, or "fp8". `loops`: equal layers
    are stored once where they can be. `heads`: head groups of each kind of attention (in the order of `ModelSpec.kinds`), or one
    number for all; empty for the most that its KV heads allow. `kv_scales`: of a cache in fp8, as
    `Image.kv_scales`; empty: every scale is 1. `experts`: "cut" over all chips, or "parallel": whole ones on each, in
    reserved slots.
    """

    fmt: str = "bf16"
    max_context: int = 2048
    hypothetical: bool = False
    slots: int = 1
    t_max: int = T_MAX
    kv: str = "auto"
    loops: bool = True
    heads: tuple[int, ...] = ()
    kv_scales: KvScales = ()
    experts: str = "cut"


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
    """The smallest T a timetable exists for that takes `count` tokens.

    Raises:
        UsageError: T127 if there is none.
    """
    for t in TOKENS:
        if t >= count:
            return t
    raise UsageError(
        f"expected at most {TOKENS[-1]} tokens in a step, found {count}", code="T127", where="tokens"
    )


def _check(spec: ModelSpec, system: System, options: Options) -> None:
    if options.fmt not in FORMATS:
        raise UsageError(f"expected a format of {', '.join(FORMATS)}, found {options.fmt!r}", code="T122",
                         where="--format")  # fmt: skip
    if options.kv not in KV_FORMATS or (options.kv == "fp8" and options.fmt == "f32"):
        raise UsageError(f"expected a cache format of {', '.join(KV_FORMATS)} (f32 has no other), found {options.kv!r}",
                         code="T122", where="--kv-format")  # fmt: skip
    if options.experts not in EXPERTS or (options.experts == "parallel" and spec.experts is None):
        raise UsageError(f"expected experts of {', '.join(EXPERTS)} (parallel only of a mixture), found {options.experts!r}",
                         code="T122", where="--experts")  # fmt: skip
    _check_scales(spec, options)
    _check_reach(system)
    formats_allowed(system.chip, options.fmt, options.hypothetical)
    if not 1 <= options.max_context <= spec.max_positions:
        raise UsageError(
            f"expected a context of 1 to {spec.max_positions} (what {spec.name} was made for), found {options.max_context}",
            code="T123", where="--max-model-len",
        )  # fmt: skip


def _check_reach(system: System) -> None:
    """Gathers stay inside a node of a dragonfly: between nodes they have neither a link at every index nor a relay on the way."""
    for hop in system.hops:
        if hop.ports and system.chips > hop.index_chips:
            nodes = system.chips // hop.index_chips
            raise UsageError(
                f"expected chips of one node of {system.name}, at most {hop.index_chips}, found {system.chips} in {nodes} nodes: "
                "a gather takes links of equal index between nodes, and two nodes of a dragonfly are joined by one link",
                code="T120", where="--chips",
                hint=f"up to {hop.index_chips} chips of this system, or a rack (`ticktrue hw list`)",
            )  # fmt: skip


def _check_scales(spec: ModelSpec, options: Options) -> None:
    """A cache in fp8 has all scales 1, or two for each layer and KV head; so small or large that no product leaves bf16."""
    scales, found = options.kv_scales, ""
    if scales and options.kv != "fp8":
        found = f"scales for a cache in {options.kv!r}"
    elif scales and len(scales) != 2 * spec.layers:
        found = f"{len(scales)} lists"
    for state, of in enumerate(scales if not found else ()):
        heads = spec.attention(state // 2).kv_heads
        if len(of) != heads or any(type(e) is not int or abs(e) > KV_EXPONENT for e in of):
            found = f"{list(of)} for {'KV'[state % 2]} of layer {state // 2}, which has {heads} KV heads"
            break
    if found:
        raise UsageError(f"expected exponents of the scales of an fp8 cache, {2 * spec.layers} lists (K and V of each layer) of "
                         f"integers in -{KV_EXPONENT}..{KV_EXPONENT}, one for each KV head; found {found}",
                         code="T122", where="kv_scales", hint="leave them out for scales of 1")  # fmt: skip


def _check_steps(options: Options) -> None:
    if options.t_max not in TOKENS:
        raise UsageError(f"expected at most {', '.join(map(str, TOKENS))} tokens of a sequence in one step, "
                         f"found {options.t_max!r}", code="T125", where="t_max")  # fmt: skip
    if options.slots not in range(1, MOST_SLOTS + 1):
        raise UsageError(f"expected 1 to {MOST_SLOTS:,} sequences held at once, found {options.slots!r}", code="T125",
                         where="slots")  # fmt: skip


def _check_heads(spec: ModelSpec) -> None:
    for kind in spec.kinds:
        if (d := spec.attention_of(kind).head_dim) > WIDEST_HEAD:
            raise UnsupportedModel(f"expected heads of at most {WIDEST_HEAD} elements, found {d} ({kind.name.lower()} attention)",
                                   code="T333", where="head_dim")  # fmt: skip


def _check_kind(image: Image, kind: StepKind) -> None:
    """That the image holds what a step of `kind` takes."""
    key = image.key
    blocks = image_blocks(key.max_context, key.t_max)
    rules = (
        ("tokens", kind.tokens in TOKENS and kind.tokens <= key.t_max, f"one of {TOKENS} up to {key.t_max}"),
        ("slots", kind.slots in range(1, key.slots + 1), f"1 to {key.slots}"),
        ("blocks", kind.blocks in range(ceil_div(kind.tokens, BLOCK), blocks + 1),
         f"{ceil_div(kind.tokens, BLOCK)} to {blocks}"),
        ("logits", kind.logits in {"last", "all"}, "last or all"),
        ("sampler", kind.sampler in {"chip", "host"}, "chip or host"),
    )  # fmt: skip
    for name, fine, expected in rules:
        if not fine:
            raise UsageError(f"expected a step of {expected} {name}, found {getattr(kind, name)!r}", code="T127",
                             where=f"step kind, {name}")  # fmt: skip


def compile_image(spec: ModelSpec, system: System, options: Options, weights_digest: str = "") -> Image:
    """The image of a model on all chips of `system`.

    Raises:
        UsageError: T120..T123, T126 for an illegal degree, format, context or head groups, T125 for what a step may take.
        UnsupportedModel: T333 for heads that are too wide.
        DoesNotFit: T310.
    """
    _check(spec, system, options)
    _check_steps(options)
    _check_heads(spec)
    limit, tray = system.gather_chips, system.tray_chips
    plan = make_plan(kv_heads(spec), system.chips, heads=options.heads, limit=limit, tray=tray)
    kv = "fp8" if options.kv == "fp8" else "f32" if options.fmt == "f32" else "bf16"
    blocks = image_blocks(options.max_context, options.t_max)
    rings = rings_of(spec, plan, options.t_max, blocks)
    largest = StepKind(options.t_max, options.slots, blocks, "all", "chip")
    homes = plan.chips if options.experts == "parallel" else 0
    graph = build_graph(spec, largest, options.fmt, rings, kv, kv_scaled=bool(options.kv_scales))
    sharded = partition(replace(graph, homes=homes), plan)
    kinds = [spec.attention_of(k) for k in spec.kinds]
    attention = tuple(
        AttentionKey(a.heads, a.kv_heads, a.head_dim, a.window, ring)
        for a, ring in zip(kinds, rings, strict=True)
    )
    key = ImageKey(
        model=spec.name, spec=spec.digest(), weights=weights_digest, system=system.name, facts=system.fact_digest(),
        fmt=options.fmt, kv=kv, hypothetical=options.hypothetical, plan=plan, max_context=options.max_context,
        slots=options.slots, t_max=options.t_max, vocab=spec.vocab, attention=attention, layer_kinds=sharded.shapes.kind_of,
        experts=options.experts,
    )  # fmt: skip
    return place_image(sharded, system, key, options.kv_scales)


def graph_of(spec: ModelSpec, image: Image, kind: StepKind) -> Graph:
    """The graph of one step over an image: its formats, rings and where experts are."""
    key, rings = image.key, tuple(a.ring for a in image.key.attention)
    graph = build_graph(spec, kind, key.fmt, rings, key.kv, kv_scaled=bool(image.kv_scales))
    return replace(graph, homes=key.plan.chips if key.experts == "parallel" else 0)


def unproved_timetable(
    spec: ModelSpec, system: System, image: Image, kind: StepKind, *, loops: bool = True
) -> Timetable:
    """The timetable of one step kind over `image`, without the graph's digest: it can be timed and executed, not proved.

    `loops`: equal layers are stored once, where there are enough of them and they repeat with one period.

    Raises:
        UsageError: T127 for a step that the image has no room for.
    """
    _check_kind(image, kind)
    sharded = partition(graph_of(spec, image, kind), image.key.plan)
    looped = looped_timetable(sharded, image, system) if loops else None
    return looped or schedule(image, build_chains(sharded, image, system), system)


def compile_timetable(
    spec: ModelSpec, system: System, image: Image, kind: StepKind, *, loops: bool = True
) -> Timetable:
    """The timetable of one step kind over `image`, with the graph's dataflow digest; `loops` as in `unproved_timetable`."""
    timetable = unproved_timetable(spec, system, image, kind, loops=loops)
    return replace(timetable, dataflow=graph_digest(graph_of(spec, image, kind)))


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
