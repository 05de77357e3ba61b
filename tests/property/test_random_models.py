"""Models, options and machines drawn at random: the program's bits are the oracle's, and every proof holds.

What the compiler refuses it refuses with a code of `REFUSALS`, and rarely.
"""

from collections.abc import Iterable

import pytest
from tests.property.random_models import Case, Trial, draw

from ticktrue.errors import Error

REFUSALS = {"T310", "T320"}
"""Does not fit; a chain that needs more of a unit at once than the chip has."""
RARELY = 0.2
"""Of the cases of a test, at most so many are refused."""


def held(case: Case, tokens: int) -> bool:
    """Whether the case was accepted; then all of it held."""
    try:
        trial = Trial(case)
        trial.prove()
    except Error as refused:
        assert refused.code in REFUSALS, (case.name, refused)  # noqa: PT017 - any other is a fault
        return False
    trial.compute(tokens)
    return True


def hold(cases: Iterable[Case], tokens: int = 400) -> None:
    accepted = [held(case, tokens) for case in cases]
    assert accepted.count(False) <= RARELY * len(accepted)


@pytest.mark.parametrize("seed", [5, 7, 10, 13, 17, 21, 29])
def test_bits_and_proofs(seed: int) -> None:
    hold([draw(seed)], tokens=20)


@pytest.mark.parametrize("seed", [3, 10, 13, 19, 27])
def test_on_a_chip_of_other_numbers(seed: int) -> None:
    hold([draw(seed, facts=True)], tokens=20)


@pytest.mark.slow
@pytest.mark.parametrize("first", [100, 120])
def test_dozens(first: int) -> None:
    hold((draw(seed) for seed in range(first, first + 10)), tokens=100)


@pytest.mark.slow
def test_a_dozen_on_chips_of_other_numbers() -> None:
    hold((draw(seed, facts=True) for seed in range(140, 152)), tokens=100)


@pytest.mark.long
@pytest.mark.parametrize("first", range(200, 600, 20))
def test_hundreds(first: int) -> None:
    hold(draw(seed) for seed in range(first, first + 20))


@pytest.mark.long
@pytest.mark.parametrize("first", range(600, 900, 20))
def test_hundreds_on_chips_of_other_numbers(first: int) -> None:
    hold(draw(seed, facts=True) for seed in range(first, first + 20))
