"""Models, options and machines drawn at random, and what must hold of every one of them that the compiler accepts.

A case is decided by its seed. Sizes stand at the edges where layouts change: tiles of 80, 160 and 320 lanes, blocks of 64
positions, heads that fill a beat or need two, windows of a position or of just a ring, one expert for a token or all.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from tests.families import write_family
from tests.models import LlamaShape, write_llama
from tests.stepping import Stepper, same_bits

from ticktrue.compile import (
    TOKENS,
    Options,
    assemble,
    bucket,
    compile_image,
    compile_timetable,
    image_blocks,
    tokens_kind,
)
from ticktrue.execute import Machine
from ticktrue.graph.oracle import Cache, Oracle
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.hw import System, load_system
from ticktrue.model import Model, load_model
from ticktrue.partition import kv_heads, legal_degrees
from ticktrue.program import Image, StepKind
from ticktrue.sim import simulate
from ticktrue.verify import verify
from ticktrue.verify.dataflow import check_dataflow

HEADS = (2, 16, 30, 64, 64, 72, 80, 96, 112, 128, 160, 192, 256, 318, 320, 322, 512, 576, 640)
HIDDEN = (2, 16, 62, 96, 158, 160, 162, 202, 320, 322)
FFN = (1, 2, 7, 64, 159, 161, 321)
VOCAB = (5, 12, 100, 319, 321, 700)
WINDOWS = (1, 2, 63, 64, 65, 100, 127, 128, 129, 1_000)
FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "gemma3", "gemma4", "qwen3_moe")
WINDOWED = {"mistral", "gemma3", "gemma4"}
SYSTEMS = ("groq3-lpx-tray", "groq3-lpx-tray", "groq3-lpx-tray8", "groq3-lpx")
FACTS: Mapping[str, tuple[int, ...]] = {
    "mem_narrow_vectors": (1, 2, 3, 8),
    "mem_wide_read_vectors": (8, 31, 100),
    "mem_narrow_read_ports": (5, 8),
    "mem_write_ports": (2, 3, 8),
    "mem_read_cycles": (1, 20),
    "mem_write_cycles": (1, 15),
    "gather_extra_cycles": (0, 9),
    "mxm_byte_planes": (4, 8, 32),
    "mxm_double_buffer": (0, 1),
    "mxm_weight_load_bytes_per_cycle": (2_560, 40_000),
    "mxm_pass_cycles": (1, 60),
    "vxm_ports": (8, 40),
    "sxm_ports": (4, 16),
    "streams": (48, 256),
    "register_write_cycles": (1, 30),
}
"""Numbers of a chip that change how a timetable looks, never what it computes."""
RAGGED = 5
"""Steps of a trial that are of any kind; twice as many bring any number of tokens."""


@dataclass(frozen=True)
class Case:
    """What one seed stands for; `name` says it all, so that a failure can be repeated."""

    seed: int
    family: str
    config: Mapping[str, object]
    options: Options
    on: str
    chips: int
    facts: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.seed}: {self.family} {dict(self.config)} {self.options} {self.on} {self.chips} {dict(self.facts)}"


def _shape(r: random.Random, family: str) -> dict[str, object]:
    kv, group, d = r.choice([1, 1, 2, 3, 4, 6]), r.choice([1, 1, 2, 3, 5]), r.choice(HEADS)
    if kv * group * d > 2_000:
        kv, group = 1, r.choice([1, 2])
    hidden, layers = r.choice(HIDDEN), r.choice([1, 1, 2, 2, 3, 5])
    if family == "gemma3" and hidden % (kv * group):  # a multiple of the heads, as `transformers` wants
        hidden = 2 * kv * group * r.choice([1, 8, 20])
    return {
        "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": kv * group, "num_key_value_heads": kv,
        "head_dim": d, "intermediate_size": r.choice(FFN), "vocab_size": r.choice(VOCAB),
        "tie_word_embeddings": r.choice([True, False]),
    }  # fmt: skip


def _of_family(r: random.Random, family: str, shape: dict[str, object]) -> dict[str, object]:
    more: dict[str, object] = {}
    if family in WINDOWED:
        more["sliding_window"] = r.choice(WINDOWS)
    if family in {"gemma3", "gemma4"}:
        kinds = [
            r.choice(["sliding_attention", "full_attention"])
            for _ in range(int(str(shape["num_hidden_layers"])))
        ]
        more["layer_types"] = (
            [*kinds[:-1], "full_attention"] if len(kinds) > 1 or family == "gemma4" else kinds
        )
    if family == "gemma4":
        heads = int(str(shape["num_key_value_heads"]))
        more["num_global_key_value_heads"] = r.choice([k for k in range(1, heads + 1) if heads % k == 0])
        more["global_head_dim"] = r.choice([64, 128, 160, 256, 320, 512])
        more["attention_k_eq_v"] = r.choice([True, False])
    if family == "qwen3_moe":
        count = r.choice([2, 3, 8, 17])
        more |= {"num_experts": count, "num_experts_per_tok": r.choice([1, 2, count]),
                 "moe_intermediate_size": r.choice([1, 7, 64, 170])}  # fmt: skip
    return more


def draw(seed: int, *, facts: bool = False) -> Case:
    """A case; `facts`: of a chip of other numbers as well."""
    r = random.Random(seed)
    family = r.choice(FAMILIES)
    shape = _shape(r, family)
    config = shape | _of_family(r, family, shape)
    fmt = r.choice(["bf16", "f32"] if family == "qwen3_moe" else ["bf16", "int8", "fp8", "f32"])
    kv = r.choice(["auto", "fp8"]) if fmt != "f32" else "auto"
    slots = r.choice([1, 1, 2, 3, 5])
    context = r.choice([1, 5, 63, 64, 65, 130, 200, *([330] if slots == 1 else [])])
    t_max = r.choice([1, 2, 8, 16, 64, 64, 128, 256])
    options = Options(fmt, context, fmt == "f32", slots, t_max, kv)
    on = r.choice(SYSTEMS)
    system = load_system(on)
    legal = legal_degrees(
        kv_heads(model_of(family, seed, config).spec), min(16, system.gather_chips), system.tray_chips
    )
    changed = {name: r.choice(FACTS[name]) for name in r.sample(sorted(FACTS), 4)} if facts else {}
    return Case(seed, family, config, options, on, r.choice(legal), changed)


def model_of(family: str, seed: int, config: Mapping[str, object]) -> Model:
    """The model of a case; its weights come from the seed as well."""
    return _model(
        family, seed, tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in sorted(config.items()))
    )


@cache
def _model(family: str, seed: int, config: tuple[tuple[str, object], ...]) -> Model:
    c = dict(config)
    directory = Path(mkdtemp()) / "m"
    if family == "llama":
        shape = LlamaShape(
            layers=c["num_hidden_layers"], hidden=c["hidden_size"], heads=c["num_attention_heads"],
            kv_heads=c["num_key_value_heads"], head_dim=c["head_dim"], ffn=c["intermediate_size"], vocab=c["vocab_size"],
            tied=c["tie_word_embeddings"],
        )  # type: ignore[arg-type] # fmt: skip
        return load_model(str(write_llama(directory, seed, shape)))
    return load_model(str(write_family(directory, family, seed, **c)))


def system_of(case: Case) -> System:
    system = load_system(case.on).subset(case.chips)
    for name, value in case.facts.items():
        system = system.with_fact(name, value)
    return system


@dataclass
class Trial:
    """A case under test: its model on its machine."""

    case: Case

    def __post_init__(self) -> None:
        self.model = model_of(self.case.family, self.case.seed, self.case.config)
        self.system = system_of(self.case)
        self.image: Image = compile_image(self.model.spec, self.system, self.case.options)
        self.random = random.Random(self.case.seed + 10**6)

    @property
    def blocks(self) -> int:
        return image_blocks(self.case.options.max_context, self.case.options.t_max)

    def kinds(self) -> list[StepKind]:
        """Two step kinds that the image has room for: logits of the last token, and of all."""
        r, options = self.random, self.case.options
        tokens = r.choice([t for t in TOKENS if t <= options.t_max])
        fits = [b for b in range(1, self.blocks + 1) if b * 64 >= tokens]
        return [
            StepKind(tokens, r.randint(1, options.slots), r.choice(fits), logits, r.choice(["chip", "host"]))
            for logits in ("last", "all")
        ]

    def prove(self) -> None:
        """Every rule of the machine, the replay, and the dataflow digest, of two step kinds in one program."""
        kinds = self.kinds()
        program = assemble(
            self.image, [compile_timetable(self.model.spec, self.system, self.image, kind) for kind in kinds]
        )
        assert verify(program, self.system).violations == (), (self.case.name, kinds)
        assert all(simulate(program, self.system, kind).clean for kind in kinds), (self.case.name, kinds)
        assert check_dataflow(program, self.system) == (), (self.case.name, kinds)

    def compute(self, most: int = 400) -> None:
        """Ragged steps of all slots, up to `most` tokens in all, against the oracle on each sequence alone, bit for bit."""
        r, options, spec = self.random, self.case.options, self.model.spec
        lengths = [
            options.max_context,
            *(r.randint(1, options.max_context) for _ in range(options.slots - 1)),
        ]
        lengths = [min(n, max(1, most // options.slots)) for n in lengths]
        tokens = [np.random.default_rng(i).integers(0, spec.vocab, n).tolist() for i, n in enumerate(lengths)]
        oracle = Oracle(
            spec,
            self.model.weights(),
            options.fmt,
            fast_matmul,
            Cache("e4m3") if options.kv == "fp8" else None,
        )
        expected = [oracle.forward(t).logits for t in tokens]
        stepper = Stepper(spec, self.model.weights(), self.system, self.image)
        machine, at, steps = Machine(self.image, self.model.weights(), self.system), [0] * options.slots, 0
        while any(a < n for a, n in zip(at, lengths, strict=True)):
            kind, parts = self._step(tokens, at, steps)
            steps += 1
            if not parts[0] if kind.slots == 1 else not any(parts):
                continue
            result = machine.batch(stepper.timetable(kind), parts, at[: kind.slots])
            for slot, part in enumerate(parts):
                first = slot * kind.tokens if kind.logits == "all" else slot
                wanted = expected[slot][at[slot] : at[slot] + len(part)]
                wanted = wanted if kind.logits == "all" else wanted[-1:]
                rows = slice(first, first + len(wanted))
                assert same_bits(result.logits[rows], wanted), (self.case.name, kind, slot, at)
                assert (result.next_token[rows] == wanted.argmax(axis=1)).all(), (
                    self.case.name,
                    kind,
                    slot,
                    at,
                )
                at[slot] += len(part)

    def _step(self, tokens: list[list[int]], at: list[int], steps: int) -> tuple[StepKind, list[list[int]]]:
        """What the first slots take in a step, and its kind: anything legal at first, then as much as there is."""
        r, options = self.random, self.case.options
        slots, widest, logits = options.slots, options.t_max, "all"
        if steps < RAGGED:
            slots, logits = r.randint(1, slots), r.choice(["all", "all", "last"])
            widest = r.choice([t for t in TOKENS if t <= widest])
        takes = [
            r.choice([0, r.randint(1, widest), widest]) if steps < 2 * RAGGED else widest
            for _ in range(slots)
        ]
        parts = [t[a : a + n] for t, a, n in zip(tokens, at, takes, strict=False)]
        width = tokens_kind(max(1, *(len(p) for p in parts), 1)) if r.random() < 1 / 2 else widest
        blocks = bucket(max(at[:slots]) + width, self.blocks)
        if steps < RAGGED:
            blocks = r.randint(-(-(max(at[:slots]) + width) // 64), self.blocks)
        return StepKind(width, slots, blocks, logits, "chip"), parts
