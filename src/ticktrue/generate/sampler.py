"""How a token is chosen from logits: settings, and the host's own sampler (numerics rows 24 to 26).

Plain greedy and plain temperature are left to the chips; everything else is a pure function here, of logits, tokens so far,
settings and position. Both draw with the same noise, so where nothing is cut they choose the same token.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ticktrue.errors import InputError
from ticktrue.isa import Draw
from ticktrue.isa.registers import TEMPERATURE_LEAST, TEMPERATURE_MOST
from ticktrue.kernels import philox, sample

Floats = npt.NDArray[np.float32]

PENALTY_MOST = 100.0
LOGPROBS_MOST = 20


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InputError(f"expected {low:g} to {high:g}, found {value}", code="T380", where=name)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings of one sequence; the defaults are greedy. `logprobs` is how many alternatives to tell, None for none at all.

    Raises:
        InputError: T380 for a value out of its range; T363 for temperature, seed or choice.
    """

    temperature: float = 0.0
    seed: int = 0
    choice: int = 0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logprobs: int | None = None

    def __post_init__(self) -> None:
        Draw(self.temperature, self.seed, self.choice)
        least, most = TEMPERATURE_LEAST, TEMPERATURE_MOST
        _within("repetition_penalty", self.repetition_penalty, least, most)
        _within("presence_penalty", self.presence_penalty, -PENALTY_MOST, PENALTY_MOST)
        _within("frequency_penalty", self.frequency_penalty, -PENALTY_MOST, PENALTY_MOST)
        _within("min_p", self.min_p, 0, 1)
        _within("top_k", self.top_k, 0, 1 << 32)
        _within("logprobs", self.logprobs or 0, 0, LOGPROBS_MOST)
        if not 0 < self.top_p <= 1:
            raise InputError(f"expected more than 0, up to 1, found {self.top_p}", code="T380", where="top_p")

    @property
    def draw(self) -> Draw:
        """The registers of the slot."""
        return Draw(self.temperature, self.seed, self.choice)

    @property
    def on_host(self) -> bool:
        """Whether the logits must come to the host: anything beyond greedy and plain temperature."""
        plain = Sampling(self.temperature, self.seed, self.choice)
        return self != plain


GREEDY_SAMPLING = Sampling()


@dataclass(frozen=True, slots=True)
class LogProb:
    """Natural logarithm of a token's probability under the model's own logits."""

    token: int
    value: float


@dataclass(frozen=True, slots=True)
class Drawn:
    """A token, its log-probability and those of the most likely ones (None and empty where they were not asked for)."""

    token: int
    logprob: LogProb | None = None
    top: tuple[LogProb, ...] = ()


@dataclass(frozen=True, slots=True)
class History:
    """The tokens of a sequence before the one that is drawn: given ones, and chosen ones."""

    prompt: Sequence[int]
    output: Sequence[int]


def sample_token(logits: Floats, history: History, settings: Sampling, pos: int) -> Drawn:
    """The token at index `pos` of a sequence, from logits float32[vocab]; the same for the same arguments, everywhere."""
    z = _penalized(logits, history, settings)
    token = int(z.argmax()) if settings.temperature == 0 else _drawn(z, settings, pos)
    if settings.logprobs is None:
        return Drawn(token)
    scratch, all_of = np.empty(512, dtype=np.float32), np.empty_like(logits)
    sample.logprobs(np.ascontiguousarray(logits), scratch, all_of)
    order = np.argsort(-all_of, kind="stable")[: settings.logprobs]
    top = tuple(LogProb(int(v), float(all_of[v])) for v in order)
    return Drawn(token, LogProb(token, float(all_of[token])), top)


def _penalized(logits: Floats, history: History, settings: Sampling) -> Floats:
    """Row 24b, a copy of the logits."""
    out = np.array(logits, dtype=np.float32)
    seen = np.unique(np.array([*history.prompt, *history.output], dtype=np.int64))
    sample.repeat(out, seen, np.float32(settings.repetition_penalty))
    chosen, counts = np.unique(np.array(history.output, dtype=np.int64), return_counts=True)
    frequency, presence = np.float32(settings.frequency_penalty), np.float32(settings.presence_penalty)
    sample.punish(out, chosen, counts.astype(np.float32), frequency, presence)
    return out


def _drawn(logits: Floats, settings: Sampling, pos: int) -> int:
    """Row 25: of what is kept, the largest z + noise; of equals the lowest index."""
    z = np.empty_like(logits)
    sample.divided(logits, np.float32(settings.temperature), z)
    order = np.argsort(-z, kind="stable")
    w = np.empty_like(z)
    sample.weights(z, order, w)
    count = sample.kept(w, settings.top_k, np.float32(settings.top_p), np.float32(settings.min_p))
    columns = np.sort(order[:count])
    noise = np.empty(count, dtype=np.float32)
    words = (pos, settings.choice, settings.seed & 0xFFFF_FFFF, settings.seed >> 32)
    philox.draws(columns, *(np.uint32(w) for w in words), noise)
    return int(columns[(z[columns] + noise).argmax()])
