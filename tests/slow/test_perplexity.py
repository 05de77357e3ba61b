"""SmolLM2's perplexity in every format: the figures that docs/numerics.md states, and what 8 bits may cost."""

import re
from functools import cache
from pathlib import Path

import pytest
from benchmarks.perplexity import FORMATS, perplexity
from tests.models import smollm2

from ticktrue.model import Model, load_model

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "numerics.md"
NAME = "smollm2-135m-instruct"
BOUND = {("int8", "bf16"): 0.045, ("fp8", "bf16"): 0.117, ("fp8", "e4m3"): 0.143}
"""Of the ratio to bf16, less 1: twice what was measured."""


@cache
def model() -> Model:
    return load_model(str(smollm2()))


def stated() -> dict[tuple[str, str], str]:
    """The perplexities of the page by format and cache, as they are written there."""
    rows = re.findall(
        rf"^\| {NAME} \| (\w+) \| (\w+) \| 2,044 \| ([\d.]+) \|", PAGE.read_text(), re.MULTILINE
    )
    return {(fmt, cache): value for fmt, cache, value in rows}


@pytest.mark.parametrize(("fmt", "kv"), FORMATS)
def test_perplexity_is_the_stated_one(fmt: str, kv: str) -> None:
    """To the last digit: the program is bit-true, so every machine finds the same."""
    found, count = perplexity(model(), fmt, kv)
    assert count == 2_044
    assert f"{found:.3f}" == stated()[fmt, "e4m3" if kv == "fp8" else "bf16"]


def test_eight_bits_cost_little() -> None:
    page = {of: float(value) for of, value in stated().items()}
    assert len(page) == len(FORMATS)
    for of, most in BOUND.items():
        assert page[of] / page["bf16", "bf16"] - 1 < most, of
