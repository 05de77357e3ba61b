"""Which systems hold a model: bytes as they would be placed on every legal number of chips, and the smallest that is enough."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ticktrue.compile.pipeline import image_blocks
from ticktrue.errors import InputError, UsageError
from ticktrue.hw import System, formats_allowed
from ticktrue.model import ModelSpec, canonical_shapes
from ticktrue.model.count import kv_elements
from ticktrue.partition import kv_heads, legal_degrees, make_plan
from ticktrue.place.demand import Demand, Held, demand_of, hold
from ticktrue.plan.memory import MemoryRow, MemorySystem, memory_rows
from ticktrue.plan.precision import SIZES, Precision, precisions
from ticktrue.plan.stages import even_stages, fewest_stages
from ticktrue.plan.standin import StandIn, complete, stand_in
from ticktrue.program import StepKind
from ticktrue.units import Bytes, ceil_div

KV_FORMATS = ("auto", "fp8")
MAX_SLOTS = 4_096
MAX_TOKENS = 256
NO_PIPELINE = "no pipeline holds it either: a layer or the embedding is too much for the chips of any group or their bank groups"


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be held: `slots` sequences of `context` positions, steps of up to `tokens` of each.

    `formats` of weights and activations; `kv` of the cache: "auto" for that of activations. `chips`: only that number; 0: the
    smallest.
    """

    context: int
    slots: int = 1
    tokens: int = 1
    formats: tuple[str, ...] = tuple(SIZES)
    kv: str = "auto"
    chips: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """A model in one format on `stages` groups of `group_chips` chips.

    `bytes_per_chip` are those of the fullest stage, by region class in `by_class`; `over_bytes` are too many, for the chip or for
    its fullest bank group of `group_bytes`; `largest` is its largest region, which lies in one group. `compiled`: a program
    can be made today; `why` says why not. `systems`: how many systems that is.
    """

    system: str
    format: str
    kv_format: str
    stages: int
    group_chips: int
    systems: int
    by_class: Mapping[str, int]
    bytes_per_chip: Bytes
    capacity_bytes: Bytes
    over_bytes: Bytes
    largest: str
    largest_bytes: Bytes
    group_bytes: Bytes
    compiled: bool
    why: tuple[str, ...]

    @property
    def chips(self) -> int:
        """Chips in all."""
        return self.stages * self.group_chips

    @property
    def fits(self) -> bool:
        """Whether every chip holds its part."""
        return self.over_bytes == 0


@dataclass(frozen=True, slots=True)
class Skipped:
    """A format that a system does not have, or a model that no group of its chips can share."""

    system: str
    format: str
    why: str


@dataclass(frozen=True, slots=True)
class Fit:
    """What a model weighs, and what holds it."""

    spec: ModelSpec
    question: Question
    precisions: tuple[Precision, ...]
    rows: tuple[Row, ...]
    memories: tuple[MemoryRow, ...]
    skipped: tuple[Skipped, ...]

    def smallest(self, system: str, fmt: str) -> Row | None:
        """The row with the fewest chips that fits; of equal ones that with the fewest stages."""
        fitting = [r for r in self.rows if r.fits and (r.system, r.format) == (system, fmt)]
        return min(fitting, key=lambda r: (r.chips, r.stages), default=None)

    @property
    def held(self) -> bool:
        """Whether anything that was asked about holds the model."""
        chips = self.question.chips
        return any(r.fits and chips in {0, r.chips} for r in self.rows) or any(m.fits for m in self.memories)


