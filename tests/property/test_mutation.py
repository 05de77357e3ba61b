"""Single fields changed and the program sealed again: some witness must see it, or nothing may have changed.

The sha256 is made anew for every mutant, else the file digest would catch all of them and prove nothing. In turn: `verify` (a
violation), `sim` (V130), the dataflow digest (V141). What all three let pass must have identical times and identical bits, and be
the same program by rule (tests/property/equivalence.py).
"""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from tests.families import write_family
from tests.models import write_llama
from tests.property.equivalence import same_program
from tests.stepping import Stepper, same_bits

from ticktrue.compile import compile_timetable
from ticktrue.errors import InputError
from ticktrue.execute import Machine
from ticktrue.hw import System
from ticktrue.isa import Draw
from ticktrue.model import Weights, load_model
from ticktrue.program import Plan, Program, StepKind, Timetable, decode, encode
from ticktrue.program import columns as col
from ticktrue.program.types import Packing, RegionClass
from ticktrue.sim import Timing, simulate
from ticktrue.verify import verify
from ticktrue.verify.dataflow import rows_digest

EACH = 6
"""Changes of every field; more than 200 in all."""
KIND = StepKind(4, 1, 3, "all", "chip")
STEPS = ((3, 0), (4, 3), (4, 60), (1, 64), (4, 140))
"""(tokens, position) of the steps whose results are compared: chunks, a block's edge, a later block."""
BATCH = StepKind(4, 2, 7, "all", "chip")
BATCH_STEPS = (
    ((3, 0), (4, 5)),
    ((4, 3), (0, 9)),
    ((1, 60), (4, 62)),
    ((2, 126), (3, 190)),
    ((4, 255), (1, 300)),
)
"""The same of every slot, of a window in a ring of 256 positions: a slot that sits out, the edge of the ring, round it."""
DRAWS = (Draw(), Draw(0.8, 1 << 40 | 77, 3))
"""Greedy, and drawn, by turns."""
REGION = ("group", "base", "stride", "count", "tensor", "p0", "p1", "packing", "cls")
KEY = ("max_context", "slots", "t_max", "vocab")
ATTENTION = ("heads", "kv_heads", "head_dim", "window", "ring")


@dataclass(frozen=True)
class Mutant:
    """A program with one field changed: what, where, from and to."""

    program: Program
    name: str
    change: str


@dataclass(frozen=True)
class Outcome:
    """Which witness saw a mutant: a violation code, V130, V141, or "same"."""

    mutant: Mutant
    seen: str


@dataclass(frozen=True)
class Base:
    """The program as compiled, with its times and results."""

    program: Program
    system: System
    weights: Weights
    timing: Timing
    results: list[np.ndarray]


def results(program: Program, weights: Weights, system: System) -> list[np.ndarray]:
    """Logits, tokens and all memory that outlives a step, after a few steps."""
    machine = Machine(program.image, weights, system)
    out: list[np.ndarray] = []
    rng = np.random.default_rng(7)
    timetable = program.timetables[0]
    for slots in BATCH_STEPS if timetable.kind.slots > 1 else [(one,) for one in STEPS]:
        parts = [rng.integers(0, program.image.key.vocab, count).tolist() for count, _ in slots]
        step = machine.batch(
            timetable, parts, [pos for _, pos in slots], [DRAWS[count % 2] for count, _ in slots]
        )
        for slot, (count, _) in enumerate(slots):
            first = slot * timetable.kind.tokens
            out += [step.logits[first : first + count], step.next_token[first : first + count]]
    for r in program.image.regions:
        if r.cls == RegionClass.STATE:
            out += [machine.memory.words[machine.memory.vector(chip, r) * 160 :][: r.vectors * 160].copy()
                    for chip in range(program.image.key.plan.chips)]  # fmt: skip
    return out


