"""Perplexity of the models on a public-domain text, in every format and by the program: what 8 bits cost in accuracy.

Run: python benchmarks/perplexity.py [model ...], names of the registry; by default those that fit a laptop. The text is
`data/alice_chapter5.txt` (its source: `data/README.md`), the first 4 windows of 512 positions of it; where the tokenizer
begins a text with a token, every window begins with that token. All but the first position of a window are scored, 2,044
in all: perplexity = exp of the mean of the negative log-probability (numerics row 26) of the token that follows.
"""

import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ticktrue.compile import Options, compile_image, unproved_timetable
from ticktrue.execute import Machine
from ticktrue.hw import load_system
from ticktrue.kernels.sample import logprobs
from ticktrue.model import Model, default_cache_dir, fetch, load_model
from ticktrue.program import StepKind

TEXT = Path(__file__).parent / "data" / "alice_chapter5.txt"
MODELS = ("smollm2-135m-instruct", "gemma-3-270m", "qwen2.5-coder-0.5b")
FORMATS = (("bf16", "auto"), ("int8", "auto"), ("fp8", "auto"), ("fp8", "fp8"))
"""Weights and activations, and the cache: "auto" is bf16."""
WINDOWS, WINDOW, CHUNK, CHIPS = 4, 512, 64, 8


def windows(model: Model, count: int = WINDOWS) -> list[list[int]]:
    """`count` windows of token ids, following each other in the text; each begins as the tokenizer begins a text."""
    tokenizer = model.tokenizer()
    text = TEXT.read_text(encoding="utf-8")
    ids = list(tokenizer.encode(text, add_special=False))
    whole = list(tokenizer.encode(text))
    begin = whole[: len(whole) - len(ids)]
    step = WINDOW - len(begin)
    found = [begin + ids[i * step : (i + 1) * step] for i in range(count)]
    if whole[len(begin) :] != ids or any(len(window) != WINDOW for window in found):
        raise SystemExit(
            f"{model.spec.name}: the text has {len(ids)} tokens, too few for {count} windows of {WINDOW}"
        )
    return found


def negative_log_probabilities(logits: np.ndarray, following: Sequence[int]) -> list[float]:
    """Of each row of logits float32[rows, vocab]: that of the token that follows it."""
    scratch, all_of = np.empty(512, dtype=np.float32), np.empty(logits.shape[1], dtype=np.float32)
    found = []
    for row, token in zip(logits, following, strict=False):
        logprobs(np.ascontiguousarray(row), scratch, all_of)
        found.append(-float(all_of[token]))
    return found


def steps(model: Model, fmt: str, kv: str, texts: Sequence[Sequence[int]]) -> Iterator[list[float]]:
    """The program on 8 chips, 64 tokens a step, all logits: negative log-probabilities, step by step."""
    system = load_system("groq3-lpx-tray").subset(CHIPS)
    image = compile_image(model.spec, system, Options(fmt, WINDOW, kv=kv))
    kind = StepKind(CHUNK, 1, WINDOW // 64, "all", "chip")
    timetable = unproved_timetable(model.spec, system, image, kind)
    machine = Machine(image, model.weights(), system)
    for text in texts:
        for pos in range(0, len(text), CHUNK):
            logits = machine.step(timetable, text[pos : pos + CHUNK], pos).logits
            yield negative_log_probabilities(logits, text[pos + 1 : pos + CHUNK + 1])


def perplexity(model: Model, fmt: str, kv: str, count: int = WINDOWS) -> tuple[float, int]:
    """Of `count` windows, and how many tokens were scored."""
    found = [x for part in steps(model, fmt, kv, windows(model, count)) for x in part]
    return math.exp(math.fsum(found) / len(found)), len(found)


def main() -> None:
    """Prints the table, a row as soon as it is known."""
    print("| model | format | cache | tokens | perplexity | against bf16 | seconds |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in sys.argv[1:] or MODELS:
        model = load_model(str(fetch(name, default_cache_dir(os.environ))))
        reference = 0.0
        for fmt, kv in FORMATS:
            begin = time.perf_counter()
            found, count = perplexity(model, fmt, kv)
            reference = reference or found
            print(
                f"| {name} | {fmt} | {'e4m3' if kv == 'fp8' else 'bf16'} | {count:,} | {found:.3f} "
                f"| {100 * (found / reference - 1):+.2f} % | {time.perf_counter() - begin:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
