"""A window of 100 in a ring of four blocks, by hand: where a step over the ring's edge writes, and what it then sees.

One layer, 4 q heads on 2 KV heads of 64, on 4 chips: h = 2, cp = 2. T_max = 2, so R is the least power of two that is at least
max(2, ceil(102 / 64) + 1 = 3): 4 blocks, 256 positions. Block b lies in place b mod 4, on chips with c = place mod 2, at vectors
(place div 2) * 64 + position mod 64 of its slot's 128.
"""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from tests.families import write_family
from tests.stepping import Stepper

from ticktrue.execute import Machine
from ticktrue.model import load_model
from ticktrue.partition import ring_blocks
from ticktrue.program import StepKind

SENTINEL = np.float32(-3.4028234663852886e38)
KIND = StepKind(2, 2, 6, "all", "chip")


@cache
def stepper() -> Stepper:
    model = load_model(str(write_family(Path(mkdtemp()) / "m", "mistral", num_hidden_layers=1)))
    return Stepper.make(model.spec, model.weights(), 4, "bf16", 380, slots=2, t_max=2)


def state(machine: Machine, name: str, chip: int) -> np.ndarray:
    """uint16[vectors, 160] of a state region."""
    region = next(r for r in stepper().image.regions if r.name == name)
    at = machine.memory.vector(chip, region) * 160
    return machine.memory.words[at : at + region.vectors * 160].reshape(-1, 160).copy()


def test_the_ring_by_hand() -> None:
    s = stepper()
    (grid,), (kind,) = s.image.key.plan.grids, s.image.key.attention
    assert (grid.h, grid.cp, kind.window, kind.ring) == (2, 2, 100, 4)
    counts = {r.name: (r.stride, r.count) for r in s.image.regions if r.packing.name == "KV"}
    assert counts == {"L0.k0": (1, 256), "L0.v0": (1, 256)}  # two slots of 128 positions on each chip


# pos of the slot's first token: the vectors of its slot that are written on chips with c = 0 and with c = 1
WRITES = [
    (190, [126, 127], [], "190 and 191: block 2, place 2, c = 0: 64 + 62, 64 + 63"),
    (191, [127], [64], "191 as before; 192: block 3, place 3, c = 1: 64 + 0"),
    (255, [0], [127], "255: block 3, place 3, c = 1: 64 + 63; 256: block 4, place 0, c = 0: 0"),
    (256, [0, 1], [], "256 and 257: block 4, place 0"),
    (319, [63], [0], "319: block 4, place 0, c = 0: 63; 320: block 5, place 1, c = 1: 0"),
]


@pytest.mark.parametrize(("pos", "even", "odd", "why"), WRITES, ids=[str(w[0]) for w in WRITES])
@pytest.mark.parametrize("slot", [0, 1])
def test_where_a_step_writes(slot: int, pos: int, even: list[int], odd: list[int], why: str) -> None:
    """Only the two positions' vectors change, on the chips that own their places, and nothing of the other slot."""
    s = stepper()
    machine = Machine(s.image, s.weights, s.system)
    names = [(name, chip) for name in ("L0.k0", "L0.v0") for chip in range(4)]
    for name, chip in names:  # a pattern that no bf16 of the model is
        region = next(r for r in s.image.regions if r.name == name)
        at = machine.memory.vector(chip, region) * 160
        machine.memory.words[at : at + region.vectors * 160] = np.uint16(0x3F81)
    before = {n: state(machine, *n) for n in names}
    # the other slot writes at its positions 0 and 1: place 0, c = 0, vectors 0 and 1
    positions = [0, 0]
    positions[slot] = pos
    machine.batch(s.timetable(KIND), [[5, 6], [7, 8]], positions)
    for name, chip in names:
        changed = np.flatnonzero((state(machine, name, chip) != before[name, chip]).any(axis=1)).tolist()
        own = even if chip % 2 == 0 else odd
        other = [0, 1] if chip % 2 == 0 else []
        expected = sorted([128 * slot + v for v in own] + [128 * (1 - slot) + v for v in other])
        assert changed == expected, (name, chip, why)


