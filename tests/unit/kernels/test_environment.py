"""Rule G3: a thread that flushes subnormal numbers or rounds otherwise is found and refused."""

import platform
from concurrent.futures import ThreadPoolExecutor

import pytest
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ticktrue.errors import EnvironmentProblem
from ticktrue.kernels.environment import check_float_environment

DEFAULT = 0x1F80  # all exceptions masked, round to nearest, nothing flushed


def mxcsr_call(builder, name, cell):
    kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer()])
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    builder.call(function, [builder.bitcast(cell, ir.IntType(8).as_pointer())])


@intrinsic
def load_mxcsr(_typing, _value):
    def generate(_context, builder, _signature, arguments):
        cell = cgutils.alloca_once_value(builder, arguments[0])
        mxcsr_call(builder, "llvm.x86.sse.ldmxcsr", cell)
        return arguments[0]

    return types.uint32(types.uint32), generate


@njit("uint32(uint32)")
def set_mxcsr(value):
    return load_mxcsr(value)


def check_under(mxcsr: int) -> None:
    """Runs the check in a thread of its own, which has this MXCSR while it does."""

    def body() -> None:
        set_mxcsr(mxcsr)
        try:
            check_float_environment()
        finally:
            set_mxcsr(DEFAULT)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(body).result()


def test_this_thread_is_fit() -> None:
    check_float_environment()


@pytest.mark.skipif(
    platform.machine() not in {"x86_64", "AMD64"}, reason="plants its faults in MXCSR, an x86 register"
)
@pytest.mark.parametrize(
    ("bits", "word"),
    [
        (0x8000, "FTZ"),
        (0x0040, "DAZ"),
        (0x8040, "FTZ"),
        (0x2000, "rounding"),
        (0x4000, "rounding"),
        (0x6000, "rounding"),
    ],
)
def test_planted_fault_is_refused(bits: int, word: str) -> None:
    check_under(DEFAULT)
    with pytest.raises(EnvironmentProblem, match=word) as err:
        check_under(DEFAULT | bits)
    assert err.value.code == "T417"
