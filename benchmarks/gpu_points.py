"""The GPU model against published decode speeds: prints the table of docs/gpu.md, its coverage, and configurations per second.

Run: python benchmarks/gpu_points.py. There is no GPU in it: what is compared was measured by others (sources in the table).
"""

import time

import numpy as np

from ticktrue.hw import load_gpu
from ticktrue.model.count import known_spec
from ticktrue.plan.demand import Steps
from ticktrue.plan.formats import BF16
from ticktrue.plan.gpu import step_time
from ticktrue.plan.gpu_points import LEFT_OUT, gpu_rows
from ticktrue.plan.rows import coverage, markdown_table
from ticktrue.plan.traffic import traffic


def main() -> None:
    rows = gpu_rows()
    print(markdown_table(rows))
    found = coverage(rows)
    print(
        f"Of {found.rows} checks, {found.inside} lie in the range; the median error is {found.median_error:.0%},"
        f" the median range a factor of {found.median_width:.1f}."
    )
    for title, why in LEFT_OUT:
        print(f"left out: {title}: {why}")
    model, gpu, n = traffic(known_spec("deepseek-v3")), load_gpu("gb300-nvl72"), 100_000
    rng = np.random.default_rng(1)
    steps = Steps(
        gpus=rng.choice([1, 2, 4, 8, 16], n), batch=rng.integers(1, 500, n), context=rng.integers(1, 10**5, n)
    )
    begin = time.perf_counter()
    step_time(model, gpu, BF16, steps)
    many = n / (time.perf_counter() - begin)
    begin = time.perf_counter()
    step_time(model, gpu, BF16, Steps(gpus=8, context=1_000))
    print(f"{many:,.0f} configurations/s at once; {(time.perf_counter() - begin) * 1e3:.2f} ms for one")


if __name__ == "__main__":
    main()
