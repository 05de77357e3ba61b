"""Published decode speeds of GPUs, most at batch 1, predicted: the rows that `ticktrue validate` prints for the GPU model.

One row sets constants, Llama-2-7B in bf16 on one A100: the kernel overhead of every GPU is what it takes beyond its bytes, at
the bandwidth efficiency that the same page states. All others were in sight when the model was written, but set nothing.
"""

from dataclasses import dataclass, field, replace

from ticktrue.hw import load_gpu
from ticktrue.model import Family, ModelSpec
from ticktrue.model.count import known_spec
from ticktrue.plan.demand import Steps, prefill_steps
from ticktrue.plan.formats import BF16, Formats
from ticktrue.plan.gpu import GpuTime, require_fit, step_time
from ticktrue.plan.rows import Row, RowKind
from ticktrue.plan.traffic import EVERY, KvPiece, Piece, Traffic, traffic

_INT8 = Formats(attention="int8", ffn="int8", head="int8")
_INT4 = Formats(attention="int4", ffn="int4", head="int4")
_NVFP4_FFN = Formats(ffn="nvfp4")
_NVFP4_FFN_FP8_KV = Formats(ffn="nvfp4", kv="fp8")

LLAMA2_7B = ModelSpec(
    family=Family.LLAMA,
    name="llama-2-7b",
    layers=32,
    hidden=4_096,
    heads=32,
    kv_heads=32,
    head_dim=128,
    ffn=11_008,
    vocab=32_000,
    rope_theta=1e4,
    rms_eps=1e-5,
    max_positions=4_096,
)
LLAMA2_70B = replace(LLAMA2_7B, name="llama-2-70b", layers=80, hidden=8_192, heads=64, kv_heads=8, ffn=28_672)
LLAMA32_1B = replace(
    LLAMA2_7B,
    name="llama-3.2-1b",
    layers=16,
    hidden=2_048,
    kv_heads=8,
    head_dim=64,
    ffn=8_192,
    vocab=128_256,
    tied_embeddings=True,
)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a figure was read, how, and under which conditions it was measured."""

    key: str
    date: str
    url: str
    read: str
    conditions: str


GPTFAST = Source(
    key="gpt-fast README",
    date="2024",
    url="https://github.com/pytorch-labs/gpt-fast/blob/0f925b5d4ce457b89a7ca6c9ce50f42bf2576945/README.md",
    read="whole",
    conditions="prompt of 5 tokens, 200 new ones; GPUs limited to 330 W, no NVSwitch; the whole head on every GPU",
)
IBM = Source(
    key="PyTorch blog, IBM",
    date="2023",
    url="https://pytorch.org/blog/pytorch-compile-to-speed-up-inference/",
    read="its beginning, with the figure and the table of models; not the table of lengths",
    conditions="fp16; lengths not read, 512 taken",
)
TRTLLM = Source(
    key="TensorRT-LLM tech blog 1",
    date="2025-05-16",
    url="https://github.com/NVIDIA/TensorRT-LLM/blob/476ae55939ad2db5a14a71223e1d9241826ed959/docs/source/blogs/tech_blog/"
    "blog01_Pushing_Latency_Boundaries_Optimizing_DeepSeek-R1_Performance_on_NVIDIA_B200_GPUs.md",
    read="its tables of precision, parallelism, steps of optimisation and MTP",
    conditions="1k in, 2k out: context 2,048; attention bf16; EP2 x TP4 taken as TP8",
)
VLLM = Source(
    key="vLLM pull request 41745",
    date="2026-05-05",
    url="https://github.com/vllm-project/vllm/pull/41745",
    read="the comment with both runs",
    conditions="SPEED-Bench coding, temperature 1, mean of 251 in, 524 out: context 513; drafter of 0.47 B parameters, 4 layers",
)
SGLANG = Source(
    key="SGLang pull request 31216",
    date="2026-07-14",
    url="https://github.com/sgl-project/sglang/pull/31216",
    read="its description",
    conditions="1,000 in, 1,000 out: context 1,500; kernel overhead as on NVIDIA GPUs",
)
HAZY = Source(
    key="Hazy Research, No Bubbles",
    date="2025-05-27",
    url="https://hazyresearch.stanford.edu/blog/2025-05-27-no-bubbles",
    read="in copies and summaries",
    conditions="32 in, 128 out: context 112; a share of 3.35 TB/s over our count of bytes",
)
SOURCES = (GPTFAST, IBM, TRTLLM, VLLM, SGLANG, HAZY)


@dataclass(frozen=True, slots=True)
class Also:
    """Other steps in the same time: a draft model's passes before a verify step, or prefills of a batch's next requests.

    `times` of them for each step of the point, on average.
    """

    model: Traffic
    steps: Steps
    times: float
    formats: Formats = BF16


@dataclass(frozen=True, slots=True)
class Point:
    """One published speed in tokens/s of one user. `length`: tokens per verify step, as published; 1 without speculation."""

    name: str
    model: Traffic
    gpu: str
    published: float
    source: Source
    kind: RowKind = "check"
    formats: Formats = BF16
    steps: Steps = field(default_factory=Steps)
    length: float = 1.0
    also: Also | None = None
    note: str = ""


def gpu_rows() -> tuple[Row, ...]:
    """All points, predicted. The first is the fit."""
    return tuple(_row(point) for point in points())


def points() -> tuple[Point, ...]:
    """The published figures, by source."""
    return (*_gpt_fast(), *_engines(), *_deepseek(), *_gemma(), *_megakernel())


LEFT_OUT: tuple[tuple[str, str], ...] = (
    (
        "8 x B200, Llama 4 Maverick with EAGLE-3, > 1,000 tokens/s (NVIDIA, 2025-05-22)",
        "a lower bound whose acceptance length is not published, and no shape of the model comes with the package",
    ),
    (
        "1 x MI300X, Gemma 4 31B, batches of 256 and more (SGLang pull request 31216)",
        "its output per second no longer grows and the first token takes 40 s: requests wait, and no step's time shows",
    ),
    (
        "8 x B200, DeepSeek-R1, the other steps of the same blog (73 to 249 and 299, 340)",
        "states of one engine in the making; its first, one without speculation and two with it are here",
    ),
)


def predict(point: Point) -> GpuTime:
    """The time of the point's verify or decode step alone; refuses what does not fit."""
    gpu = load_gpu(point.gpu)
    time = step_time(point.model, gpu, point.formats, point.steps)
    require_fit(gpu, time)
    return time