def fit(
    spec: ModelSpec, question: Question, systems: Sequence[System], memories: Sequence[MemorySystem] = ()
) -> Fit:
    """What of `systems` (SRAM chips) and `memories` (devices with a large memory) holds a model.

    Raises:
        UsageError: T122 for a format, T123 for a context, T140 for slots or tokens, T141 for a number of chips.
    """
    check(spec, question)
    rows: list[Row] = []
    skipped: list[Skipped] = []
    for system in systems:
        weighed: dict[tuple[object, ...], list[Row]] = {}
        for fmt in question.formats:
            try:
                formats_allowed(system.chip, fmt, hypothetical=False)
            except InputError as problem:
                skipped.append(Skipped(system.name, fmt, problem.message))
                continue
            stand = stand_in(spec)
            key = (SIZES[fmt], stand.spec, stand.why)  # int8 and fp8 lie alike
            if key not in weighed:
                weighed[key] = _Weigher(system, question, stand, fmt).rows()
            rows += [replace(row, format=fmt) for row in weighed[key]]
            if not any(row.fits for row in weighed[key]):
                skipped.append(Skipped(system.name, fmt, NO_PIPELINE))
    found = tuple(
        p
        for p in precisions(spec, question.context, question.slots, question.tokens)
        if p.format in question.formats
    )
    by_memory = tuple(row for memory in memories for row in memory_rows(memory, found))
    return Fit(spec, question, found, tuple(rows), by_memory, tuple(skipped))


def check(spec: ModelSpec, question: Question) -> None:
    """Refuses a question that has no answer.

    Raises:
        UsageError: as `fit`.
    """
    unknown = [fmt for fmt in question.formats if fmt not in SIZES]
    if unknown or not question.formats or question.kv not in KV_FORMATS:
        raise UsageError(
            f"expected formats of {', '.join(SIZES)} and a cache format of {', '.join(KV_FORMATS)}, "
            f"found {', '.join(unknown) or 'no format' if unknown or not question.formats else question.kv}",
            code="T122", where="--format",
        )  # fmt: skip
    if not 1 <= question.context <= spec.max_positions:
        raise UsageError(
            f"expected a context of 1 to {spec.max_positions} (what {spec.name} was made for), found {question.context}",
            code="T123", where="--context",
        )  # fmt: skip
    for name, value, most in (
        ("slots", question.slots, MAX_SLOTS),
        ("tokens", question.tokens, MAX_TOKENS),
    ):
        if not 1 <= value <= most:
            raise UsageError(f"expected 1 to {most:,} {name}, found {value}", code="T140", where=f"--{name}")
    if question.tokens & (question.tokens - 1):
        raise UsageError(
            f"expected a power of two of tokens in a step, found {question.tokens}",
            code="T140",
            where="--tokens",
        )


