"""The mutation test on one program that has all of it at once: windows in rings, two slots, a loop of layers, a mixture of experts.

Every kind of mutation of the other two suites is made. A mutant that `verify`, `sim` and the dataflow digest let pass must be the same
program by the rules of tests/property/equivalence.py, which know none of the three; those that the digest sees must not be.
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
TIMES = [pytest.param(3, id="three of each"), pytest.param(16, id="sixteen of each", marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def base() -> Base:
    weights = random_weights(SPEC, 3)
    s = Stepper.make(SPEC, weights, 4, "bf16", 384, slots=2)
    program = Program(s.image, (compile_timetable(SPEC, s.system, s.image, BATCH),))
    return Base(
        program, s.system, weights, simulate(program, s.system), results(program, weights, s.system)
    )


def test_the_program_is_all_at_once(base: Base) -> None:
    key, (timetable,) = base.program.image.key, base.program.timetables
    assert [(a.window, a.ring) for a in key.attention] == [(0, 0), (70, 4)]
    assert timetable.kind.slots == key.slots == 2
    assert timetable.kind.blocks > key.attention[1].ring  # the ring is gone round
    assert [loop.count for loop in timetable.loops] == [SLIDING_LAYERS]
    assert {t.stack for t in base.program.image.tensors} == {1, SPEC.experts.count}
    assert (key.plan.h, key.plan.cp) == (2, 2)
    assert judge(Mutant(base.program, "", ""), base) == "same"
    assert same_program(base.program, base.program, base.system) == ""


@pytest.mark.parametrize("each", TIMES)
def test_no_mutant_survives(base: Base, each: int) -> None:
    rng = np.random.default_rng(20 + each)
    made = [m for _ in range(each) for mutate in MUTATE for m in mutate(rng, base.program)]
    fields = Counter(m.name for m in made)
    assert len(fields) >= 120
    assert min(fields.values()) >= each
    seen, survivors, by_rule = Counter[str](), [], []
    for m in made:
        witness = judge(m, base)
        if witness in {"same", "V141"}:
            why = same_program(base.program, resealed(m), base.system)
            if witness == "V141":
                assert why, f"{m.name} {m.change} changes the digest, but the rules call it the same program"
            elif why:
                survivors.append(f"{m.name} {m.change}: {why}")
            else:
                witness = "the same program by rule"
                by_rule.append(f"{m.name} {m.change}")
        seen[witness] += 1
    print(f"\n{len(made)} mutants of {len(fields)} fields:", dict(seen.most_common()), "\n  by rule:", *by_rule, sep="\n    ")  # noqa: T201
    assert len(survivors) == 0, survivors
    assert seen["same"] == 0
    assert sum(seen.values()) == len(made)