def kernel_overhead_ns(point: Point) -> float:
    """The overhead per kernel that would make the prediction of a point exact: how the fit row sets it."""
    best = predict(point).best
    rest = point.length / point.published - float(best.total_s - best.overhead_s)
    return rest / point.model.kernels * 1e9


def _row(point: Point) -> Row:
    time = predict(point)
    seconds = [float(parts.total_s) for parts in (time.best, time.low, time.high)]
    if point.also is not None:
        other = step_time(point.also.model, load_gpu(point.gpu), point.also.formats, point.also.steps)
        for i, parts in enumerate((other.best, other.low, other.high)):
            seconds[i] += point.also.times * float(parts.total_s)
    best, fast, slow = (point.length / s for s in seconds)
    speculation = f"acceptance length {point.length}" if point.length != 1.0 else ""
    note = "; ".join(text for text in (point.source.conditions, point.note) if text)
    degree = int(point.steps.arrays["gpus"])
    return Row(
        name=point.name,
        system=f"{degree} x {point.gpu}",
        kind=point.kind,
        unit="tokens/s",
        published=point.published,
        best=best,
        low=slow,
        high=fast,
        source=point.source.key,
        date=point.source.date,
        inputs=speculation,
        note=note,
    )


def _gpt_fast() -> tuple[Point, ...]:
    """All rows of its tables without speculation on NVIDIA GPUs. Each GPU has the whole head, as its bandwidth column shows."""
    small, large = traffic(LLAMA2_7B), traffic(LLAMA2_70B)

    def point(
        model: Traffic, gpus: int, published: float, fmt: str = "bf16", kind: RowKind = "check"
    ) -> Point:
        name = "Llama-2-7B" if model is small else "Llama-2-70B"
        return Point(
            name=f"{name} {fmt}",
            model=model,
            gpu="a100",
            published=published,
            source=GPTFAST,
            kind=kind,
            formats={"bf16": BF16, "int8": _INT8, "int4": _INT4}[fmt],
            steps=Steps(gpus=gpus, context=205, whole_head=True),
        )

    return (
        point(small, 1, 104.9, kind="fit"),
        point(small, 1, 155.58, "int8"),
        point(small, 1, 196.80, "int4"),
        point(large, 1, 19.13, "int8"),
        point(large, 1, 25.25, "int4"),
        point(small, 2, 168.84),
        point(small, 4, 254.02),
        point(small, 8, 328.43),
        point(large, 2, 21.32),
        point(large, 4, 38.01),
        point(large, 8, 62.50),
        point(large, 8, 80.44, "int8"),
        point(large, 8, 90.77, "int4"),
    )


