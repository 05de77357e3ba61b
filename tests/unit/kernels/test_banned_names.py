"""Rule G2, second half: no module of kernels names a numpy function whose rounding or order is not ours."""

import ast
from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).parents[3] / "src" / "ticktrue" / "kernels").rglob("*.py"))

ANY_OWNER = frozenset(
    {"sum", "mean", "dot", "prod", "cumsum", "cumprod", "var", "std", "average", "matmul", "einsum",
    "reduce", "accumulate"}
)  # fmt: skip
FUNCTIONS = frozenset(
    {"exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh",
    "tanh", "arcsin", "arccos", "arctan", "arctan2", "power", "float_power", "pow", "hypot", "cbrt",
    "reciprocal", "logaddexp", "logaddexp2", "vdot", "inner", "outer", "tensordot", "vecdot", "matvec",
    "vecmat", "convolve", "correlate", "trace", "interp", "trapezoid", "linalg", "fft", "fma"}
)  # fmt: skip
LIBRARIES = frozenset({"np", "numpy", "math", "scipy"})


def banned_in(source: str) -> list[str]:
    """Names and operators that rule G2 forbids, as "line: what"."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(attr=name) if name in ANY_OWNER:
                found.append(f"{node.lineno}: .{name}")
            case ast.Attribute(value=ast.Name(id=library), attr=name) if (
                library in LIBRARIES and name in FUNCTIONS
            ):
                found.append(f"{node.lineno}: {library}.{name}")
            case ast.ImportFrom(module=str(library), names=names) if library.split(".")[0] in LIBRARIES:
                found += [f"{node.lineno}: {n.name}" for n in names if n.name in FUNCTIONS | ANY_OWNER]
            case ast.Call(func=ast.Name(id="sum" | "pow" as name)):
                found.append(f"{node.lineno}: {name}()")
            case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()):
                found.append(f"{node.lineno}: @")
            case ast.BinOp(op=ast.Pow(), left=left, right=right) if not (_whole(left) and _whole(right)):
                found.append(f"{node.lineno}: **")
            case _:
                pass
    return found


def _whole(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_kernels_name_nothing_banned(path: Path) -> None:
    assert banned_in(path.read_text()) == []


@pytest.mark.parametrize(
    "bad",
    [
        "np.exp(x)",
        "numpy.tanh(x)",
        "math.log1p(x)",
        "np.sum(x)",
        "x.mean()",
        "np.add.reduce(x)",
        "x @ w",
        "x @= w",
        "x ** y",
        "x ** 2",
        "np.linalg.norm(x)",
        "sum(x)",
        "from math import exp",
        "from numpy import einsum",
        "np.power(x, y)",
    ],
)
def test_planted_name_is_found(bad: str) -> None:
    assert banned_in(bad) != []


@pytest.mark.parametrize(
    "good", ["np.sqrt(x)", "2 ** 31", "exp_f32(x)", "functions.log_f32(x)", "x * y", "d.ln().exp()"]
)
def test_allowed_names_pass(good: str) -> None:
    assert banned_in(good) == []
