"""One SmolLM2 layer, prefill 128 + decode 1, executed bit-true: ratio to FTLPU-CMODEL's recorded 17.0 s for the same layer test.

Run: python benchmarks/layer.py. The peer's figure: its functional C++ model of one chip on 2 cores of the same kind, recorded
2026-11-30 (it is not run here). Ours: a one-layer model of SmolLM2's shapes with seeded weights on one chip, execution only,
kernels warm, logits of the vocabulary left as small as the peer's test has none.
"""

import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.models import LlamaShape, write_llama

from ticktrue.compile import Options, compile_image, compile_timetable, image_blocks
from ticktrue.execute import Machine
from ticktrue.hw import load_system
from ticktrue.model import load_model
from ticktrue.program import StepKind

PEER_S = 17.0
SHAPE = LlamaShape(layers=1, hidden=576, heads=9, kv_heads=3, head_dim=64, ffn=1536, vocab=320)


def main() -> None:
    """Prints the median and the ratio."""
    with TemporaryDirectory() as directory:
        model = load_model(str(write_llama(Path(directory) / "layer", 0, SHAPE)))
        system = load_system("groq3-lpx-tray").subset(1)
        image = compile_image(model.spec, system, Options(max_context=256))
        machine = Machine(image, model.weights(), system)
        blocks = image_blocks(256)
        kinds = [
            StepKind(64, 1, 1, "last", "chip"),
            StepKind(64, 1, 2, "last", "chip"),
            StepKind(1, 1, 3, "last", "chip"),
        ]
        tables = [compile_timetable(model.spec, system, image, k) for k in kinds if k.blocks <= blocks]
        steps = [(tables[0], [1] * 64, 0), (tables[1], [2] * 64, 64), (tables[2], [3], 128)]
        times = []
        for _ in range(12):
            begin = time.perf_counter()
            for timetable, tokens, pos in steps:
                machine.step(timetable, tokens, pos)
            times.append(time.perf_counter() - begin)
        seconds = median(times[2:])
        print(
            f"prefill 128 + decode 1 of one layer: {seconds * 1e3:.1f} ms wall, {PEER_S / seconds:.0f} x faster than 17.0 s "
            f"(goal: 100 x)"
        )


if __name__ == "__main__":
    main()
