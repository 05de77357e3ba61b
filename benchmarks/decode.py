"""Bit-true execution of SmolLM2-135M at 8 chips: wall tokens/s of decode and prefill, as ratios to the goal of 10 tokens/s.

Run: python benchmarks/decode.py [rounds]. The physical limit printed beside it: one read of all weights per token at the
memory speed that one thread reaches here (a numpy float32 sum), which is what any batch-1 decoder on this host meets.
"""

import sys
import time
from statistics import median

import numpy as np
from model import smollm2

from ticktrue.compile import Options, bucket, compile_image, compile_timetable, image_blocks
from ticktrue.execute import Machine
from ticktrue.hw import load_system
from ticktrue.program import StepKind

GOAL_TPS = 10.0


def memory_bytes_per_s() -> float:
    """What one thread reads per second here."""
    data = np.ones(64 << 20, dtype=np.float32)
    best = min(_timed(lambda: float(data.sum())) for _ in range(5))
    return data.nbytes / best


def _timed(work: object) -> float:
    begin = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - begin


def main() -> None:
    """Prints medians and ratios."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    model, system = smollm2(), load_system("groq3-lpx-tray").subset(8)
    image = compile_image(model.spec, system, Options())
    machine = Machine(image, model.weights(), system)
    limit = memory_bytes_per_s() / (2 * 134_515_008)
    for tokens, context in ((1, 64), (1, 1_300), (64, 64), (64, 1_300)):
        kind = StepKind(tokens, 1, bucket(context, image_blocks(2_048)), "last", "chip")
        timetable = compile_timetable(model.spec, system, image, kind)
        ids, pos = [1] * tokens, 64 * kind.blocks - tokens
        machine.step(timetable, ids, pos)
        seconds = median(
            _timed(lambda t=timetable, i=ids, p=pos: machine.step(t, i, p)) for _ in range(rounds)
        )
        rate = tokens / seconds
        print(
            f"T = {tokens:2}, context {64 * kind.blocks:5}: {rate:7.1f} tokens/s wall, {rate / GOAL_TPS:5.2f} x the goal, "
            f"{rate / limit:4.2f} of the weight-read limit of {limit:.0f} tokens/s at batch 1"
        )


if __name__ == "__main__":
    main()
