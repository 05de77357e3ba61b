"""Checks that this thread's floating-point unit does what `docs/numerics.md` rule G3 asks for.

Rounding mode, flushing of subnormal results (FTZ) and of subnormal operands (DAZ) belong to a thread, and any
library it has called can change them. They are detected by what they do, so the check knows no processor.
"""

import numpy as np
from numba import njit

from ticktrue.errors import EnvironmentProblem
from ticktrue.kernels.bits import f32_as_u32, u32_as_f32

WRONG_ROUNDING = np.uint32(1)
FLUSHED_RESULT = np.uint32(2)
FLUSHED_OPERAND = np.uint32(4)

_NO_FAULT = np.uint32(0)
PROBE_OPERANDS = np.array(
    [
        0x3F80_0000,  # 1
        0xBF80_0000,  # -1
        0x3380_0001,  # just above 2^-24, half an ulp of 1: added to 1 it must count as a whole one
        0x337F_FFFF,  # just below 2^-24: added to 1 it must vanish
        0x0080_0000,  # the smallest normal number
        0x3F00_0000,  # 0.5
        0x0000_0001,  # the smallest subnormal number
        0x4B80_0000,  # 2^24
    ],
    dtype=np.uint32,
)
PROBE_OPERANDS.flags.writeable = False
"""What `float_environment_faults` computes with, as the bits of float32 numbers."""

SIGNATURES: dict[str, tuple[str, ...]] = {
    "float_environment_faults": ("uint32(Array(uint32, 1, 'C', readonly=True))",),
}
"""What each kernel is compiled for when the IR test reads its code (see `tests/unit/kernels/ir_check.py`)."""


@njit(cache=True, error_model="numpy", nogil=True)
def float_environment_faults(operands):
    """Faults of the calling thread, a sum of flags; `PROBE_OPERANDS` come in so that nothing is folded."""
    one = u32_as_f32(operands[0])
    minus_one = u32_as_f32(operands[1])
    above_half_ulp = u32_as_f32(operands[2])
    below_half_ulp = u32_as_f32(operands[3])
    normal = u32_as_f32(operands[4])
    half = u32_as_f32(operands[5])
    subnormal = u32_as_f32(operands[6])
    large = u32_as_f32(operands[7])
    faults = _NO_FAULT
    up = f32_as_u32(one + above_half_ulp) == np.uint32(0x3F80_0001)
    stay = f32_as_u32(one + below_half_ulp) == operands[0]
    down = f32_as_u32(minus_one - above_half_ulp) == np.uint32(0xBF80_0001)
    stay_negative = f32_as_u32(minus_one - below_half_ulp) == operands[1]
    if not (up and stay and down and stay_negative):
        faults = np.uint32(faults | WRONG_ROUNDING)
    if f32_as_u32(normal * half) != np.uint32(0x0040_0000):
        faults = np.uint32(faults | FLUSHED_RESULT)
    if f32_as_u32(subnormal * large) != np.uint32(0x0100_0000):
        faults = np.uint32(faults | FLUSHED_OPERAND)
    return faults


def check_float_environment() -> None:
    """Returns if the calling thread computes as rule G3 asks.

    Raises:
        EnvironmentProblem: T417, the thread rounds otherwise or flushes subnormal numbers.
    """
    faults = np.uint32(float_environment_faults(PROBE_OPERANDS))
    found = [
        name
        for flag, name in (
            (WRONG_ROUNDING, "another rounding mode"),
            (FLUSHED_RESULT, "subnormal results flushed to zero (FTZ)"),
            (FLUSHED_OPERAND, "subnormal operands read as zero (DAZ)"),
        )
        if faults & flag
    ]
    if found:
        raise EnvironmentProblem(
            f"expected round to nearest with subnormal numbers kept, found {' and '.join(found)}",
            code="T417",
            where="floating-point environment of this thread",
            hint="a library in this process changed it, often one built with -ffast-math",
        )
