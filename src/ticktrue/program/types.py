"""The artefact as values: plan, step kind, image, timetable, program. Knows no model and no scheduler."""

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ticktrue.program import columns as col

SCHEMA = "ticktrue/program/v2"

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


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


@dataclass(frozen=True, slots=True)
class Plan:
    """Tensor-parallel plan: `chips` = heads degree `h` x context degree `cp`; chip = hg * cp + c.

    `tray` is the number of chips in a tray where the plan spans several of them, else 0. A group that spans trays, and whose
    members do not all have one place in their tray, is *split*: it talks along rails, then inside trays.
    """

    chips: int
    h: int
    cp: int
    tray: int = 0

    def split(self, base: int) -> bool:
        """Whether a group of a base pattern (all, context, heads) is joined in two steps."""
        if self.tray == 0 or self.chips <= self.tray:
            return False
        return (True, self.cp > self.tray, self.h > 1 and self.cp < self.tray)[base]

    def inner(self, base: int) -> int:
        """Members of a split group in one tray; the whole group where it is not split."""
        if not self.split(base):
            return self.size(base)
        return self.tray // self.cp if base == col.PATTERN_HEADS else self.tray

    def size(self, pattern: int) -> int:
        """Chips in one group of a communication pattern; 1 for rails and trays of a group that is not split."""
        part, base = divmod(pattern, len(col.BASES))
        whole = (self.chips, self.cp, self.h)[base]
        if part == 0:
            return whole
        if not self.split(base):
            return 1
        inner = self.inner(base)
        return whole // inner if part == 1 else inner

    def index(self, pattern: int, chip: int) -> int:
        """Index of `chip` in its group of `pattern`."""
        part, base = divmod(pattern, len(col.BASES))
        whole = (chip, chip % self.cp, chip // self.cp)[base]
        if part == 0:
            return whole
        if not self.split(base):
            return 0
        return whole // self.inner(base) if part == 1 else whole % self.inner(base)

    def rank(self, pattern: int, chip: int) -> int:
        """What addresses and ops take as the rank of `chip`: its index, but along rails that in the whole group."""
        part, base = divmod(pattern, len(col.BASES))
        return self.index(base if part == 1 and self.split(base) else pattern, chip)

    def ranks(self, pattern: int) -> int:
        """Ranks there are in a pattern: one more than the greatest."""
        part, base = divmod(pattern, len(col.BASES))
        return self.size(base if part == 1 and self.split(base) else pattern)

    def member(self, pattern: int, chip: int, index: int) -> int:
        """The chip with `index` in the group of `pattern` that `chip` belongs to."""
        part, base = divmod(pattern, len(col.BASES))
        if part > 0:
            if not self.split(base):
                return chip
            inner, own = self.inner(base), self.index(base, chip)
            return self.member(
                base, chip, index * inner + own % inner if part == 1 else own - own % inner + index
            )
        if base == col.PATTERN_ALL:
            return index
        if base == col.PATTERN_CONTEXT:
            return (chip // self.cp) * self.cp + index
        return index * self.cp + chip % self.cp

    def reach(self, pattern: int, *, back: bool = False) -> Int64:
        """The chip that is k places on (or back) in the group of `pattern`: read-only int64[chips, size], k from 0."""
        return _reach(self, pattern, back)


@lru_cache(maxsize=64)
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

    `stack` such matrices stand below one another (experts); 1 for any other tensor. `held`: how many of them a rank has whole
    (matrix r * held and those after it), 0 where it has a share of every one.
    """

    name: str
    outputs: int
    inputs: int
    shard: int
    stack: int = 1
    held: int = 0

    @property
    def records(self) -> int:
        """Matrices that one rank has a part of."""
        return self.held or self.stack


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
    `experts`: "cut" over all chips, or "parallel": every chip holds whole ones.
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
    experts: str = "cut"

    def of_layer(self, layer: int) -> AttentionKey:
        """The attention of a layer."""
        return self.attention[self.layer_kinds[layer]]


@dataclass(frozen=True, slots=True)
class Image:
    """Everything that outlives a step: regions, tensors, and where each piece of a weight lies."""

    key: ImageKey
    tensors: tuple[Tensor, ...]
    regions: tuple[Region, ...]
    pieces: Int32


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
