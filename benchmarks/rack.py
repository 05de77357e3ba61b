"""A large model on a whole rack: compiled, checked against the machine rules and timed; seconds and memory against the goals.

Run: python benchmarks/rack.py [model] [chips] [context] [format], by default gemma-4-31b on 256 chips of groq3-lpx with 100,000
positions in fp8, one token and one slot a step. Shapes only, no weights; the dataflow digest is not part of it. Goals: 10 s of
wall time on two cores, 2 GiB. Kernels are compiled before the clock starts, by the same pipeline on a small part of the machine.
"""

import resource
import sys
import time
from dataclasses import replace
from itertools import pairwise

from ticktrue.compile import Options, assemble, bucket, compile_image, image_blocks, unproved_timetable
from ticktrue.hw import System, load_system
from ticktrue.model.count import known_spec
from ticktrue.model.spec import ModelSpec
from ticktrue.program import StepKind
from ticktrue.sim import simulate
from ticktrue.verify import verify

GOAL_SECONDS, GOAL_MIB = 10.0, 2048


def measure(spec: ModelSpec, system: System, context: int, fmt: str) -> dict[str, float]:
    """Seconds of each part, and the cycles of the step."""
    clock = [time.perf_counter()]
    image = compile_image(spec, system, Options(fmt, context, t_max=1))
    kind = StepKind(1, 1, bucket(context, image_blocks(context, 1)), "last", "chip")
    timetable = unproved_timetable(spec, system, image, kind)
    program = assemble(image, [timetable])
    clock.append(time.perf_counter())
    verdict = verify(program, system)
    clock.append(time.perf_counter())
    timing = simulate(program, system)
    clock.append(time.perf_counter())
    if verdict.total or not timing.clean:
        raise SystemExit(f"{verdict.total} violations, replay clean: {timing.clean}")
    compiled, checked, timed = (b - a for a, b in pairwise(clock))
    return {"compiled": compiled, "checked": checked, "timed": timed, "cycles": timetable.duration}


def main() -> None:
    """Prints one line for each part and one for the sum."""
    given = sys.argv[1:]
    name, chips, context, fmt = [*given, *("gemma-4-31b", "256", "100000", "fp8")[len(given) :]]
    spec, rack = known_spec(name), load_system("groq3-lpx")
    small = replace(spec, layers=2, layer_kinds=spec.layer_kinds[-2:], vocab=1_024)
    measure(small, rack.subset(32), 1_000, fmt)
    found = measure(spec, rack.subset(int(chips)), int(context), fmt)
    for part in ("compiled", "checked", "timed"):
        print(f"{part:9} {found[part]:6.2f} s")
    seconds = sum(found[part] for part in ("compiled", "checked", "timed"))
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    hertz = rack.chip.value("clock_hz")
    print(
        f"together  {seconds:6.2f} s, {seconds / GOAL_SECONDS:.2f} of the goal; {mib:,.0f} MiB, {mib / GOAL_MIB:.2f} of the goal"
    )
    print(f"{name}, {chips} chips, context {int(context):,}, {fmt}: {found['cycles']:,.0f} cycles, "
          f"{found['cycles'] / hertz * 1e6:.1f} us simulated a token")  # fmt: skip


if __name__ == "__main__":
    main()
