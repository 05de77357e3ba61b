"""Plans of more than one tray: legal, the right expression, timed exactly, and bit-equal to one chip and to the oracle.

Groups that span trays in each way there is: all chips; context groups of whole trays (cp > tray); head groups with several
members in a tray (cp < tray); and groups that lie in one tray, or on chips of equal index, and so need one hop.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from tests.models import TINY_KV2, TINY_KV3, LlamaShape, write_llama
from tests.stepping import Stepper, same_bits

from ticktrue.compile import Options, assemble, compile_image, compile_timetable
from ticktrue.errors import UsageError
from ticktrue.graph.oracle import Oracle
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.hw import load_system
from ticktrue.isa import Op
from ticktrue.model import Model, load_model
from ticktrue.program import Plan, StepKind
from ticktrue.program import columns as col
from ticktrue.sim import simulate
from ticktrue.verify import verify
from ticktrue.verify.dataflow import rows_digest

SHAPES = {
    "kv3": replace(TINY_KV3, layers=1),
    "kv2": replace(TINY_KV2, layers=1),
    "mha": LlamaShape(layers=1, hidden=202, heads=3, kv_heads=3, head_dim=64, ffn=338, vocab=499),
    "kv4": LlamaShape(layers=1, hidden=202, heads=8, kv_heads=4, head_dim=64, ffn=338, vocab=499),
}
CONTEXT = 150
COUNT = 70
ALL, CONTEXTS, HEADS = col.BASES
CASES = [
    ("kv3", "tiny-rack", Plan.of(8, 1, tray=4), (ALL, CONTEXTS)),
    ("kv3", "tiny-rack", Plan.of(12, 3, tray=4), (ALL,)),
    ("kv2", "tiny-rack", Plan.of(8, 2, tray=4), (ALL,)),
    ("kv4", "tiny-rack", Plan.of(8, 4, tray=4), (ALL, HEADS)),
    ("kv3", "tiny-rack", Plan.of(24, 3, tray=4), (ALL, CONTEXTS)),
    ("mha", "tiny-rack", Plan.of(8, 1, tray=4), (ALL, CONTEXTS)),
    ("mha", "groq3-lpx-tray", Plan.of(2, 1), ()),
    ("kv3", "groq3-lpx", Plan.of(32, 1, tray=16), (ALL, CONTEXTS)),
    ("kv4", "groq3-lpx-two-hop", Plan.of(32, 4, tray=16), (ALL, HEADS)),
    ("kv2", "groq3-lpx-32x8", Plan.of(32, 2, tray=8), (ALL, CONTEXTS)),
    ("kv4", "groq3-lpx", Plan.of(64, 4, tray=16), (ALL,)),
    # a context group over four trays; over two trays it is above
    pytest.param("kv3", "groq3-lpx", Plan.of(64, 1, tray=16), (ALL, CONTEXTS), marks=pytest.mark.slow),
]  # fmt: skip


@cache
def model(name: str) -> Model:
    return load_model(str(write_llama(Path(mkdtemp()) / name, 5, SHAPES[name])))


@cache
def tokens_of(name: str) -> tuple[int, ...]:
    return tuple(np.random.default_rng(7).integers(0, model(name).spec.vocab, COUNT).tolist())


@cache
def reference(name: str):
    made = model(name)
    return Oracle(made.spec, made.weights(), "bf16", matmul=fast_matmul).forward(list(tokens_of(name)))


@cache
def one_chip(name: str) -> np.ndarray:
    made = model(name)
    return Stepper.make(made.spec, made.weights(), 1, "bf16", CONTEXT).run(tokens_of(name), 64)[0]


def stepper(name: str, on: str, chips: int) -> Stepper:
    made, system = model(name), load_system(on).subset(chips)
    if on == "tiny-rack":  # inboxes for 64 tokens from every chip
        system = system.with_fact("sram_bytes", 64_000_000)
    image = compile_image(made.spec, system, Options("bf16", CONTEXT))
    return Stepper(made.spec, made.weights(), system, image)


@pytest.mark.parametrize(("name", "on", "plan", "split"), CASES)
def test_a_plan_over_trays_is_proved_and_equal_to_one_chip(
    name: str, on: str, plan: Plan, split: tuple[int, ...]
) -> None:
    s = stepper(name, on, plan.chips)
    assert s.image.key.plan == plan
    assert tuple(base for base in col.BASES if plan.split(base)) == split
    for kind in (StepKind(1, 1, 2, "last", "chip"), StepKind(4, 1, 2, "all", "chip")):
        timetable = compile_timetable(model(name).spec, s.system, s.image, kind)
        program = assemble(s.image, [timetable])
        assert verify(program, s.system).violations == ()
        assert rows_digest(program, timetable, s.system) == timetable.dataflow
        timing = simulate(program, s.system)
        assert timing.mismatches == ()
        sent = timetable.templates[timetable.templates[:, col.T_OP] == Op.SEND, col.T_PATTERN]
        expected = {part + base for base in split for part in (col.RAIL, col.TRAY)}
        assert expected <= set(sent.tolist())
        assert not set(split) & set(sent.tolist())
    logits, machine = s.run(tokens_of(name), 64)
    assert same_bits(logits, one_chip(name))
    expected_bits = reference(name)
    assert same_bits(logits, expected_bits.logits)
    k, v = s.cache(machine, COUNT)
    assert same_bits(k[0], expected_bits.k[0])
    assert same_bits(v[0], expected_bits.v[0])


def test_token_by_token_on_two_trays() -> None:
    s = stepper("kv3", "tiny-rack", 8)
    logits, _ = s.run(tokens_of("kv3")[:6], 1)
    assert same_bits(logits, one_chip("kv3")[:6])


def test_a_tray_partly_used_is_refused() -> None:
    """24 chips are one tray of 16 and half another: a gather of two hops would pass through chips that are not there."""
    with pytest.raises(UsageError, match=r"T120: 24 chips .* beyond 16 in whole trays of 16") as e:
        stepper("kv3", "groq3-lpx", 24)
    assert "nearest legal: 16 or 32" in e.value.hint


def test_a_plan_that_knows_no_trays_is_found() -> None:
    """The same program with its plan's trays forgotten, or of another size, contradicts the system."""
    s = stepper("kv3", "tiny-rack", 8)
    timetable = s.timetable(StepKind(1, 1, 2, "last", "chip"))
    for tray in (0, 2, 8):
        key = replace(s.image.key, plan=replace(s.image.key.plan, tray=tray))
        verdict = verify(assemble(replace(s.image, key=key), [timetable]), s.system)
        assert verdict.codes == ("V100",)
        assert "key.plan.tray" in str(verdict.violations[0])


def test_every_single_swap_of_a_relay_is_seen() -> None:
    """A relay that reads or writes the place of another source is legal, and not the model's expression."""
    s = stepper("kv3", "tiny-rack", 8)
    timetable = compile_timetable(model("kv3").spec, s.system, s.image, StepKind(1, 1, 2, "last", "chip"))
    chain = timetable.labels.index("L0.o.relay")
    first = int(timetable.template_start[timetable.chains[chain, 0]])
    lengths = np.diff(timetable.template_start)[timetable.chains[:, 0]]
    row = int(lengths[:chain].sum())
    for local in (0, 3):
        assert timetable.templates[first + local, col.T_OP] == (Op.LOAD, None, None, Op.STORE)[local]
        for column, by in ((col.V_BASE, 1), (col.V_BASE, 4)):
            rows = timetable.rows.copy()
            rows[row + local, column] += by
            changed = replace(timetable, rows=rows)
            program = assemble(s.image, [changed])
            seen = (
                not verify(program, s.system).clean
                or rows_digest(program, changed, s.system) != timetable.dataflow
            )
            assert seen
