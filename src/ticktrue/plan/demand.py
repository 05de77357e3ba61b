"""What a step asks of one GPU: bytes from memory and operations, block by block, and messages between the GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from ticktrue.errors import UsageError
from ticktrue.hw import Gpu
from ticktrue.plan.allreduce import Floats
from ticktrue.plan.formats import Formats, bytes_per_number, rate_fact
from ticktrue.plan.traffic import KvPiece, Piece, Traffic

Integers = npt.NDArray[np.int64]
IntegerLike = int | Integers

_WIDE = 2.0  # bytes of a bfloat16: activations, embedding, vectors


@dataclass(frozen=True, slots=True)
class Steps:
    """Configurations, one per element; all fields are broadcast against one another.

    Attributes:
        gpus: degree of tensor parallelism. stages: of the pipeline; the system has gpus * stages GPUs.
        batch: sequences. tokens: new ones of each sequence in this step. logits: rows of logits per sequence.
        context: positions of each sequence after the step, the new ones included.
        whole_head: every GPU has the whole head and embedding, as small engines do, instead of a part.
        arrays: the fields as int64 of one shape.

    Raises:
        UsageError: T144, for what is no whole number, or does not broadcast.
    """

    gpus: IntegerLike = 1
    batch: IntegerLike = 1
    context: IntegerLike = 1
    tokens: IntegerLike = 1
    logits: IntegerLike = 1
    stages: IntegerLike = 1
    whole_head: bool = False
    arrays: Mapping[str, Integers] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = ("gpus", "batch", "context", "tokens", "logits", "stages")
        given = {name: np.asarray(getattr(self, name)) for name in names}
        for name, array in given.items():
            if array.dtype.kind != "i":
                raise UsageError(
                    f"expected whole numbers, found {getattr(self, name)!r}", code="T144", where=name
                )
        try:
            values = np.broadcast_arrays(*given.values())
        except ValueError as err:
            shapes = ", ".join(f"{name} {array.shape}" for name, array in given.items())
            raise UsageError(
                f"expected arrays that broadcast against one another, found {shapes}",
                code="T144",
                where="steps",
            ) from err
        arrays = {name: value.astype(np.int64) for name, value in zip(names, values, strict=True)}
        object.__setattr__(self, "arrays", MappingProxyType(arrays))


def decode_steps(gpus: IntegerLike, batch: IntegerLike, context: IntegerLike) -> Steps:
    """One new token for each of `batch` sequences that have `context` positions with it."""
    return Steps(gpus=gpus, batch=batch, context=context)


def prefill_steps(
    gpus: IntegerLike, batch: IntegerLike, prompt: IntegerLike, cached: IntegerLike = 0
) -> Steps:
    """All of a prompt's tokens in one step, after `cached` positions that are there already; logits of the last one."""
    return Steps(gpus=gpus, batch=batch, context=np.asarray(prompt) + np.asarray(cached), tokens=prompt)


@dataclass(frozen=True, slots=True)
class Block:
    """Work that overlaps its own memory traffic: bytes and operations per GPU, and the fact with its peak rate."""

    name: str
    bytes: Floats
    operations: Floats
    rate: str


@dataclass(frozen=True, slots=True)
class Demand:
    """What a step asks of one GPU.

    Attributes:
        blocks: each its own roofline; that of name `kv` is attention over the cache.
        layer_message, end_message: bytes of an all-reduce in a layer (two in each) and at the head (one, 0: none).
        resident: bytes of weights and cache that stay in the memory of one GPU.
    """

    blocks: tuple[Block, ...]
    layers: int
    layer_message: Floats
    end_message: Floats
    kernels: int
    gpus: Integers
    hops: Integers
    resident: Floats


def check_steps(model: Traffic, gpu: Gpu, steps: Steps) -> None:
    """Checks that the configurations can exist.

    Raises:
        UsageError: T143 for a number of GPUs that the heads or the system do not allow; T144 for a value out of range.
    """
    at = steps.arrays
    for name in ("gpus", "batch", "tokens", "logits", "stages"):
        if at[name].size and at[name].min() < 1:
            raise UsageError(f"{name} must be 1 or more, found {at[name].min()}", code="T144", where=name)
    if (at["stages"] > model.layers).any():
        raise UsageError(
            f"expected at most {model.layers} stages, one a layer, found {at['stages'].max()}",
            code="T144",
            where="stages",
        )
    if (at["context"] < at["tokens"]).any():
        worst = int((at["context"] - at["tokens"]).argmin())
        found, new = at["context"].flat[worst], at["tokens"].flat[worst]
        raise UsageError(
            f"context counts the step's tokens too: expected {new} positions or more, found {found}",
            code="T144",
            where="context",
        )
    if (at["logits"] > at["tokens"]).any():
        raise UsageError("logits of more rows than the step has tokens", code="T144", where="logits")
    allowed = legal_degrees(model, gpu)
    for degree in np.unique(at["gpus"]).tolist():
        if degree not in allowed:
            raise UsageError(
                f"{degree} GPUs of {gpu.name} cannot share {model.heads} heads ({_kv_text(model)})",
                code="T143",
                where="gpus",
                hint=f"degrees that can: {', '.join(map(str, allowed))}; more GPUs as stages of a pipeline",
            )


