"""The JSON documents of the command line, one Struct each; docs/reference/schemas/ is generated from here.

Simulated quantities are called `sim_...`, those of this host `wall_...`; the two are never mixed.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Literal, TypedDict

import msgspec


class Header(TypedDict):
    """What every document begins with, beside its schema."""

    created: str
    package_version: str
    command: tuple[str, ...]


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When, by what version and by which command a document was made."""

    created: str
    package_version: str
    command: tuple[str, ...]


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A value inside a document."""


class ErrorDocument(Document, frozen=True, kw_only=True):
    """A failure: no result."""

    schema: Literal["ticktrue/error/v1"] = "ticktrue/error/v1"
    code: str
    message: str
    where: str
    hint: str
    exit_status: int


class FactPart(Part, frozen=True, kw_only=True):
    """A number about the machine, with where it comes from and how sure it is."""

    owner: str
    name: str
    value: float
    unit: str
    grade: str
    low: float
    high: float
    source: str
    date: str
    why: str


class FormatPart(Part, frozen=True, kw_only=True):
    """Whether the matrix unit takes a number format."""

    format: str
    grade: str
    absent: bool
    why: str


class ModelInput(Part, frozen=True, kw_only=True):
    """Which model went in."""

    ref: str
    name: str
    path: str
    spec_sha256: str
    weights_sha256: str


class SystemInput(Part, frozen=True, kw_only=True):
    """Which machine went in; `facts_sha256` covers every value that can change a result.

    `head_groups` of each kind of attention; `heads_degree` and `context_degree` are those of the first.
    """

    name: str
    chips: int
    heads_degree: int
    context_degree: int
    head_groups: tuple[int, ...]
    format: str
    kv_format: str
    format_grade: str
    hypothetical: bool
    max_model_len: int
    facts_sha256: str
    facts: tuple[FactPart, ...]


class ViolationPart(Part, frozen=True, kw_only=True):
    """One broken rule, as in `ticktrue explain`."""

    code: str
    message: str
    chip: int
    cycle: int
    first: str
    second: str
    where: str


class ProofPart(Part, frozen=True, kw_only=True):
    """Both verdicts on one timetable; `dataflow_found` is empty where rules are broken, for then rows mean nothing."""

    kind: str
    sha256: str
    rules_clean: bool
    violations_total: int
    violations: tuple[ViolationPart, ...]
    rows: int
    chips: int
    dataflow_equal: bool
    dataflow_stated: str
    dataflow_found: str
    cached: bool
    wall_compile_s: float
    wall_verify_s: float
    wall_dataflow_s: float


class SharePart(Part, frozen=True, kw_only=True):
    """Cycles of the critical path with one cause."""

    name: str
    sim_cycles: int
    ratio: float


class UsePart(Part, frozen=True, kw_only=True):
    """How busy the ports of one unit are, mean over the chips."""

    unit: str
    ports: int
    busy_cycles: int
    utilization_ratio: float


class AssumedPart(Part, frozen=True, kw_only=True):
    """An assumed constant, and the simulated time at the ends of its range against that at its best value."""

    owner: str
    name: str
    unit: str
    grade: str
    low: float
    best: float
    high: float
    sim_time_at_low_ratio: float | None
    sim_time_at_high_ratio: float | None
    high_is_a_bound: bool


class MismatchPart(Part, frozen=True, kw_only=True):
    """A stated cycle that the replay does not give."""

    code: str
    message: str
    stated_cycle: int
    earliest_cycle: int


class StepTimes(Part, frozen=True, kw_only=True):
    """Times of one timetable. The interval is from the start of one step to that of the next."""

    kind: str
    replay_clean: bool
    mismatches: tuple[MismatchPart, ...]
    sim_cycles: int
    sim_us: float
    sim_deskew_cycles: int
    sim_gap_cycles: int
    sim_host_cycles: int
    sim_interval_cycles: int
    sim_interval_us: float
    causes: tuple[SharePart, ...]
    utilization: tuple[UsePart, ...]
    assumed: tuple[AssumedPart, ...]


class SamplingPart(Part, frozen=True, kw_only=True):
    """How tokens were chosen: with these, the model and the prompt, the answer can be replayed anywhere (numerics, Sampling)."""

    sampler: Literal["chip", "host"]
    temperature: float
    seed: int
    choice: int
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logprobs: int | None


class LogprobPart(Part, frozen=True, kw_only=True):
    """A token and the natural logarithm of its probability."""

    token_id: int
    text: str
    logprob: float


class TokenLogprobs(Part, frozen=True, kw_only=True):
    """Log-probability of a token of the answer, and the most likely tokens at its place."""

    chosen: LogprobPart
    top: tuple[LogprobPart, ...]


class RunDocument(Document, frozen=True, kw_only=True):
    """The answer to a prompt, the program that gave it, and its times. `decode` is the last decode step's timetable.

    Simulated times count only where `replay_clean` is true.
    """

    schema: Literal["ticktrue/run/v1"] = "ticktrue/run/v1"
    model: ModelInput
    system: SystemInput
    prompt: str
    prompt_sha256: str
    raw: bool
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingPart
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] | None
    text: str
    finish_reason: Literal["stop", "length", "context"]
    program_sha256: str
    proofs: tuple[ProofPart, ...]
    replay_clean: bool
    final_context: int
    prefill_steps: int
    sim_prefill_cycles: int
    sim_prefill_us: float
    sim_prefill_tokens_per_s: float
    decode: StepTimes | None
    sim_cycles_per_token: int | None
    sim_us_per_token: float | None
    sim_tokens_per_s: float | None
    wall_decode_tokens_per_s: float | None
    wall_prefill_tokens_per_s: float
    wall_compile_s: float
    wall_kernels_s: float
    wall_total_s: float


class RejectedDocument(Document, frozen=True, kw_only=True):
    """A run that did not happen: its program was not proved."""

    schema: Literal["ticktrue/rejected/v1"] = "ticktrue/rejected/v1"
    proofs: tuple[ProofPart, ...]


class CompileDocument(Document, frozen=True, kw_only=True):
    """A program file that was written."""

    schema: Literal["ticktrue/compile/v1"] = "ticktrue/compile/v1"
    model: ModelInput
    system: SystemInput
    program_sha256: str
    output: str
    size_bytes: int
    proofs: tuple[ProofPart, ...]
    wall_compile_s: float
    wall_total_s: float


class VerifyDocument(Document, frozen=True, kw_only=True):
    """What is wrong with a program, or that nothing is. `violations` are those of the file and the image."""

    schema: Literal["ticktrue/verify/v1"] = "ticktrue/verify/v1"
    file: str
    program_sha256: str
    clean: bool
    violations: tuple[ViolationPart, ...]
    proofs: tuple[ProofPart, ...]
    replay_mismatches: tuple[ViolationPart, ...]


class TimeDocument(Document, frozen=True, kw_only=True):
    """Times of the timetables of a program."""

    schema: Literal["ticktrue/timing/v1"] = "ticktrue/timing/v1"
    file: str
    program_sha256: str
    system: str
    chips: int
    facts_sha256: str
    facts: tuple[FactPart, ...]
    steps: tuple[StepTimes, ...]


class RegionClassPart(Part, frozen=True, kw_only=True):
    """What one class of regions takes of a chip."""

    name: str
    regions: int
    bytes_per_chip: int


class LoopPart(Part, frozen=True, kw_only=True):
    """Chains `first` to `last` that repeat: how often, and how many cycles apart."""

    first: int
    last: int
    count: int
    period_cycles: int


class TimetablePart(Part, frozen=True, kw_only=True):
    """A timetable in numbers; `chains` and `stored_rows` are what is stored: a loop's body once."""

    kind: str
    sha256: str
    chains: int
    templates: int
    stored_rows: int
    loops: tuple[LoopPart, ...]
    scratch_regions: int
    sim_cycles: int
    dataflow: str


