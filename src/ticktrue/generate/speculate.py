"""Speculation: a drafter proposes tokens, one verify step judges them all, and the tokens are those of plain decoding.

A verify step takes the last chosen token and the draft. Each of its rows chooses a token, with the noise of its own position, and
ACCEPT counts the leading tokens of the draft that were chosen: pos moves past these and one more. K and V of refused tokens stay
in memory beyond pos: they are masked, then overwritten. Whatever a drafter says changes how many steps are run, never a token.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ticktrue.compile import T_MAX, bucket, image_blocks, tokens_kind
from ticktrue.errors import InputError, UsageError
from ticktrue.execute import Machine, StepResult
from ticktrue.generate.sampler import GREEDY_SAMPLING, Drawn, History, Sampling, sample_token
from ticktrue.generate.session import Obtain
from ticktrue.isa import GREEDY
from ticktrue.program import StepKind, Timetable

Drafter = Callable[[Sequence[int]], Sequence[int]]
"""From the tokens of a sequence so far to those that may follow; none is as good an answer as many."""

WIDEST = 8
"""Most tokens of a sequence in one verify step, if nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class SlotStep:
    """What one step did for one sequence.

    First position, tokens fed (0: it sat the step out), how many of them were a draft, and what was chosen: nothing within the
    prompt, else one token more than were accepted, but none after one that stops.
    """

    pos: int
    taken: int
    drafted: int
    drawn: tuple[Drawn, ...]

    @property
    def accepted(self) -> int:
        """Tokens of the draft that are kept."""
        return max(0, len(self.drawn) - 1)


@dataclass(frozen=True, slots=True)
class Round:
    """One step that ran: its timetable, and what it did for each sequence."""

    timetable: Timetable
    slots: tuple[SlotStep, ...]


@dataclass(slots=True)
class _Sequence:
    """A slot's sequence: what it was given, what was chosen, how far it is in memory."""

    drafter: Drafter
    sampling: Sampling
    prompt: list[int] = field(default_factory=list)
    output: list[int] = field(default_factory=list)
    pos: int = 0
    done: bool = False

    def next_part(self, chunk: int) -> list[int]:
        """The next tokens of the prompt."""
        return self.prompt[self.pos : self.pos + chunk]

    def proposal(self, most: int) -> list[int]:
        """The last chosen token and at most `most` proposed ones."""
        draft = list(self.drafter((*self.prompt, *self.output)))[:most] if most > 0 else []
        return [self.output[-1], *draft]


