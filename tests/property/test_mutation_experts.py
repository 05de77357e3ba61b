"""The mutation test on a mixture of experts: single fields of what only experts have, and of the tables as a whole.

Every field of the rows that choose, name, gather and mix, of the stacked tensors and of their regions is changed several times.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.families import write_family
from tests.property.test_mutation import (
    KIND,
    Base,
    Mutant,
    columns_of,
    judge,
    other,
    results,
    survivors_of,
    with_image,
    with_timetable,
)
from tests.stepping import Stepper

from ticktrue.compile import compile_timetable
from ticktrue.model import load_model
from ticktrue.program import Program, Timetable
from ticktrue.program import columns as col
from ticktrue.sim import simulate

EACH = 5
PARTS = ("router", "route", "xgu", "xdown", "mix")
"""Chains that only experts have."""
TENSOR = ("outputs", "inputs", "shard", "stack")
REGION = ("group", "base", "stride", "count", "p0")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    directory: Path = tmp_path_factory.mktemp("mutation")
    model = load_model(str(write_family(directory / "m", "qwen3_moe", 1)))
    s = Stepper.make(model.spec, model.weights(), 2, "bf16", 150)
    program = Program(s.image, (compile_timetable(model.spec, s.system, s.image, KIND),))
    timing = simulate(program, s.system)
    return Base(program, s.system, s.weights, timing, results(program, s.weights, s.system))


def chains_of(t: Timetable) -> list[int]:
    """Chains of experts: L0.xgu.tile[1.0] and the like."""
    kinds = [name.partition("[")[0].split(".")[1:2] for name in t.labels]
    return [i for i, kind in enumerate(kinds) if kind and kind[0] in PARTS]


def own_template(t: Timetable, chain: int, row: int, column: int, value: int) -> dict[str, np.ndarray]:
    """The chain with a template of its own, in which one field is changed."""
    k = int(t.chains[chain, 0])
    rows = t.templates[t.template_start[k] : t.template_start[k + 1]].copy()
    rows[row, column] = value
    chains = t.chains.copy()
    chains[chain, 0] = len(t.template_start) - 1
    start = np.append(t.template_start, len(t.templates) + len(rows)).astype(np.int32)
    return {"chains": chains, "templates": np.concatenate([t.templates, rows]), "template_start": start}


def rows_of(rng: np.random.Generator, program: Program) -> Iterator[Mutant]:
    """One change in every field of a row of experts, drawn anew for each field."""
    (t,) = program.timetables
    lengths = np.diff(t.template_start)[t.chains[:, 0]]
    first = np.cumsum(lengths) - lengths
    chosen = chains_of(t)
    for column, name in enumerate(col.T_NAMES):
        chain = int(rng.choice(chosen))
        row = int(rng.integers(lengths[chain]))
        old = int(t.templates[t.template_start[t.chains[chain, 0]] + row, column])
        new = other(rng, old, t.templates[:, column])
        changed = with_timetable(program, **own_template(t, chain, row, column, new))
        yield Mutant(changed, f"template.{name}", f"{t.labels[chain]} row {row}: {old} -> {new}")
    for column, name in enumerate(col.V_NAMES):
        chain = int(rng.choice(chosen))
        row = int(rng.integers(lengths[chain]))
        table = t.rows.copy()
        old = int(table[first[chain] + row, column])
        table[first[chain] + row, column] = other(rng, old, table[:, column])
        change = f"{t.labels[chain]} row {row}: {old} -> {table[first[chain] + row, column]}"
        yield Mutant(with_timetable(program, rows=table), f"row.{name}", change)
    chain = int(rng.choice(chosen))
    chains = t.chains.copy()
    chains[chain, 1] = other(rng, int(chains[chain, 1]))
    yield Mutant(with_timetable(program, chains=chains), "chain.start", t.labels[chain])


def stacks_of(rng: np.random.Generator, program: Program) -> Iterator[Mutant]:
    """One change in every field of a stacked tensor and of a region of experts."""
    image = program.image
    stacked = [i for i, t in enumerate(image.tensors) if t.stack > 1]
    homes = [i for i, r in enumerate(image.regions) if r.name.endswith((".xgu", ".xdown"))]
    for name in TENSOR:
        i = int(rng.choice(stacked))
        old = image.tensors[i]
        new = replace(old, **{name: other(rng, getattr(old, name))})
        tensors = (*image.tensors[:i], new, *image.tensors[i + 1 :])
        yield Mutant(
            with_image(program, tensors=tensors), f"tensor.{name}", f"{old.name}: {getattr(new, name)}"
        )
    for name in REGION:
        i = int(rng.choice(homes))
        home = image.regions[i]
        moved = replace(home, **{name: other(rng, getattr(home, name))})
        regions = (*image.regions[:i], moved, *image.regions[i + 1 :])
        yield Mutant(
            with_image(program, regions=regions), f"region.{name}", f"{home.name}: {getattr(moved, name)}"
        )


def test_the_program_itself_is_clean(base: Base) -> None:
    assert judge(Mutant(base.program, "", ""), base) == "same"


def test_no_mutant_survives(base: Base) -> None:
    rng = np.random.default_rng(28)
    made = [m for _ in range(EACH) for m in (*rows_of(rng, base.program), *stacks_of(rng, base.program))]
    made += columns_of(rng, base.program)
    outcomes = [(m, judge(m, base)) for m in made]
    fields = Counter(
        m.name
        for m in made
        if "." in m.name and not m.name.startswith(("templates", "rows", "chains", "pieces"))
    )
    assert len(made) >= 200
    assert min(fields.values()) >= EACH
    same = [f"{m.name} {m.change}" for m, seen in outcomes if seen == "same"]
    print("\n", dict(Counter(seen for _, seen in outcomes)), "\n  without effect:", *same, sep="\n    ")  # noqa: T201
    survivors = survivors_of([m for m, seen in outcomes if seen == "same"], base)
    assert len(survivors) == 0, survivors
    assert len(same) <= 0.2 * len(made), same
