"""`fit` against the compiler and against sums made by hand."""

from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from tests.models import SPEC

from ticktrue.compile import Options, compile_image
from ticktrue.errors import DoesNotFit, UnsupportedModel, UsageError
from ticktrue.hw import Fact, System, load_system
from ticktrue.model import Family, ModelSpec, SlidingAttention
from ticktrue.model.count import known_spec
from ticktrue.model.spec import LayerKind
from ticktrue.partition import kv_heads, legal_degrees, make_plan
from ticktrue.place.demand import Demand, demand_of, hold
from ticktrue.plan.fit import Question, fit
from ticktrue.plan.memory import MemorySystem, memory_rows
from ticktrue.plan.precision import kv_by_context, live_elements, precisions
from ticktrue.plan.stages import even_stages, fewest_stages
from ticktrue.program import StepKind

RACK = load_system("groq3-lpx")
GEMMA = known_spec("gemma-4-31b")


def test_gemma_4_31b_in_fp8_at_100k() -> None:
    """64 chips do not hold it with the embedding on the chip, 128 do; tiles near the figures derived by hand (486, 124 MB)."""
    found = fit(GEMMA, Question(100_000, formats=("fp8",)), [RACK])
    best = found.smallest("groq3-lpx", "fp8")
    assert best is not None
    assert best.compiled
    assert (best.chips, best.stages, best.systems, found.held) == (128, 1, 1, True)
    for chips, megabytes, within in ((64, 486, 0.01), (256, 124, 0.06)):
        asked = fit(GEMMA, Question(100_000, formats=("fp8",), chips=chips), [RACK])
        row, *more = asked.rows
        assert [r.chips for r in more] == ([128] if chips == 64 else [])  # what would do
        assert asked.held == row.fits
        tiles = (
            row.by_class["weight"] - 262_144 * 320
        )  # a row of the embedding is one vector on so many chips
        assert tiles == pytest.approx(megabytes * 1e6, rel=within)
        assert row.fits == (chips == 256)
        assert row.over_bytes == (0 if row.fits else row.bytes_per_chip - row.capacity_bytes)


def test_80_chips_are_five_trays_whose_bank_groups_do_not_take_the_embedding() -> None:
    row, enough = fit(GEMMA, Question(1_000, formats=("fp8",), kv="fp8", chips=80), [RACK]).rows
    assert (enough.chips, enough.fits) == (128, True)
    assert (row.stages, row.group_chips, row.chips, row.fits, row.compiled) == (5, 16, 80, False, False)
    assert row.largest == "embed"
    assert row.largest_bytes == 262_144 * 4 * 320 > row.group_bytes
    assert row.bytes_per_chip < row.capacity_bytes


def test_int8_lies_as_fp8_does() -> None:
    rows = fit(GEMMA, Question(10_000), [RACK]).rows
    by_format = {
        fmt: [replace(r, format="") for r in rows if r.format == fmt] for fmt in ("bf16", "fp8", "int8")
    }
    assert by_format["fp8"] == by_format["int8"] != by_format["bf16"]


SMALL = replace(SPEC, layers=6, hidden=640, ffn=1_920, max_positions=4_096)


