"""The artefact as values: plan, step kind, image, timetable, program. Knows no model and no scheduler."""

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ticktrue.program import columns as col

SCHEMA = "ticktrue/program/v3"

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
KvScales = tuple[tuple[int, ...], ...]
KV_EXPONENT = 100
"""Greatest exponent of a scale of the cache, either way: 448 * 2^100 and 2^-9 * 2^-100 are bf16 numbers."""


class RegionClass(IntEnum):
    """What a region holds and who may write it."""

    WEIGHT = 0
    CONST = 1
    STATE = 2
    INBOX = 3
    CODE = 4
    ARENA = 5
    SCRATCH = 6


class Packing(IntEnum):
    """How the elements of a tensor lie in a region; the rule is spelled out in docs/program.md."""

    NONE = 0
    TILES = 1
    ROWS = 2
    LANES = 3
    ROPE_A = 4
    ROPE_B = 5
    KV = 6
    SHARD = 7
    KV_SCALE = 8


@dataclass(frozen=True, slots=True)
class Grid:
    """How chips share a kind of attention: `h` head groups of `cp` context lanes; chip = hg * cp + c."""

    h: int
    cp: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Tensor-parallel plan of `chips` chips; `grids` has one grid for each kind of attention.

    `tray` is the number of chips in a tray where the plan spans several of them, else 0. A group that spans trays, and whose
    members do not all have one place in their tray, is *split*: it talks along rails, then inside trays.
    """

    chips: int
    grids: tuple[Grid, ...]
    tray: int = 0

    @staticmethod
    def of(chips: int, *heads: int, tray: int = 0) -> "Plan":
        """The plan with heads[k] head groups for kind k of attention, each of chips / heads[k] context lanes."""
        return Plan(chips, tuple(Grid(h, chips // h) for h in heads), tray)

    @property
    def patterns(self) -> int:
        """One more than the greatest number of a pattern of communication."""
        return col.KIND_PATTERNS * len(self.grids)

    def pattern(self, base: int, kind: int) -> int:
        """The pattern of a base for a kind of attention. Kinds of equal grids share those of the first of them."""
        if base == col.PATTERN_ALL:
            return base
        return base + col.KIND_PATTERNS * self.grids.index(self.grids[kind])

    def has(self, pattern: int) -> bool:
        """Whether a number is that of a pattern: only the first kind has ALL, and equal grids share their patterns."""
        kind, rest = divmod(pattern, col.KIND_PATTERNS)
        if not 0 <= kind < len(self.grids):
            return False
        return kind == 0 or (rest % len(col.BASES) != 0 and self.grids.index(self.grids[kind]) == kind)

    def split(self, whole: int) -> bool:
        """Whether a group of a whole pattern (all, context, heads) is joined in two steps."""
        if self.tray == 0 or self.chips <= self.tray:
            return False
        kind, base = divmod(whole, col.KIND_PATTERNS)
        grid = self.grids[kind]
        return (True, grid.cp > self.tray, grid.h > 1 and grid.cp < self.tray)[base]

    def inner(self, whole: int) -> int:
        """Members of a split group in one tray; the whole group where it is not split."""
        if not self.split(whole):
            return self.size(whole)
        kind, base = divmod(whole, col.KIND_PATTERNS)
        return self.tray // self.grids[kind].cp if base == col.PATTERN_HEADS else self.tray

    def size(self, pattern: int) -> int:
        """Chips in one group of a communication pattern; 1 for rails and trays of a group that is not split, and without one."""
        if not self.has(pattern):
            return 1
        part, whole = _part_of(pattern)
        kind, base = divmod(whole, col.KIND_PATTERNS)
        every = (self.chips, self.grids[kind].cp, self.grids[kind].h)[base]
        if part == 0:
            return every
        if not self.split(whole):
            return 1
        inner = self.inner(whole)
        return every // inner if part == 1 else inner

    def index(self, pattern: int, chip: int) -> int:
        """Index of `chip` in its group of `pattern`."""
        part, whole = _part_of(pattern)
        kind, base = divmod(whole, col.KIND_PATTERNS)
        cp = self.grids[kind].cp
        own = (chip, chip % cp, chip // cp)[base]
        if part == 0:
            return own
        if not self.split(whole):
            return 0
        return own // self.inner(whole) if part == 1 else own % self.inner(whole)

    def rank(self, pattern: int, chip: int) -> int:
        """What addresses and ops take as the rank of `chip`: its index, but along rails that in the whole group."""
        part, whole = _part_of(pattern)
        return self.index(whole if part == 1 and self.split(whole) else pattern, chip)

    def ranks(self, pattern: int) -> int:
        """Ranks there are in a pattern: one more than the greatest."""
        part, whole = _part_of(pattern)
        return self.size(whole if part == 1 and self.split(whole) else pattern)

    def member(self, pattern: int, chip: int, index: int) -> int:
        """The chip with `index` in the group of `pattern` that `chip` belongs to."""
        part, whole = _part_of(pattern)
        if part > 0:
            if not self.split(whole):
                return chip
            inner, own = self.inner(whole), self.index(whole, chip)
            return self.member(
                whole, chip, index * inner + own % inner if part == 1 else own - own % inner + index
            )
        kind, base = divmod(whole, col.KIND_PATTERNS)
        cp = self.grids[kind].cp
        return (index, chip // cp * cp + index, index * cp + chip % cp)[base]

    def reach(self, pattern: int, *, back: bool = False) -> Int64:
        """The chip that is k places on (or back) in the group of `pattern`: read-only int64[chips, size], k from 0."""
        return _reach(self, pattern, back)


def _part_of(pattern: int) -> tuple[int, int]:
    """(0 for a whole group, 1 for its rails, 2 for its trays; the pattern of the whole group)."""
    part = pattern % col.KIND_PATTERNS // len(col.BASES)
    return part, pattern - part * len(col.BASES)


@lru_cache(maxsize=128)
def _reach(plan: Plan, pattern: int, back: bool) -> Int64:
    size, sign = plan.size(pattern), -1 if back else 1
    own = [plan.index(pattern, chip) for chip in range(plan.chips)]
    out = np.array(
        [
            [plan.member(pattern, c, (own[c] + sign * k) % size) for k in range(size)]
            for c in range(plan.chips)
        ],
        dtype=np.int64,
    )
    out.flags.writeable = False
    return out


@dataclass(frozen=True, slots=True, order=True)
class StepKind:
    """T tokens per slot, S slots, B context blocks, `logits` last | all, `sampler` chip | host."""

    tokens: int
    slots: int
    blocks: int
    logits: str
    sampler: str

    def label(self) -> str:
        """A short stable name, e.g. T1.S1.B21.last.chip."""
        return f"T{self.tokens}.S{self.slots}.B{self.blocks}.{self.logits}.{self.sampler}"


@dataclass(frozen=True, slots=True)
class Region:
    """A range of vectors in one bank group, the same on every chip of the class.

    `base`, `stride`, `count` are in vectors, vectors per record, records. `p0`, `p1` belong to the packing rule.
    """

    name: str
    cls: RegionClass
    group: int
    base: int
    stride: int
    count: int
    packing: Packing = Packing.NONE
    tensor: int = -1
    p0: int = 0
    p1: int = 0

    @property
    def vectors(self) -> int:
        """Vectors the region covers."""
        return self.stride * self.count


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the model as the image cuts it: [outputs, inputs], `shard` outputs (or columns) per rank.

    `stack` such matrices stand below one another (experts); 1 for any other tensor.
    """

    name: str
    outputs: int
    inputs: int
    shard: int
    stack: int = 1


