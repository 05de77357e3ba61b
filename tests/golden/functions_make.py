"""Makes `functions_golden.json`: each own function on 4,096 inputs, as a sha256 and every 256th value.

    PYTHONPATH=src python tests/golden/functions_make.py

Run it only when `docs/numerics.md` changes: other bits mean that every program and answer changes too.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ticktrue.kernels import functions
from ticktrue.kernels.bits import f32_to_bf16_bits
from ticktrue.kernels.tables import rope_inv_freq, rope_tables

GOLDEN = Path(__file__).parent / "functions_golden.json"
COUNT = 4096

Float32s = npt.NDArray[np.float32]


def by_bits(first: float, last: float) -> Float32s:
    """2,048 float32 of one sign from `first` to `last`, evenly spaced in their bits."""
    a, b = (int(v) for v in np.array([first, last], np.float32).view(np.uint32))
    return np.array([a + i * (b - a) // 2047 for i in range(2048)], np.uint32).view(np.float32)


def by_value(first: float, last: float) -> Float32s:
    """2,048 float32 from `first` to `last`, evenly spaced."""
    return np.array([first + i * (last - first) / 2047 for i in range(2048)], np.float32)


def both(a: Float32s, b: Float32s) -> Float32s:
    """4,096 inputs."""
    return np.concatenate([a, b])


SIGNED = both(by_bits(-1e-30, -95.0), by_value(-95.0, 95.0))
GATED = both(by_value(-12.0, 12.0), by_bits(1e-6, 12.0))
INPUTS = {
    "exp_f32": (SIGNED,),
    "log_f32": (both(by_bits(1e-45, 3e38), by_value(0.3, 3.3)),),
    "log1p_f32": (both(by_bits(1e-30, 3e38), by_value(-1.0, 3.0)),),
    "tanh_f32": (both(by_bits(-1e-30, -12.0), by_value(-2.0, 2.0)),),
    "sigmoid_f32": (SIGNED,),
    "rsqrt_f32": (both(by_bits(1e-45, 3e38), by_value(0.3, 3.3)),),
    "silu_gate_f32": (GATED, SIGNED[::-1]),
    "gelu_tanh_gate_f32": (GATED, SIGNED[::-1]),
}


def golden_bits() -> dict[str, npt.NDArray[np.uint32]]:
    """The bits of every own function on its inputs, and of two pairs of RoPE tables."""
    with np.errstate(all="ignore"):
        found = {
            name: np.array(
                [np.float32(getattr(functions, name)(*row)) for row in zip(*inputs, strict=True)], np.float32
            ).view(np.uint32)
            for name, inputs in INPUTS.items()
        }
    patterns = np.arange(COUNT, dtype=np.uint32) * np.uint32(0x000F_FFF7)
    values = patterns.view(np.float32)
    found["f32_to_bf16_bits"] = np.array([f32_to_bf16_bits(v) for v in values[~np.isnan(values)]], np.uint32)
    for theta, dim, positions in ((10_000.0, 64, 8_192), (1_000_000.0, 128, 262_144)):
        tables = rope_tables(rope_inv_freq(theta, dim), positions)
        for part in ("coarse", "fine"):
            found[f"rope_{part}_{theta:.0f}_{dim}"] = getattr(tables, part).ravel().view(np.uint32)
    return found


def summary(bits: npt.NDArray[np.uint32]) -> dict[str, object]:
    """What the golden file keeps of one function."""
    return {
        "count": len(bits),
        "sha256": hashlib.sha256(bits.astype("<u4").tobytes()).hexdigest(),
        "sample": " ".join(f"{value:08x}" for value in bits[:: max(1, len(bits) // 16)]),
    }


if __name__ == "__main__":
    GOLDEN.write_text(
        json.dumps({name: summary(bits) for name, bits in golden_bits().items()}, indent=1) + "\n"
    )