def seen(c: int, j: int, i: int, t: int, pos: int) -> bool:
    """What row t at pos + t sees in place 2 j + c, written out for the two steps over an edge."""
    if (
        pos == 255
    ):  # newest block 4: places 0 to 3 hold blocks 4, 1, 2, 3; row 0 sees 156..255, row 1 sees 157..256
        return {0: i == 0 and t == 1, 1: False, 2: i >= 28 + t, 3: True}[2 * j + c]
    assert pos == 319  # newest block 5: blocks 4, 5, 2, 3; row 0 sees 220..319, row 1 sees 221..320
    return {0: True, 1: i == 0 and t == 1, 2: False, 3: i >= 28 + t}[2 * j + c]


@pytest.mark.parametrize("pos", [255, 319])
@pytest.mark.parametrize("slot", [0, 1])
def test_what_a_step_over_the_edge_sees(slot: int, pos: int) -> None:
    """The stored scores: the sentinel where a row must not see, another number everywhere else."""
    s = stepper()
    machine, timetable = Machine(s.image, s.weights, s.system), s.timetable(KIND)
    positions = [40, 40]
    positions[slot] = pos
    machine.batch(timetable, [[5, 6], [7, 8]], positions)
    region = next(r for r in timetable.scratch if r.name == "s")
    for chip in range(4):
        at = machine.memory.vector(chip, region) * 80
        # one KV head a chip, so the unit is the slot: [slot][local block][position][lane], two heads of two tokens in lanes
        scores = machine.memory.floats[at : at + region.vectors * 80].reshape(2, 2, 64, 80)[slot]
        for j in range(2):
            for i in range(64):
                for lane in range(4):
                    hidden = scores[j, i, lane] == SENTINEL
                    assert hidden != seen(chip % 2, j, i, lane % 2, pos), (chip, j, i, lane)


SIZES = [
    # window, cp, t_max, blocks of the image: ring
    (100, 2, 2, 6, 4, "ceil(102 / 64) + 1 = 3, a power of two"),
    (4096, 1, 64, 2, 2, "the image has two blocks, and the window would take 66"),
    (4096, 1, 64, 33, 64, "33 blocks, a power of two"),
    (4096, 8, 64, 2, 8, "a block for each context lane"),
    (4096, 1, 64, 2050, 128, "ceil(4160 / 64) + 1 = 66"),
    (0, 4, 64, 2050, 0, "no window, no ring"),
]


@pytest.mark.parametrize(
    ("window", "cp", "t_max", "blocks", "ring", "why"), SIZES, ids=[s[-1] for s in SIZES]
)
def test_a_ring_is_no_longer_than_the_image(
    window: int, cp: int, t_max: int, blocks: int, ring: int, why: str
) -> None:
    assert ring_blocks(window, cp, t_max, blocks) == ring, why


@pytest.mark.parametrize("chips", [1, 4])
def test_a_ring_cut_short_by_the_context_gives_the_same_bits(tmp_path: Path, chips: int) -> None:
    """Window 100 wants a ring of four blocks; of an image of 60 + 2 positions one is enough (two on two context lanes)."""
    model = load_model(str(write_family(tmp_path / "m", "mistral", num_hidden_layers=1)))
    tokens = [int(t) for t in np.random.default_rng(1).integers(0, model.spec.vocab, 60)]
    logits = []
    for context, ring in ((380, 4), (60, 1 if chips == 1 else 2)):
        made = Stepper.make(model.spec, model.weights(), chips, "bf16", context, t_max=2)
        assert made.image.key.attention[0].ring == ring
        logits.append(made.run(tokens, 2)[0])
    assert (logits[0].view(np.uint32) == logits[1].view(np.uint32)).all()
