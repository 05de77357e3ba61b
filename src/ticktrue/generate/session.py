"""Program + prompt -> tokens: picks the timetable of each step, compiles a bucket when the context first needs it.

Each token is chosen on the chips (greedy, or temperature) or, where the settings ask for more, on the host from the logits.
Knows token ids, not text; it does not print, cache on disk or verify: the caller gives `obtain`, which turns a step kind into a
timetable (compiled, taken from a cache, verified: as the caller sees fit).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ticktrue.compile import T_MAX, bucket, image_blocks, tokens_kind
from ticktrue.errors import InputError
from ticktrue.execute import Machine
from ticktrue.generate.sampler import GREEDY_SAMPLING, Drawn, History, Sampling, sample_token
from ticktrue.isa import GREEDY
from ticktrue.program import StepKind, Timetable

Obtain = Callable[[StepKind], Timetable]


@dataclass(frozen=True, slots=True)
class Step:
    """One step that ran: its timetable, first position, tokens taken, and what was chosen after its last row.

    A step within the prompt chooses nothing: its `drawn` is what greedy would say, and is not used.
    """

    timetable: Timetable
    pos: int
    taken: int
    drawn: Drawn
    prefill: bool

    @property
    def chosen(self) -> int:
        """The token that was chosen."""
        return self.drawn.token


def step_kind(pos: int, tokens: int, limit: int, sampler: str = "chip") -> StepKind:
    """The step kind of `tokens` tokens at `pos`, for a longest context of `limit`."""
    wide = tokens_kind(tokens)
    return StepKind(wide, 1, bucket(pos + wide, image_blocks(limit)), "last", sampler)


class Session:
    """One sequence: feeds a prompt in chunks, then one token after the other, each chosen as `sampling` says."""

    def __init__(
        self, machine: Machine, obtain: Obtain, *, chunk: int = T_MAX, sampling: Sampling = GREEDY_SAMPLING
    ) -> None:
        self._machine = machine
        self._obtain = obtain
        self._chunk = chunk
        self._sampling = sampling
        self._prompt: list[int] = []
        self._output: list[int] = []
        self._timetables: dict[StepKind, Timetable] = {}
        self.limit = machine.image.key.max_context
        self.pos = 0

    def timetables(self) -> tuple[Timetable, ...]:
        """Every timetable used so far, sorted by kind."""
        return tuple(t for _, t in sorted(self._timetables.items()))

    def _timetable(self, tokens: int, sampler: str) -> Timetable:
        kind = step_kind(self.pos, tokens, self.limit, sampler)
        found = self._timetables.get(kind)
        if found is None:
            found = self._timetables[kind] = self._obtain(kind)
        return found

    def _step(self, tokens: Sequence[int], *, prefill: bool, chooses: bool = True) -> Step:
        if self.pos + len(tokens) > self.limit:
            raise InputError(
                f"expected at most {self.limit} positions, found {self.pos + len(tokens)}",
                code="T365", where="--max-model-len", hint="a shorter prompt, or a larger --max-model-len",
            )  # fmt: skip
        settings, on_host = self._sampling, chooses and self._sampling.on_host
        timetable = self._timetable(len(tokens), "host" if on_host else "chip")
        draw = settings.draw if chooses and not on_host else GREEDY
        result = self._machine.step(timetable, tokens, self.pos, draw)
        if on_host:
            history = History(self._prompt, self._output)
            drawn = sample_token(result.logits[0], history, settings, self.pos + len(tokens))
        else:
            drawn = Drawn(int(result.next_token[0]))
        step = Step(timetable, self.pos, len(tokens), drawn, prefill)
        self.pos += len(tokens)
        if chooses:
            self._output.append(drawn.token)
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
        self._prompt += prompt
        for at in range(0, len(prompt), self._chunk):
            whole = at + self._chunk >= len(prompt)
            step = self._step(prompt[at : at + self._chunk], prefill=True, chooses=whole)
            yield step
        chosen = 1
        while step is not None and chosen < max_tokens and step.chosen not in stop and self.pos < self.limit:
            step = self._step([step.chosen], prefill=False)
            chosen += 1
            yield step
