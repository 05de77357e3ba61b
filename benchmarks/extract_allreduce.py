"""Writes src/ticktrue/plan/data/allreduce.json from the all-reduce measurements of NVIDIA's aiconfigurator-core wheel.

    pip download --no-deps aiconfigurator-core==0.12.0
    unzip -d DIR aiconfigurator_core-0.12.0-*.whl 'aiconfigurator_core/systems/data/*/comm/*'
    pip install pyarrow
    python benchmarks/extract_allreduce.py DIR

The files count messages in bfloat16 elements and times in milliseconds; the table has bytes and microseconds.
"""

import json
import re
import sys
from pathlib import Path

import pyarrow.parquet

KERNEL = "TRTLLM"  # TensorRT-LLM's own kernel: measured on all of these systems
FILES = {
    "a100": ("a100_sxm", "1.0.0"),
    "h100": ("h100_sxm", "1.3.0rc20"),
    "h200": ("h200_sxm", "1.3.0rc20"),
    "b200": ("b200_sxm", "1.3.0rc20"),
    "b300": ("b300_sxm", "1.3.0rc20"),
    "gb200": ("gb200", "1.3.0rc20"),
    "gb300": ("gb300", "1.3.0rc20"),
}
BYTES_PER_ELEMENT = 2  # bfloat16


def curve(root: Path, folder: str, version: str) -> dict:
    path = root / "aiconfigurator_core" / "systems" / "data" / folder / "comm" / "trtllm" / version
    rows = pyarrow.parquet.read_table(path / "custom_allreduce_perf.parquet").to_pylist()
    rows = [row for row in rows if row["kernel_source"] == KERNEL and row["allreduce_dtype"] == "bfloat16"]
    degrees = sorted({row["num_gpus"] for row in rows})
    sizes = sorted({row["message_size"] for row in rows})
    times = {(row["num_gpus"], row["message_size"]): row["latency"] for row in rows}
    assert len(times) == len(rows) == len(degrees) * len(sizes), (
        folder,
        "a measurement is missing or twice there",
    )
    return {
        "device": rows[0]["device"],
        "kernel": f"TensorRT-LLM {version}",
        "bytes": [size * BYTES_PER_ELEMENT for size in sizes],
        "degrees": degrees,
        "microseconds": [[round(times[n, size] * 1_000, 3) for size in sizes] for n in degrees],
    }


def main() -> None:
    root = Path(sys.argv[1])
    document = {
        "schema": "ticktrue/allreduce/v1",
        "source": "AIC: NVIDIA aiconfigurator-core 0.12.0, https://pypi.org/project/aiconfigurator-core/0.12.0/,"
        " systems/data/*/comm/trtllm/*/custom_allreduce_perf.parquet",
        "date": "2026-08-21",
        "licence": "Apache-2.0, Copyright (c) 2025-2026 NVIDIA CORPORATION & AFFILIATES. Changed: selected,"
        " in bytes and microseconds.",
        "curve": {name: curve(root, *where) for name, where in FILES.items()},
    }
    target = Path(__file__).parents[1] / "src" / "ticktrue" / "plan" / "data" / "allreduce.json"
    text = re.sub(
        r"(?<=[\[\d,])\n\s*(?=[\d\]])", "", json.dumps(document, indent=1)
    )  # a list of numbers on one line
    target.write_text(text + "\n", encoding="utf-8")
    print(target, len(text), "bytes")


if __name__ == "__main__":
    main()
