"""Machines drawn at random, of one tray or several: whatever the compiler accepts is legal there and timed as stated.

Facts of links and clocks vary together: FIFOs down to the shortest, jitter, guard, holds, drift, epochs, latencies between trays.
"""

import random
from dataclasses import replace

import pytest
from tests.models import SPEC

from ticktrue.compile import Options, assemble, compile_image
from ticktrue.compile.pipeline import unproved_timetable
from ticktrue.errors import Error
from ticktrue.hw import System, load_system
from ticktrue.model import ModelSpec
from ticktrue.program import StepKind
from ticktrue.sim import simulate
from ticktrue.verify import verify

FACTS = {
    "c2c_fifo_vectors": (6, 7, 8, 9, 10, 12, 16, 32),
    "c2c_jitter_cycles": (0, 4, 19, 50),
    "c2c_guard_cycles": (3, 8, 20),
    "deskew_hold_cycles": (0, 16, 60),
    "drift_ppm": (0, 100, 1_000),
    "epoch_cycles": (300, 2_000, 30_000),
    "mem_write_ports": (2, 4),
}
RACK_FACTS = {"halves_latency_ns": (30, 90, 300), "backplane_latency_ns": (20, 30, 100)}
CHIPS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
ROUNDS = 25
REFUSALS = {"T120", "T310", "T320", "T321"}


def machine(rng: random.Random) -> System:
    name = rng.choice(["tiny-rack", "tiny-rack", "groq3-lpx", "groq3-lpx-32x8"])
    system = load_system(name).subset(rng.choice(CHIPS))
    choices = dict(FACTS)
    if name == "tiny-rack":
        system = system.with_fact("sram_bytes", 64_000_000)
        choices |= RACK_FACTS
    for fact, values in choices.items():
        if rng.random() < 0.6:
            system = system.with_fact(fact, rng.choice(values))
    return system


def model(rng: random.Random) -> ModelSpec:
    kv = rng.choice([2, 3, 4, 6])
    return replace(
        SPEC, layers=1, kv_heads=kv, heads=kv * rng.choice([1, 2, 3]), head_dim=rng.choice([32, 64]),
        hidden=rng.choice([64, 218, 400]), ffn=rng.choice([100, 346]), vocab=rng.choice([90, 509]),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_what_compiles_is_legal_and_exact(seed: int) -> None:
    rng, proved = random.Random(seed), 0
    while proved < ROUNDS:
        system, spec = machine(rng), model(rng)
        kind = StepKind(rng.choice([1, 2, 4, 8]), 1, rng.choice([1, 2, 4]), "all", "chip")
        try:
            image = compile_image(spec, system, Options(max_context=200))
            timetable = unproved_timetable(spec, system, image, kind)
        except Error as refused:
            assert refused.code in REFUSALS, refused  # noqa: PT017 - any other is a fault
            continue
        program = assemble(image, [timetable])
        assert verify(program, system).violations == (), (image.key.plan, system.facts(), spec, kind)
        assert simulate(program, system).mismatches == (), (image.key.plan, system.facts(), spec, kind)
        proved += 1