def shrunk(system: str, bytes_: int) -> System:
    return load_system(system).with_fact("sram_bytes", bytes_ // 1_280 * 1_280)


@pytest.mark.parametrize("megabytes", [3, 4, 6, 10, 24])
@pytest.mark.parametrize("fmt", ["bf16", "fp8"])
def test_the_smallest_group_is_the_first_that_compiles(megabytes: int, fmt: str) -> None:
    system = shrunk("groq3-lpx-tray", megabytes * 1_000_000)
    found = fit(SMALL, Question(700, formats=(fmt,)), [system])
    fits = [r for r in found.rows if r.fits and r.stages == 1]
    first = None
    for chips in legal_degrees(kv_heads(SMALL), 16):
        try:
            compile_image(SMALL, system.subset(chips), Options(fmt, 700, t_max=1))
        except DoesNotFit:
            continue
        first = chips
        break
    assert [r.chips for r in fits] == ([] if first is None else [first])
    assert all(not r.fits or r.over_bytes == 0 for r in found.rows)


def test_the_cache_is_counted_as_rings() -> None:
    """Window 100 in steps of 4: ⌈104 / 64⌉ + 1 = 3 blocks, a ring of 4; 128 bytes of a head in a vector of 320, K and V."""
    sliding = SlidingAttention(100, 3, 64, 10_000.0)
    spec = replace(SPEC, family=Family.MISTRAL, sliding=sliding, layer_kinds=(LayerKind.SLIDING,) * 2)
    question = Question(256, slots=2, tokens=4, formats=("bf16",), chips=1)
    (row,) = fit(spec, question, [load_system("groq3-lpx-tray")]).rows
    # two heads of 64 share a vector of 160 bf16 lanes, so three heads take two vectors
    assert row.by_class["state"] == 2 * 2 * 2 * 4 * 64 * 2 * 320
    longer = fit(spec, replace(question, context=200), [load_system("groq3-lpx-tray")]).rows[0]
    assert longer.by_class["state"] == row.by_class["state"]
    full = fit(replace(spec, sliding=None, layer_kinds=()), question, [load_system("groq3-lpx-tray")]).rows[0]
    assert full.by_class["state"] == 2 * 2 * 2 * 5 * 64 * 2 * 320  # ⌈260 / 64⌉ blocks


def demand(spec: ModelSpec, system: System, chips: int) -> Demand:
    plan = make_plan(kv_heads(spec), chips)
    return demand_of(spec, system.subset(chips), plan, StepKind(1, 1, 8, "all", "chip"), ("bf16", "bf16"))


def fewest_by_trying(found: Demand) -> int:
    """The fewest contiguous stages that all fit, over every cut of the layers; 0 if none."""
    n = found.layers
    for stages in range(1, n + 1):
        for inner in combinations(range(1, n), stages - 1):
            edges = (0, *inner, n)
            cuts = [range(a, b) for a, b in pairwise(edges)]
            if all(hold(found, c, first=c.start == 0, last=c.stop == n).fits for c in cuts):
                return stages
    return 0


@pytest.mark.parametrize("kilobytes", [1_200, 1_700, 2_100, 2_600, 3_500, 5_000, 9_000])
@pytest.mark.parametrize("chips", [3, 6])
def test_stages_are_the_fewest_of_all_cuts(kilobytes: int, chips: int) -> None:
    found = demand(SMALL, shrunk("groq3-lpx-tray", kilobytes * 1_000), chips)
    stages = fewest_stages(found, found.layers)
    expected = fewest_by_trying(found)
    assert (0 if stages is None else len(stages.cuts)) == expected
    if stages is not None:
        assert [layer for cut in stages.cuts for layer in cut] == list(range(found.layers))
        assert stages.fullest.fits
        assert fewest_stages(found, expected - 1) is None


def test_even_stages_are_even() -> None:
    found = demand(SMALL, load_system("groq3-lpx-tray"), 3)
    stages = even_stages(found, 3)
    worst = min(
        max(
            hold(found, range(a, b), first=a == 0, last=b == 6).total_bytes
            for a, b in ((0, i), (i, j), (j, 6))
        )
        for i, j in combinations(range(1, 6), 2)
    )
    assert stages.fullest.total_bytes == pytest.approx(worst, rel=1e-3)


def test_a_pipeline_is_named_where_one_group_is_too_small() -> None:
    system = shrunk("groq3-lpx-tray", 2_400_000)
    found = fit(SMALL, Question(700, formats=("bf16",)), [system])
    assert [r.fits for r in found.rows] == [False, True]
    refused, pipeline = found.rows
    assert (refused.chips, pipeline.group_chips, pipeline.compiled) == (16, 16, False)
    assert pipeline.systems == pipeline.stages > 1
    assert "pipelines" in pipeline.why[0]
    asked = fit(SMALL, Question(700, formats=("bf16",), chips=pipeline.chips), [system])
    assert asked.rows == (pipeline,)
    fewer = fit(SMALL, Question(700, formats=("bf16",), chips=pipeline.chips - 16), [system])
    assert not fewer.held


def test_nodes_of_a_dragonfly_are_the_groups_of_a_pipeline() -> None:
    system = shrunk("groq-tsp-v1-dragonfly", 3_600_000)
    refused, pipeline = fit(SMALL, Question(700, formats=("int8",)), [system]).rows
    assert (refused.chips, refused.fits, pipeline.group_chips, pipeline.fits) == (8, False, 8, True)
    assert (pipeline.chips, pipeline.systems) == (8 * pipeline.stages, 1)


def test_a_format_that_a_chip_lacks_is_skipped() -> None:
    found = fit(SMALL, Question(300), [load_system("groq-tsp-v1-node")])
    assert {s.format for s in found.skipped if "absent" in s.why} == {"bf16", "fp8"}
    assert {r.format for r in found.rows} == {"int8"}


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (Question(0), "T123"),
        (Question(-5), "T123"),
        (Question(10**9), "T123"),
        (Question(100, slots=0), "T140"),
        (Question(100, tokens=3), "T140"),
        (Question(100, tokens=512), "T140"),
        (Question(100, formats=("fp4",)), "T122"),
        (Question(100, formats=()), "T122"),
        (Question(100, kv="int8"), "T122"),
        (Question(100, chips=71), "T141"),
    ],
    ids=str,
)
def test_questions_without_an_answer(question: Question, code: str) -> None:
    with pytest.raises(UsageError) as refusal:
        fit(GEMMA, question, [RACK])
    assert refusal.value.code == code


