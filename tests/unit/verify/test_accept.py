"""ACCEPT on compiled verify steps: both proofs hold, planted faults are found, the plain path agrees, and what it costs."""

import hashlib
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.models import SPEC, TINY_KV3, write_llama
from tests.stepping import Stepper
from tests.unit.graph import slow

from ticktrue.compile import Options, compile_image, compile_timetable
from ticktrue.execute import Machine
from ticktrue.execute.literal import Literal
from ticktrue.graph import digest_kernel
from ticktrue.graph.build import build_graph
from ticktrue.graph.digest import graph_parts
from ticktrue.hw import System, load_system
from ticktrue.isa import Draw, Op
from ticktrue.model import load_model
from ticktrue.program import Program, StepKind
from ticktrue.program import columns as col
from ticktrue.program.text import to_text
from ticktrue.program.text_reader import from_text
from ticktrue.sim import simulate
from ticktrue.verify import verify
from ticktrue.verify.dataflow import rows_parts

ONE = replace(SPEC, name="one", layers=1, hidden=64, heads=1, kv_heads=1, head_dim=64, ffn=64, vocab=64)
T, S = 4, 3


@cache
def compiled(chips: int, tokens: int, slots: int, logits: str = "all") -> tuple[Program, System]:
    system = load_system("tiny-4").subset(chips)
    image = compile_image(ONE, system, Options("bf16", 64, slots=slots, t_max=8))
    kind = StepKind(tokens, slots, 1, logits, "chip")
    return Program(image, (compile_timetable(ONE, system, image, kind),)), system


def differing(program: Program, system: System) -> list[str]:
    (t,) = program.timetables
    rows, graph = rows_parts(program, t, system), graph_parts(build_graph(ONE, t.kind, "bf16"))
    assert len(rows) == len(graph)
    return [a.name for a, b in zip(rows, graph, strict=True) if tuple(a) != tuple(b)]


def place(program: Program, label: str, op: Op, nth: int = 0) -> tuple[int, int]:
    """(template row, class row) of the nth row of an op in a chain."""
    (t,) = program.timetables
    at = 0
    for chain, template in enumerate(t.chains[:, 0].tolist()):
        rows = range(int(t.template_start[template]), int(t.template_start[template + 1]))
        for i in rows:
            if t.labels[chain] == label and t.templates[i, col.T_OP] == op:
                if nth == 0:
                    return i, at + i - rows[0]
                nth -= 1
        at += len(rows)
    raise AssertionError((label, op))


def stored(program: Program, label: str, op: Op, nth: int = 0, **fields: int) -> Program:
    """Fields of a class row, or of its template, set."""
    (t,) = program.timetables
    templates, rows = t.templates.copy(), t.rows.copy()
    i, at = place(program, label, op, nth)
    for name, value in fields.items():
        if name in col.V_NAMES:
            rows[at, col.V_NAMES.index(name)] = value
        else:
            templates[i, col.T_NAMES.index(name)] = value
    return replace(program, timetables=(replace(t, templates=templates, rows=rows),))


def output(program: Program, name: str, **fields: int) -> Program:
    (t,) = program.timetables
    changed = tuple(replace(o, **fields) if o.name == name else o for o in t.outputs)
    return replace(program, timetables=(replace(t, outputs=changed),))


@pytest.mark.parametrize(
    ("chips", "tokens", "slots"), [(1, 1, 1), (1, 8, 1), (2, 2, 2), (4, 4, 1), (4, T, S), (2, 1, S)]
)
def test_a_verify_step_is_legal_on_time_and_computes_the_graph(chips: int, tokens: int, slots: int) -> None:
    program, system = compiled(chips, tokens, slots)
    assert verify(program, system).violations == ()
    assert simulate(program, system).clean
    assert [p.name for p in rows_parts(program, program.timetables[0], system)][:3] == [
        "logits",
        "next_token",
        "accept",
    ]
    assert differing(program, system) == []
    assert from_text(to_text(program)).timetables[0].outputs == program.timetables[0].outputs


def test_the_digest_knows_slots_and_rows() -> None:
    """The register has no value: what is compared is named by the row. A slot of one token has nothing to compare."""
    parts = {
        (t, s): dict(graph_parts(build_graph(ONE, StepKind(t, s, 1, "all", "chip"), "bf16")))
        for t, s in ((1, 1), (2, 1), (4, 1), (2, 2), (1, 2))
    }
    for slots in (1, 2):
        assert parts[1, slots]["accept"] == hashlib.sha256(bytes(8 * slots)).hexdigest()
    assert len({p["accept"] for p in parts.values()}) == len(parts)
    for kind in (StepKind(4, 1, 1, "last", "chip"), StepKind(4, 1, 1, "all", "host")):
        assert "accept" not in dict(graph_parts(build_graph(ONE, kind, "bf16")))


@pytest.mark.parametrize("tokens", [1, 2, 8])
def test_the_graphs_rule_is_the_one_of_the_page(tokens: int) -> None:
    chosen = np.random.default_rng(tokens).integers(1, 1 << 63, (3, tokens)).astype(np.uint64)
    found = digest_kernel.accept(chosen, np.uint64(slow.tag("ACCEPT")))
    assert [int(x) for x in found] == [slow.accept([int(x) for x in row], s) for s, row in enumerate(chosen)]


LEGAL_BUT_WRONG = {
    "tokens of another slot": lambda p: stored(p, "greedy.pick[1]", Op.ACCEPT, a0=2),
    "counts of two slots exchanged": lambda p: stored(
        stored(p, "greedy.pick[0]", Op.STORE, 1, base=1), "greedy.pick[1]", Op.STORE, 1, base=0
    ),
}


