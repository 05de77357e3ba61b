"""Programs of families and batches that compute something else and break no rule: only the dataflow digest can see it."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.verify.editor import Editor
from tests.unit.verify.families import KINDS, editor_of, system_of

from ticktrue.isa import Op
from ticktrue.program import Program
from ticktrue.verify import verify
from ticktrue.verify.dataflow import check_dataflow

RING = 128
"""Vectors of a slot's ring on a chip: 4 blocks over 2 chips, a vector a position."""


def tables_of(e: Editor, name: str, kind: int) -> Program:
    image = e.program.image
    changed = tuple(replace(r, p1=kind) if r.name == name else r for r in image.regions)
    assert changed != image.regions
    return replace(e.program, image=replace(image, regions=changed))


def more_heads(e: Editor) -> Program:
    """Four KV heads in a key whose image has two: a record has room for both, so no size tells."""
    key = e.program.image.key
    kinds = tuple(replace(a, kv_heads=4) if a.ring else a for a in key.attention)
    return replace(e.program, image=replace(e.program.image, key=replace(key, attention=kinds)))


def masks_exchanged(e: Editor) -> Program:
    once = Editor(e.with_value("L0.attn.score[0.0]", Op.MASK, 0, a3=1))
    return once.with_value("L0.attn.score[1.0]", Op.MASK, 0, a3=-1)


GEMMA3: dict[str, Callable[[Editor], Program]] = {
    "window one position longer": lambda e: e.with_value("L0.attn.score[0.0]", Op.MASK, 0, a1=1),
    "window one position shorter": lambda e: e.with_value("L0.attn.score[1.0]", Op.MASK, 0, a1=-1),
    "no window": lambda e: e.with_value("L0.attn.score[0.0]", Op.MASK, 0, a1=-100, a2=-4),
    "a window on full attention": lambda e: e.with_value("L1.attn.score[0.0]", Op.MASK, 0, a1=100),
    "mask of another slot": lambda e: e.with_value("L0.attn.score[0.0]", Op.MASK, 0, a3=1),
    "full mask of another slot": lambda e: e.with_value("L1.attn.score[1.0]", Op.MASK, 0, a3=-1),
    "mask of a larger ring": lambda e: e.with_value("L0.attn.score[0.0]", Op.MASK, 0, a2=4),
    "mask without a ring": lambda e: e.with_value("L0.attn.score[0.0]", Op.MASK, 0, a2=-4),
    "mask one block off": lambda e: e.with_value("L0.attn.score[0.0]", Op.MASK, 0, a0=1),
    "K of another slot": lambda e: e.with_value("L0.attn.score[0.0]", Op.LOAD, 1, base=RING),
    "V of another slot": lambda e: e.with_value("L0.attn.value[1.0]", Op.LOAD, 0, base=-RING),
    "K of a slot that the step has not": lambda e: e.with_value("L0.attn.score[1.0]", Op.LOAD, 1, base=RING),
    "K appended to another slot": lambda e: e.with_value("L0.attn.append_k[0.0]", Op.SCATTER, 0, base=RING),
    "V appended to a slot that the step has not": lambda e: e.with_value("L0.attn.append_v[1.0]", Op.SCATTER, 0, base=RING),
    "appended at the position of another slot": lambda e: e.with_value("L0.attn.append_k[0.0]", Op.SCATTER, 0, a0=2),
    "K of another slot appended": lambda e: e.with_value("L0.attn.append_k[0.0]", Op.LOAD, 0, base=2),
    "two slots' masks exchanged": masks_exchanged,
    "KV heads of other state": more_heads,
    "two slots' appends exchanged": lambda e: e.with_value("L0.attn.append_k[0.0]", Op.SCATTER, 0, base=RING, a0=2),
    "q of another slot": lambda e: e.with_value("L0.attn.score[0.0]", Op.LOAD, 0, base=8),
    "slots exchanged after the values": lambda e: e.with_value("L0.attn.divide[0.0]", Op.STORE, 0, base=2),
    "norm of k for that of q": lambda e: e.with_value("L0.attn.q_norm.scale", Op.LOAD, 2, region="layers.0.k_norm"),
    "norm of another layer's heads": lambda e: e.with_value("L1.attn.k_norm.scale", Op.LOAD, 2, region="layers.0.k_norm"),
    "norm before for that after": lambda e: e.with_value("L0.x_attn.add", Op.LOAD, 2, region="layers.0.attn_norm"),
    "norm after of the other half": lambda e: e.with_value("L1.x_ffn.add", Op.LOAD, 2, region="layers.1.post_attn_norm"),
    "turned by the other kind's tables": lambda e: e.with_value("L0.attn.k_rope", Op.LOAD, 1, region="rope"),
    "tables of the other kind": lambda e: e.with_value("rope.1[0]", Op.GATHER, 0, region="rope_a"),
    "tables named for the other kind": lambda e: tables_of(e, "rope_a.1", 0),
    "another scale of the embedding": lambda e: e.with_template("embed.assemble[0]", Op.SCALE, 0, x0=1),
    "another scale of the scores": lambda e: e.with_template("L0.attn.score[0.0]", Op.SCALE, 0, x0=1),
    "another gate": lambda e: e.with_template("L0.gu.gate[0]", Op.GELU_MUL, 0, op=int(Op.SILU_MUL) - int(Op.GELU_MUL)),
}  # fmt: skip
QWEN2: dict[str, Callable[[Editor], Program]] = {
    "bias of another layer": lambda e: e.with_value("L1.qkv.fold[0.0]", Op.LOAD, 1, region="layers.0.q_bias"),
    "bias of k for that of v": lambda e: e.with_value("L0.qkv.fold[2.0]", Op.LOAD, 1, region="layers.0.k_bias"),
    "last row of another slot": lambda e: e.with_value("final_norm[0].r", Op.GATHER, 0, a0=2),
    "last rows exchanged": lambda e: e.with_value("final_norm[1].scale", Op.GATHER, 0, a0=-2),
    "noise of one row": lambda e: e.with_template("greedy.local", Op.NOISE, 0, x0=-1),
}  # fmt: skip
GEMMA4: dict[str, Callable[[Editor], Program]] = {
    "another softcap": lambda e: e.with_template("logits.0.fold[0]", Op.SOFTCAP, 0, x0=1),
    "scalar of another layer": lambda e: e.with_value("L1.x_ffn.add", Op.LOAD, 3, region="layers.0.layer_scalar"),
}  # fmt: skip
WIDE: dict[str, Callable[[Editor], Program]] = {
    "halves of a head closer": lambda e: e.with_template("L1.attn.q_rope[0.0]", Op.MERGE, 0, x1=-1),
    "halves of a head further apart": lambda e: e.with_template("L1.attn.q_rope[0.0]", Op.MERGE, 0, x1=1),
    "halves of a head together": lambda e: e.with_template("L1.attn.q_rope[0.0]", Op.MERGE, 0, x1=-256),
    "a chunk of the tables for another": lambda e: e.with_value("L1.attn.q_rope[0.1]", Op.LOAD, 1, base=-4),
    "sines for cosines": lambda e: e.with_value("L1.attn.q_rope[0.0]", Op.MOVE, 1, a0=-1),
    "a part of V for another": lambda e: e.with_value("L1.attn.value[0.0]", Op.LOAD, 0, region="L1.v1"),
}  # fmt: skip
FAULTS = [(family, name, plant) for family, faults in (("gemma3", GEMMA3), ("qwen2", QWEN2), ("gemma4", GEMMA4),
                                                        ("gemma4_wide", WIDE)) for name, plant in faults.items()]  # fmt: skip


