"""Scales of an e4m3 cache, a power of two for each KV head of K and V: against the oracle, both proofs, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from tests.oracle.test_format_bits import CONTEXTS, model, tokens
from tests.stepping import Stepper, same_bits

from ticktrue.compile import Options, compile_image, compile_timetable
from ticktrue.errors import UsageError
from ticktrue.execute import Machine
from ticktrue.execute.literal import Literal
from ticktrue.graph.oracle import Cache, Oracle, OracleResult
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.hw import load_system
from ticktrue.isa import Op
from ticktrue.model import ModelSpec
from ticktrue.program import KvScales, Packing, Program, StepKind, decode, encode
from ticktrue.program import columns as col
from ticktrue.program.diff import diff
from ticktrue.program.text import to_text
from ticktrue.program.text_reader import from_text
from ticktrue.sim import simulate
from ticktrue.verify import verify
from ticktrue.verify.dataflow import rows_digest

CASES = [
    ("llama", "fp8", 1, 7),
    ("llama", "bf16", 2, 64),
    ("qwen2", "int8", 4, 1),
    ("gemma3", "fp8", 2, 7),
    ("gemma4", "bf16", 2, 64),
    ("gemma4_wide", "bf16", 1, 7),
    ("mistral", "fp8", 4, 64),
]
KIND = StepKind(2, 2, 3, "all", "chip")


def scales_of(spec: ModelSpec) -> KvScales:
    """Another exponent for each head: some steps are coarse, some heads saturate, and the first K scale is 1."""
    heads = [spec.attention(state // 2).kv_heads for state in range(2 * spec.layers)]
    return tuple(
        tuple((5 * state + 3 * h) % 11 - 7 if state else h for h in range(n)) for state, n in enumerate(heads)
    )


def reference(family: str, fmt: str, scales: KvScales) -> OracleResult:
    spec = model(family).spec
    named = {
        f"layers.{state // 2}.{'kv'[state % 2]}": np.ldexp(np.float32(1), np.array(of))
        for state, of in enumerate(scales)
    }
    oracle = Oracle(spec, model(family).weights(), fmt, fast_matmul, Cache("e4m3", named))
    return oracle.forward(tokens(family, max(CONTEXTS)))


def stepper(family: str, fmt: str, chips: int, scales: KvScales) -> Stepper:
    spec, weights = model(family).spec, model(family).weights()
    return Stepper.make(spec, weights, chips, fmt, 200, slots=3, kv="fp8", kv_scales=scales)


@pytest.mark.parametrize(("family", "fmt", "chips", "chunk"), CASES)
def test_a_batch_is_the_oracle(family: str, fmt: str, chips: int, chunk: int) -> None:
    scales = scales_of(model(family).spec)
    expected = reference(family, fmt, scales).logits
    found, _ = stepper(family, fmt, chips, scales).run_batch([tokens(family, n) for n in CONTEXTS], chunk)
    for logits, n in zip(found, CONTEXTS, strict=True):
        assert same_bits(logits, expected[:n])


def test_each_scale_changes_bits_and_scales_of_1_do_not() -> None:
    """The comparison can fail: another exponent of one head of K or V gives other logits; 2^0 everywhere gives those without."""
    spec = model("llama").spec
    ones = tuple((0,) * spec.kv_heads for _ in range(2 * spec.layers))
    plain, one = (stepper("llama", "bf16", 2, of).run(tokens("llama", 40), 64)[0] for of in ((), ones))
    assert same_bits(plain, one)
    for state in range(2 * spec.layers):
        changed = tuple((0, -8) if i == state else of for i, of in enumerate(ones))
        assert not same_bits(plain, stepper("llama", "bf16", 2, changed).run(tokens("llama", 40), 64)[0])


@pytest.mark.parametrize("family", ["llama", "gemma3", "gemma4_wide"])
def test_both_proofs_and_the_plain_path(family: str) -> None:
    spec, s = model(family).spec, stepper(family, "bf16", 2, scales_of(model(family).spec))
    timetable = compile_timetable(spec, s.system, s.image, KIND)
    program = Program(s.image, (timetable,))
    assert verify(program, s.system).violations == ()
    assert simulate(program, s.system).clean
    assert rows_digest(program, timetable, s.system) == timetable.dataflow
    plain = stepper(family, "bf16", 2, ())
    assert compile_timetable(spec, s.system, plain.image, KIND).dataflow != timetable.dataflow
    fast, slow = (Machine(s.image, s.weights, s.system) for _ in range(2))
    literal = Literal(s.image, timetable, s.system, slow.memory)
    for at, pos in enumerate(([0, 0], [2, 63], [65, 120])):
        parts = [tokens(family, 8)[at : at + 2], tokens(family, 8)[at + 3 : at + 4]]
        fast.batch(timetable, parts, pos)
        literal.run(parts, pos)
        assert (fast.memory.words == slow.memory.words).all()


def test_a_factor_of_another_head_or_record_is_seen_by_the_digest() -> None:
    """Rows that take the scale where its inverse belongs, or the factors of V for K, are legal and another expression."""
    s = stepper("llama", "bf16", 2, scales_of(model("llama").spec))
    timetable = compile_timetable(model("llama").spec, s.system, s.image, KIND)
    scales = {i for i, r in enumerate(s.image.regions) if r.packing == Packing.KV_SCALE}
    named = timetable.rows[:, col.V_REGION]
    where = np.flatnonzero(np.isin(named, list(scales)))
    assert {s.image.regions[r].name for r in named[where].tolist()} == {
        s.image.regions[r].name for r in scales
    }
    seen = 0
    for row in where[:: max(1, len(where) // 12)].tolist():
        stride = s.image.regions[named[row]].stride
        rows = timetable.rows.copy()
        rows[row, col.V_BASE] = stride - rows[row, col.V_BASE]  # the other record
        program = Program(s.image, (replace(timetable, rows=rows),))
        assert verify(program, s.system).clean
        assert rows_digest(program, program.timetables[0], s.system) != timetable.dataflow
        seen += 1
    assert seen >= 8


def test_without_scales_nothing_is_stored_or_multiplied() -> None:
    """An image without scales is that of before: no field in its file, no region, no row."""
    spec, system = model("llama").spec, load_system("groq3-lpx-tray").subset(2)
    image = compile_image(spec, system, Options("bf16", 200, kv="fp8"))
    timetable = compile_timetable(spec, system, image, StepKind(1, 1, 2, "last", "chip"))
    scaled = compile_image(spec, system, Options("bf16", 200, kv="fp8", kv_scales=scales_of(spec)))
    more = compile_timetable(spec, system, scaled, timetable.kind)
    assert b"kv_scales" not in encode(Program(image, (timetable,)))
    assert b"kv_scales" in encode(Program(scaled, (more,)))
    assert not any(r.packing == Packing.KV_SCALE for r in image.regions)
    multiplied = [int((t.templates[:, col.T_OP] == Op.MUL).sum()) for t in (timetable, more)]
    assert multiplied[0] < multiplied[1]


def test_scales_come_back_from_bytes_and_text_and_differ_line_by_line() -> None:
    spec, s = model("llama").spec, stepper("llama", "bf16", 2, scales_of(model("llama").spec))
    program = Program(
        s.image, (compile_timetable(spec, s.system, s.image, StepKind(1, 1, 2, "last", "chip")),)
    )
    assert decode(encode(program)).program.image.kv_scales == s.image.kv_scales
    assert from_text(to_text(program)).image.kv_scales == s.image.kv_scales
    scales = ((9, *s.image.kv_scales[0][1:]), *s.image.kv_scales[1:])
    other = replace(program, image=replace(s.image, kv_scales=scales))
    assert [d.what for d in diff(program, other)] == ["0"]
    assert "kv_scale" in str(diff(program, other)[0])


def test_scales_that_cannot_be_are_found() -> None:
    s = stepper("llama", "bf16", 2, scales_of(model("llama").spec))
    program = Program(s.image, (compile_timetable(s.spec, s.system, s.image, KIND),))
    assert verify(program, s.system).clean
    good = s.image.kv_scales
    for wrong, code in [
        ((), "V100"),
        (good[1:], "V112"),
        ((good[0][:1], *good[1:]), "V112"),
        (((0, 101), *good[1:]), "V112"),
    ]:
        changed = replace(program, image=replace(s.image, kv_scales=wrong))
        verdict = verify(changed, s.system)
        assert code in verdict.codes
        assert any("kv_scales" in str(v) for v in verdict.violations)
    at = next(i for i, r in enumerate(s.image.regions) if r.packing == Packing.KV_SCALE)
    for field in ("stride", "count", "p1", "p0"):
        region = replace(s.image.regions[at], **{field: getattr(s.image.regions[at], field) + 1})
        image = replace(s.image, regions=(*s.image.regions[:at], region, *s.image.regions[at + 1 :]))
        changed = Program(image, program.timetables)
        seen = not verify(changed, s.system).clean or rows_digest(
            changed, changed.timetables[0], s.system
        ) != (program.timetables[0].dataflow)
        assert seen, field


@pytest.mark.parametrize(
    ("kv", "scales", "found"),
    [
        ("auto", ((0, 0),) * 4, "scales for a cache in 'auto'"),
        ("fp8", ((0, 0),) * 3, "found 3 lists"),
        ("fp8", ((0, 0),) * 3 + ((0,),), "V of layer 1, which has 2 KV heads"),
        ("fp8", ((0, 0),) * 3 + ((0, 101),), "integers in -100..100"),
        ("fp8", ((0, 0.5),) + ((0, 0),) * 3, "K of layer 0"),
    ],
)
def test_scales_that_cannot_be_are_refused(kv: str, scales: KvScales, found: str) -> None:
    with pytest.raises(UsageError, match=f"T122: .*{found}"):
        compile_image(
            model("llama").spec,
            load_system("groq3-lpx-tray").subset(2),
            Options("bf16", 100, kv=kv, kv_scales=scales),
        )