class InspectDocument(Document, frozen=True, kw_only=True):
    """A program in numbers; `weights_sha256` is empty for one that cannot be executed, `head_groups` as in `SystemInput`."""

    schema: Literal["ticktrue/inspect/v1"] = "ticktrue/inspect/v1"
    file: str
    program_sha256: str
    intact: bool
    model: str
    spec_sha256: str
    weights_sha256: str
    system: str
    facts_sha256: str
    format: str
    hypothetical: bool
    chips: int
    heads_degree: int
    context_degree: int
    head_groups: tuple[int, ...]
    max_model_len: int
    regions: tuple[RegionClassPart, ...]
    pieces: int
    tensors: int
    timetables: tuple[TimetablePart, ...]


class DifferencePart(Part, frozen=True, kw_only=True):
    """One difference; an empty side does not have the thing."""

    section: str
    what: str
    first: str
    second: str


class DiffDocument(Document, frozen=True, kw_only=True):
    """Differences between two programs."""

    schema: Literal["ticktrue/diff/v1"] = "ticktrue/diff/v1"
    first: str
    second: str
    first_sha256: str
    second_sha256: str
    equal: bool
    differences: tuple[DifferencePart, ...]


class ExplainDocument(Document, frozen=True, kw_only=True):
    """What a violation code means."""

    schema: Literal["ticktrue/explain/v1"] = "ticktrue/explain/v1"
    code: str
    title: str
    text: str
    remedy: str


