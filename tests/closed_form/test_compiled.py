"""Cycle counts derived by hand from the Facts of the tiny chip equal the replay exactly, on compiled programs.

The model has one layer, one head of 64, hidden and FFN size 64 and a vocabulary of 64, so that each product is one tile of one
record, and every phase waits for the one before it: the step is a sum. Every number is a Fact of hw/catalog/chip/tiny.toml.
"""

from dataclasses import replace
from functools import cache

import pytest
from tests.models import SPEC

from ticktrue.compile import Options, assemble, compile_image, compile_timetable
from ticktrue.hw import load_system
from ticktrue.program import StepKind
from ticktrue.sim import bucket_of, masked_cycles, simulate

ONE = replace(SPEC, name="one", layers=1, hidden=64, heads=1, kv_heads=1, head_dim=64, ffn=64, vocab=64)
BLOCK = 64


@cache
def compiled(chips, blocks, max_context):
    system = load_system("tiny-4").subset(chips)
    image = compile_image(ONE, system, Options("bf16", max_context))
    kinds = [StepKind(1, 1, b, "last", "chip") for b in blocks]
    return assemble(image, [compile_timetable(ONE, system, image, k) for k in kinds]), system


class Facts:
    """Facts of the tiny chip under short names, and what the phases of a step take by them."""

    def __init__(self):
        system = load_system("tiny-4")
        f = system.chip.value
        self.read, self.write, self.extra = (
            f("mem_read_cycles"),
            f("mem_write_cycles"),
            f("gather_extra_cycles"),
        )
        self.install, self.passed = f("mxm_install_cycles"), f("mxm_pass_cycles")
        self.map, self.func, self.fold = f("vxm_map_cycles"), f("vxm_func_cycles"), f("vxm_reduce_cycles")
        self.noise = f("vxm_noise_cycles")
        self.combine, self.rope, self.tree = (
            f("vxm_combine_cycles"),
            f("rope_cycles"),
            f("lane_reduce_cycles"),
        )
        self.move, self.turn, self.spread = (
            f("sxm_move_cycles"),
            f("sxm_transpose_cycles"),
            f("sxm_spread_cycles"),
        )
        link = system.link(0, 1)
        self.link, self.slot, self.guard = link.latency_cycles, link.slot_cycles, f("c2c_guard_cycles")
        self.ports, self.weight_bytes = f("mem_write_ports"), f("mxm_weight_load_bytes_per_cycle")
        self.store = 1 + self.write  # the store's own cycle, then it can be read

    def exchanged(self, chips):
        """A shard to everybody: read, store; from others also the link, and the last peer's turn at the write ports."""
        away = self.link + self.guard + (chips - 2) // self.ports if chips > 1 else 0
        return self.read + away + self.store

    def merged(self, chips):
        """A read of one vector from each chip, put together by moves."""
        return self.read + (chips - 1) + self.move

    def norm(self, extra=0):
        """read, square, tree, rsqrt, store; then read, broadcast, two products, rounding, store."""
        r = self.read + extra + self.map + self.tree + self.func + self.store
        return r + self.read + self.spread + 3 * self.map + self.store

    def tile(self, pieces=1):
        """The weights are installed before x comes: read x, pass, move, store; one more cycle for each further piece."""
        return self.read + self.passed + self.move + self.store + pieces - 1

    def product(self, chips):
        """A product into the residual: tile, fold and rounding, exchange, merge and addition."""
        fold = self.read + self.fold + self.map + self.store
        return self.tile() + fold + self.exchanged(chips) + self.merged(chips) + self.map + self.store

    def attention(self, chips):
        """Score, softmax, values of one block; then the exchange of partials and a tree of combines over the chips; o / l."""
        plane = self.read + self.turn + BLOCK + self.install
        score = plane + BLOCK - 1 + self.passed + 2 * self.map + self.fold + self.store
        softmax = self.read + self.func + self.map + BLOCK - 1 + self.turn + self.store
        values = self.read + self.passed + 2 * self.move + self.store
        levels = [2**k for k in range(chips.bit_length() - 1)]
        across = sum(self.read + self.combine + self.store + n - 1 for n in levels)
        across += self.exchanged(chips) if chips > 1 else 0
        divide = self.read + self.func + self.map + self.store
        return score + softmax + values + across + divide + self.merged(1) + self.store


