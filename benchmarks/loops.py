"""Layers as one loop against layers written out, on SmolLM2-135M's shapes: bytes, rows, cycles, and the time of each stage.

    python benchmarks/loops.py [--chips N] [--blocks B] [--tokens T] [--layers L] [--rounds R] [--json]

Every figure is given for both programs, with the ratio unrolled / looped (above 1: the loop is better). Cycles, unrolled rows and
the dataflow digest must be equal; the script fails if they are not. Weights are not needed.
"""

import argparse
import json
import time
from dataclasses import replace

from replay import SMOLLM2

from ticktrue.compile import Options, compile_image, unproved_timetable
from ticktrue.compile.build import build_layers
from ticktrue.graph.build import build_graph
from ticktrue.hw import load_system
from ticktrue.partition import partition
from ticktrue.program import Program, StepKind, decode, encode, expand, unroll
from ticktrue.schedule import schedule
from ticktrue.sim import simulate
from ticktrue.verify import verify
from ticktrue.verify.dataflow import rows_digest
from ticktrue.verify.legal import compact_scope


def least(rounds, *calls):
    """Least CPU seconds of each call; the calls take turns in going first, so that both meet the same machine."""
    best, result = [float("inf")] * len(calls), [None] * len(calls)
    for r in range(rounds):
        for i in range(len(calls))[:: 1 if r % 2 else -1]:
            started = time.process_time()
            result[i] = calls[i]()
            best[i] = min(best[i], time.process_time() - started)
    return best, result


def checked_rows(program, system):
    """Class rows that `verify` looks at in time: of few iterations, or of all where there is no loop."""
    (t,) = program.timetables
    once = expand(program.image, replace(t, loops=()), system)
    scope = compact_scope(program.image, t, system, once) if t.loops else None
    return len(once.rows) if scope is None else len(scope.rows)


def scheduling(args, spec, system, image, kind):
    """CPU seconds that the scheduler takes for the layers that are built: two at either end, and all."""
    sharded = partition(build_graph(spec, kind, image.key.fmt), image.key.plan)
    some = (0, 1, args.layers - 2, args.layers - 1)
    built = [build_layers(sharded, image, system, layers)[0] for layers in (some, range(args.layers))]
    return least(args.rounds, *(lambda t=t: schedule(image, t, system) for t in built))[0]


def measure(args):
    """Figures as {name: (looped, unrolled)}."""
    spec = replace(SMOLLM2, layers=args.layers)
    system = load_system("groq3-lpx-tray").subset(args.chips)
    image = compile_image(spec, system, Options())
    kind = StepKind(args.tokens, 1, args.blocks, "last", "chip")
    makers = [
        lambda loops=loops: unproved_timetable(spec, system, image, kind, loops=loops)
        for loops in (True, False)
    ]
    made, timetables = least(args.rounds, *makers)
    programs = [Program(image, (t,)) for t in timetables]
    data = [encode(p) for p in programs]
    out = {
        "schedule alone, CPU s": scheduling(args, spec, system, image, kind),
        "compile in all, CPU s": made,
    }
    decoded, _ = least(args.rounds, *(lambda d=d: decode(d) for d in data))
    checked, verdicts = least(args.rounds, *(lambda p=p: verify(p, system) for p in programs))
    replayed, timings = least(args.rounds, *(lambda p=p: simulate(p, system) for p in programs))
    out |= {"decode, CPU s": decoded, "verify, CPU s": checked, "replay, CPU s": replayed}
    out["file, bytes"] = [len(d) for d in data]
    out["stored rows"] = [len(t.rows) for t in timetables]
    out["stored chains"] = [len(t.chains) for t in timetables]
    out["rows verified in time"] = [checked_rows(p, system) for p in programs]
    out["cycles"] = [t.duration for t in timetables]
    digests = [rows_digest(p, t, system) for p, t in zip(programs, timetables, strict=True)]
    assert all(v.clean for v in verdicts)
    assert all(t.clean for t in timings)
    assert digests[0] == digests[1]
    assert timetables[0].duration == timetables[1].duration == timings[0].recomputed_cycles
    written = unroll(timetables[0])
    assert (written.rows == timetables[1].rows).all()
    assert (written.chains == timetables[1].chains).all()
    return out, timetables[0].loops


def main():
    """Prints the figures, or JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("chips", 8), ("blocks", 24), ("tokens", 1), ("layers", 30), ("rounds", 12)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures, loops = measure(args)
    if args.json:
        print(
            json.dumps(
                {name: {"looped": a, "unrolled": b, "ratio": b / a} for name, (a, b) in figures.items()}
            )
        )
        return
    for loop in loops:
        print(
            f"loop of {loop.count} bodies, chains {loop.first} to {loop.last}, period {loop.period:,} cycles"
        )
    print(f"{'':28}{'looped':>14}{'unrolled':>14}{'ratio':>8}")
    for name, (a, b) in figures.items():
        shown = (f"{x:,.4f}" if isinstance(x, float) else f"{x:,}" for x in (a, b))
        print(f"{name:28}" + "".join(f"{x:>14}" for x in shown) + f"{b / a:8.2f}")


if __name__ == "__main__":
    main()
