"""What the code base promises about itself: sizes, names, doors, error codes with a page each, no input or output below cli.

Import layers are checked by import-linter ([tool.importlinter] in pyproject.toml).
"""

import ast
import re
import statistics
import tomllib
from pathlib import Path

import pytest

from ticktrue.verify import CODES, reference_page

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "ticktrue"
MODULES = sorted(SRC.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}

MODULE_LINES, FUNCTION_LINES, PARAMETERS = 500, 60, 6
MEDIAN_MODULE_LINES, MEDIAN_FUNCTION_LINES = 150, 15
BANNED_FILES = {"utils", "util", "helpers", "common", "misc", "base", "manager"}
BANNED_CLASS = re.compile(r"^Base[A-Z]|(Manager|Handler|Helper|Utils)$")
EDGE = {"cli"}  # may print and read the environment
HANDED_ON = {SRC / "model" / "pip_download.py"}  # gives its surroundings to pip, reads none of them
CODE = re.compile(r"T[1-5]\d\d")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path):
    return str(path.relative_to(SRC))


def is_kernel(path):
    """Compiled by numba, by name: flat arrays as parameters, no annotations."""
    kernel = path.stem.endswith("_kernel") or path.parent.name == "kernels"
    return kernel or name_of(path) == "program/hashing.py"


def functions(path):
    return [node for node in ast.walk(TREES[path]) if isinstance(node, Function)]


def lines(node):
    return node.end_lineno - node.lineno + 1


def parameters(node):
    a = node.args
    names = [arg.arg for arg in a.posonlyargs + a.args + a.kwonlyargs]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def package(path):
    return path.relative_to(SRC).parts[0]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_module_is_within_budget(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MODULE_LINES
    long = [f"{f.name}: {lines(f)} lines" for f in functions(path) if lines(f) > FUNCTION_LINES]
    wide = [f"{f.name}: {parameters(f)} parameters" for f in functions(path) if parameters(f) > PARAMETERS]
    assert long == []
    assert is_kernel(path) or wide == []


def test_medians_stay_small(record_property):
    modules = statistics.median(len(p.read_text(encoding="utf-8").splitlines()) for p in MODULES)
    each = statistics.median(lines(f) for p in MODULES for f in functions(p))
    record_property("median_module_lines", modules)
    record_property("median_function_lines", each)
    assert modules <= MEDIAN_MODULE_LINES
    assert each <= MEDIAN_FUNCTION_LINES


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_names_say_what_things_are(path):
    assert path.stem not in BANNED_FILES
    classes = [n.name for n in ast.walk(TREES[path]) if isinstance(n, ast.ClassDef)]
    assert [name for name in classes if BANNED_CLASS.search(name)] == []


def test_every_module_says_what_it_is():
    silent = [name_of(p) for p in MODULES if not ast.get_docstring(TREES[p])]
    assert silent == []


def test_every_package_has_one_door():
    """`__init__` only imports its own modules and lists what it gives; code lives in modules."""
    for path in SRC.rglob("__init__.py"):
        tree = TREES[path]
        body = tree.body[1:] if ast.get_docstring(tree) else tree.body
        imports = [n for n in body if isinstance(n, ast.ImportFrom)]
        assigned = [n for n in body if isinstance(n, ast.Assign)]
        assert len(imports) + len(assigned) == len(body), (
            f"{name_of(path)} holds more than imports and __all__"
        )
        names = {alias.asname or alias.name for n in imports for alias in n.names}
        listed = [ast.literal_eval(n.value) for n in assigned]
        assert not names or set(*listed) == names, name_of(path)
        inside = f"ticktrue.{path.parent.name}." if path.parent != SRC else "ticktrue."
        assert [n.module for n in imports if not n.module.startswith(inside)] == []


@pytest.mark.parametrize("path", [p for p in MODULES if package(p) not in EDGE], ids=name_of)
def test_nothing_below_cli_prints_or_reads_the_environment(path):
    calls = [n.func for n in ast.walk(TREES[path]) if isinstance(n, ast.Call)]
    assert [f.lineno for f in calls if isinstance(f, ast.Name) and f.id in {"print", "input"}] == []
    assert path in HANDED_ON or environment_reads(TREES[path]) == []


def environment_reads(tree):
    """Line numbers of os.environ, os.getenv and Path.home() in a module."""
    attributes = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute)]
    reads = {("os", "environ"), ("os", "getenv"), ("Path", "home"), ("os", "environb")}
    found = [n.lineno for n in attributes if isinstance(n.value, ast.Name) and (n.value.id, n.attr) in reads]
    froms = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == "os"]
    return found + [n.lineno for n in froms if {"environ", "getenv"} & {a.name for a in n.names}]


