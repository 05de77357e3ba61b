"""What a chip holds, counted from one layer of each kind, is what the placement of the whole model gives: classes, groups."""

from collections import Counter
from dataclasses import replace

import pytest
from tests.families import FAMILIES, write_family
from tests.models import SPEC

from ticktrue.compile import Options, compile_image
from ticktrue.compile.pipeline import image_blocks
from ticktrue.errors import DoesNotFit
from ticktrue.hw import System, load_system
from ticktrue.isa import OpTable
from ticktrue.model import LayerKind, ModelSpec, load_model
from ticktrue.model.count import known_spec
from ticktrue.partition import kv_heads, make_plan
from ticktrue.place.demand import Demand, demand_of, hold, one_of_each
from ticktrue.place.fill import Wanted, fill_groups
from ticktrue.program import Image, StepKind


def weighed(spec: ModelSpec, system: System, options: Options) -> Demand:
    limit, tray = system.gather_chips, system.tray_chips
    plan = make_plan(kv_heads(spec), system.chips, heads=options.heads, limit=limit, tray=tray)
    step = StepKind(
        options.t_max, options.slots, image_blocks(options.max_context, options.t_max), "all", "chip"
    )
    kv = "fp8" if options.kv == "fp8" else "f32" if options.fmt == "f32" else "bf16"
    return demand_of(spec, system, plan, step, (options.fmt, kv))


def placed(image: Image) -> tuple[dict[str, int], int]:
    """Bytes by class, and of the fullest bank group."""
    by_class: Counter[str] = Counter()
    fill: Counter[int] = Counter()
    for region in image.regions:
        by_class[region.cls.name.lower()] += region.vectors * 320
        fill[region.group] += region.vectors * 320
    return dict(by_class), max(fill.values())


def check(spec: ModelSpec, system: System, options: Options) -> None:
    held = hold(weighed(spec, system, options))
    by_class, fullest = placed(compile_image(spec, system, options))
    assert dict(held.by_class) == by_class
    assert (held.fullest_bytes, held.total_bytes) == (fullest, sum(by_class.values()))
    assert held.fits


@pytest.fixture(scope="module")
def specs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelSpec]:
    root = tmp_path_factory.mktemp("families")
    return {name: load_model(write_family(root / name, name)).spec for name in FAMILIES} | {"llama": SPEC}


LAYOUTS = [
    ("groq3-lpx-tray", 1, Options()),
    ("groq3-lpx-tray", 2, Options("int8", 300, t_max=1)),
    ("groq3-lpx-tray", 8, Options("fp8", 1_000, slots=3, t_max=4, kv="fp8")),
    ("groq3-lpx-tray", 16, Options("bf16", 2_000, t_max=16, kv="fp8")),
    ("groq3-lpx", 32, Options("fp8", 500, t_max=2)),
    ("groq3-lpx", 256, Options("bf16", 700, t_max=1)),
    ("tiny-4", 4, Options("f32", 200, t_max=8)),
    ("groq3-lpx-tray", 4, Options("bf16", 900, t_max=8, heads=(1,))),
]


@pytest.mark.parametrize("family", [*FAMILIES, "llama"])
@pytest.mark.parametrize(
    ("system", "chips", "options"),
    LAYOUTS,
    ids=[f"{name}-{chips}-{options.fmt}" for name, chips, options in LAYOUTS],
)
def test_bytes_are_those_of_the_placement(
    specs: dict[str, ModelSpec], family: str, system: str, chips: int, options: Options
) -> None:
    check(specs[family], load_system(system).subset(chips), options)


def test_many_layers_of_two_kinds_in_an_odd_order(specs: dict[str, ModelSpec]) -> None:
    two = specs["gemma4"]
    full, sliding = LayerKind.FULL, LayerKind.SLIDING
    kinds = (sliding, full, full, sliding, sliding, sliding, full, sliding, full, full, sliding)
    deep = replace(two, layers=len(kinds), layer_kinds=kinds)
    check(deep, load_system("groq3-lpx-tray").subset(8), Options("fp8", 1_500, t_max=4))
    small, kind_of = one_of_each(deep)
    assert small.layer_kinds == (full, sliding)
    assert kind_of == tuple([full, sliding].index(kind) for kind in kinds)


