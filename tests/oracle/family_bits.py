"""What the bit tests of families share: models, oracles, and ragged batches run in chunks against sequences run alone."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from tests.families import write_family
from tests.models import TINY_KV3, write_llama
from tests.stepping import Stepper, same_bits

from ticktrue.compile import bucket, image_blocks, tokens_kind
from ticktrue.execute import Machine
from ticktrue.graph.oracle import Oracle, OracleResult
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.model import Model, load_model
from ticktrue.program import StepKind

PREFILL = 64
"""Chunk in which a long context is filled before the part whose logits are compared."""


@cache
def model(name: str) -> Model:
    """A two-layer model of a family, or the Llama with 3 KV heads."""
    directory = Path(mkdtemp()) / name
    return load_model(
        str(write_llama(directory, 5, TINY_KV3) if name == "llama" else write_family(directory, name))
    )


def tokens_of(name: str, count: int, seed: int) -> list[int]:
    """Fixed random tokens; a longer list begins with the shorter one."""
    return np.random.default_rng(seed).integers(0, model(name).spec.vocab, count).tolist()


@cache
def reference(name: str, fmt: str, count: int, seed: int) -> OracleResult:
    """The oracle on a sequence alone."""
    oracle = Oracle(model(name).spec, model(name).weights(), fmt, matmul=fast_matmul)
    return oracle.forward(tokens_of(name, count, seed))


@cache
def stepper(name: str, chips: int, fmt: str, context: int, slots: int, t_max: int = 64) -> Stepper:
    """A compiled model; timetables are shared by all runs over it."""
    return Stepper.make(
        model(name).spec, model(name).weights(), chips, fmt, context, slots=slots, t_max=t_max
    )


@dataclass(frozen=True)
class Config:
    """One ragged batch: a sequence of each length in `contexts`, the last `tail` tokens of each in chunks of `chunk`."""

    chips: int
    chunk: int
    fmt: str
    contexts: tuple[int, ...]
    tail: int = 0

    @property
    def label(self) -> str:
        return f"{self.chips}-{self.chunk}-{self.fmt}-{'.'.join(map(str, self.contexts))}"


def feed(s: Stepper, machine: Machine, parts: list[list[int]], at: list[int]) -> list[np.ndarray]:
    """One step; logits [tokens, vocab] of each sequence. A sequence without tokens sits it out."""
    key = s.image.key
    width = tokens_kind(max(map(len, parts)))
    last = max(at) + width
    kind = StepKind(width, len(parts), bucket(last, image_blocks(key.max_context, key.t_max)), "all", "chip")
    result = machine.batch(s.timetable(kind), parts, at)
    rows = [result.logits[i * width : i * width + len(part)] for i, part in enumerate(parts)]
    for i, part in enumerate(parts):
        chosen = result.next_token[i * width : i * width + len(part)]
        assert (chosen == rows[i].argmax(axis=1)).all(), "the choice on chip is not the first largest logit"
    return [x.copy() for x in rows]


def check(name: str, config: Config, *, state: bool = True) -> None:
    """Runs a batch and compares logits of the tail, and K and V of every position still held, with each sequence alone."""
    contexts, chunk = config.contexts, config.chunk
    s = stepper(name, config.chips, config.fmt, max(contexts), len(contexts))
    expected = [reference(name, config.fmt, n, 11 + i) for i, n in enumerate(contexts)]
    tokens = [tokens_of(name, n, 11 + i) for i, n in enumerate(contexts)]
    machine = Machine(s.image, s.weights, s.system)
    at = [0] * len(contexts)
    compare = [max(0, n - config.tail) if config.tail else 0 for n in contexts]
    while any(a < n for a, n in zip(at, contexts, strict=True)):
        early = any(a < c for a, c in zip(at, compare, strict=True))
        ends = [
            min(a + PREFILL, c) if early else min(a + chunk, n)
            for a, c, n in zip(at, compare, contexts, strict=True)
        ]
        parts = [t[a:e] for t, a, e in zip(tokens, at, ends, strict=True)]
        for i, rows in enumerate(feed(s, machine, parts, at)):
            assert same_bits(rows, expected[i].logits[at[i] : at[i] + len(rows)]), (i, at[i])
        at = [a + len(p) for a, p in zip(at, parts, strict=True)]
    if state:
        check_state(s, machine, contexts, expected)


def check_state(
    s: Stepper, machine: Machine, contexts: tuple[int, ...], expected: list[OracleResult]
) -> None:
    """K and V of every slot and layer: all positions, or those that a sliding layer's window still sees."""
    for slot, count in enumerate(contexts):
        k, v = s.cache(machine, count, slot)
        for layer in range(s.spec.layers):
            of = s.image.key.of_layer(layer)
            first = max(0, count - of.window) if of.ring else 0
            assert same_bits(k[layer][first:], expected[slot].k[layer][first:]), ("K", slot, layer)
            assert same_bits(v[layer][first:], expected[slot].v[layer][first:]), ("V", slot, layer)
