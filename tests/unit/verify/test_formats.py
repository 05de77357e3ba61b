"""Faults in programs of 8 bits: what breaks a rule gives its code, what computes something else is seen by the digest."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from tests.models import TINY_KV2, write_llama
from tests.unit.verify.editor import Editor

from ticktrue.compile import Options, compile_program
from ticktrue.hw import load_system
from ticktrue.isa import Op
from ticktrue.model import load_model
from ticktrue.program import Packing, Program, StepKind
from ticktrue.verify import verify
from ticktrue.verify.dataflow import check_dataflow

SYSTEM = load_system("groq3-lpx-tray").subset(2)
INT8_TO_E4M3 = 1


@cache
def editor(fmt: str, kv: str) -> Editor:
    spec = load_model(str(write_llama(Path(mkdtemp()) / "m", 0, TINY_KV2))).spec
    options = Options(fmt, 200, kv=kv)
    return Editor(compile_program(spec, SYSTEM, options, [StepKind(2, 1, 2, "all", "chip")]))


def with_key(e: Editor, **changes: object) -> Program:
    image = e.program.image
    return replace(e.program, image=replace(image, key=replace(image.key, **changes)))


def tiles_of_another_type(e: Editor) -> Program:
    image = e.program.image
    regions = tuple(replace(r, p0=3) if r.packing == Packing.TILES else r for r in image.regions)
    return replace(e.program, image=replace(image, regions=regions))


RULES: dict[str, tuple[str, Callable[[Editor], Program]]] = {
    "x rounded to another type": (
        "V112",
        lambda e: e.with_template("L0.qkv.quantise", Op.QUANTISE, 0, dtype=INT8_TO_E4M3),
    ),
    "a scale of a type without scales": (
        "V112",
        lambda e: e.with_template("L0.qkv.quantise", Op.TILE_SCALE, 0, dtype=-2),
    ),
    "a tile read as another type": (
        "V112",
        lambda e: e.with_template("L0.qkv.tile[0]", Op.LOAD, 0, dtype=INT8_TO_E4M3),
    ),
    "a plane of another type": (
        "V112",
        lambda e: e.with_template("L0.qkv.tile[0]", Op.INSTALL, 0, dtype=INT8_TO_E4M3),
    ),
    "x read as another type": (
        "V112",
        lambda e: e.with_template("L0.qkv.tile[0]", Op.LOAD, 1, dtype=INT8_TO_E4M3),
    ),
    "x kept as another type": (
        "V112",
        lambda e: e.with_template("L0.qkv.quantise", Op.STORE, 1, dtype=INT8_TO_E4M3),
    ),
    "a format that there is not": ("V112", lambda e: with_key(e, fmt="q4")),
    "a cache that there is not": ("V112", lambda e: with_key(e, kv="int8")),
    "tiles of another type": ("V100", tiles_of_another_type),
}
WRONG: dict[str, Callable[[Editor], Program]] = {
    "scale of another K tile": lambda e: e.with_value("L0.down.tile[0]", Op.LOAD, 2, base=2),
    "scales of another matrix": lambda e: e.with_value(
        "L0.qkv.fold[0.0]", Op.LOAD, 1, region="layers.0.k.scale"
    ),
    "scales of another layer": lambda e: e.with_value(
        "L0.qkv.fold[0.0]", Op.LOAD, 1, region="layers.1.q.scale"
    ),
    "scale of another row": lambda e: e.with_value("L0.qkv.tile[0]", Op.LOAD, 2, base=1),
    "scale taken of another beat": lambda e: e.with_value("L0.down.quantise", Op.LOAD, 0, base=2),
}


@pytest.mark.parametrize("name", RULES)
def test_a_broken_rule_gives_its_code(name: str) -> None:
    code, plant = RULES[name]
    assert code in verify(plant(editor("int8", "auto")), SYSTEM).codes


@pytest.mark.parametrize("name", WRONG)
def test_another_expression_is_another_digest(name: str) -> None:
    planted = WRONG[name](editor("int8", "auto"))
    assert [v.code for v in check_dataflow(planted, SYSTEM)] == ["V141"]


def test_a_cache_without_a_conversion_is_refused() -> None:
    """bf16 appended to a cache of e4m3: the CONVERT rounds to bf16 instead."""
    e = editor("fp8", "fp8")
    planted = e.with_template("L0.attn.append_k[0.0]", Op.CONVERT, 0, dtype=-3)
    assert "V112" in verify(planted, SYSTEM).codes


def test_the_good_programs_are_clean() -> None:
    for fmt, kv in (("int8", "auto"), ("fp8", "fp8")):
        program = editor(fmt, kv).program
        assert verify(program, SYSTEM).violations == ()
        assert check_dataflow(program, SYSTEM) == ()
