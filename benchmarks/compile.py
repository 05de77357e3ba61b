"""Compile SmolLM2-135M for 16 chips at context 1,300, both proofs included: seconds, and the ratio to the goal of 5 s.

Run: python benchmarks/compile.py [rounds]. Kernels are warmed by one round that is not counted. Weights are packed apart.
"""

import sys
import time
from statistics import median

from model import smollm2

from ticktrue.compile import Options, assemble, bucket, compile_image, compile_timetable, image_blocks
from ticktrue.execute import Machine
from ticktrue.hw import load_system
from ticktrue.program import StepKind, decode, encode
from ticktrue.sim import simulate
from ticktrue.verify import verify
from ticktrue.verify.dataflow import rows_digest

GOAL_S, CACHE_GOAL_S = 5.0, 1.0


def one(tokens: int) -> tuple[float, float, bytes]:
    """(seconds to compile and prove, cycles, bytes) of one step kind."""
    model, system = smollm2(), load_system("groq3-lpx-tray")
    begin = time.perf_counter()
    image = compile_image(model.spec, system, Options())
    blocks = bucket(1_300, image_blocks(2_048))
    kind = StepKind(tokens, 1, blocks, "last", "chip")
    timetable = compile_timetable(model.spec, system, image, kind)
    program = assemble(image, [timetable])
    verdict = verify(program, system)
    equal = rows_digest(program, timetable, system) == timetable.dataflow
    timing = simulate(program, system, kind)
    data = encode(program)
    seconds = time.perf_counter() - begin
    assert verdict.clean, "the program is not clean"
    assert equal, "the dataflow digest differs"
    return seconds, float(timing.duration_cycles), data


def main() -> None:
    """Prints medians and ratios."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for tokens in (1, 64):
        one(tokens)
        runs = [one(tokens) for _ in range(rounds if tokens == 1 else 2)]
        seconds = median(r[0] for r in runs)
        goal = (
            f"{GOAL_S / seconds:5.2f} x faster than the goal of {GOAL_S:.0f} s"
            if tokens == 1
            else "(no goal)"
        )
        print(
            f"compile + verify + digest + replay, T = {tokens:2}: {seconds:6.2f} s wall  {goal}  "
            f"[{runs[0][1]:,.0f} cycles, {len(runs[0][2]):,} bytes]"
        )
        data = runs[0][2]
        begin = time.perf_counter()
        decode(data)
        cached = time.perf_counter() - begin
        times = f"{cached:.3f} s wall, {CACHE_GOAL_S / cached:.0f} x the goal of 1 s"
        print(f"  from cache (decode and check {len(data):,} bytes): {times}")
    model, system = smollm2(), load_system("groq3-lpx-tray")
    model.weights().load()
    image = compile_image(model.spec, system, Options())
    begin = time.perf_counter()
    Machine(image, model.weights(), system)
    print(f"packing the weights of 16 chips: {time.perf_counter() - begin:.2f} s wall")


if __name__ == "__main__":
    main()
