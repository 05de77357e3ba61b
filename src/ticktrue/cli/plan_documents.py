"""The JSON documents of the planning verbs (`fit`, `opcheck`), one Struct each; the others are in `documents`."""

from typing import Literal

from ticktrue.cli.documents import Document, Part


class PrecisionPart(Part, frozen=True, kw_only=True):
    """Bytes if every number had one format: no scales, no packing."""

    format: str
    weights_bytes: int
    kv_bytes: int
    activation_bytes: int
    total_bytes: int


class KvPart(Part, frozen=True, kw_only=True):
    """Numbers in the KV caches of all sequences at a context; a window layer holds its window."""

    context_tokens: int
    kv_elements: int


class ClassPart(Part, frozen=True, kw_only=True):
    """Bytes of one class of regions on the fullest chip."""

    name: str
    bytes_per_chip: int


class FitRowPart(Part, frozen=True, kw_only=True):
    """A model on `stages` groups of `group_chips` chips; `compiled`: a program can be made today, else `why` not.

    `over_bytes` are too many, for the chip or for its fullest bank group of `group_bytes`; `largest` is the largest region, which
    lies in one group. `smallest`: no fewer chips of this system hold it.
    """

    system: str
    format: str
    kv_format: str
    chips: int
    stages: int
    group_chips: int
    systems: int
    bytes_per_chip: int
    capacity_bytes: int
    over_bytes: int
    largest: str
    largest_bytes: int
    group_bytes: int
    fits: bool
    compiled: bool
    smallest: bool
    why: str
    bytes_by_class: tuple[ClassPart, ...]


class MemoryRowPart(Part, frozen=True, kw_only=True):
    """A model on devices with a large memory each, by capacity alone."""

    system: str
    title: str
    format: str
    capacity_bytes: int
    needed_devices: int
    devices: int
    bytes_per_device: int
    fits: bool


class SkippedPart(Part, frozen=True, kw_only=True):
    """What was not weighed, or not in every way, and why."""

    system: str
    format: str
    why: str


class FitDocument(Document, frozen=True, kw_only=True):
    """What a model weighs, and what holds it; `held`: something that was asked about does."""

    schema: Literal["ticktrue/fit/v1"] = "ticktrue/fit/v1"
    ref: str
    name: str
    family: str
    spec_sha256: str
    parameters: int
    active_parameters: int
    context_tokens: int
    slots: int
    step_tokens: int
    kv_elements: int
    held: bool
    precisions: tuple[PrecisionPart, ...]
    kv_by_context: tuple[KvPart, ...]
    rows: tuple[FitRowPart, ...]
    memories: tuple[MemoryRowPart, ...]
    skipped: tuple[SkippedPart, ...]


class FindingPart(Part, frozen=True, kw_only=True):
    """One field or operator of a model: `state` is covered, planned, not covered, unknown or no effect.

    `planned`: its shape is counted (`ticktrue fit`), its arithmetic does not run.
    """

    name: str
    value: str
    state: str
    what: str
    where: str


class OpcheckDocument(Document, frozen=True, kw_only=True):
    """What of a model is covered; `runs`: everything that decides its results."""

    schema: Literal["ticktrue/opcheck/v1"] = "ticktrue/opcheck/v1"
    ref: str
    family: str
    state: str
    runs: bool
    why: str
    findings: tuple[FindingPart, ...]
