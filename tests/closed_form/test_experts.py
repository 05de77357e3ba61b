"""Cycles of a mixture of experts, derived by hand from the Facts of the tiny chip; see `test_compiled` for the dense layer.

The model is the one of `test_compiled`, its feed-forward block 4 experts of 64 in place of one: 2 of them for a token.
"""

from dataclasses import replace
from functools import cache

import pytest
from tests.closed_form.test_compiled import ONE, Facts

from ticktrue.compile import Options, assemble, compile_image, compile_timetable
from ticktrue.hw import load_system
from ticktrue.model import Experts, Family
from ticktrue.program import Program, StepKind
from ticktrue.sim import simulate

MANY = replace(ONE, name="many", family=Family.QWEN3_MOE, experts=Experts(4, 2, 64))
ROWS = 64


@cache
def compiled(
    spec, chips: int, tokens: int = 1, fmt: str = "bf16", experts: str = "cut"
) -> tuple[Program, object]:
    system = load_system("tiny-4").subset(chips)
    image = compile_image(spec, system, Options(fmt, 64, experts=experts))
    return assemble(
        image, [compile_timetable(spec, system, image, StepKind(tokens, 1, 1, "last", "chip"))]
    ), system


def cycles(spec, chips: int, tokens: int = 1, fmt: str = "bf16", experts: str = "cut") -> int:
    timing = simulate(*compiled(spec, chips, tokens, fmt, experts))
    assert timing.mismatches == ()
    assert timing.recomputed_cycles == timing.duration_cycles
    return timing.duration_cycles


class ExpertFacts(Facts):
    """And those that experts need."""

    def __init__(self) -> None:
        super().__init__()
        f = load_system("tiny-4").chip.value
        self.topk, self.register = f("topk_cycles"), f("register_write_cycles")
        self.load = (
            ROWS * 320 // self.weight_bytes
        )  # a tile of 64 rows, one vector each, through the weight-load port

    def exchanged_twice(self, chips: int) -> int:
        """As `exchanged`, a vector of each of two ranks: on links one slot later."""
        return self.exchanged(chips) + (self.slot if chips > 1 else 1)


@pytest.mark.parametrize(("chips", "more"), [(1, 153), (4, 194)])
def test_a_mixture_of_experts_takes_so_much_longer(chips: int, more: int) -> None:
    """The block between the FFN norm and the residual, dense and as experts, in cycles on 1 chip:

    dense  gate and up 25; silu 20; to itself 9; merge 13; down 24; fold and rounding 14; 9                            = 114
    router 24; fold 5 + 3 + 4; to itself 9; merge 5 + 4 + 4                                                             = 58
    choice read 5, top-k 22, into the queue 1 + 13                                                                      = 41
    gate and up of rank 0: its tile is named only now: gather 9, load 8, install 7, pass 11, move 4, store 4, piece 1    = 44
           of rank 1: another 8 cycles through the weight-load port                                                     =  8
    silu   20, one more for the second rank; to itself 9 + 1; merge 13 + 1, but the tile of down is loaded meanwhile    = 45
    down   rank 0: 24; rank 1: another 8                                                                                = 32
    fold   5 + 3 + 4, the second rank 1 later; both weighed and added: read 5, product 2, fold 1 + 3, rounding 2, 4     = 30
    to itself                                                                                                           =  9
                                                                                                                        ---
                                                                                                                        267
    On 4 chips the router's exchange has 29 for link, guard and ports more and a read of 4 vectors 3 more; the exchange of
    the gated product sends two ranks, a slot of 7 apart instead of 1, and the merge after it reads 4 vectors of each.
    """
    f = ExpertFacts()
    rest = f.fold + f.store
    dense = (
        f.tile(2)
        + f.read
        + f.fold
        + f.func
        + f.map
        + f.store
        + f.exchanged(chips)
        + f.merged(chips)
        + f.store
    )
    dense += f.tile() + f.read + f.fold + f.map + f.store + f.exchanged(chips)
    router = f.tile() + f.read + rest + f.exchanged(chips) + f.merged(chips) + f.store
    choice = f.read + f.topk + 1 + f.register
    gate = f.read + f.extra + f.load + f.install + f.passed + f.move + f.store + 1 + f.load
    silu = (
        f.read
        + f.fold
        + f.func
        + f.map
        + f.store
        + 1
        + f.exchanged_twice(chips)
        + f.merged(chips)
        + f.store
        + chips
    )
    down = f.tile() + f.load
    mixed = f.read + rest + 1 + f.read + f.map + 1 + f.fold + f.map + f.store
    experts = router + choice + gate + silu + down + mixed + f.exchanged(chips)
    assert experts - dense == more
    assert cycles(MANY, chips) - cycles(ONE, chips) == more


