"""Program + prompt -> tokens: picks the timetable of each step, compiles a bucket when the context first needs it.

Knows token ids, not text; it does not print, cache on disk or verify: the caller gives `obtain`, which turns a step kind into a
timetable (compiled, taken from a cache, verified: as the caller sees fit).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ticktrue.compile import T_MAX, bucket, image_blocks, tokens_kind
from ticktrue.errors import InputError
from ticktrue.execute import Machine
from ticktrue.program import StepKind, Timetable

Obtain = Callable[[StepKind], Timetable]


@dataclass(frozen=True, slots=True)
class Step:
    """One step that ran: its timetable, first position, tokens taken, and the token it chose (after its last row)."""

    timetable: Timetable
    pos: int
    taken: int
    chosen: int
    prefill: bool


class Session:
    """One sequence, greedy: feeds a prompt in chunks, then one token after the other."""

    def __init__(self, machine: Machine, obtain: Obtain, *, chunk: int = T_MAX) -> None:
        self._machine = machine
        self._obtain = obtain
        self._chunk = chunk
        self._timetables: dict[StepKind, Timetable] = {}
        self.limit = machine.image.key.max_context
        self.pos = 0

    def timetables(self) -> tuple[Timetable, ...]:
        """Every timetable used so far, sorted by kind."""
        return tuple(t for _, t in sorted(self._timetables.items()))

    def _timetable(self, tokens: int) -> Timetable:
        wide = tokens_kind(tokens)
        kind = StepKind(wide, 1, bucket(self.pos + wide, image_blocks(self.limit)), "last", "chip")
        found = self._timetables.get(kind)
        if found is None:
            found = self._timetables[kind] = self._obtain(kind)
        return found

    def _step(self, tokens: Sequence[int], *, prefill: bool) -> Step:
        if self.pos + len(tokens) > self.limit:
            raise InputError(
                f"expected at most {self.limit} positions, found {self.pos + len(tokens)}",
                code="T365", where="--max-model-len", hint="a shorter prompt, or a larger --max-model-len",
            )  # fmt: skip
        timetable = self._timetable(len(tokens))
        result = self._machine.step(timetable, tokens, self.pos)
        step = Step(timetable, self.pos, len(tokens), int(result.next_token[0]), prefill)
        self.pos += len(tokens)
        return step

    def generate(self, prompt: Sequence[int], max_tokens: int, stop: frozenset[int]) -> Iterator[Step]:
        """Yields every step; the last prefill step and each decode step choose one token.

        Ends after `max_tokens` chosen tokens, at a token of `stop` (which is yielded), or where the context is full.

        Raises:
            InputError: T365 if the prompt is empty or longer than the context.
        """
        room = self.limit - self.pos
        if not 1 <= len(prompt) <= room:
            raise InputError(f"expected a prompt of 1 to {room} tokens, found {len(prompt)}", code="T365",
                             where="prompt", hint="a shorter prompt, or a larger --max-model-len")  # fmt: skip
        step = None
        for at in range(0, len(prompt), self._chunk):
            step = self._step(prompt[at : at + self._chunk], prefill=True)
            yield step
        chosen = 1
        while step is not None and chosen < max_tokens and step.chosen not in stop and self.pos < self.limit:
            step = self._step([step.chosen], prefill=False)
            chosen += 1
            yield step
