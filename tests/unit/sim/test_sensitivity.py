"""Re-timing with another constant agrees with a program compiled for it, and says where it cannot know."""

import pytest
from tests.unit.sim.programs import compiled, compiled_on

from ticktrue.hw import load_system
from ticktrue.sim import assumed_constants, movers, simulate

LATENCIES = ("mem_read_cycles", "mem_write_cycles", "mxm_pass_cycles", "mxm_install_cycles", "vxm_func_cycles",
             "sxm_transpose_cycles", "lane_reduce_cycles", "c2c_guard_cycles", "mxm_weight_load_bytes_per_cycle",
             "c2c_frame_bytes", "epoch_cycles", "step_gap_cycles")  # fmt: skip


@pytest.fixture(scope="module")
def constants():
    made, system = compiled()
    timing = simulate(made, system)
    return made, system, timing, {a.name: a for a in assumed_constants(made, system, timing)}


def test_every_assumed_fact_with_a_range_is_there(constants):
    _, system, timing, found = constants
    expected = {f.name for _, f in system.facts() if f.grade == "assumed" and f.low != f.high}
    assert set(found) == expected
    assert all(a.cycles_best == timing.interval_cycles for a in found.values())


@pytest.mark.parametrize("name", LATENCIES)
def test_re_timing_agrees_with_compiling_again(constants, name):
    """Within 1 %: the scheduler may order ports otherwise for another machine."""
    _, system, _, found = constants
    for value, cycles in (
        (found[name].low, found[name].cycles_low),
        (found[name].high, found[name].cycles_high),
    ):
        other = system.with_fact(name, int(value))
        assert cycles == pytest.approx(simulate(compiled_on(other), other).interval_cycles, rel=0.01)


def test_what_has_no_effect_does_not_move_the_time(constants):
    _, _, timing, found = constants
    for name in ("code_bytes_per_row", "drift_ppm", "c2c_fifo_vectors"):
        assert (found[name].cycles_low, found[name].cycles_high) == (timing.interval_cycles,) * 2
        assert found[name].moves_ratio == 0


def test_more_of_a_thing_is_a_bound_and_fewer_groups_are_unknown(constants):
    _, _, timing, found = constants
    assert found["mem_groups"].cycles_low is None
    for name in ("mem_groups", "vxm_ports", "streams", "mxm_double_buffer"):
        assert found[name].bound
        assert found[name].cycles_high <= timing.interval_cycles
    assert found["mem_narrow_read_ports"].cycles_low >= timing.interval_cycles


def test_the_largest_come_first_and_small_ones_are_left_out(constants):
    made, system, timing, found = constants
    ratios = [a.moves_ratio for a in assumed_constants(made, system, timing)]
    assert ratios == sorted(ratios, reverse=True)
    named = movers(tuple(found.values()))
    assert {a.name for a in named} == {n for n, a in found.items() if a.moves_ratio > 0.02}
    assert "mem_read_cycles" in {a.name for a in named}


def test_a_late_chain_and_several_tokens_are_re_timed():
    made, system = compiled(tokens=4, chips=2)
    timing = simulate(made, system)
    by_name = {a.name: a for a in assumed_constants(made, system, timing)}
    assert (
        by_name["mxm_pass_cycles"].cycles_low
        < timing.interval_cycles
        < by_name["mxm_pass_cycles"].cycles_high
    )


def test_a_queue_that_would_overflow_needs_another_timetable():
    """With jitter 30, D = 30 + 8 + 16 = 54 cycles: ceil(54 / 7) + 1 = 9 of 64 vectors wait. A FIFO of 16 holds them, one of 8,
    its low, does not; a longer hold brings no more than fit."""
    jittery = load_system("tiny-16").subset(6).with_fact("c2c_jitter_cycles", 30)
    made = compiled_on(jittery, tokens=64)
    timing = simulate(made, jittery)
    assert timing.clean
    found = {a.name: a for a in assumed_constants(made, jittery, timing)}
    assert found["c2c_fifo_vectors"].cycles_low is None
    assert found["c2c_fifo_vectors"].cycles_high == timing.interval_cycles
    assert found["deskew_hold_cycles"].cycles_high is not None