@pytest.mark.parametrize("family", KINDS)
def test_both_sides_agree(family: str) -> None:
    assert check_dataflow(editor_of(family).program, system_of(family)) == ()


@pytest.mark.parametrize(("family", "name", "plant"), FAULTS, ids=[f"{f} {n}" for f, n, _ in FAULTS])
def test_a_planted_fault_is_caught(family: str, name: str, plant: Callable[[Editor], Program]) -> None:
    wrong = plant(editor_of(family))
    found = check_dataflow(wrong, system_of(family))
    assert [v.code for v in found] == ["V141"], name


LEGAL = {"two slots' masks exchanged", "mask one block off", "K of another slot", "K appended to another slot",
         "appended at the position of another slot", "bias of another layer", "another softcap",
         "last row of another slot", "another scale of the scores"}  # fmt: skip


@pytest.mark.parametrize(
    ("family", "name", "plant"),
    [pytest.param(f, n, plant, id=f"{f} {n}") for f, n, plant in FAULTS if n in LEGAL],
)
def test_nothing_but_the_digest_sees_it(family: str, name: str, plant: Callable[[Editor], Program]) -> None:
    """These break no rule but perhaps the order of events in memory (V104), for what is read is another thing."""
    codes = set(verify(plant(editor_of(family)), system_of(family)).codes)
    assert codes <= {"V104"}, (name, codes)