@pytest.mark.parametrize("fault", LEGAL_BUT_WRONG)
def test_a_legal_but_wrong_count_is_seen_by_the_digest_alone(fault: str) -> None:
    program, system = compiled(4, T, S)
    wrong = LEGAL_BUT_WRONG[fault](program)
    assert verify(wrong, system).violations == ()
    assert differing(wrong, system) == ["accept"]


def test_candidates_of_another_slot_are_seen() -> None:
    program, system = compiled(4, T, S)
    wrong = stored(program, "greedy.pick[1]", Op.LOAD, base=2 * T)
    assert differing(wrong, system) == ["next_token", "accept"]


FAULTS = {
    "a slot that the step has not": ("V122", lambda p: stored(p, "greedy.pick[2]", Op.ACCEPT, a0=S)),
    "a slot below the first": ("V122", lambda p: stored(p, "greedy.pick[0]", Op.ACCEPT, a0=-1)),
    "an attribute without meaning": ("V100", lambda p: stored(p, "greedy.pick[1]", Op.ACCEPT, a1=1)),
    "a pattern without meaning": ("V100", lambda p: stored(p, "greedy.pick[1]", Op.ACCEPT, pattern=1)),
    "a count for each row": ("V100", lambda p: output(p, "accept", rows=S * T)),
    "two records of a count": ("V100", lambda p: output(p, "accept", vectors=2)),
    "counts beyond their region": ("V120", lambda p: output(p, "accept", base=1)),
    "counts that nobody leaves": ("V100", lambda p: replace(
        p, timetables=(replace(p.timetables[0], outputs=p.timetables[0].outputs[:2]),))),
    "a count that nothing wrote": ("V103", lambda p: stored(p, "greedy.pick[2]", Op.STORE, 1, base=1)),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_has_its_code(fault: str) -> None:
    code, plant = FAULTS[fault]
    program, system = compiled(4, T, S)
    assert code in {v.code for v in verify(plant(program), system).violations}


def test_a_fold_of_fewer_rows_is_malformed() -> None:
    """T = 4 rows of a kind that says 2: found where the row stands, whatever else is wrong with the kind."""
    program, system = compiled(1, 4, 1)
    fewer = stored(program, "greedy.pick", Op.ACCEPT, n=2)
    messages = [v.message for v in verify(fewer, system).violations if v.code == "V112"]
    assert any("expected the 4 rows of a slot (n), found 2" in m for m in messages)


def test_a_step_for_the_last_row_leaves_no_counts() -> None:
    program, system = compiled(4, 4, 1, "last")
    assert [o.name for o in program.timetables[0].outputs] == ["logits", "next_token"]
    assert verify(program, system).violations == ()
    one = Program(
        program.image, (replace(program.timetables[0], outputs=compiled(4, 4, 1)[0].timetables[0].outputs),)
    )
    assert "V100" in {v.code for v in verify(one, system).violations}


@pytest.mark.parametrize(("tokens", "slots"), [(4, 3), (8, 1), (1, 2)])
def test_the_plain_path_gives_every_byte(tmp_path: Path, tokens: int, slots: int) -> None:
    model = load_model(str(write_llama(tmp_path / "m", 9, TINY_KV3, layers=1)))
    s = Stepper.make(model.spec, model.weights(), 3, "bf16", 100, slots=slots, t_max=8)
    timetable = s.timetable(StepKind(tokens, slots, 2, "all", "chip"))
    fast, plain = (Machine(s.image, s.weights, s.system) for _ in range(2))
    literal, rng, counts = Literal(s.image, timetable, s.system, plain.memory), np.random.default_rng(2), []
    for at in range(4):
        parts = [rng.integers(0, 509, max(1, tokens - slot)).tolist() for slot in range(slots)]
        draws = [Draw(0.8 * (at % 2), 3 + slot, at) for slot in range(slots)]
        for _ in range(tokens):  # each turn the next token of each slot becomes one that is accepted
            result = fast.batch(timetable, parts, [9 * at] * slots, draws)
            literal.run(parts, [9 * at] * slots, draws)
            assert (fast.memory.words == plain.memory.words).all()
            counts += result.accept.tolist()
            for slot, (part, n) in enumerate(zip(parts, result.accept.tolist(), strict=True)):
                if n + 1 < len(part):
                    part[n + 1] = int(result.next_token[slot * tokens + n])
    assert max(counts) == tokens - 1


def test_what_counting_costs() -> None:
    """ACCEPT folds the tokens as PICK gives them, beside their store: one fold latency more, whatever T is.

    T = 1 on one chip: the step of `closed_form/test_compiled.py`, 852, without the 4 that a register costs the last norm's read
    (every row has logits), and with the fold, 3: 851.
    """
    program, system = compiled(1, 1, 1)
    f = system.chip.value
    fold, read, write = f("vxm_reduce_cycles"), f("mem_read_cycles"), f("mem_write_cycles")
    assert simulate(program, system).duration_cycles == 852 - f("gather_extra_cycles") + fold == 851
    for chips, tokens in ((1, 8), (4, 2), (4, 8)):
        program, system = compiled(chips, tokens, 1)
        (t,) = program.timetables
        start = int(t.chains[t.labels.index("greedy.pick"), 1])
        # read, every candidate of every token in turn, the choice of the last token, the count, the store and its write
        assert t.duration == start + read + (chips * tokens - 1) + fold + fold + 1 + write
        assert simulate(program, system).duration_cycles == t.duration
