"""A bench for single chains: a small image on two chips, chains written one after another, and a look into memory afterwards."""

from dataclasses import replace

import numpy as np
from tests.unit.graph.slow import base, leaf

from ticktrue.compile.chains import At, ChainWriter
from ticktrue.hw import load_system
from ticktrue.isa import Dtype
from ticktrue.program import (
    AttentionKey,
    Image,
    ImageKey,
    Output,
    Packing,
    Plan,
    Program,
    Region,
    RegionClass,
    StepKind,
    Tensor,
    Timetable,
)
from ticktrue.program.expand import expand
from ticktrue.verify import dataflow, dataflow_memory_kernel
from ticktrue.verify.dataflow_memory import memory_of

F32, BF16 = int(Dtype.F32), int(Dtype.BF16)
HEAD_DIM, KV_HEADS, VOCAB, WIDTH, HIDDEN, ROWS = 8, 2, 5, 150, 330, 218
"""The weight `w` is [300, 218]: 150 columns per chip, K tiles of 160 and 58 rows; of the last 50 columns only 40 of the 58."""


def image(fmt="bf16", chips=2, blocks=3):
    cls, arena = RegionClass, 3000
    local = 64 * -(-blocks // chips)
    regions = (
        Region("embed", cls.WEIGHT, 0, 0, 1, VOCAB, Packing.ROWS, 0),
        Region("w", cls.WEIGHT, 0, 10, 320 + 58, 1, Packing.TILES),
        Region("g", cls.CONST, 0, 500, 4, 2, Packing.LANES, 2),
        Region("rope_a", cls.CONST, 0, 520, 1, 4, Packing.ROPE_A, -1, HEAD_DIM),
        Region("rope_b", cls.CONST, 0, 530, 1, 512, Packing.ROPE_B, -1, HEAD_DIM),
        Region("k", cls.STATE, 2, 0, 1, local, Packing.KV, -1, 0, 0),
        Region("v", cls.STATE, 3, 0, 1, local, Packing.KV, -1, 1, 0),
        Region("in", cls.INBOX, 2, 1000, 4, 8),
        Region("code", cls.CODE, 3, 1000, 1, 10),
        Region("arena.1", cls.ARENA, 1, 0, 1, arena),
    )
    tensors = (Tensor("embed", VOCAB, 300, 150), Tensor("w", 300, ROWS, WIDTH), Tensor("g", 1, HIDDEN, HIDDEN),
               Tensor("lm_head", 10, 300, 5))  # fmt: skip
    pieces = np.array(
        [[1, 0, 160, 20, WIDTH, 1, 0, 0], [1, 320, 58, 0, 100, 1, 160, 0], [1, 320, 40, 100, 50, 1, 160, 100]]
    )
    key = ImageKey(
        model="bench", spec="", weights="", system="tiny-4", facts="", fmt=fmt,
        kv="f32" if fmt == "f32" else "bf16", hypothetical=True, plan=Plan.of(chips, 1),
        max_context=64 * blocks, slots=1, t_max=4, vocab=VOCAB,
        attention=(AttentionKey(KV_HEADS, KV_HEADS, HEAD_DIM, 0, 0),), layer_kinds=(0,),
    )  # fmt: skip
    return Image(key, tensors, regions, pieces.astype(np.int32))


SCRATCH = (
    Region("s", RegionClass.SCRATCH, 1, 0, 1, 2000),
    Region("alias", RegionClass.SCRATCH, 1, 1990, 1, 100),
    Region("logits", RegionClass.SCRATCH, 1, 2200, 1, 16),
    Region("next", RegionClass.SCRATCH, 1, 2300, 1, 4),
)


class Bench:
    """Chains that follow each other; `run` evaluates them and gives a reader of memory."""

    def __init__(self, tokens=1, blocks=3, logits="last", **image_options):
        self.image = image(blocks=blocks, **image_options)
        self.kind = StepKind(tokens, 1, blocks, logits, "chip")
        self.system = load_system("tiny-4").subset(self.image.key.plan.chips)
        self.writer = ChainWriter(self.image.regions + SCRATCH, self.image.key.plan, self.system)
        self._parts = None

    def at(self, name, first=0, step=0, step2=0, **more):
        return At(self.writer.index[name], first, step, step2, **more)

    def chain(self):
        return self.writer.chain("chain")

    def timetable(self):
        templates, start, chains, rows = self.writer.tables()
        chains[:, 1] = np.arange(len(chains)) * 100_000
        rows_of = self.kind.tokens if self.kind.logits == "all" else 1
        index = self.writer.index
        outputs = (
            Output("logits", index["logits"], 0, rows_of, 1),
            Output("next_token", index["next"], 0, rows_of, 1),
        )
        return Timetable(
            self.kind, SCRATCH, templates, start, chains, rows, ("",) * len(chains), outputs, (), 0, ""
        )

    def run(self, change=None):
        """Evaluates; `change` may alter the timetable first."""
        timetable = self.timetable()
        if change is not None:
            timetable = change(timetable)
        flat = expand(self.image, timetable, self.system)
        memory = memory_of(self.image, timetable, flat.table)
        dataflow._evaluate(flat, memory)
        return Reader(self, memory)

    def parts(self):
        program = Program(self.image, (self.timetable(),))
        return dataflow.rows_parts(program, program.timetables[0], self.system)


class Reader:
    """Elements in memory after a run."""

    def __init__(self, bench, memory):
        self._bench, self.memory = bench, memory

    def __call__(self, name, vector, lanes, dtype=F32, chip=0):
        ka = 80 if dtype == F32 else 160
        out = np.zeros(lanes, np.uint64)
        where = (chip, self._bench.writer.index[name], vector)
        dataflow_memory_kernel.load(
            self.memory, where, -(-lanes // ka), dtype, 0, out, np.zeros(160, np.uint64)
        )
        return [int(x) for x in out]

    @property
    def stray(self):
        return int(self.memory.stray[0])


def g(i):
    """Element i of the norm weight `g`, the tests' source of distinct float32 elements."""
    return leaf(base("g"), i) if i < HIDDEN else 0


def with_row(timetable, row, **values):
    """The timetable with template columns of one row changed."""
    from ticktrue.program import columns as col

    templates, rows = timetable.templates.copy(), timetable.rows.copy()
    for name, value in values.items():
        if name in col.T_NAMES:
            templates[row, col.T_NAMES.index(name)] = value
        else:
            rows[row, col.V_NAMES.index(name)] = value
    return replace(timetable, templates=templates, rows=rows)
