"""Tables and timelines are plain text made from results."""

from dataclasses import replace

import pytest
from tests.unit.sim.programs import compiled

from ticktrue.errors import UsageError
from ticktrue.report import timeline, timing_table, verdict_table
from ticktrue.sim import Mismatch, assumed_constants, movers, simulate


def test_a_clean_timing_shows_times_causes_phases_and_use():
    made, system = compiled()
    timing = simulate(made, system)
    text = timing_table(timing, movers(assumed_constants(made, system, timing)))
    assert text.startswith("T1.S1.B3.last.chip on 6 chips of groq3-lpx-tray\n")
    assert f"{timing.duration_cycles:,}" in text
    for part in (
        "sim_us",
        "first-bit latency",
        "waiting: norm",
        "MXM weight load",
        "mem_read_cycles",
        "step at low",
    ):
        assert part in text
    assert "host round trip" not in text
    assert "simulated tokens/s" in text


def test_a_timing_that_is_not_clean_shows_no_number_but_the_findings():
    made, system = compiled()
    timing = replace(simulate(made, system), mismatches=(Mismatch("V130", 3, 7, 5, "chain x is late"),))
    text = timing_table(timing)
    assert "V130  chain x is late" in text
    assert "sim_us" not in text


def test_findings_are_counted_beyond_the_first():
    many = [Mismatch("V130", k, 1, 0, f"chain {k}") for k in range(30)]
    assert verdict_table([]) == "clean"
    assert verdict_table(many, most=2).splitlines()[-1] == "... and 28 more"


def test_a_timeline_has_a_line_per_unit_and_phase():
    made, system = compiled()
    text = timeline(made, system, 1, width=60)
    lines = text.splitlines()
    assert lines[0].startswith("layer 1: cycles ")
    bars = [line for line in lines[1:] if line.endswith("|")]
    assert {len(line) for line in bars} == {len(bars[0])}
    names = [line.split("|")[0].strip() for line in bars]
    for name in (
        "MXM weight load",
        "VXM",
        "C2C send",
        "qkv.tile",
        "attn.score",
        "waiting: norm",
        "down.gather",
    ):
        assert name in names
    score = next(line for line in bars if line.startswith("attn.score")).split("|")[1]
    softmax = next(line for line in bars if line.startswith("attn.softmax")).split("|")[1]
    assert "=" in score
    assert score.index("=") < softmax.index("=")


def test_a_layer_that_does_not_exist_is_refused():
    made, system = compiled()
    with pytest.raises(UsageError, match=r"T131.*\(0 to 1\), found 2"):
        timeline(made, system, 2)