def legal_degrees(model: Traffic, gpu: Gpu) -> tuple[int, ...]:
    """Degrees of tensor parallelism: they divide the heads, divide the KV heads or are a multiple of them, and fit the domain."""
    most = int(gpu.fact("domain_gpus").value)
    return tuple(
        n
        for n in range(1, min(most, model.heads) + 1)
        if model.heads % n == 0 and all(kv % n == 0 or n % kv == 0 for kv in model.kv_heads)
    )


def demand(model: Traffic, gpu: Gpu, formats: Formats, steps: Steps) -> Demand:
    """The demand of checked configurations."""
    at = {name: values.astype(np.float64) for name, values in steps.arrays.items()}
    rows = at["batch"] * at["tokens"]
    out = at["batch"] * at["logits"]
    share = 1.0 if steps.whole_head else at["gpus"]
    split = (at["gpus"] > 1) & (not steps.whole_head)
    return Demand(
        blocks=(*_weight_blocks(model, gpu, formats, at, share), _kv_block(model, formats, at)),
        layers=model.layers,
        layer_message=rows * model.hidden * _WIDE,
        # an all-gather moves half of what an all-reduce does
        end_message=np.where(split, out * model.vocab * _WIDE / 2, 0.0),
        kernels=model.kernels,
        gpus=steps.arrays["gpus"],
        hops=steps.arrays["stages"] - 1,
        resident=_resident(model, formats, at, share),
    )


def expected_distinct(count: int, per_token: int, rows: Floats) -> Floats:
    """Experts that at least one of `rows` tokens is sent to, on average, if each goes to `per_token` of `count` at random."""
    return np.asarray(count * (1.0 - (1.0 - per_token / count) ** rows))


def kv_read(piece: KvPiece, context: Floats, tokens: Floats) -> Floats:
    """Positions of a sequence's cache that the step's tokens see, each counted once."""
    return np.minimum(context, piece.window + tokens - 1) if piece.window else context


def seen(window: int, context: Floats, tokens: Floats) -> Floats:
    """Positions that the step's tokens see, summed over the tokens: row i of T sees min(context − T + i, window)."""
    cached = context - tokens
    whole = np.clip(window - cached, 0, tokens) if window else tokens
    return np.asarray(whole * cached + whole * (whole + 1) / 2 + (tokens - whole) * window)


def _weight_blocks(
    model: Traffic, gpu: Gpu, formats: Formats, at: Mapping[str, Floats], share: float | Floats
) -> tuple[Block, ...]:
    rows, out = at["batch"] * at["tokens"], at["batch"] * at["logits"]
    blocks = []
    for piece in model.pieces:
        fmt = _format(piece, formats)
        cut = share if piece.role == "head" else np.minimum(at["gpus"], piece.limit)
        read, used = _expert_share(model, piece, rows)
        operations = 2.0 * used * piece.elements * (out if piece.role == "head" else rows) / cut
        if piece.role == "small":
            operations = np.zeros_like(rows)
        amount = read * piece.elements * bytes_per_number(fmt) / cut
        blocks.append(Block(piece.role, amount + 0.0 * rows, operations, rate_fact(fmt, gpu)))
    blocks.append(Block("embedding", rows * model.hidden * _WIDE, np.zeros_like(rows), "bf16_flops"))
    return tuple(blocks)


def _expert_share(model: Traffic, piece: Piece, rows: Floats) -> tuple[float | Floats, float]:
    """Share of a piece that is read, and share that a token is multiplied with."""
    if piece.role != "experts":
        return 1.0, 1.0
    count, per_token = model.experts
    return expected_distinct(count, per_token, rows) / count, per_token / count


def _kv_block(model: Traffic, formats: Formats, at: Mapping[str, Floats]) -> Block:
    amount = np.zeros_like(at["batch"])
    for piece in model.kv:
        moved = kv_read(piece, at["context"], at["tokens"]) + at["tokens"]  # read, and the new ones written
        amount = amount + at["batch"] * moved * piece.elements / np.minimum(at["gpus"], piece.limit)
    operations = np.zeros_like(amount)
    for work in model.attention:
        positions = seen(work.window, at["context"], at["tokens"])
        operations = operations + at["batch"] * positions * work.operations / at["gpus"]
    return Block("kv", amount * bytes_per_number(formats.kv), operations, "bf16_flops")


def _resident(model: Traffic, formats: Formats, at: Mapping[str, Floats], share: float | Floats) -> Floats:
    """Bytes in one GPU's memory; stages of a pipeline take equal parts."""
    total = np.zeros_like(at["batch"])
    for piece in model.pieces:
        cut = share if piece.role == "head" else np.minimum(at["gpus"], piece.limit)
        total = total + piece.elements * bytes_per_number(_format(piece, formats)) / cut
    if not model.tied:
        total = total + model.embedding * _WIDE / share
    for kv in model.kv:
        kept = np.minimum(at["context"], kv.window) if kv.window else at["context"]
        numbers = at["batch"] * kept * kv.elements / np.minimum(at["gpus"], kv.limit)
        total = total + numbers * bytes_per_number(formats.kv)
    return np.asarray(total / at["stages"])


def _format(piece: Piece, formats: Formats) -> str:
    match piece.role:
        case "attention":
            return formats.attention
        case "ffn" | "experts":
            return formats.ffn
        case "head":
            return formats.head
        case "small":
            return "bf16"


def _kv_text(model: Traffic) -> str:
    if not model.kv_heads:
        return "latent attention"
    return f"KV heads: {', '.join(map(str, model.kv_heads))}"
