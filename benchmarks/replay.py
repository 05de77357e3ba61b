"""Speed of the timing replay on SmolLM2-135M's shapes, 16 chips, context 1,300: chip-cycles/s and rows/s, kernels warm.

    python benchmarks/replay.py [--chips N] [--blocks B] [--tokens T] [--rounds R] [--json]

The goal is 10 million chip-cycles/s. Idle cycles are free to a replay by events, so rows/s is the honest figure beside it.
"""

import argparse
import json
import time

from ticktrue.compile import Options, assemble, compile_image, compile_timetable
from ticktrue.hw import load_system
from ticktrue.model import Family, ModelSpec
from ticktrue.program import Program, StepKind, expand
from ticktrue.sim import assumed_constants, simulate
from ticktrue.sim.order import order_of

GOAL_CHIP_CYCLES_PER_S = 10_000_000

SMOLLM2 = ModelSpec(
    family=Family.LLAMA,
    name="smollm2-135m",
    layers=30,
    hidden=576,
    heads=9,
    kv_heads=3,
    head_dim=64,
    ffn=1536,
    vocab=49_152,
    rope_theta=100_000.0,
    rms_eps=1e-5,
    max_positions=8_192,
    eos=(2,),
)


def best_of(rounds, call):
    """The least wall seconds of `rounds` calls, and the last result."""
    least, result = float("inf"), None
    for _ in range(rounds):
        started = time.perf_counter()
        result = call()
        least = min(least, time.perf_counter() - started)
    return least, result


def compiled(chips, tokens, blocks):
    """(program of one timetable without the graph's digest, system)."""
    system = load_system("groq3-lpx-tray").subset(chips)
    image = compile_image(SMOLLM2, system, Options("bf16", 2_048))
    kind = StepKind(tokens, 1, blocks, "last", "chip")
    return assemble(image, [compile_timetable(SMOLLM2, system, image, kind)]), system


def measure(program: Program, system, rounds):
    """Figures of one program as a dict; wall seconds and ratios to the goal."""
    simulate(program, system)  # compiles or loads the kernels
    wall_s, timing = best_of(rounds, lambda: simulate(program, system))
    started = time.process_time()
    simulate(program, system)
    cpu_s = time.process_time() - started
    flat = expand(program.image, program.timetables[0], system)
    expand_s, _ = best_of(rounds, lambda: expand(program.image, program.timetables[0], system))
    order_s, _ = best_of(rounds, lambda: order_of(flat))
    sensitivity_s, constants = best_of(
        max(1, rounds // 4), lambda: assumed_constants(program, system, timing)
    )
    values = sum((a.cycles_low is not None) + (a.cycles_high is not None) for a in constants)
    chip_cycles = timing.duration_cycles * timing.chips
    return {
        "kind": timing.kind.label(),
        "chips": timing.chips,
        "clean": timing.clean,
        "sim_duration_cycles": timing.duration_cycles,
        "class_rows": timing.rows,
        "flat_rows": timing.flat_rows,
        "wall_simulate_s": wall_s,
        "cpu_simulate_s": cpu_s,
        "wall_expand_s": expand_s,
        "wall_order_s": order_s,
        "chip_cycles_per_s": chip_cycles / wall_s,
        "of_goal": chip_cycles / wall_s / GOAL_CHIP_CYCLES_PER_S,
        "flat_rows_per_s": timing.flat_rows / wall_s,
        "class_rows_per_s": timing.rows / wall_s,
        "wall_sensitivity_s": sensitivity_s,
        "wall_per_constant_value_s": sensitivity_s / max(values, 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chips", type=int, default=16)
    parser.add_argument("--blocks", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures = measure(*compiled(args.chips, args.tokens, args.blocks), args.rounds)
    if args.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        text = (
            f"{value:,.4f}"
            if isinstance(value, float) and value < 100
            else f"{value:,.0f}"
            if isinstance(value, float)
            else f"{value}"
        )
        print(f"{name:28}{text:>20}")


if __name__ == "__main__":
    main()