class SystemPart(Part, frozen=True, kw_only=True):
    """A system in one line."""

    name: str
    title: str
    chip: str
    chips: int
    sram_bytes: int
    hops: tuple[str, ...]


class SystemsDocument(Document, frozen=True, kw_only=True):
    """The systems of the catalog."""

    schema: Literal["ticktrue/systems/v1"] = "ticktrue/systems/v1"
    systems: tuple[SystemPart, ...]


class SystemDocument(Document, frozen=True, kw_only=True):
    """Every number of one system."""

    schema: Literal["ticktrue/system/v1"] = "ticktrue/system/v1"
    name: str
    title: str
    chip: str
    chips: int
    facts_sha256: str
    hops: tuple[str, ...]
    formats: tuple[FormatPart, ...]
    facts: tuple[FactPart, ...]


class RegistryPart(Part, frozen=True, kw_only=True):
    """A model that has a name; `path` is empty until it is fetched."""

    name: str
    title: str
    licence: str
    runnable: bool
    size_bytes: int
    sha256: str
    path: str


class ModelsDocument(Document, frozen=True, kw_only=True):
    """The models that have a name."""

    schema: Literal["ticktrue/models/v1"] = "ticktrue/models/v1"
    models: tuple[RegistryPart, ...]


class FetchedDocument(Document, frozen=True, kw_only=True):
    """A model that is in the cache now."""

    schema: Literal["ticktrue/fetched/v1"] = "ticktrue/fetched/v1"
    name: str
    path: str
    sha256: str


class SpecPart(Part, frozen=True, kw_only=True):
    """Shape and constants; `rope_scaling` is written as one text, empty for none; numbers of what a model lacks are 0."""

    family: str
    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    rope_theta: float
    rms_eps: float
    max_positions: int
    rope_scaling: str
    tied_embeddings: bool
    bos: tuple[int, ...]
    eos: tuple[int, ...]
    activation: str
    sliding_layers: int
    window: int
    experts: int
    experts_per_token: int
    parameters: int


class ModelDocument(Document, frozen=True, kw_only=True):
    """Shape and constants of a model."""

    schema: Literal["ticktrue/model/v1"] = "ticktrue/model/v1"
    ref: str
    path: str
    spec_sha256: str
    chat_template: bool
    licence: str
    spec: SpecPart


def header(argv: Sequence[str]) -> Header:
    """When, what and how, for the document of this command."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Header(created=now, package_version=version("ticktrue"), command=("ticktrue", *argv))


def encode(document: msgspec.Struct) -> bytes:
    """The document as indented JSON with its schema first and one line end."""
    plain = msgspec.to_builtins(document)
    first = {"schema": plain.pop("schema")}
    return msgspec.json.format(msgspec.json.encode(first | plain), indent=2) + b"\n"
