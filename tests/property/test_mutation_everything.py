"""The mutation test on one program with all of it at once: windows in rings, two slots, a loop of layers, a mixture of experts.

Every kind of mutation of the other two suites is made. A mutant that `verify`, `sim` and the dataflow digest let pass must be the
same program by the rules of tests/property/equivalence.py, which know none of the three; those that the digest sees must not be.
"""

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from tests.everything import SLIDING_LAYERS, SPEC, random_weights
from tests.property.equivalence import same_program
from tests.property.test_mutation import (
    BATCH,
    Base,
    Mutant,
    columns_of,
    fields_of,
    judge,
    loops_of,
    resealed,
    results,
    survivors_of,
)
from tests.property.test_mutation_experts import rows_of, stacks_of
from tests.stepping import Stepper

from ticktrue.compile import compile_timetable
from ticktrue.program import Program
from ticktrue.sim import simulate

MUTATE: tuple[Callable[[np.random.Generator, Program], Iterable[Mutant]], ...] = (
    columns_of,
    fields_of,
    loops_of,
    rows_of,
    stacks_of,
)
TIMES = [pytest.param(2, id="two of each"), pytest.param(8, id="eight of each", marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def base() -> Base:
    weights = random_weights(SPEC, 3)
    s = Stepper.make(SPEC, weights, 4, "bf16", 384, slots=2)
    program = Program(s.image, (compile_timetable(SPEC, s.system, s.image, BATCH),))
    return Base(program, s.system, weights, simulate(program, s.system), results(program, weights, s.system))


def test_the_program_is_all_at_once(base: Base) -> None:
    key, (timetable,) = base.program.image.key, base.program.timetables
    assert [(a.window, a.ring) for a in key.attention] == [(0, 0), (70, 4)]
    assert timetable.kind.slots == key.slots == 2
    assert timetable.kind.blocks > key.attention[1].ring  # the ring is gone round
    assert [loop.count for loop in timetable.loops] == [SLIDING_LAYERS]
    assert {t.stack for t in base.program.image.tensors} == {1, SPEC.experts.count}
    assert [(grid.h, grid.cp) for grid in key.plan.grids] == [(2, 2), (2, 2)]
    assert judge(Mutant(base.program, "", ""), base) == "same"
    assert same_program(base.program, base.program, base.system) == ""


@pytest.mark.parametrize("each", TIMES)
def test_no_mutant_survives(base: Base, each: int) -> None:
    rng = np.random.default_rng(20 + each)
    made = [m for _ in range(each) for mutate in MUTATE for m in mutate(rng, base.program)]
    fields = Counter(m.name for m in made)
    assert len(fields) >= 120
    assert min(fields.values()) >= each
    witness = [judge(m, base) for m in made]
    unseen = [m for m, w in zip(made, witness, strict=True) if w == "same"]
    survivors = survivors_of(unseen, base)
    seen = Counter("same by rule" if w == "same" else w for w in witness)
    same = [f"{m.name} {m.change}" for m in unseen]
    counts = f"{len(made)} mutants of {len(fields)} fields: {dict(seen.most_common())}"
    print(f"\n{counts}\n  the same program by rule:", *same, sep="\n    ")  # noqa: T201
    assert len(survivors) == 0, survivors
    for m in [m for m, w in zip(made, witness, strict=True) if w == "V141"]:
        assert same_program(base.program, resealed(m), base.system), f"{m.name} {m.change}: the rules miss it"
