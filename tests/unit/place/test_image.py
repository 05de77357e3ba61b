"""Regions of an image: inside their bank groups, apart from each other; a model too large is refused with its bytes."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from tests.models import SPEC

from ticktrue.compile import Options, compile_image
from ticktrue.errors import DoesNotFit
from ticktrue.hw import load_system
from ticktrue.isa import OpTable
from ticktrue.program import RegionClass

SMOLLM2 = replace(SPEC, name="smollm2-135m", layers=30, hidden=576, ffn=1536, vocab=49_152, max_positions=8_192,
                  tied_embeddings=True)  # fmt: skip


@pytest.mark.parametrize("chips", [1, 2, 3, 6, 16])
def test_regions_lie_inside_their_groups_and_apart(chips: int) -> None:
    system = load_system("groq3-lpx-tray").subset(chips)
    image = compile_image(SPEC, system, Options())
    table = OpTable.of(system.chip)
    for group in range(table.mem_groups):
        spans = sorted((r.base, r.base + r.vectors) for r in image.regions if r.group == group)
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
        assert not spans or spans[-1][1] <= table.group_vectors
    assert {r.cls for r in image.regions} >= {
        RegionClass.WEIGHT,
        RegionClass.STATE,
        RegionClass.CODE,
        RegionClass.INBOX,
    }


def test_smollm2_at_8192_context_does_not_fit_one_chip() -> None:
    """514 MB are dense already: the refusal names the bytes over, by region class, and how many chips would do."""
    with pytest.raises(DoesNotFit) as e:
        compile_image(SMOLLM2, load_system("groq3-lpx-tray").subset(1), Options(max_context=8_192))
    text = str(e.value)
    found = re.search(
        r"needs ([\d,]+) bytes per chip on 1 chips, each holds 500,000,000: ([\d,]+) bytes too many", text
    )
    assert found is not None
    needed, over = (int(x.replace(",", "")) for x in found.groups())
    assert needed - over == 500_000_000
    assert needed > 514_000_000
    for name in ("weight", "state", "arena", "inbox", "const", "code"):
        assert re.search(rf"{name} [\d,]+", text)
    assert "2 chips would do" in e.value.hint
    compile_image(SMOLLM2, load_system("groq3-lpx-tray").subset(2), Options(max_context=8_192))


def test_smollm2_fits_one_chip_at_the_default_context() -> None:
    image = compile_image(SMOLLM2, load_system("groq3-lpx-tray").subset(1), Options())
    assert sum(r.vectors for r in image.regions) * 320 < 500_000_000


def test_a_refusal_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(DoesNotFit, match=r"^T310: "):
        compile_image(SMOLLM2, load_system("tiny-4"), Options(max_context=512))
    assert list(tmp_path.iterdir()) == []