def _engines() -> tuple[Point, ...]:
    """Llama-2-70B in another engine, and Gemma 4 31B alone and in batches: a slot takes a new request each 1,000 tokens."""
    gemma = traffic(known_spec("gemma-4-31b"))

    def batch(size: int, milliseconds: float) -> Point:
        refill = Also(gemma, prefill_steps(1, 1, 1_000), size / 1_000)
        return Point(
            name=f"Gemma 4 31B bf16, batch {size}",
            model=gemma,
            gpu="mi300x",
            published=1_000 / milliseconds,
            source=SGLANG,
            steps=Steps(batch=size, context=1_500),
            also=refill if size > 1 else None,
            note=f"published as {milliseconds} ms per token"
            + ("; with the prefills of next requests" if size > 1 else ""),
        )

    return (
        Point(
            name="Llama-2-70B fp16, torch.compile",
            model=traffic(LLAMA2_70B),
            gpu="a100",
            published=1_000 / 29,
            source=IBM,
            steps=Steps(gpus=8, context=512),
            note="published as 29 ms per token",
        ),
        batch(1, 21.49),
        batch(16, 31.45),
        batch(64, 62.93),
    )


def _deepseek() -> tuple[Point, ...]:
    """DeepSeek-R1 has DeepSeek-V3's shape. Attention, head and cache in bf16, feed-forward in NVFP4, the MTP layer in bf16."""
    spec = known_spec("deepseek-v3")
    assert spec.experts is not None  # noqa: S101, the shape comes with the package
    layer = traffic(replace(spec, layers=1, experts=replace(spec.experts, dense_layers=0)))

    def point(name: str, published: float, length: float = 1.0, passes: int = 0) -> Point:
        return Point(
            name=f"DeepSeek-R1 nvfp4, {name}",
            model=traffic(spec),
            gpu="b200",
            published=published,
            source=TRTLLM,
            formats=_NVFP4_FFN,
            steps=Steps(gpus=8, context=2_048, tokens=1 + passes, logits=1 + passes),
            length=length,
            also=Also(layer, Steps(gpus=8, context=2_048), passes) if passes else None,
            note="the MTP layer without its product of two hidden states" if passes else "",
        )

    return (
        point("first state of the engine", 67.0),
        point("without MTP, in the state of the next row", 111.0),
        point("MTP 3", 253.0, 2.82, 3),
        point("MTP 3, relaxed acceptance", 368.0, 3.06, 3),
    )


def _gemma() -> tuple[Point, ...]:
    """Drafter: 4 layers, 0.47 B parameters, no cache of its own; it reads the target's last layers of each kind."""
    target = traffic(known_spec("gemma-4-31b"))
    drafter = Traffic(
        hidden=1_024,
        vocab=262_144,
        layers=4,
        pieces=(Piece("ffn", 470_000_000, EVERY),),
        kv=(KvPiece(8_192, 1_024, EVERY), KvPiece(4_096, 0, EVERY)),
        attention=(),
        embedding=0,
        tied=True,
        experts=(0, 0),
        kernels=4 * 12 + 4 + 2,
        heads=32,
        kv_heads=(),
    )

    def point(name: str, published: float, length: float, formats: Formats) -> Point:
        return Point(
            name=f"Gemma 4 31B {name}, MTP 7",
            model=target,
            gpu="b300",
            published=published,
            source=VLLM,
            formats=formats,
            steps=Steps(context=513, tokens=8, logits=8),
            length=length,
            also=Also(drafter, Steps(context=513), 7),
        )

    return (
        point("bf16", 305.0, 5.37, BF16),
        point("nvfp4 feed-forward", 350.0, 5.19, _NVFP4_FFN_FP8_KV),
    )


def _megakernel() -> tuple[Point, ...]:
    """Shares of the memory's peak rate as speeds: engines reach half of it at most, one kernel for the whole step 78 %."""
    model = traffic(LLAMA32_1B)
    steps = Steps(context=112)
    read = sum(piece.elements for piece in model.pieces) * 2 + 112 * model.kv[0].elements * 2
    whole = load_gpu("h100").fact("memory_bytes_per_second").value / read

    def point(name: str, share: float) -> Point:
        return Point(
            name=f"Llama-3.2-1B bf16, {name}",
            model=model,
            gpu="h100",
            published=share * whole,
            source=HAZY,
            kind="upper bound",
            steps=steps,
        )

    return (point("vLLM and SGLang, 50 % of bandwidth", 0.5), point("one kernel, 78 % of bandwidth", 0.78))
