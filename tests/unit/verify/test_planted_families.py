"""Faults in what families and batches bring: each gives exactly its code, and names the row that is at fault."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from tests.unit.verify.editor import Editor, with_region, with_tensor
from tests.unit.verify.families import KINDS, editor_of, system_of

from ticktrue.isa import Op
from ticktrue.program import Packing, Program
from ticktrue.verify import verify

APPEND, SCORE = "L0.attn.append_k[0.0]", "L0.attn.score[0.0]"
"""Of the sliding layer of the Gemma 3; layer 1 has full attention."""


@dataclass(frozen=True)
class Fault:
    """What is changed in the program of which family, and whom the first violation names."""

    code: str
    name: str
    family: str
    plant: Callable[[Editor], Program]
    culprit: str = ""


def key(e: Editor, **changes: object) -> Program:
    image = e.program.image
    return replace(e.program, image=replace(image, key=replace(image.key, **changes)))


def attention(e: Editor, at: int, **changes: int) -> Program:
    kinds = list(e.program.image.key.attention)
    kinds[at] = replace(kinds[at], **changes)
    return key(e, attention=tuple(kinds))


def region(e: Editor, name: str, **changes: object) -> Program:
    return with_region(e.program, name, **changes)


def tensor(e: Editor, name: str, **changes: int) -> Program:
    return with_tensor(e.program, name, **changes)


def part(e: Editor, by: int) -> Program:
    """The second part of a head of V elsewhere in the head."""
    name = next(
        r.name for r in e.program.image.regions if r.packing == Packing.KV and r.p0 % 2 == 1 and r.p1 == 256
    )
    return region(e, name, p1=256 + by)


FAULTS = [
    Fault("V100", "a ring of twice the blocks", "gemma3", lambda e: e.with_value(APPEND, Op.SCATTER, 0, a1=4), APPEND),
    Fault("V100", "no ring where the layer has one", "gemma3", lambda e: e.with_value(APPEND, Op.SCATTER, 0, a1=-4), APPEND),
    Fault("V100", "a ring where the layer has none", "gemma3",
          lambda e: e.with_value("L1.attn.append_k[0.0]", Op.SCATTER, 0, a1=4), "L1.attn.append_k"),
    Fault("V100", "a ring of the key that is too large", "gemma3", lambda e: attention(e, 1, ring=8)),
    Fault("V100", "a ring of the key that is too small", "gemma3", lambda e: attention(e, 1, ring=2)),
    Fault("V100", "a ring of the key without a window", "gemma3", lambda e: attention(e, 1, window=0)),
    Fault("V100", "a window of the key without a ring", "gemma3", lambda e: attention(e, 0, window=100)),
    Fault("V100", "a window that needs a larger ring", "gemma3", lambda e: attention(e, 1, window=200)),
    Fault("V100", "KV heads that the plan does not share out", "gemma3", lambda e: attention(e, 1, kv_heads=3, heads=6)),
    Fault("V100", "heads that KV heads do not divide", "gemma3", lambda e: attention(e, 0, heads=5)),
    Fault("V100", "a head size of other tables", "gemma3", lambda e: attention(e, 1, head_dim=80)),
    Fault("V100", "layers of each other's kinds", "gemma3", lambda e: key(e, layer_kinds=(0, 1))),
    Fault("V100", "a layer fewer than state", "gemma3", lambda e: key(e, layer_kinds=(1,))),
    Fault("V112", "a layer of a kind that is not there", "gemma3", lambda e: key(e, layer_kinds=(1, 2))),
    Fault("V112", "no kinds of attention", "gemma3", lambda e: key(e, attention=())),
    Fault("V112", "a window below zero", "gemma3", lambda e: attention(e, 1, window=-1)),
    Fault("V112", "no KV heads", "gemma3", lambda e: attention(e, 1, kv_heads=0)),
    Fault("V117", "a window of the key a position longer", "gemma3", lambda e: attention(e, 1, window=101), SCORE),
    Fault("V117", "a window of the key a position shorter", "gemma3", lambda e: attention(e, 1, window=99), SCORE),
    Fault("V117", "more heads of the key", "gemma3", lambda e: attention(e, 1, heads=8), "expected 8 rows of queries a chip"),
    Fault("V117", "fewer heads of the key", "gemma3", lambda e: attention(e, 0, heads=2), "expected 2 rows of queries a chip"),
    Fault("V117", "more heads of a batch without windows", "qwen2", lambda e: attention(e, 0, heads=6)),
    Fault("V117", "more heads in several rounds", "gemma4_wide", lambda e: attention(e, 0, heads=4)),
    Fault("V117", "a mask of a longer window", "gemma3", lambda e: e.with_value(SCORE, Op.MASK, 0, a1=1), SCORE),
    Fault("V117", "a mask of no window", "gemma3", lambda e: e.with_value(SCORE, Op.MASK, 0, a1=-100, a2=-4), SCORE),
    Fault("V117", "a mask of a larger ring", "gemma3", lambda e: e.with_value(SCORE, Op.MASK, 0, a2=4), SCORE),
    Fault("V117", "a window on full attention", "gemma3",
          lambda e: e.with_value("L1.attn.score[0.0]", Op.MASK, 0, a1=100), "L1.attn.score"),
    Fault("V117", "a mask of another slot", "gemma3", lambda e: e.with_value(SCORE, Op.MASK, 0, a3=1)),
    Fault("V117", "queries of a token fewer", "gemma3", lambda e: e.with_value(SCORE, Op.INSTALL, 0, a2=-1)),
    Fault("V100", "state of other slots", "gemma3", lambda e: key(e, slots=2)),
    Fault("V100", "state of a position fewer", "gemma3", lambda e: region(e, "L1.v0", count=959)),
    Fault("V100", "state of a layer that is not there", "gemma3", lambda e: region(e, "L1.v0", p0=4)),
    Fault("V100", "tables of a kind that is not there", "gemma3", lambda e: region(e, "rope_a.1", p1=2)),
    Fault("V112", "a ring without a window", "gemma3",
          lambda e: e.with_value("L1.attn.score[0.0]", Op.MASK, 0, a2=4), "L1.attn.score"),
    Fault("V112", "a window of a mask below zero", "gemma3", lambda e: e.with_value(SCORE, Op.MASK, 0, a1=-101), SCORE),
    Fault("V112", "a ring of a mask below zero", "gemma3", lambda e: e.with_value(SCORE, Op.MASK, 0, a2=-5), SCORE),
    Fault("V112", "a mask of a slot that the step has not", "gemma3", lambda e: e.with_value(SCORE, Op.MASK, 0, a3=2), SCORE),
    Fault("V112", "a mask from before the first block", "gemma3", lambda e: e.with_value(SCORE, Op.MASK, 0, a0=-1), SCORE),
    Fault("V100", "a mask of other tokens", "gemma3", lambda e: e.with_template(SCORE, Op.MASK, 0, x0=2), SCORE),
    Fault("V122", "token rows beyond the step", "gemma3",
          lambda e: e.with_value("embed[0].keep", Op.GATHER, 0, a0=1), "embed[0].keep"),
    Fault("V122", "token rows before the first", "gemma3",
          lambda e: e.with_value("embed[0].keep", Op.GATHER, 0, a0=-1), "embed[0].keep"),
    Fault("V122", "positions beyond the step", "gemma3", lambda e: e.with_value("rope[0]", Op.GATHER, 1, a0=1), "rope[0]"),
    Fault("V122", "rows of two slots in one append", "gemma3", lambda e: e.with_value(APPEND, Op.SCATTER, 0, a0=1), APPEND),
    Fault("V122", "rows of a slot that the step has not", "gemma3",
          lambda e: e.with_value(APPEND, Op.SCATTER, 0, a0=4), APPEND),
    Fault("V122", "a last row that is not of a slot's first", "qwen2",
          lambda e: e.with_value("final_norm[0].r", Op.GATHER, 0, a0=1), "final_norm[0].r"),
    Fault("V122", "a last row of a slot that the step has not", "qwen2",
          lambda e: e.with_value("final_norm[1].r", Op.GATHER, 0, a0=2), "final_norm[1].r"),
    Fault("V122", "a last row of a slot before the first", "qwen2",
          lambda e: e.with_value("final_norm[0].r", Op.GATHER, 0, a0=-2), "final_norm[0].r"),
    Fault("V100", "a shard of a bias that is too small", "qwen2", lambda e: tensor(e, "layers.0.q_bias", shard=63)),
    Fault("V100", "a bias of more outputs", "qwen2", lambda e: tensor(e, "layers.0.q_bias", outputs=257)),
    Fault("V100", "a bias of no tensor", "qwen2", lambda e: region(e, "layers.0.q_bias", tensor=-1)),
    Fault("V100", "a bias with a parameter", "qwen2", lambda e: region(e, "layers.0.q_bias", p1=1)),
    Fault("V100", "a bias packed whole", "qwen2", lambda e: region(e, "layers.0.q_bias", packing=Packing.LANES)),
    Fault("V100", "a norm packed as a share", "qwen2", lambda e: region(e, "layers.0.attn_norm", packing=Packing.SHARD)),
    Fault("V100", "a part of a head that starts elsewhere", "gemma4_wide", lambda e: part(e, 1)),
    Fault("V100", "a part of a head before it", "gemma4_wide", lambda e: part(e, -1)),
    Fault("V100", "a part of a head that is not there", "gemma4_wide", lambda e: part(e, 256)),
]  # fmt: skip


@pytest.mark.parametrize("family", KINDS)
def test_the_program_is_legal(family: str) -> None:
    assert verify(editor_of(family).program, system_of(family)).violations == ()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f.code} {f.name}")
def test_a_planted_fault_gives_exactly_its_code(fault: Fault) -> None:
    verdict = verify(fault.plant(editor_of(fault.family)), system_of(fault.family))
    assert set(verdict.codes) == {fault.code}, "\n".join(map(str, verdict.violations))
    assert fault.culprit in str(verdict.violations[0])
