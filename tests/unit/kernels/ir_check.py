"""Reads the LLVM code and the assembly of numba kernels and names what rule G2 forbids.

Convention for modules under `ticktrue.kernels`: every kernel is a module-level numba dispatcher, and is found
by itself. Its module says what to compile it for in

    SIGNATURES: dict[str, tuple[str, ...]] = {"kernel_name": ("float32(float32)", ...)}

(strings in numba's notation, evaluated in `numba.types`); what it has been called with is read as well. A
kernel with neither is a fault: code that nobody compiled cannot be read. numba does not show code that comes
from its cache, so each kernel is compiled afresh, with the same options. What a kernel calls is inlined
or stands in the same LLVM module, so it is read too. `parallel=True` puts loop bodies where they cannot be
read: a fault.
"""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

import numba
from numba.core.dispatcher import Dispatcher

_LIBM = (
    "exp|exp2|exp10|expm1|log|log2|log10|log1p|sin|cos|sincos|tan|asin|acos|atan|atan2|sinh|cosh|tanh|pow|powi"
    "|cbrt|hypot|erf|erfc|tgamma|lgamma|fmod"
)
_LIBRARY_CALL = re.compile(
    rf'@"?((?:llvm\.)?(?:__|numba_|npy_)?(?:{_LIBM})[fl]?(?:\.[\w.]+)?|__svml_\w+|_ZGV\w+|__\w+_finite)"?\('
)
_FUSED = re.compile(r'@"?(llvm\.fma\.|llvm\.fmuladd\.|fmaf?\b)')
_FLAG = re.compile(
    r"\b(?:fadd|fsub|fmul|fdiv|frem|fneg|fcmp|phi|select|call|fptrunc|fpext)\s(?:\w+\s)*?"
    r"(fast|contract|reassoc|arcp|afn|nsz)\s"
)
_WIDE = re.compile(r"\b(double|x86_fp80|fp128|ppc_fp128)\b")
_ATTRIBUTE = re.compile(r'"(?:unsafe-fp-math|no-signed-zeros-fp-math|approx-func-fp-math)"="true"')
_FLUSHING = re.compile(r'"denormal-fp-math(?:-f32)?"="(?!ieee)[^"]*"')
_FUSED_INSTRUCTION = re.compile(r"^\s+(v?fn?m(?:add|sub|la|ls)\w*)\s", re.MULTILINE)
_DEFINITION = re.compile(r'^define [^@]*@(?:"([^"]+)"|([\w.$]+))\(')
_PYTHON_WRAPPER = re.compile(r"^_ZN7cpython|^cfunc\.|^NRT_|^nrt_")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A numba dispatcher, the module that holds it, and its name there."""

    module: ModuleType
    name: str
    dispatcher: Dispatcher

    def __str__(self) -> str:
        return f"{self.module.__name__}.{self.name}"


def kernels_in(package: str) -> list[Kernel]:
    """Every module-level dispatcher defined in a module of `package`, in order of name."""
    root = importlib.import_module(package)
    names = [root.__name__, *(found.name for found in pkgutil.walk_packages(root.__path__, f"{package}."))]
    modules = [importlib.import_module(name) for name in sorted(names)]
    return [
        Kernel(module, name, value)
        for module in modules
        for name, value in sorted(vars(module).items())
        if isinstance(value, Dispatcher) and value.py_func.__module__ == module.__name__
    ]


def faults_of_kernel(kernel: Kernel) -> list[str]:
    """All faults of a kernel's options, LLVM code and assembly, for its module's SIGNATURES and its calls."""
    signatures = getattr(kernel.module, "SIGNATURES", {}).get(kernel.name, ())
    return faults_of_dispatcher(kernel.dispatcher, signatures)


def faults_of_dispatcher(dispatcher: Dispatcher, signatures: tuple[str, ...] = ()) -> list[str]:
    """All faults of a dispatcher, for `signatures` and for those it has been called with."""
    wanted = (*signatures, *dispatcher.signatures)
    if not wanted:
        return ["not compiled: add it to SIGNATURES of its module, or call it first"]
    fresh = numba.jit(**dispatcher.targetoptions)(dispatcher.py_func)
    for signature in wanted:
        fresh.compile(signature)
    faults = list(_option_faults(dispatcher.targetoptions))
    for signature, code in fresh.inspect_llvm().items():
        faults += [f"{fault} (for {signature})" for fault in faults_in_llvm(code)]
    for signature, code in fresh.inspect_asm().items():
        faults += [f"{fault} (for {signature})" for fault in faults_in_assembly(code)]
    return faults


def faults_in_llvm(code: str) -> list[str]:
    """What rule G2 forbids in an LLVM module; wrappers for the Python interpreter are left out."""
    faults = [f"attribute {found}" for pattern in (_ATTRIBUTE, _FLUSHING) for found in pattern.findall(code)]
    for name, line in _instructions(code):
        faults += [
            f"{what} in {name}: {line.strip()}"
            for what, pattern in (
                ("wider than float32", _WIDE),
                ("fused multiply-add", _FUSED),
                ("fast-math flag", _FLAG),
                ("library call", _LIBRARY_CALL),
            )
            if pattern.search(line)
        ]
    return faults


def faults_in_assembly(code: str) -> list[str]:
    """Fused multiply-add instructions of x86 (vfmadd...) and Arm (fmadd, fmla...) in an assembly listing."""
    return [f"fused instruction {found}" for found in sorted(set(_FUSED_INSTRUCTION.findall(code)))]


def _option_faults(options: dict[str, object]) -> Iterator[str]:
    """Compile options under which the code may not be what the check reads, or divides differently."""
    if options.get("fastmath"):
        yield "option fastmath"
    if options.get("parallel"):
        yield "option parallel: loop bodies are compiled where this check cannot read them"
    if options.get("error_model") != "numpy":
        yield 'option error_model is not "numpy"'


def _instructions(code: str) -> Iterator[tuple[str, str]]:
    """(function, line) of every line in a function that is no wrapper, without comments and metadata."""
    function = ""
    for line in code.splitlines():
        if line.startswith("}"):
            function = ""
        elif match := _DEFINITION.match(line):
            name = match.group(1) or match.group(2)
            function = "" if _PYTHON_WRAPPER.match(name) else name
            if function:
                yield function, line
        elif function:
            yield function, re.sub(r"\s*(;|, ![\w.]+ !).*$", "", line)