@pytest.mark.parametrize(("fmt", "chips"), [("fp8", 128), ("bf16", 256)])
def test_gemma_4_31b_on_a_rack(fmt: str, chips: int) -> None:
    check(known_spec("gemma-4-31b"), load_system("groq3-lpx").subset(chips), Options(fmt, 100_000, t_max=1))


def test_dense_layers_before_experts(specs: dict[str, ModelSpec]) -> None:
    moe = specs["qwen3_moe"]
    assert moe.experts is not None
    mixed = replace(moe, layers=5, experts=replace(moe.experts, dense_layers=2))
    check(mixed, load_system("groq3-lpx-tray").subset(4), Options(max_context=300, t_max=8))
    small, kind_of = one_of_each(mixed)
    assert small.layers == 2
    assert kind_of == (0, 0, 1, 1, 1)


EDGE = replace(SPEC, layers=9, hidden=640, ffn=1_600)
EDGE_OPTIONS = Options(max_context=900, t_max=8)


def around_the_edge(percent: int) -> System:
    """A chip with so many percent of the bytes that the model takes, in four groups."""
    system = load_system("tiny-4")
    need = hold(weighed(EDGE, system, EDGE_OPTIONS)).total_bytes
    return system.with_fact("sram_bytes", need * percent // 100 // 1_280 * 1_280)


PERCENTS = (95, 100, 102, 105, 110, 120, 140)


@pytest.mark.parametrize("percent", PERCENTS)
def test_what_fits_is_what_the_compiler_places(percent: int) -> None:
    """Around the edge, where bank groups decide: the same answer, and where it fits the same fill."""
    system = around_the_edge(percent)
    held = hold(weighed(EDGE, system, EDGE_OPTIONS))
    try:
        image = compile_image(EDGE, system, EDGE_OPTIONS)
    except DoesNotFit:
        assert not held.fits
        return
    assert held.fits
    assert placed(image) == (dict(held.by_class), held.fullest_bytes)


def test_both_answers_occur_around_the_edge() -> None:
    fits = [hold(weighed(EDGE, around_the_edge(p), EDGE_OPTIONS)).fits for p in PERCENTS]
    assert fits == sorted(fits)
    assert set(fits) == {False, True}


def test_stages_share_out_everything_but_what_all_hold() -> None:
    """Layers, embedding and head of three stages together are those of one group; inboxes, scratch and tables are in each."""
    spec = replace(SPEC, layers=7)
    demand = weighed(spec, load_system("groq3-lpx-tray").subset(3), Options())
    whole = hold(demand)
    cuts = [range(3), range(3, 6), range(6, 7)]
    parts = [hold(demand, c, first=c.start == 0, last=c.stop == 7) for c in cuts]
    for name in ("weight", "state"):
        assert sum(p.by_class[name] for p in parts) == whole.by_class[name]
    for name in ("inbox", "arena"):
        assert all(p.by_class[name] == whole.by_class[name] for p in parts)
    assert sum(p.by_class["const"] for p in parts) > whole.by_class["const"]


def test_largest_regions_go_first_and_keys_stay_apart() -> None:
    wanted = [Wanted(f"L0.k{i}", 0, f"k{i}", 10, True) for i in range(3)] + [Wanted("w", -1, "w", 50, False)]
    filled = fill_groups(wanted, (0, 0, 0, 0), 60)
    assert next(s.index for s in filled.spots) == 3
    assert filled.fill == (50, 10, 10, 10)
    assert fill_groups(wanted, (0,), 1_000).fill == (80,)


def test_groups_hold_what_the_chip_has() -> None:
    system = load_system("groq3-lpx-tray").subset(3)
    demand = weighed(SPEC, system, Options())
    table = OpTable.of(system.chip)
    held = hold(demand)
    assert held.group_bytes == table.group_vectors * 320
    assert len(demand.start) == table.mem_groups
    assert held.largest == "k0"