BASES = [
    pytest.param(("groq3-lpx-tray", Plan.of(6, 3), 2), id="two layers"),
    # a loop and a window with two slots are in the fast tests together: test_mutation_everything.py
    pytest.param(("groq3-lpx-tray", Plan.of(6, 3), 8), id="a loop of eight layers", marks=pytest.mark.slow),
    pytest.param(("groq3-lpx-tray", Plan.of(4, 2, 2), 0), id="a window, two slots", marks=pytest.mark.slow),
    pytest.param(("groq3-lpx-tray", Plan.of(4, 1, 2), 0), id="a grid for each of two kinds"),
    pytest.param(("groq3-lpx-32x8", Plan.of(16, 1, tray=8), 1), id="rack", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=BASES)
def base(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Base:
    on, plan, layers = request.param
    directory: Path = tmp_path_factory.mktemp("mutation")
    if layers:
        kind, context, slots = KIND, 150, 1
        model = load_model(str(write_llama(directory / "m", 0, layers=layers)))
    else:
        kind, context, slots = BATCH, 384, BATCH.slots
        model = load_model(str(write_family(directory / "m", "gemma3")))
    heads = tuple(grid.h for grid in plan.grids)
    stepper = Stepper.make(
        model.spec, model.weights(), plan.chips, "bf16", context, on, slots=slots, heads=heads
    )
    proved = compile_timetable(model.spec, stepper.system, stepper.image, kind)  # with the graph's digest
    program = Program(stepper.image, (proved,))
    assert program.image.key.plan == plan
    assert [loop.count for loop in proved.loops] == ([8] if layers == 8 else [])
    timing = simulate(program, stepper.system)
    return Base(
        program, stepper.system, stepper.weights, timing, results(program, stepper.weights, stepper.system)
    )


# ---- mutants -----------------------------------------------------------------------------------------------------------------


def other(rng: np.random.Generator, value: int, seen: np.ndarray | None = None) -> int:
    """Another value: a neighbour, a multiple, zero, or one that stands elsewhere in the column."""
    near = [value + 1, value - 1, value + 2, value - 3, 2 * value, 0, -1]
    if seen is not None:
        near += rng.choice(seen, 6).tolist()
    choices = sorted({int(x) for x in near if x != value and -(2**31) <= x < 2**31})
    return int(rng.choice(choices))


def with_timetable(program: Program, **changes: object) -> Program:
    (t,) = program.timetables
    return replace(program, timetables=(replace(t, **changes),))


def with_image(program: Program, **changes: object) -> Program:
    return replace(program, image=replace(program.image, **changes))


def cell(rng: np.random.Generator, table: np.ndarray, column: int | None) -> tuple[np.ndarray, str]:
    """A table with one number changed, and what was changed."""
    out = table.copy()
    at = (int(rng.integers(len(table))),) if column is None else (int(rng.integers(len(table))), column)
    seen = table if column is None else table[:, column]
    out[at] = other(rng, int(table[at]), seen)
    return out, f"row {at[0]}: {int(table[at])} -> {int(out[at])}"


def columns_of(rng: np.random.Generator, program: Program) -> list[Mutant]:
    """One change in every column of every table."""
    t = program.timetables[0]
    tables = [("templates", col.T_NAMES), ("rows", col.V_NAMES), ("chains", ("template", "start", "late"))]
    out = []
    for table, names in tables:
        for column, name in enumerate(names):
            changed, change = cell(rng, getattr(t, table), column)
            out.append(Mutant(with_timetable(program, **{table: changed}), f"{table}.{name}", change))
    changed, change = cell(rng, t.template_start, None)
    out.append(Mutant(with_timetable(program, template_start=changed), "template_start", change))
    for column, name in enumerate(col.P_NAMES):
        changed, change = cell(rng, program.image.pieces, column)
        out.append(Mutant(with_image(program, pieces=changed), f"pieces.{name}", change))
    return out


def enum_or(rng: np.random.Generator, field: str, value: int) -> object:
    kinds = {"packing": Packing, "cls": RegionClass}
    if field in kinds:
        return rng.choice([k for k in kinds[field] if k != value])
    return other(rng, value)


def fields_of(rng: np.random.Generator, program: Program) -> list[Mutant]:
    """One change in every field of regions, scratch, outputs, tensors, key, plan, kind, and of the timetable itself."""
    out = []
    t: Timetable = program.timetables[0]
    for field in REGION:
        for place, regions in (("region", program.image.regions), ("scratch", t.scratch)):
            at = int(rng.integers(len(regions)))
            new = enum_or(rng, field, getattr(regions[at], field))
            if field in {"packing", "cls"}:
                new = {"packing": Packing, "cls": RegionClass}[field](int(new))  # type: ignore[call-overload]
            changed = (*regions[:at], replace(regions[at], **{field: new}), *regions[at + 1 :])
            change = f"{regions[at].name}: {getattr(regions[at], field)} -> {new}"
            made = (
                with_image(program, regions=changed)
                if place == "region"
                else with_timetable(program, scratch=changed)
            )
            out.append(Mutant(made, f"{place}.{field}", change))
    for field in ("region", "base", "rows", "vectors"):
        at = int(rng.integers(len(t.outputs)))
        new = other(rng, getattr(t.outputs[at], field))
        changed = (*t.outputs[:at], replace(t.outputs[at], **{field: new}), *t.outputs[at + 1 :])
        out.append(
            Mutant(
                with_timetable(program, outputs=changed), f"output.{field}", f"{t.outputs[at].name}: -> {new}"
            )
        )
    for field in ("outputs", "inputs", "shard"):
        tensors = program.image.tensors
        at = int(rng.integers(len(tensors)))
        new = other(rng, getattr(tensors[at], field))
        changed = (*tensors[:at], replace(tensors[at], **{field: new}), *tensors[at + 1 :])
        out.append(
            Mutant(with_image(program, tensors=changed), f"tensor.{field}", f"{tensors[at].name}: -> {new}")
        )
    key = program.image.key
    for field in KEY:
        new = other(rng, getattr(key, field))
        out.append(Mutant(with_image(program, key=replace(key, **{field: new})), f"key.{field}", f"-> {new}"))
    for field in ATTENTION:
        kinds, at = list(key.attention), int(rng.integers(len(key.attention)))
        changed_kind = kinds[at] = replace(kinds[at], **{field: other(rng, getattr(kinds[at], field))})
        changed_key = replace(key, attention=tuple(kinds))
        out.append(
            Mutant(with_image(program, key=changed_key), f"key.attention.{field}", f"-> {changed_kind}")
        )
    layer = int(rng.integers(len(key.layer_kinds)))
    kind_of = tuple(other(rng, k) if i == layer else k for i, k in enumerate(key.layer_kinds))
    out.append(
        Mutant(with_image(program, key=replace(key, layer_kinds=kind_of)), "key.layer_kinds", f"-> {kind_of}")
    )
    for field in ("h", "cp"):
        grids, at = list(key.plan.grids), int(rng.integers(len(key.plan.grids)))
        changed_grid = grids[at] = replace(grids[at], **{field: other(rng, getattr(grids[at], field))})
        changed_key = replace(key, plan=replace(key.plan, grids=tuple(grids)))
        out.append(Mutant(with_image(program, key=changed_key), f"plan.{field}", f"-> {changed_grid}"))
    for field in ("chips", "tray"):
        new = other(rng, getattr(key.plan, field))
        changed_key = replace(key, plan=replace(key.plan, **{field: new}))
        out.append(Mutant(with_image(program, key=changed_key), f"plan.{field}", f"-> {new}"))
    for field in ("tokens", "slots", "blocks"):
        new = other(rng, getattr(t.kind, field))
        out.append(
            Mutant(
                with_timetable(program, kind=replace(t.kind, **{field: new})), f"kind.{field}", f"-> {new}"
            )
        )
    for field, values in (("logits", ["last", "some"]), ("sampler", ["host", "none"])):
        new = str(rng.choice(values))
        out.append(
            Mutant(
                with_timetable(program, kind=replace(t.kind, **{field: new})), f"kind.{field}", f"-> {new}"
            )
        )
    new = other(rng, t.deskew)
    out.append(Mutant(with_timetable(program, deskew=new), "deskew", f"{t.deskew} -> {new}"))
    new = other(rng, t.duration)
    out.append(Mutant(with_timetable(program, duration=new), "duration", f"{t.duration} -> {new}"))
    return out


def loops_of(rng: np.random.Generator, program: Program) -> list[Mutant]:
    """One change in every field of the loop, and in a region and a step of its strides."""
    out, t = [], program.timetables[0]
    for loop in t.loops:
        for field in ("first", "last", "count", "period"):
            new = other(rng, getattr(loop, field))
            changed = (replace(loop, **{field: new}),)
            out.append(Mutant(with_timetable(program, loops=changed), f"loop.{field}", f"-> {new}"))
        for place in range(2):
            at = int(rng.integers(len(loop.strides)))
            pair = list(loop.strides[at])
            pair[place] = other(rng, pair[place])
            strides = (*loop.strides[:at], (pair[0], pair[1]), *loop.strides[at + 1 :])
            changed = (replace(loop, strides=strides),)
            name = ("loop.stride.region", "loop.stride.step")[place]
            out.append(Mutant(with_timetable(program, loops=changed), name, f"{loop.strides[at]} -> {pair}"))
        at = int(rng.integers(len(loop.strides)))
        changed = (replace(loop, strides=(*loop.strides[:at], *loop.strides[at + 1 :])),)
        out.append(
            Mutant(with_timetable(program, loops=changed), "loop.strides", f"without {loop.strides[at]}")
        )
    return out


def mutants(program: Program) -> list[Mutant]:
    rng = np.random.default_rng(20)
    kinds = (columns_of, fields_of, loops_of)
    return [m for _ in range(EACH) for mutate in kinds for m in mutate(rng, program)]


# ---- witnesses ---------------------------------------------------------------------------------------------------------------


def resealed(mutant: Mutant) -> Program:
    """The mutant through a file whose sha256 fits what it holds."""
    decoded = decode(encode(mutant.program))
    assert decoded.intact
    return decoded.program


def executed(program: Program, base: Base) -> tuple[list[np.ndarray], str]:
    """Results of a program, and the code with which its inputs (T363) or values (T364) were refused."""
    try:
        return results(program, base.weights, base.system), ""
    except InputError as e:
        return [], e.code


def judge(mutant: Mutant, base: Base) -> str:
    """Which witness sees the mutant. A program that `verify` finds legal executes: only its values may be refused."""
    program = resealed(mutant)
    verdict = verify(program, base.system)
    if not verdict.clean:
        return verdict.violations[0].code
    timing = simulate(program, base.system)
    if not timing.clean:
        return "V130"
    wrong = rows_digest(program, program.timetables[0], base.system) != program.timetables[0].dataflow
    values, refused = executed(program, base)
    assert refused in {"", "T363", "T364"}, f"{mutant.name} {mutant.change}: {refused}"
    assert wrong or not refused
    if wrong:
        return "V141"
    assert timing.duration_cycles == base.timing.duration_cycles, (
        f"{mutant.name} {mutant.change} takes another time"
    )
    same = all(a.dtype == b.dtype and a.shape == b.shape and (a.view(np.int16) == b.view(np.int16)).all()
               for a, b in zip(values, base.results, strict=True))  # fmt: skip
    assert same, f"{mutant.name} {mutant.change} survives with other values"
    return "same"


def survivors_of(unseen: list[Mutant], base: Base) -> list[str]:
    """Mutants that no witness saw and no rule shows to be the same program."""
    why = [(m, same_program(base.program, resealed(m), base.system)) for m in unseen]
    return [f"{m.name} {m.change}: {reason}" for m, reason in why if reason]


def test_the_program_itself_is_clean(base: Base) -> None:
    assert judge(Mutant(base.program, "", ""), base) == "same"
    assert same_bits(base.results[0], results(base.program, base.weights, base.system)[0])


def test_no_mutant_survives(base: Base) -> None:
    outcomes = [Outcome(m, judge(m, base)) for m in mutants(base.program)]
    fields = Counter(o.mutant.name for o in outcomes)
    assert len(outcomes) >= 200
    assert min(fields.values()) >= 5
    same = [f"{o.mutant.name} {o.mutant.change}" for o in outcomes if o.seen == "same"]
    survivors = survivors_of([o.mutant for o in outcomes if o.seen == "same"], base)
    seen = Counter(o.seen for o in outcomes)
    print("\n", dict(seen), "\n  without effect:", *same, sep="\n    ")  # noqa: T201 - shown by pytest -s
    assert len(survivors) == 0, survivors
    assert len(same) <= 0.2 * len(outcomes), same