@pytest.mark.parametrize(("chips", "cycles"), [(1, 852), (4, 1127)])
def test_a_whole_tiny_layer(chips, cycles):
    """One step, context of one block. On 1 chip, every phase in turn (numbers in cycles):

    embed: gather read 9, store and write 4; merge: read 5, move 4, store 4                          13 + 13 =  26
    norm: 5 + 2 + 12 + 6 + 4, then 5 + 5 + 2 + 2 + 2 + 4                                             29 + 20 =  49
    q, k, v (q is the first of three pieces): 5 + 11 + 4 + 4; fold 5 + 3 + 4; to itself 5 + 4    24 + 12 + 9 =  45
    rotate q: read 5, merge 4, rope 8, rounding 2, store 4                                                      23
    score: read 5, transpose 9, 64 rows, install 7; 63 further keys, pass 11, scale 2, mask 2, fold 3, store 4 170
    softmax: read 5, exp 6, rounding 2, 63 further positions, transpose 9, store 4                              89
    values: read 5, pass 11, move 4, insert 4, store 4                                                          28
    divide: 5 + 6 + 2 + 4; heads side by side: 5 + 4 + 4                                             17 + 13 =  30
    o: 24; fold and rounding 5 + 3 + 2 + 4; 9; merge and add 5 + 4 + 2 + 4                  24 + 14 + 9 + 15 =  62
    norm                                                                                                        49
    gate and up (two pieces): 25; silu 5 + 3 + 6 + 2 + 4; 9; merge 13                       25 + 20 + 9 + 13 =  67
    down, as o                                                                                                  62
    last norm: its x is gathered by a register, 4 more                                                          53
    logits: 24; fold 5 + 3 + 4                                                                                  36
    choice: read 5, noise 21, tree 12, store 4; 9; pick 5 + 3 + 4                              42 + 9 + 12 =    63
                                                                                                               ---
                                                                                                               852
    On 4 chips seven exchanges take 28 more for the link (20) and guard (8) and 1 because three peers share two write
    ports; six reads of what was gathered bring 4 vectors, 3 more each; the partials' own exchange 38 and two combines
    23 + 22 come on top: 852 + 6 * 29 + 6 * 3 + 38 + 45 = 1,127.
    """
    f = Facts()
    gathered_read = f.read + f.extra
    embed = f.exchanged(chips) + f.extra + f.merged(chips) + f.store
    query = f.tile() + f.read + f.fold + f.store + f.exchanged(chips)
    query += f.merged(chips) + f.rope + f.map + f.store
    gate = f.read + f.fold + f.func + f.map + f.store
    ffn = f.tile(2) + gate + f.exchanged(chips) + f.merged(chips) + f.store
    logits = f.tile() + f.read + f.fold + f.store
    greedy = (
        f.read + f.noise + f.tree + f.store + f.exchanged(chips) + f.read + (chips - 1) + f.fold + f.store
    )
    total = embed + f.norm() + query + f.attention(chips) + f.product(chips)
    total += f.norm() + ffn + f.product(chips) + f.norm(f.extra) + logits + greedy
    assert gathered_read == 9
    assert total == cycles
    program, system = compiled(chips, (1,), 64)
    timing = simulate(program, system)
    assert timing.mismatches == ()
    assert timing.recomputed_cycles == timing.duration_cycles == total
    assert timing.unbound_cycles == total
    assert not [s.name for s in timing.causes if s.name.startswith("waiting")]


def test_a_bucket_edge():
    """From the bucket of 8 blocks to the next, of 10, on one chip: two blocks more in the score loop, 64 each; two in the softmax
    loop, 64 each; two in the value loop, each a tile of 64 vectors through the weight-load port 8, install 7, one pass 1 = 16;
    and one more level of the combine tree, of two records: read 5, combine 13, one further record, store and write 4 = 23.
    128 + 128 + 32 + 23 = 311. At 513 positions, 9 blocks, the tenth is masked: 64 cycles of keys and 8 of values."""
    f = Facts()
    hold = 64 * 320 // f.weight_bytes
    edge = 2 * BLOCK + 2 * BLOCK + 2 * (hold + f.install + 1) + f.read + f.combine + 1 + f.store
    assert edge == 311
    program, system = compiled(1, (8, 10), 640)
    small, large = bucket_of(program, 512), bucket_of(program, 513)
    assert (small.kind.blocks, large.kind.blocks) == (8, 10)
    assert bucket_of(program, 641) is None
    durations = [simulate(program, system, t.kind).duration_cycles for t in (small, large)]
    assert durations[1] - durations[0] == edge
    assert masked_cycles(program, system, 513, large) == BLOCK + hold
    assert masked_cycles(program, system, 512, small) == 0
    assert masked_cycles(program, system, 1, large) == 9 * (BLOCK + hold)
