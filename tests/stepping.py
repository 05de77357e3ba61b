"""Runs a compiled model over a token list in chunks, all logits kept: what the bit tests compare with the oracle."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ticktrue.compile import Options, bucket, compile_image, image_blocks, tokens_kind, unproved_timetable
from ticktrue.execute import Machine
from ticktrue.hw import System, load_system
from ticktrue.model import ModelSpec, Weights
from ticktrue.program import Image, StepKind, Timetable


@dataclass
class Stepper:
    """A model on some chips; timetables are made once and shared by all runs, without the digest: bits are what is compared."""

    spec: ModelSpec
    weights: Weights
    system: System
    image: Image
    timetables: dict[StepKind, Timetable] = field(default_factory=dict)

    @staticmethod
    def make(
        spec: ModelSpec,
        weights: Weights,
        chips: int,
        fmt: str = "bf16",
        max_context: int = 1300,
        on: str = "groq3-lpx-tray",
    ) -> "Stepper":
        system = load_system(on).subset(chips)
        options = Options(fmt, max_context, hypothetical=fmt == "f32")
        return Stepper(spec, weights, system, compile_image(spec, system, options))

    def timetable(self, kind: StepKind) -> Timetable:
        if kind not in self.timetables:
            self.timetables[kind] = unproved_timetable(self.spec, self.system, self.image, kind)
        return self.timetables[kind]

    def run(
        self, tokens: Sequence[int], chunk: int, keep: Sequence[int] | None = None
    ) -> tuple[np.ndarray, Machine]:
        """Logits [positions, vocab] (of the positions in `keep`, else all) and the machine after the last step."""
        machine = Machine(self.image, self.weights, self.system)
        return self.continue_run(machine, tokens, 0, chunk, keep), machine

    def continue_run(
        self,
        machine: Machine,
        tokens: Sequence[int],
        start: int,
        chunk: int,
        keep: Sequence[int] | None = None,
    ) -> np.ndarray:
        """Logits of positions start, start + 1, ... on a machine that already holds the positions before."""
        blocks, wanted = image_blocks(self.image.key.max_context), None if keep is None else set(keep)
        out = []
        for pos in range(start, len(tokens), chunk):
            part = tokens[pos : pos + chunk]
            width = tokens_kind(len(part))
            kind = StepKind(width, 1, bucket(pos + width, blocks), "all", "chip")
            result = machine.step(self.timetable(kind), part, pos)
            rows = range(len(part)) if wanted is None else [i for i in range(len(part)) if pos + i in wanted]
            out.append(result.logits[rows])
            best = result.logits[: len(part)].argmax(axis=1)
            assert (result.next_token[: len(part)] == best).all(), (
                "greedy choice on chip is not the first largest logit"
            )
        return np.concatenate(out)

    def cache(self, machine: Machine, positions: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """K and V as float32[positions, kv_heads, head_dim] per layer, read from the chips that own them."""
        key, plan = self.image.key, self.image.key.plan
        d, local = key.head_dim, key.kv_heads // plan.h
        out: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        f32 = key.fmt == "f32"
        for layer in range(self.spec.layers):
            for which in range(2):
                full = np.zeros((positions, key.kv_heads, d), dtype=np.float32)
                for region in self.image.regions:
                    if region.packing.name != "KV" or region.p0 != 2 * layer + which:
                        continue
                    heads = min(local - region.p1, max(1, (80 if f32 else 160) // d))
                    for p in range(positions):
                        owner = (p // 64) % plan.cp
                        slot = (p // 64 // plan.cp) * 64 + p % 64
                        for hg in range(plan.h):
                            at = machine.memory.vector(hg * plan.cp + owner, region) + slot * region.stride
                            words = machine.memory.words[at * 160 : (at + region.stride) * 160]
                            values = (
                                words.view(np.float32)
                                if f32
                                else (words.astype(np.uint32) << 16).view(np.float32)
                            )
                            head = hg * local + region.p1
                            full[p, head : head + heads] = values[: heads * d].reshape(heads, d)
                out[which].append(full)
        return out


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two float32 arrays agree bit for bit."""
    return a.shape == b.shape and bool(
        (np.ascontiguousarray(a).view(np.int32) == np.ascontiguousarray(b).view(np.int32)).all()
    )
