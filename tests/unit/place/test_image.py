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
from ticktrue.place.fill import layer_of
from ticktrue.place.layout import SCORE
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


@pytest.mark.parametrize("chips", [1, 2, 8, 16])
def test_layers_lie_alike_one_after_the_other(chips: int) -> None:
    """So that one loop can serve them: each kind of region in one bank group, ids in the order of layers."""
    image = compile_image(SMOLLM2, load_system("groq3-lpx-tray").subset(chips), Options())
    tracks: dict[str, list[tuple[int, int, int]]] = {}
    for i, r in enumerate(image.regions):
        layer, name = layer_of(r.name)
        if layer >= 0:
            tracks.setdefault(name, []).append((layer, i, r.group))
    assert {"qkv", "o", "gu", "down", "attn_norm", "ffn_norm", "k0", "v0"} <= tracks.keys()
    for track in tracks.values():
        track.sort()
        assert [layer for layer, _, _ in track] == list(range(30))
        assert {b[1] - a[1] for a, b in pairwise(track)} == {1}
        assert len({group for _, _, group in track}) == 1


@pytest.mark.parametrize("chips", [1, 8])
def test_keys_lie_apart_from_the_scores(chips: int) -> None:
    """A head's keys stream while another head's scores are read: in one bank group they would share its read ports."""
    image = compile_image(SMOLLM2, load_system("groq3-lpx-tray").subset(chips), Options())
    assert not {r.group for r in image.regions if layer_of(r.name)[1].startswith("k")} & {SCORE}


def test_the_fuller_a_chip_the_less_alike_layers_lie() -> None:
    """305,594,880 bytes are needed: all layers alike, every second, every fourth, as the bank groups allow."""
    system = load_system("groq3-lpx-tray").subset(1)
    found = []
    for size in (500_000_000, 400_000_000, 305_800_000):
        small = system.with_fact("sram_bytes", size)
        image = compile_image(replace(SMOLLM2, vocab=4_000), small, Options(max_context=1_100))
        groups = [next(r.group for r in image.regions if r.name == f"L{layer}.gu") for layer in range(30)]
        period = next(
            (d for d in range(1, 7) if all(a == b for a, b in zip(groups, groups[d:], strict=False))), 0
        )
        table = OpTable.of(small.chip)
        assert all(r.base + r.vectors <= table.group_vectors for r in image.regions)
        found.append(period)
    assert found == [1, 2, 4]
