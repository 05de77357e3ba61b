"""Decode cycles of Gemma 4 31B shapes with one number of head groups for both kinds of attention, and with one for each.

Run: python benchmarks/kinds.py LAYERS CHIPS CONTEXT... [--prove]. Shapes only, no weights: fp8 with a bf16 cache, T = 1,
`groq3-lpx`. The first LAYERS layers of the 31B, every sixth of which has full attention (4 KV heads of 512), the others
windows of 1,024 (16 of 256).
With --prove each timetable is verified and its dataflow digest compared with the graph's before it is counted.
"""

import argparse
import time
from dataclasses import replace

from ticktrue.compile import (
    Options,
    assemble,
    bucket,
    compile_image,
    compile_timetable,
    image_blocks,
    unproved_timetable,
)
from ticktrue.hw import System, load_system
from ticktrue.model.count import known_spec
from ticktrue.model.spec import ModelSpec
from ticktrue.program import StepKind
from ticktrue.sim import simulate
from ticktrue.verify import verify
from ticktrue.verify.dataflow import rows_digest

COMMON, OWN = (4,), (4, 16)


def shortened(layers: int, vocab: int) -> ModelSpec:
    """The 31B with fewer layers, and words where `vocab` is not 0."""
    spec = known_spec("gemma-4-31b")
    return replace(spec, layers=layers, layer_kinds=spec.layer_kinds[:layers], vocab=vocab or spec.vocab)


def measure(
    spec: ModelSpec, system: System, heads: tuple[int, ...], contexts: list[int], *, prove: bool
) -> None:
    """Prints a line for each context."""
    options = Options("fp8", max(contexts), slots=1, t_max=1, heads=heads)
    image = compile_image(spec, system, options)
    grids = ", ".join(f"{g.h} x {g.cp}" for g in image.key.plan.grids)
    for context in contexts:
        begin = time.perf_counter()
        blocks = bucket(context, image_blocks(options.max_context, options.t_max))
        kind = StepKind(1, 1, blocks, "last", "chip")
        if prove:
            timetable = compile_timetable(spec, system, image, kind)
            program = assemble(image, [timetable])
            assert verify(program, system).violations == ()
            assert rows_digest(program, timetable, system) == timetable.dataflow
        else:
            timetable = unproved_timetable(spec, system, image, kind)
            program = assemble(image, [timetable])
        timing = simulate(program, system)
        assert timing.mismatches == (), timing.mismatches[:3]
        rings = [a.ring for a in image.key.attention]
        print(
            f"{spec.layers} layers, {system.chips} chips, (full, sliding) {grids}, rings {rings}, context {context:,}: "
            f"{timing.duration_cycles:,} cycles, {timing.sim_duration_us:.1f} us; {time.perf_counter() - begin:.1f} s",
            flush=True,
        )


def main() -> None:
    """Every choice, one after the other: the largest common one and the largest of each kind where none is named."""
    p = argparse.ArgumentParser()
    p.add_argument("layers", type=int)
    p.add_argument("chips", type=int)
    p.add_argument("contexts", type=int, nargs="+")
    p.add_argument("--prove", action="store_true")
    p.add_argument(
        "--heads",
        nargs="*",
        default=[],
        help="head groups: of both, or of full and of sliding attention (4,16)",
    )
    p.add_argument("--vocab", type=int, default=0, help="fewer words, so that few chips hold them")
    a = p.parse_args()
    system = load_system("groq3-lpx").subset(a.chips)
    chosen = [tuple(map(int, word.split(","))) for word in a.heads] or [COMMON, OWN]
    for heads in chosen:
        measure(shortened(a.layers, a.vocab), system, heads, a.contexts, prove=a.prove)


if __name__ == "__main__":
    main()
