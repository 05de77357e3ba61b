"""What the host does with logits before it draws: penalties, nucleus and log-probabilities (numerics rows 24b, 25 and 26)."""

import numpy as np
from numba import njit

from ticktrue.kernels.functions import exp_f32, log_f32

_ZERO = np.float32(0)
_F = "float32[::1]"
_I = "int64[::1]"

SIGNATURES: dict[str, tuple[str, ...]] = {
    "repeat": (f"void({_F}, {_I}, float32)",),
    "punish": (f"void({_F}, {_I}, {_F}, float32, float32)",),
    "divided": (f"void({_F}, float32, {_F})",),
    "weights": (f"void({_F}, {_I}, {_F})",),
    "kept": (f"int64({_F}, int64, float32, float32)",),
    "logprobs": (f"void({_F}, {_F}, {_F})",),
}
"""What each kernel is compiled for when the IR test reads its code (see `tests/unit/kernels/ir_check.py`)."""


@njit(cache=True, error_model="numpy")
def repeat(logits, seen, penalty):
    """Repetition penalty, in place, of every token id in `seen` (each once)."""
    for i in range(len(seen)):
        x = logits[seen[i]]
        logits[seen[i]] = x / penalty if x > _ZERO else x * penalty


@njit(cache=True, error_model="numpy")
def punish(logits, chosen, counts, frequency, presence):
    """Frequency and presence penalties, in place, of every token id in `chosen` (each once, `counts` times in the output)."""
    for i in range(len(chosen)):
        logits[chosen[i]] = (logits[chosen[i]] - (frequency * counts[i])) - presence


@njit(cache=True, error_model="numpy")
def divided(logits, temperature, out):
    """Every logit / temperature."""
    for i in range(len(logits)):
        out[i] = logits[i] / temperature


@njit(cache=True, error_model="numpy")
def weights(z, order, out):
    """Weights in order: out[i] = exp(z[order[i]] - z[order[0]])."""
    for i in range(len(order)):
        out[i] = exp_f32(z[order[i]] - z[order[0]])


@njit(cache=True, error_model="numpy")
def kept(w, top_k, top_p, min_p):
    """How many of the weights (descending) top-k, then top-p (below 1), then min-p keep: always the first ones."""
    count = len(w)
    if 0 < top_k < count:
        count = top_k
    if top_p < np.float32(1):
        total = _ZERO
        for i in range(count):
            total = total + w[i]
        limit = top_p * total
        cum = _ZERO
        for i in range(count):
            cum = cum + w[i]
            if cum >= limit:
                count = i + 1
                break
    while count > 1 and w[count - 1] < min_p:
        count -= 1
    return count


@njit(cache=True, error_model="numpy")
def logprobs(logits, s, out):
    """Log-probability of every token (row 26); `s` is scratch of 512 lanes."""
    best = logits[0]
    for i in range(len(logits)):
        best = logits[i] if logits[i] > best else best
    for lane in range(512):
        s[lane] = _ZERO
    for i in range(len(logits)):
        s[i % 320] = s[i % 320] + exp_f32(logits[i] - best)
    h = 256
    while h >= 1:
        for lane in range(min(h, 320 - h)):
            s[lane] = s[lane] + s[lane + h]
        h //= 2
    total = log_f32(s[0])
    for i in range(len(logits)):
        out[i] = (logits[i] - best) - total