def test_no_mutable_module_state():
    """No `global` statement anywhere: what changes is passed in or kept in an object."""
    found = [name_of(p) for p in MODULES for n in ast.walk(TREES[p]) if isinstance(n, ast.Global)]
    assert found == []


def default_codes():
    """Default code of every class of the error tree that has one."""
    found = {}
    for node in ast.walk(TREES[SRC / "errors.py"]):
        for item in node.body if isinstance(node, ast.ClassDef) else ():
            targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
            if any(isinstance(t, ast.Name) and t.id == "default_code" for t in targets):
                found[node.name] = ast.literal_eval(item.value)
    return found


def codes_used():
    """(code, package) of every error code that is a string of its own, or the default of an error that is made without one."""
    defaults, used = default_codes(), set()
    for path, tree in TREES.items():
        where = path.relative_to(SRC).parts[0].removesuffix(".py")
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
                used.add((node.value, where))
            call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in defaults
            if call and all(k.arg != "code" for k in node.keywords):
                used.add((defaults[node.func.id], where))
    raised = {code for code, where in used if where != "errors"}
    return {(code, where) for code, where in used if where != "errors" or code not in raised}


def codes_documented():
    """(code, package) pairs of the table rows in docs/reference/errors.md."""
    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (T\d{3}) \| [^|]+ \| [^|]+ \| ([a-z, ]+) \|$", page, re.MULTILINE)
    return {(code, name) for code, names in rows for name in names.split(", ")}


def test_every_error_code_has_a_line_on_its_page():
    used, documented = codes_used(), codes_documented()
    assert {code for code, _ in used} - {code for code, _ in documented} == set(), "in no row of errors.md"
    assert documented - used == set(), "in errors.md, used nowhere (or not in that package)"


def test_violations_page_is_generated_from_the_codes():
    page = (ROOT / "docs" / "reference" / "violations.md").read_text(encoding="utf-8")
    assert page == reference_page()


def test_every_violation_code_in_the_source_is_explained():
    strings = [n.value for t in TREES.values() for n in ast.walk(t) if isinstance(n, ast.Constant)]
    used = {s for s in strings if isinstance(s, str) and re.fullmatch(r"V\d{3}", s)}
    assert used <= set(CODES)


def test_every_kernel_is_known_to_mypy():
    """mypy has no pattern for `*_kernel`; the list in pyproject.toml names them all."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = next(
        o["module"] for o in settings["tool"]["mypy"]["overrides"] if "ticktrue.kernels.*" in o["module"]
    )
    named = {
        "ticktrue." + name_of(p)[:-3].replace("/", ".")
        for p in MODULES
        if is_kernel(p) and p.parent.name != "kernels"
    }
    assert set(listed) - {"ticktrue.kernels.*"} == named


def test_every_decision_has_its_four_parts():
    pages = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    assert [int(p.name[:4]) for p in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        text = page.read_text(encoding="utf-8")
        headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
        expected = ["Context", "Decision", "Consequences", "How we would know it was wrong"]
        assert headings == expected, page.name
