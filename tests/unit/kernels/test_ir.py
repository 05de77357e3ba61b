"""Rule G2: no kernel contains float64, a fused operation, a fast-math flag or a mathematical library call."""

import ir_check
import numba
import numpy as np
import pytest
from numba.extending import intrinsic

TWO = np.float32(2)
KERNELS = ir_check.kernels_in("ticktrue.kernels")


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_kernel_obeys_g2(kernel: ir_check.Kernel) -> None:
    assert ir_check.faults_of_kernel(kernel) == []


def test_kernels_are_discovered() -> None:
    names = {str(kernel) for kernel in KERNELS}
    assert {"ticktrue.kernels.functions.exp_f32", "ticktrue.kernels.bits.f32_to_bf16_bits"} <= names


@intrinsic
def fused(_context, _a, _b, _c):
    def generate(_context, builder, _signature, arguments):
        return builder.fma(*arguments)

    return numba.float32(numba.float32, numba.float32, numba.float32), generate


def literal(x):
    return x * 0.1


def exponential(x):
    return np.exp(x)


def power(x):
    return x**x


def fused_square(x):
    return fused(x, x, x)


def hidden_in_a_callee(x):
    return callee(x) + TWO


@numba.njit(error_model="numpy")
def callee(x):
    return np.tanh(x) if x > TWO else x


def summed(x):
    return (x * TWO) + x


@pytest.mark.parametrize(
    ("function", "options", "expected"),
    [
        (literal, {}, "wider than float32"),
        (exponential, {}, "library call"),
        (power, {}, "library call"),
        (hidden_in_a_callee, {}, "library call"),
        (fused_square, {}, "fused multiply-add"),
        (fused_square, {}, "fused instruction"),
        (summed, {"fastmath": True}, "fast-math flag"),
        (summed, {"fastmath": {"contract"}}, "fast-math flag"),
        (summed, {"fastmath": {"reassoc"}}, "fast-math flag"),
        (summed, {"fastmath": {"arcp"}}, "option fastmath"),
        (summed, {"error_model": "python"}, "error_model"),
    ],
)
def test_planted_fault_is_found(function, options, expected) -> None:
    dispatcher = numba.njit(**({"error_model": "numpy"} | options))(function)
    faults = ir_check.faults_of_dispatcher(dispatcher, ("float32(float32)",))
    assert any(expected in fault for fault in faults), faults


def test_good_kernel_has_no_fault() -> None:
    dispatcher = numba.njit(error_model="numpy")(summed)
    assert ir_check.faults_of_dispatcher(dispatcher, ("float32(float32)",)) == []


def test_kernel_that_was_never_compiled_is_a_fault() -> None:
    assert "not compiled" in ir_check.faults_of_dispatcher(numba.njit(summed))[0]


def test_parallel_kernel_is_a_fault() -> None:
    assert any("parallel" in fault for fault in ir_check._option_faults({"parallel": True}))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("  %1 = fmul float %a, %b", None),
        ("  %1 = fmul contract float %a, %b", "fast-math flag"),
        ("  %1 = fadd nnan ninf reassoc <8 x float> %a, %b", "fast-math flag"),
        ("  %1 = tail call fast float @llvm.sqrt.f32(float %a)", "fast-math flag"),
        ("  %1 = tail call fastcc float @helper(float %a)", None),
        ("  %1 = tail call float @llvm.sqrt.f32(float %a)", None),
        (
            "  %1 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %a, <8 x float> %b, <8 x float> %c)",
            "fused",
        ),
        ("  %1 = tail call <8 x float> @__svml_expf8(<8 x float> %a)", "library call"),
        ("  %1 = tail call float @llvm.log.f32(float %a)", "library call"),
        ("  %1 = tail call float @tanhf(float %a)", "library call"),
        ("  %1 = call float @_ZN8ticktrue7exp_f32B2v1(float %a)", None),
        ("  %1 = sitofp i64 %a to double", "wider than float32"),
        ("  %1 = load float, ptr %a, align 4 ; a double comment", None),
    ],
)
def test_each_kind_of_line(line: str, expected: str | None) -> None:
    module = f"define float @kernel(float %a) {{\nentry:\n{line}\n}}\n"
    faults = ir_check.faults_in_llvm(module)
    assert (faults == []) if expected is None else (len(faults) == 1 and expected in faults[0])


def test_python_wrappers_are_not_read() -> None:
    module = "define ptr @_ZN7cpython8kernelE(ptr %a) {\n  %1 = call double @PyFloat_AsDouble(ptr %a)\n}\n"
    assert ir_check.faults_in_llvm(module) == []