def test_each_further_row_takes_its_tiles() -> None:
    """What a further row of a chunk takes beyond a row of the dense layer, on one chip:

    router: a cycle each for tile, fold, exchange, merge and choice                                                       =  5
    gate and up, of two ranks: load 8, install 7, two passes; the dense tile passes the row twice         2 * 17 - 2      = 32
    silu, exchange and merge of two ranks instead of one                                                                  =  3
    down, of two ranks: load 8, install 7, one pass; the dense one passes once                            2 * 16 - 1      = 31
    fold of two ranks instead of one; both weighed                                                        1 + 2           =  3
                                                                                                                           ---
                                                                                                                            74
    """
    f = ExpertFacts()
    gate, down = (2 * (f.load + f.install + pieces) - pieces for pieces in (2, 1))
    assert 5 + gate + 3 + down + 3 == 74
    many, one = ([cycles(spec, 1, tokens) for tokens in (1, 2, 4, 8)] for spec in (MANY, ONE))
    for i, rows in enumerate((1, 2, 4)):
        assert (many[i + 1] - many[i]) - (one[i + 1] - one[i]) == 74 * rows


@pytest.mark.parametrize("fmt", ["int8", "fp8"])
@pytest.mark.parametrize(("chips", "more"), [(1, 127), (4, 168)])
def test_in_eight_bits_one_quantising_less_is_waited_for(chips: int, more: int, fmt: str) -> None:
    """As above, and of both blocks: each product takes a product (2) by the scale of x, and one (2) by its own, more.

    The dense block quantises h and the gated product, each read 5, lane tree 12, quotient 6, to be read 4: 27 twice. Experts
    quantise h while the router works, which takes it in bf16, so only the gated product is waited for, that of the second rank
    a cycle later. Their scales are gathered while their tiles are. 153 - 27 + 1 = 127.
    """
    f = ExpertFacts()
    of_bf16 = {1: 153, 4: 194}[chips]
    assert of_bf16 - (f.read + f.tree + f.func + f.store) + 1 == more
    assert cycles(MANY, chips, 1, fmt) - cycles(ONE, chips, 1, fmt) == more


def test_a_further_row_takes_as_many_more_in_eight_bits() -> None:
    """A cycle less for h, which is quantised aside; one more for the second rank of the gated product: 74 as in bf16."""
    many, one = ([cycles(spec, 1, tokens, "int8") for tokens in (1, 2)] for spec in (MANY, ONE))
    assert (many[1] - many[0]) - (one[1] - one[0]) == 74


def test_whole_experts_named_by_rank() -> None:
    """On one chip, which holds all 4 and so runs the 2 ranks: against the same experts cut, which are these too.

    Not needed: gated product to itself 9 + 1, merge 13 + 1                                                          = -24
    results of both ranks to itself 9 + 1; taken: gather 9, store 4                                                  =  23
    not needed: the sum to itself 9; the residual reads it (5) and merges nothing (9)                                = -13
                                                                                                                       ---
                                                                                                                       -14
    Each further row: two cycles less for the exchange and two for the merge of gated products; two for the results, one to take
    them; one less for the exchange of the sum.
    """
    f = ExpertFacts()
    whole = [cycles(MANY, 1, tokens, experts="parallel") for tokens in (1, 2, 4)]
    cut = [cycles(MANY, 1, tokens) for tokens in (1, 2, 4)]
    saved = f.exchanged_twice(1) + (f.merged(1) + f.store + 1)
    taken = f.exchanged_twice(1) + f.read + f.extra + f.store
    assert whole[0] - cut[0] == taken - saved - f.exchanged(1) - (f.merged(1) - f.read) == -14
    assert (whole[1] - cut[1], whole[2] - cut[2]) == (-14 - 2, -14 - 3 * 2)


def test_whole_experts_of_four_chips() -> None:
    """A chip holds one expert and runs it for every row while the router works: only the choice is waited for.

    router tile 24; fold 12; exchange 38; merge 5 + 3 + 4, store 4                                                   =  90
    choice: read 5, top-k 22, into the queue 1 + 13                                                                  =  41
    taken: gather 9, store 4; weighed and added: read 5, product 2, fold 1 + 3, rounding 2, store 4                  =  30
    The residual reads the sum (5) where the dense block's is merged (5 + 3 + 4).
    """
    f = ExpertFacts()
    router = f.tile() + f.read + f.fold + f.store + f.exchanged(4) + f.merged(4) + f.store
    choice = f.read + f.topk + 1 + f.register
    taken = f.read + f.extra + f.store + f.read + f.map + 1 + f.fold + f.map + f.store
    dense = f.tile(2) + f.read + f.fold + f.func + f.map + f.store + f.exchanged(4) + f.merged(4) + f.store
    dense += f.tile() + f.read + f.fold + f.map + f.store + f.exchanged(4)
    assert (router, choice, taken) == (90, 41, 30)
    more = router + choice + taken + f.read - dense - f.merged(4)
    assert cycles(MANY, 4, experts="parallel") - cycles(ONE, 4) == more == -21
