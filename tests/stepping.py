"""Runs a compiled model over a token list in chunks, all logits kept: what the bit tests compare with the oracle."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ticktrue.compile import Options, bucket, compile_image, image_blocks, tokens_kind, unproved_timetable
from ticktrue.execute import Machine
from ticktrue.hw import System, load_system
from ticktrue.model import ModelSpec, Weights
from ticktrue.model.quantize import from_e4m3
from ticktrue.program import AttentionKey, Image, Region, StepKind, Timetable


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
        spec: ModelSpec, weights: Weights, chips: int, fmt: str = "bf16", max_context: int = 1300,
        on: str = "groq3-lpx-tray", **more: object,
    ) -> "Stepper":  # fmt: skip
        """`more`: slots, t_max, kv, kv_scales and heads of `Options`."""
        system = load_system(on).subset(chips)
        options = Options(fmt, max_context, hypothetical=fmt == "f32", **more)
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
        key, wanted = self.image.key, None if keep is None else set(keep)
        blocks = image_blocks(key.max_context, key.t_max)
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

    def run_batch(
        self, tokens: Sequence[Sequence[int]], chunk: int, machine: Machine | None = None
    ) -> tuple[list[np.ndarray], Machine]:
        """Logits [positions, vocab] of every sequence, each in its own slot, in the same steps; short ones sit out the last."""
        machine = machine or Machine(self.image, self.weights, self.system)
        blocks = image_blocks(self.image.key.max_context, self.image.key.t_max)
        out: list[list[np.ndarray]] = [[] for _ in tokens]
        at = [0] * len(tokens)
        while any(a < len(t) for a, t in zip(at, tokens, strict=True)):
            parts = [t[a : a + chunk] for a, t in zip(at, tokens, strict=True)]
            width = tokens_kind(max(map(len, parts)))
            last = max(a + width for a in at)
            kind = StepKind(width, len(tokens), bucket(last, blocks), "all", "chip")
            result = machine.batch(self.timetable(kind), parts, at)
            for slot, part in enumerate(parts):
                rows = result.logits[slot * width : slot * width + len(part)]
                out[slot].append(rows)
                chosen = result.next_token[slot * width : slot * width + len(part)]
                assert (chosen == rows.argmax(axis=1)).all()
                at[slot] += len(part)
        return [np.concatenate(rows) for rows in out], machine

    def cache(
        self, machine: Machine, positions: int, slot: int = 0
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """K and V as float32[positions, kv_heads, head_dim] per layer, read from the chips that own them.

        Of a sliding layer only the positions that the ring still holds are filled in, the others stay zero.
        """
        key = self.image.key
        out: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        for layer in range(self.spec.layers):
            of, grid = key.of_layer(layer), key.grid_of(layer)
            d, width = of.head_dim, of.kv_heads // grid.h * of.head_dim
            for which in range(2):
                full = np.zeros((positions, of.kv_heads * d), dtype=np.float32)
                first = max(0, positions - of.window) if of.ring else 0
                for region in self.image.regions:
                    if region.packing.name != "KV" or region.p0 != 2 * layer + which:
                        continue
                    lanes = region.stride * {"f32": 80, "bf16": 160, "fp8": 320}[key.kv]
                    count = self._elements(region, of, which, lanes, width)
                    base = slot * (region.count // key.slots)
                    for p in range(first, positions):
                        block = p // 64 % of.ring if of.ring else p // 64
                        place = base + (block // grid.cp) * 64 + p % 64
                        for hg in range(grid.h):
                            chip = hg * grid.cp + block % grid.cp
                            at = machine.memory.vector(chip, region) + place * region.stride
                            words = machine.memory.words[at * 160 : (at + region.stride) * 160]
                            values = _values(words, key.kv)
                            lane = hg * width + region.p1
                            full[p, lane : lane + count] = values[:count]
                out[which].append(full.reshape(positions, of.kv_heads, d))
        return out

    @staticmethod
    def _elements(region: Region, of: AttentionKey, which: int, lanes: int, width: int) -> int:
        """Elements of one record of a KV region: whole heads, or for V a part of a head that is wider than a beat."""
        d = of.head_dim
        if which == 1 and d + 2 > 320:
            size = -(-d // -(-d // 256))
            return min(size, d - region.p1 % d)
        return min(max(1, min(lanes, 319) // d) * d, width - region.p1)


def _values(words: np.ndarray, kv: str) -> np.ndarray:
    """What 16-bit words of a cache hold, as float32."""
    if kv == "f32":
        return words.view(np.float32)
    return (
        from_e4m3(words.view(np.uint8)) if kv == "fp8" else (words.astype(np.uint32) << 16).view(np.float32)
    )


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two float32 arrays agree bit for bit."""
    return a.shape == b.shape and bool(
        (np.ascontiguousarray(a).view(np.int32) == np.ascontiguousarray(b).view(np.int32)).all()
    )