class Speculation:
    """Sequences side by side, one a slot of the image, each with a drafter; a `Session` with another way to get on.

    Args:
        machine: of an image with at least as many slots as drafters.
        obtain: turns a step kind into a timetable, as for `Session`.
        drafters: one a sequence.
        widest: most tokens of a sequence in one verify step: the last chosen one and the draft, which is cut to fit. By default
            8, or what the image's largest step takes.
        samplings: how each sequence chooses, greedily by default.

    Raises:
        UsageError: T124 if the image has fewer slots, or smaller steps.
    """

    def __init__(
        self, machine: Machine, obtain: Obtain, drafters: Sequence[Drafter], *, widest: int | None = None,
        samplings: Sequence[Sampling] = (),
    ) -> None:  # fmt: skip
        key = machine.image.key
        settings = samplings or [GREEDY_SAMPLING] * len(drafters)
        if not 1 <= len(drafters) == len(settings) <= key.slots:
            raise UsageError(
                f"expected 1 to {key.slots} drafters and as many settings, found {len(drafters)} and {len(settings)}",
                code="T124", where="speculation", hint="an image with more slots, or fewer sequences",
            )  # fmt: skip
        self._widest = min(WIDEST, key.t_max) if widest is None else widest
        if not 1 <= self._widest <= key.t_max:
            raise UsageError(
                f"expected 1 to {key.t_max} tokens of a sequence in a verify step, found {widest}",
                code="T124", where="speculation", hint="an image for longer steps, or fewer tokens",
            )  # fmt: skip
        self._machine, self._obtain = machine, obtain
        self._chunk = min(T_MAX, key.t_max)
        self._all = [_Sequence(d, s) for d, s in zip(drafters, settings, strict=True)]
        self._timetables: dict[StepKind, Timetable] = {}
        self.limit = key.max_context

    def timetables(self) -> tuple[Timetable, ...]:
        """Every timetable used so far, sorted by kind."""
        return tuple(t for _, t in sorted(self._timetables.items()))

    def output(self, slot: int = 0) -> tuple[int, ...]:
        """The tokens chosen so far."""
        return tuple(self._all[slot].output)

    def pos(self, slot: int = 0) -> int:
        """Positions of a sequence that are in memory for good."""
        return self._all[slot].pos

    def generate(
        self, prompts: Sequence[Sequence[int]], max_tokens: int, stop: frozenset[int] = frozenset()
    ) -> Iterator[Round]:
        """Yields every step, until each sequence has `max_tokens` chosen tokens, one of `stop`, or a full context.

        Raises:
            InputError: T365 if a prompt is empty or longer than the context; T363 for a draft of tokens that do not exist.
        """
        for prompt, of in zip(prompts, self._all, strict=True):
            if not 1 <= len(prompt) <= self.limit or of.prompt:
                raise InputError(f"expected a prompt of 1 to {self.limit} tokens for a slot that is free, found {len(prompt)}",
                                 code="T365", where="prompt", hint="a shorter prompt, or a larger --max-model-len")  # fmt: skip
            of.prompt = list(prompt)
        while any(of.pos < len(of.prompt) for of in self._all):
            parts = [of.next_part(self._chunk) for of in self._all]
            ends = [
                bool(p) and of.pos + len(p) == len(of.prompt) for p, of in zip(parts, self._all, strict=True)
            ]
            yield self._round(parts, ends, "last")
            self._settle(max_tokens, stop)
        while not all(of.done for of in self._all):
            parts = [[] if of.done else of.proposal(self._most(of, max_tokens)) for of in self._all]
            yield self._round(parts, [bool(p) for p in parts], "all", stop)
            self._settle(max_tokens, stop)

    def _most(self, of: _Sequence, max_tokens: int) -> int:
        """The longest draft: the verify step, the context, and the tokens still wanted leave no use for more."""
        return min(self._widest - 1, self.limit - of.pos - 1, max_tokens - len(of.output) - 1)

    def _settle(self, max_tokens: int, stop: frozenset[int]) -> None:
        for of in self._all:
            full = of.pos >= self.limit or len(of.output) >= max_tokens
            of.done = bool(of.output) and (full or of.output[-1] in stop)

    def _timetable(self, kind: StepKind) -> Timetable:
        found = self._timetables.get(kind)
        if found is None:
            found = self._timetables[kind] = self._obtain(kind)
        return found

    def _round(
        self,
        parts: Sequence[list[int]],
        chooses: Sequence[bool],
        logits: str,
        stop: frozenset[int] = frozenset(),
    ) -> Round:
        """One step of all slots. A slot that sits it out keeps its place: what its rows write lies beyond its pos."""
        wide = tokens_kind(max(map(len, parts)))
        blocks = bucket(
            max(of.pos for of in self._all) + wide, image_blocks(self.limit, self._machine.image.key.t_max)
        )
        on_host = any(of.sampling.on_host for of, on in zip(self._all, chooses, strict=True) if on)
        kind = StepKind(
            wide, len(parts), blocks, logits if wide > 1 else "last", "host" if on_host else "chip"
        )
        timetable = self._timetable(kind)
        draws = [GREEDY if on_host else of.sampling.draw for of in self._all]
        result = self._machine.batch(timetable, parts, [of.pos for of in self._all], draws)
        steps = []
        for slot, (part, of) in enumerate(zip(parts, self._all, strict=True)):
            draft = part[1:] if logits == "all" else []
            drawn = self._drawn(kind, result, slot, draft) if chooses[slot] else ()
            end = next((i + 1 for i, d in enumerate(drawn) if d.token in stop), len(drawn))
            steps.append(SlotStep(of.pos, len(part), len(draft), drawn[:end]))
            of.output += [d.token for d in drawn[:end]]
            of.pos += end if logits == "all" else len(part)
        return Round(timetable, tuple(steps))

    def _drawn(
        self, kind: StepKind, result: StepResult, slot: int, draft: Sequence[int]
    ) -> tuple[Drawn, ...]:
        """The tokens that the accepted rows of a slot choose, and the one after them."""
        first = slot * (kind.tokens if kind.logits == "all" else 1)
        if kind.sampler == "chip":
            accepted = int(result.accept[slot]) if kind.logits == "all" else 0
            return tuple(Drawn(int(t)) for t in result.next_token[first : first + accepted + 1])
        of, out = self._all[slot], list[Drawn]()
        fed = of.pos + 1 if of.output else len(of.prompt)
        for i in range(len(draft) + 1):
            history = History(of.prompt, [*of.output, *(d.token for d in out)])
            out.append(sample_token(result.logits[first + i], history, of.sampling, fed + i))
            if i == len(draft) or out[-1].token != draft[i]:
                break
        return tuple(out)
