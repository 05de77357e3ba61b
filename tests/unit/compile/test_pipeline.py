"""Buckets, options, and the promise that the same inputs give the same bytes anywhere."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.models import SPEC

from ticktrue.compile import (
    Options,
    bucket,
    bucket_edges,
    compile_image,
    compile_program,
    compile_timetable,
    image_blocks,
    tokens_kind,
    unproved_timetable,
)
from ticktrue.errors import Error, InputError, UnsupportedModel, UsageError
from ticktrue.hw import load_system
from ticktrue.model import Family, LayerKind, SlidingAttention
from ticktrue.program import StepKind, decode, encode
from ticktrue.sim import simulate
from ticktrue.verify import verify

SMALL = replace(SPEC, heads=2, kv_heads=1, hidden=64, ffn=64, vocab=90)
SCRIPT = """
import sys, hashlib
sys.path.insert(0, {root!r})
from tests.models import SPEC
from ticktrue.compile import Options, compile_program
from ticktrue.hw import load_system
from ticktrue.program import StepKind, encode
kinds = [StepKind(1, 1, 3, "last", "chip"), StepKind(4, 1, 2, "all", "chip")]
print(hashlib.sha256(encode(compile_program(SPEC, load_system("groq3-lpx-tray").subset(6), Options(), kinds))).hexdigest())
"""


def test_edges_are_one_to_eight_then_four_per_octave() -> None:
    assert bucket_edges(40) == (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40)
    assert bucket_edges(33)[-2:] == (32, 33)
    assert bucket_edges(1) == (1,)


@pytest.mark.parametrize(
    ("positions", "blocks"), [(1, 1), (64, 1), (65, 2), (512, 8), (513, 10), (1_300, 24)]
)
def test_the_smallest_bucket_that_holds_the_positions(positions: int, blocks: int) -> None:
    assert bucket(positions, image_blocks(2_048)) == blocks


def test_a_context_past_the_image_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^T121: 2113 positions exceed the 2112"):
        bucket(2_113, image_blocks(2_048))


def test_tokens_go_to_the_next_larger_kind() -> None:
    assert [tokens_kind(n) for n in (1, 2, 3, 5, 7, 8, 9, 16, 17)] == [1, 2, 4, 8, 8, 8, 16, 16, 32]
    assert [tokens_kind(n) for n in (33, 64, 65, 128, 129, 256)] == [64, 64, 128, 128, 256, 256]


@pytest.mark.parametrize(
    ("options", "error", "code"),
    [
        (Options(fmt="int4"), UsageError, "T122"),
        (Options(fmt="f32"), InputError, "T373"),
        (Options(max_context=0), UsageError, "T123"),
        (Options(max_context=-5), UsageError, "T123"),
        (Options(max_context=10**9), UsageError, "T123"),
        (Options(slots=0), UsageError, "T125"),
        (Options(slots=-1), UsageError, "T125"),
        (Options(slots=4_097), UsageError, "T125"),
        (Options(slots=1.5), UsageError, "T125"),
        (Options(t_max=0), UsageError, "T125"),
        (Options(t_max=-8), UsageError, "T125"),
        (Options(t_max=3), UsageError, "T125"),
        (Options(t_max=300), UsageError, "T125"),
        (Options(t_max=512), UsageError, "T125"),
    ],
)
def test_bad_options_are_one_clear_error(options: Options, error: type[Error], code: str) -> None:
    with pytest.raises(error) as e:
        compile_image(SPEC, load_system("groq3-lpx-tray").subset(2), options)
    assert e.value.code == code
    assert e.value.message


@pytest.mark.parametrize("compiled", [compile_timetable, unproved_timetable])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (StepKind(3, 1, 1, "last", "chip"), "tokens"),
        (StepKind(0, 1, 1, "last", "chip"), "tokens"),
        (StepKind(16, 1, 1, "last", "chip"), "tokens"),
        (StepKind(1, 0, 1, "last", "chip"), "slots"),
        (StepKind(1, 3, 1, "last", "chip"), "slots"),
        (StepKind(1, 1, 0, "last", "chip"), "blocks"),
        (StepKind(1, 1, 4, "last", "chip"), "blocks"),
        (StepKind(1, 1, 1, "some", "chip"), "logits"),
        (StepKind(1, 1, 1, "last", "me"), "sampler"),
    ],
)
def test_a_step_that_the_image_has_no_room_for_is_one_clear_error(
    compiled, kind: StepKind, name: str
) -> None:
    system = load_system("tiny-4")
    image = compile_image(SMALL, system, Options(max_context=180, slots=2, t_max=8))
    with pytest.raises(UsageError, match=f"{name}, found") as e:
        compiled(SMALL, system, image, kind)
    assert e.value.code == "T127"


def test_more_tokens_than_any_step_takes_are_one_clear_error() -> None:
    with pytest.raises(UsageError, match=r"^T127: .*found 257"):
        tokens_kind(257)


@pytest.mark.parametrize("head_dim", [642, 768, 1_024])
def test_heads_of_more_than_two_beats_are_refused(head_dim: int) -> None:
    wide = replace(SMALL, head_dim=head_dim)
    sliding = replace(
        SMALL, family=Family.GEMMA3, sliding=SlidingAttention(100, 1, head_dim, 1e4),
        layer_kinds=(LayerKind.SLIDING, LayerKind.FULL),
    )  # fmt: skip
    for spec in (wide, sliding):
        with pytest.raises(UnsupportedModel, match=f"at most 640 elements, found {head_dim}") as e:
            compile_image(spec, load_system("groq3-lpx-tray").subset(1), Options(max_context=70))
        assert e.value.code == "T333"


def test_hypothetical_compiles_and_is_kept_in_the_image() -> None:
    image = compile_image(
        SPEC, load_system("groq3-lpx-tray").subset(2), Options(fmt="f32", hypothetical=True)
    )
    assert image.key.hypothetical


def test_same_bytes_under_two_hash_seeds_two_processes_two_directories(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[3])
    found = set()
    for seed in ("0", "4242"):
        directory = tmp_path / seed
        directory.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT.format(root=root)],
            cwd=directory, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        found.add(done.stdout.strip())
    kinds = [StepKind(1, 1, 3, "last", "chip"), StepKind(4, 1, 2, "all", "chip")]
    here = encode(compile_program(SPEC, load_system("groq3-lpx-tray").subset(6), Options(), kinds))
    assert found == {hashlib.sha256(here).hexdigest()}
    assert decode(here).intact
    assert encode(decode(here).program) == here


def test_timetables_share_one_image_and_come_sorted() -> None:
    kinds = [
        StepKind(4, 1, 2, "last", "chip"),
        StepKind(1, 1, 3, "last", "chip"),
        StepKind(1, 1, 1, "last", "chip"),
    ]
    program = compile_program(SPEC, load_system("groq3-lpx-tray").subset(2), Options(), kinds)
    assert [t.kind for t in program.timetables] == sorted(kinds)


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("mxm_weight_load_bytes_per_cycle", 100_000),
        ("mxm_weight_load_bytes_per_cycle", 10_240),
        ("c2c_guard_cycles", 16),
        ("vxm_ports", 32),
    ],
)
def test_programs_for_other_machines_are_legal_and_on_time(fact: str, value: int) -> None:
    """A fact at the end of its range gives another program, as legal and as exact."""
    system = load_system("groq3-lpx-tray").subset(3).with_fact(fact, value)
    kind = StepKind(4, 1, 3, "all", "chip")
    program = compile_program(SPEC, system, Options(), [kind])
    assert verify(program, system).violations == ()
    assert simulate(program, system, kind).mismatches == ()
