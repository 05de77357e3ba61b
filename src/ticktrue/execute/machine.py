"""A loaded program on real weights: memory that outlives steps, and one call per step. Bit-true to docs/numerics.md."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ticktrue.errors import InputError
from ticktrue.execute.lower import Lowered, lower
from ticktrue.execute.memory import Memory, allocate, load_weights
from ticktrue.execute.workers import Workers
from ticktrue.hw import System
from ticktrue.isa import GREEDY, Draw, OpTable
from ticktrue.kernels.environment import check_float_environment
from ticktrue.model import Weights
from ticktrue.program import Image, StepKind, Timetable, class_regions


def draw_registers(
    kind: StepKind, draws: Sequence[Draw]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint32]]:
    """`temperature` float32[rows] and uint32[rows, 3] of seed (low, high word) and choice: each row of logits has its slot's."""
    each = kind.tokens if kind.logits == "all" else 1
    rows = [draw for draw in draws or [GREEDY] * kind.slots for _ in range(each)]
    words = [(draw.seed & 0xFFFF_FFFF, draw.seed >> 32, draw.choice) for draw in rows]
    return np.array([draw.temperature for draw in rows], dtype=np.float32), np.array(words, dtype=np.uint32)


@dataclass(frozen=True, slots=True)
class StepResult:
    """logits float32[rows, vocab] and next_token int64[rows]: a row per slot, or S * T where the kind gives all logits.

    accept int64[S], only where the kind gives all logits: how many of a slot's tokens after its first are, one after the other,
    those that the row before chose. next_token and accept are empty, int64[0], where the host samples.
    """

    logits: npt.NDArray[np.float32]
    next_token: npt.NDArray[np.int64]
    accept: npt.NDArray[np.int64]


class Machine:
    """An image in memory with its weights; steps of any timetable over that image may follow each other.

    `threads` share the chips (None: as many as this process has cores; never more than chips); bits do not depend on it.

    Raises:
        EnvironmentProblem: T417 if this thread does not round to nearest or flushes subnormal numbers.
        InputError: T362 if the image was made for other weights.
    """

    def __init__(self, image: Image, weights: Weights, system: System, threads: int | None = 1) -> None:
        check_float_environment()
        self._workers = Workers(threads, image.key.plan.chips)
        self.image = image
        self.system = system
        self.memory: Memory = allocate(image, OpTable.of(system.chip))
        load_weights(image, weights, self.memory)
        self._lowered: dict[StepKind, tuple[Timetable, Lowered, npt.NDArray[np.float32]]] = {}

    def step(self, timetable: Timetable, tokens: Sequence[int], pos: int, draw: Draw = GREEDY) -> StepResult:
        """`batch` of one sequence: `tokens` at positions pos, pos + 1, ... (at most T of them)."""
        return self.batch(timetable, [tokens], [pos], [draw])

    def batch(
        self,
        timetable: Timetable,
        tokens: Sequence[Sequence[int]],
        pos: Sequence[int],
        draws: Sequence[Draw] = (),
    ) -> StepResult:
        """Runs one step: tokens[s] at positions pos[s], pos[s] + 1, ... of slot s (at most T of them).

        Next tokens are drawn as draws[s] says, greedily by default.

        A slot may sit a step out: no tokens, at any position it could have; its logits mean nothing.

        Raises:
            InputError: T363 for tokens, count or position out of the declared range; T364 for a logit that is not finite.
        """
        kind = timetable.kind
        token, position, last = self._registers(kind, tokens, pos)
        lowered, pools = self._prepare(timetable)
        memory = self.memory
        expert = np.zeros((self.image.key.plan.chips, token.size, lowered.ranks), dtype=np.int64)
        self._workers.run(lowered, memory.words, memory.floats, memory.octets, pools, token, position, last,
                          lowered.sizes, *draw_registers(kind, draws), expert)  # fmt: skip
        return self._result(timetable)

    def _registers(
        self, kind: StepKind, tokens: Sequence[Sequence[int]], pos: Sequence[int]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Token and position of each token row, the last valid token of each slot: checked against their declared ranges."""
        name, t, top = f"step {kind.label()}", kind.tokens, 64 * kind.blocks - kind.tokens
        if not len(tokens) == len(pos) == kind.slots:
            raise InputError(
                f"{name}: expected tokens and positions of {kind.slots} slots, found {len(tokens)} and {len(pos)}",
                code="T363", where="step",
            )  # fmt: skip
        least = 1 if kind.slots == 1 else 0
        token = np.zeros(kind.slots * t, dtype=np.int64)
        for slot, (row, at) in enumerate(zip(tokens, pos, strict=True)):
            if not least <= len(row) <= t or not 0 <= at <= top:
                raise InputError(f"{name}: expected {least}..{t} tokens at a position up to {top}, found {len(row)} at {at}",
                                 code="T363", where=f"slot {slot}")  # fmt: skip
            token[slot * t : slot * t + len(row)] = row
        if token.min() < 0 or token.max() >= self.image.key.vocab:
            bad = token.min() if token.min() < 0 else token.max()
            raise InputError(
                f"expected token ids below {self.image.key.vocab}, found {bad}", code="T363", where="token"
            )
        position = (np.array(pos, dtype=np.int64)[:, None] + np.arange(t)).ravel()
        return token, position, np.array([max(len(row), 1) - 1 for row in tokens], dtype=np.int64)

    def _prepare(self, timetable: Timetable) -> tuple[Lowered, npt.NDArray[np.float32]]:
        found = self._lowered.get(timetable.kind)
        if found is None or found[0] is not timetable:
            lowered = lower(self.image, timetable, self.system, self.memory)
            pools = np.zeros(self.image.key.plan.chips * (lowered.pool + 1), dtype=np.float32)
            found = (timetable, lowered, pools)
            self._lowered[timetable.kind] = found
        return found[1], found[2]

    def _result(self, timetable: Timetable) -> StepResult:
        regions = class_regions(self.image, timetable)
        outputs = {o.name: o for o in timetable.outputs}
        out = outputs["logits"]
        vocab, chips = self.image.key.vocab, self.image.key.plan.chips
        shard = -(-vocab // chips)
        logits = np.zeros((out.rows, chips * shard), dtype=np.float32)
        for chip in range(chips):
            at = self.memory.vector(chip, regions[out.region]) + out.base
            raw = self.memory.floats[at * 80 : (at + out.vectors * out.rows * 4) * 80]
            beats = raw.reshape(out.vectors, out.rows, 320).transpose(1, 0, 2).reshape(out.rows, -1)
            logits[:, chip * shard : (chip + 1) * shard] = beats[:, :shard]
        if not np.isfinite(logits[:, :vocab]).all():
            raise InputError("a logit is not finite", code="T364", where=self.image.key.model,
                             hint="check the weights; the run stops here")  # fmt: skip
        chosen, accepted = (self._lane(timetable, *which) for which in (("next_token", 1), ("accept", 0)))
        return StepResult(logits[:, :vocab].copy(), chosen, accepted)

    def _lane(self, timetable: Timetable, name: str, lane: int) -> npt.NDArray[np.int64]:
        """One lane of each vector of an output of chip 0, as integers; none where the timetable has no such output."""
        output = next((o for o in timetable.outputs if o.name == name), None)
        if output is None:
            return np.zeros(0, dtype=np.int64)
        region = class_regions(self.image, timetable)[output.region]
        at = self.memory.vector(0, region) + output.base
        words = self.memory.words.view(np.int32)[at * 80 : (at + output.rows) * 80]
        return words.reshape(output.rows, 80)[:, lane].astype(np.int64)