def test_precisions_are_the_published_counts() -> None:
    bf16, fp8, int8 = precisions(GEMMA, 100_000, 3, 4)
    assert (bf16.weights_bytes, fp8.weights_bytes, int8.weights_bytes) == (
        61_394_690_560, 30_697_345_280, 30_697_345_280,
    )  # fmt: skip
    assert (bf16.kv_bytes, fp8.kv_bytes) == (6 * 4_515_430_400, 3 * 4_515_430_400)
    assert bf16.activation_bytes == 2 * 12 * (2 * 5_376 + 262_144)
    assert bf16.total_bytes == bf16.weights_bytes + bf16.kv_bytes + bf16.activation_bytes


def test_the_cache_by_context() -> None:
    listed = dict(kv_by_context(GEMMA, 16_384, 1))
    assert listed == {
        1_000: 450_560_000, 10_000: 829_030_400, 16_384: 1_090_519_040, 32_768: 1_761_607_680, 100_000: 4_515_430_400,
        262_144: 11_156_848_640,
    }  # fmt: skip
    assert dict(kv_by_context(GEMMA, 10_000, 3))[10_000] == 3 * 829_030_400


def test_live_elements_of_blocks_wider_than_the_head() -> None:
    narrow = replace(SPEC, vocab=100)
    assert live_elements(narrow) == 2 * 218 + max(2 * 9 * 64 + 2 * 3 * 64, 3 * 346)
    deepseek = replace(known_spec("deepseek-v3"), vocab=100, bos=(), eos=())
    assert live_elements(deepseek) == 2 * 7_168 + 128 * (2 * 512 + 64)
    qwen = replace(known_spec("qwen3-235b-a22b"), vocab=100, bos=(), eos=())
    assert live_elements(qwen) == 2 * 4_096 + max(3 * 1_536 * 8, 2 * 64 * 128 + 2 * 4 * 128)


def test_devices_with_one_large_memory() -> None:
    capacity = Fact("hbm_bytes", 80_000_000_000, "B", "a test", "2026", "assumed", 1, 10**12, "")
    system = MemorySystem("node", "eight devices", 8, capacity)
    found = fit(known_spec("llama-3.3-70b"), Question(1_000, formats=("bf16", "fp8")), [], [system])
    weights, kv = 70_553_706_496, 163_840_000
    bf16, fp8 = found.memories
    assert (bf16.needed_devices, fp8.needed_devices, bf16.fits, fp8.fits) == (2, 1, True, True)
    assert fp8.bytes_per_device == weights + kv + precisions(found.spec, 1_000, 1, 1)[1].activation_bytes
    assert found.held
    assert found.rows == ()
    one = replace(system, devices=1)
    assert [row.fits for row in memory_rows(one, found.precisions)] == [False, True]


@pytest.mark.parametrize("head_dim", [640, 642, 4096])
def test_heads_too_wide_to_compile_are_weighed_and_marked(head_dim: int) -> None:
    spec = replace(SPEC, head_dim=head_dim)
    row = fit(spec, Question(64, formats=("bf16",)), [load_system("groq3-lpx-tray")]).rows[0]
    assert (row.compiled, bool(row.why)) == (head_dim == 640, head_dim > 640)
    if head_dim > 640:
        with pytest.raises(UnsupportedModel):
            compile_image(spec, load_system("groq3-lpx-tray").subset(1), Options("bf16", 64, t_max=1))