class _Weigher:
    """Rows of one model in one format on one system; each group size is weighed once."""

    def __init__(self, system: System, question: Question, stand: StandIn, fmt: str) -> None:
        self._system, self._question, self._stand, self._fmt = system, question, stand, fmt
        self._kv = "fp8" if question.kv == "fp8" else "bf16"
        self._tray = system.tray_chips
        limit = min(system.gather_chips, system.full_chips)
        self._legal = legal_degrees(kv_heads(stand.spec), limit, self._tray)
        blocks = image_blocks(question.context, question.tokens)
        self._step = StepKind(question.tokens, question.slots, blocks, "all", "chip")
        self._demands: dict[int, Demand] = {}
        self._least = _least_bytes(stand.of, question, fmt)

    def rows(self) -> list[Row]:
        """What was asked about; where that does not fit, or nothing was, what is the smallest that does."""
        asked = self._asked(self._question.chips) if self._question.chips else []
        if any(row.fits for row in asked):
            return asked
        found = self._searched()
        return found if not asked else [*asked, *(row for row in found if row.fits)]

    def _searched(self) -> list[Row]:
        """The smallest group that fits and the largest that does not, and the smallest pipeline where it is smaller."""
        worth = [n for n in self._legal if ceil_div(self._least, n) <= self._capacity]
        out: list[Row] = []
        for chips in worth or self._legal[-1:]:
            row = self._group(chips)
            out = [*out[-1:], row]
            if row.fits:
                break
        best = self._pipeline(out[-1].chips if out and out[-1].fits else 0)
        return out if best is None else [*out, best]

    @property
    def _capacity(self) -> int:
        return self._system.chip.value("sram_bytes")

    @property
    def _sizes(self) -> list[int]:
        """Sizes of groups that a pipeline may have: whole trays (of a dragonfly, nodes)."""
        unit = self._tray or min(self._system.gather_chips, self._system.full_chips)
        return [n for n in self._legal if n % unit == 0]

    def _demand(self, chips: int) -> Demand:
        if chips not in self._demands:
            system = self._system.subset(chips)
            plan = make_plan(
                kv_heads(self._stand.spec), chips, limit=self._system.gather_chips, tray=self._tray
            )
            formats = (self._fmt, self._kv)
            found = demand_of(self._stand.spec, system, plan, self._step, formats)
            self._demands[chips] = complete(found, self._stand, self._fmt)
        return self._demands[chips]

    def _group(self, chips: int) -> Row:
        held = hold(self._demand(chips))
        return self._row(chips, 1, held, self._stand.why)

    def _pipeline(self, below: int) -> Row | None:
        """The pipeline of the fewest chips, of fewer than `below` (0: any number)."""
        best: Row | None = None
        for chips in self._sizes:
            limit = best.chips if best else below
            fewest = ceil_div(self._least, chips * self._capacity)
            if limit and chips * max(fewest, 2) >= limit:
                continue
            most = (limit - 1) // chips if limit else self._stand.of.layers
            stages = fewest_stages(self._demand(chips), most)
            if stages is not None and len(stages.cuts) > 1:
                best = self._row(chips, len(stages.cuts), stages.fullest, self._stand.why)
        return best

    def _asked(self, chips: int) -> list[Row]:
        """Rows of exactly `chips` chips: one group where that is legal, and a pipeline of whole trays where it does not fit."""
        rows = [self._group(chips)] if chips in self._legal else []
        layers = self._stand.of.layers  # a stage has at least one
        whole = [size for size in self._sizes if chips % size == 0 and 1 < chips // size <= layers]
        if (rows and rows[0].fits) or (rows and not whole):
            return rows
        for size in reversed(whole):
            stages = fewest_stages(self._demand(size), chips // size)
            if stages is not None:
                return [*rows, self._row(size, chips // size, stages.fullest, self._stand.why)]
        if whole and not rows:
            stages = even_stages(self._demand(whole[0]), chips // whole[0])
            return [self._row(whole[0], chips // whole[0], stages.fullest, self._stand.why)]
        if rows:
            return rows
        longest = {s * min(chips // s + i, layers) for s in self._sizes for i in (0, 1)}
        near = sorted({*self._legal, *longest} - {0})
        hint = sorted(near, key=lambda n: abs(n - chips))[:3]
        raise UsageError(
            f"{chips} chips of {self._system.name} are neither one legal group ({', '.join(map(str, self._legal))}) "
            f"nor whole trays of at most {layers} stages", code="T141", where="--chips",
            hint=f"nearest: {', '.join(map(str, sorted(hint)))}",
        )  # fmt: skip

    def _row(self, size: int, stages: int, held: Held, why: str) -> Row:
        over = max(held.total_bytes - self._capacity, 0) or (
            0 if held.fits else held.fullest_bytes - held.group_bytes
        )
        per_system = max(self._system.full_chips // size, 1)
        reasons = [why] if why else []
        if stages > 1:
            reasons.append("groups of chips one after another (pipelines)")
        return Row(
            self._system.name, self._fmt, self._kv, stages, size, ceil_div(stages, per_system), held.by_class, held.total_bytes,
            Bytes(self._capacity), Bytes(over), held.largest, held.largest_bytes, held.group_bytes, not reasons, tuple(reasons),
        )  # fmt: skip


def _least_bytes(spec: ModelSpec, question: Question, fmt: str) -> int:
    """Less than any number of chips stores in all: matrices without packing, the embedding in bf16, the cache without rings."""
    shapes = canonical_shapes(spec)
    tied = spec.vocab * spec.hidden if spec.tied_embeddings else 0  # the head is stored as tiles besides
    matrices = tied + sum(s[0] * s[1] for name, s in shapes.items() if len(s) > 1 and name != "embed")
    cache = (
        kv_elements(spec, question.context) * question.slots * (1 if question.kv == "fp8" else SIZES["bf16"])
    )
    return SIZES[fmt] * matrices + SIZES["bf16"] * spec.vocab * spec.hidden + cache


def by_system(rows: Sequence[Row]) -> list[tuple[tuple[str, str], list[Row]]]:
    """Rows of each system and format, in their order."""
    return [(key, list(group)) for key, group in groupby(rows, key=lambda r: (r.system, r.format))]