@dataclass(frozen=True, slots=True)
class AttentionKey:
    """Heads of one kind of attention; `window` positions are seen (0: all), kept in a ring of `ring` blocks (0: no ring)."""

    heads: int
    kv_heads: int
    head_dim: int
    window: int
    ring: int


@dataclass(frozen=True, slots=True)
class ImageKey:
    """What an image was made for. `weights` is the model's digest, empty for a spec without weights.

    `layer_kinds` numbers the kind of attention of each layer; a step has at most `slots` sequences and `t_max` tokens of each.
    """

    model: str
    spec: str
    weights: str
    system: str
    facts: str
    fmt: str
    kv: str
    hypothetical: bool
    plan: Plan
    max_context: int
    slots: int
    t_max: int
    vocab: int
    attention: tuple[AttentionKey, ...]
    layer_kinds: tuple[int, ...]

    def of_layer(self, layer: int) -> AttentionKey:
        """The attention of a layer."""
        return self.attention[self.layer_kinds[layer]]

    def grid_of(self, layer: int) -> Grid:
        """How the chips share the attention of a layer."""
        return self.plan.grids[self.layer_kinds[layer]]


@dataclass(frozen=True, slots=True)
class Image:
    """Everything that outlives a step: regions, tensors, and where each piece of a weight lies.

    `kv_scales`: of a cache in e4m3, e of the scale 2^e of each KV head; of layer L's K at 2 L, of its V at 2 L + 1. Empty: all 1.
    """

    key: ImageKey
    tensors: tuple[Tensor, ...]
    regions: tuple[Region, ...]
    pieces: Int32
    kv_scales: KvScales = ()


@dataclass(frozen=True, slots=True)
class Output:
    """A result the host reads after the step: `rows` records of a region (per chip), in `dtype`."""

    name: str
    region: int
    base: int
    rows: int
    vectors: int


@dataclass(frozen=True, slots=True)
class Loop:
    """Chains [first, last] repeat `count` times, `period` cycles apart, each region shifted by its stride."""

    first: int
    last: int
    count: int
    period: int
    strides: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Timetable:
    """The chains of one step kind.

    `scratch` regions lie in the image's arenas; their ids follow the image's. `templates` int32[template rows, T_COLUMNS]
    with rows of template k at template_start[k] .. template_start[k+1]; `chains` int64[chains, 3] = (template, start cycle,
    late reason); `rows` int32[class rows, V_COLUMNS], the rows of chain c follow those of chain c-1.
    `dataflow` is the dataflow digest that `compile` took from the graph. All chips align at cycle 0 and then every `deskew`
    cycles (0: not again in this step).
    """

    kind: StepKind
    scratch: tuple[Region, ...]
    templates: Int32
    template_start: Int32
    chains: Int64
    rows: Int32
    labels: tuple[str, ...]
    outputs: tuple[Output, ...]
    loops: tuple[Loop, ...]
    duration: int
    dataflow: str
    deskew: int = 0


@dataclass(frozen=True, slots=True)
class Program:
    """One image and its timetables, sorted by kind; all timetables share the image byte for byte."""

    image: Image
    timetables: tuple[Timetable, ...]

    def timetable(self, kind: StepKind) -> Timetable | None:
        """The timetable of exactly `kind`, if the program has it."""
        return next((t for t in self.timetables if t.kind == kind), None)
