"""Bit-true execution against itself: prefill, batches and 8-bit formats as ratios to decode in bf16, interleaved in one run.

Run: python benchmarks/execute.py [model] [threads] [blocks], by default smollm2-135m-instruct, 1 thread, 3 blocks of 64
positions. Goals per token: prefill 8 times decode, a batch of 8 three times, int8 1.5 times. Medians of rounds in which every
case runs once; decode stands also beside the limit, one read of all weights at the memory speed that one thread reaches here.
"""

import os
import sys
import time
from collections.abc import Callable
from statistics import median

from decode import memory_bytes_per_s

from ticktrue.compile import Options, compile_image, unproved_timetable
from ticktrue.execute import Machine
from ticktrue.hw import load_system
from ticktrue.model import Model, default_cache_dir, fetch, load_model
from ticktrue.model.count import parameters
from ticktrue.program import StepKind

CHIPS, ROUNDS = 8, 9
CASES = (
    ("decode", "bf16", 1, 1, 1.0),
    ("prefill, T = 64", "bf16", 64, 1, 8.0),
    ("prefill, T = 256", "bf16", 256, 1, 8.0),
    ("batch of 8", "bf16", 1, 8, 3.0),
    ("decode, int8", "int8", 1, 1, 1.5),
    ("decode, fp8", "fp8", 1, 1, None),
    ("batch of 8, int8", "int8", 1, 8, None),
)
"""Name, format, tokens, slots, the goal of its tokens/s against those of decode."""


def step_of(model: Model, fmt: str, shape: tuple[int, int, int], threads: int) -> Callable[[], object]:
    """One step of (tokens, slots, blocks) on 8 chips, near the end of its context; kernels are warm after the first."""
    tokens, slots, blocks = shape
    system = load_system("groq3-lpx-tray").subset(CHIPS)
    image = compile_image(model.spec, system, Options(fmt, 600, slots=slots, t_max=max(64, tokens)))
    timetable = unproved_timetable(model.spec, system, image, StepKind(tokens, slots, blocks, "last", "chip"))
    machine = Machine(image, model.weights(), system, threads)
    ids, pos = [list(range(5, 5 + tokens))] * slots, [64 * blocks - tokens] * slots
    return lambda: machine.batch(timetable, ids, pos)


def timed(work: Callable[[], object]) -> float:
    """Seconds of wall time."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main() -> None:
    """Prints a table."""
    given = sys.argv[1:]
    name, threads, blocks = [*given, *("smollm2-135m-instruct", "1", "3")[len(given) :]]
    model = load_model(str(fetch(name, default_cache_dir(os.environ))))
    steps = []
    for _, fmt, tokens, slots, _ in CASES:
        steps.append(step_of(model, fmt, (tokens, slots, max(int(blocks), tokens // 64)), int(threads)))
        steps[-1]()
    seconds: list[list[float]] = [[] for _ in CASES]
    for _ in range(ROUNDS):
        for step, row in zip(steps, seconds, strict=True):
            row.append(timed(step))
    rates = [
        tokens * slots / median(row) for (_, _, tokens, slots, _), row in zip(CASES, seconds, strict=True)
    ]
    read = 2 * parameters(model.spec)
    print(f"{name}, {CHIPS} chips, context {64 * int(blocks)}, {threads} thread(s); memory read by one thread "
          f"{memory_bytes_per_s() / read:.1f} tokens/s in bf16")  # fmt: skip
    for (what, _, _, _, goal), rate, row in zip(CASES, rates, seconds, strict=True):
        beside = f"(goal {goal:g})" if goal else ""
        print(
            f"{what:18} {1e3 * median(row):8.1f} ms {rate:8.1f} tokens/s, {rate / rates[0]:5.2f} x decode {beside}"
        )


if __name__ == "__main__":
    main()
