"""`ticktrue run` with sampling flags: the same text on any number of chips, a record that replays, one error per bad value."""

import msgspec
import pytest

from ticktrue.cli.documents import RunDocument

BASE = ("run", "abc", "--raw", "--max-tokens", "6")


def run(cli, model, *flags, chips="2"):
    ran = cli(*BASE, "--chips", chips, "--model", model, "--json", *flags)
    assert ran.status == 0, ran.err
    return msgspec.json.decode(ran.out, type=RunDocument)


def test_the_same_seed_gives_the_same_text_on_any_number_of_chips(cli, model):
    flags = ("--temperature", "1.5", "--seed", "12345678901234567890")
    first = run(cli, model, *flags)
    assert first.sampling.sampler == "chip"
    assert (first.sampling.temperature, first.sampling.seed) == (1.5, 12345678901234567890)
    assert all(".chip" in p.kind for p in first.proofs)
    assert {run(cli, model, *flags, chips=n).token_ids for n in ("1", "3")} == {first.token_ids}
    assert run(cli, model, "--temperature", "1.5", "--seed", "2").token_ids != first.token_ids
    assert run(cli, model).token_ids != first.token_ids
    assert run(cli, model, "--temperature", "0", "--seed", "9").token_ids == run(cli, model).token_ids


def test_temperature_does_not_change_the_program(cli, model):
    greedy = run(cli, model)
    drawn = run(cli, model, "--temperature", "0.8")
    assert greedy.program_sha256 == drawn.program_sha256
    assert greedy.sim_prefill_cycles == drawn.sim_prefill_cycles


@pytest.mark.parametrize(
    "flags",
    [
        ("--temperature", "1.5", "--top-p", "0.9"),
        ("--temperature", "1.5", "--top-k", "20"),
        ("--temperature", "1.5", "--min-p", "0.05"),
        ("--repetition-penalty", "1.3"),
        ("--presence-penalty", "0.5", "--frequency-penalty", "0.5"),
    ],
    ids=" ".join,
)
def test_everything_else_is_chosen_on_the_host_and_can_be_replayed(cli, model, flags):
    first = run(cli, model, *flags)
    assert first.sampling.sampler == "host"
    assert any(p.kind.endswith(".host") for p in first.proofs)
    assert all(p.rules_clean and p.dataflow_equal for p in first.proofs)
    again = msgspec.to_builtins(first.sampling)
    names = [k for k in again if k not in {"sampler", "choice", "logprobs"}]
    replay = [word for name in names for word in (f"--{name.replace('_', '-')}", str(again[name]))]
    assert run(cli, model, *replay, chips="1").token_ids == first.token_ids
    if first.decode is not None:
        assert first.decode.sim_host_cycles > 0
        assert first.decode.sim_interval_cycles > first.decode.sim_cycles + first.decode.sim_host_cycles


def test_the_host_and_the_chips_draw_the_same_and_logprobs_are_told(cli, model):
    flags = ("--temperature", "1.2", "--seed", "4")
    plain, told = run(cli, model, *flags), run(cli, model, *flags, "--logprobs", "2")
    assert plain.token_ids == told.token_ids
    assert plain.logprobs is None
    assert told.logprobs is not None
    assert [t.chosen.token_id for t in told.logprobs] == list(told.token_ids)
    for token in told.logprobs:
        assert len(token.top) == 2
        assert token.chosen.logprob <= token.top[0].logprob <= 0


def test_lines_say_what_was_used(cli, model):
    flags = ("--chips", "2", "--model", model)
    assert "sampling   greedy; chosen on the chips" in cli(*BASE, *flags).out
    out = cli(*BASE, *flags, "--temperature", "1.5").out
    assert "sampling   --temperature 1.5 --seed 0; chosen on the chips" in out
    out = cli(*BASE, *flags, "--temperature", "1.5", "--seed", "4", "--top-p", "0.5", "--logprobs", "1").out
    assert "sampling   --temperature 1.5 --seed 4 --top-p 0.5 --logprobs 1; chosen on the host" in out
    assert "for the host, which chooses the token: an assumed constant" in out
    assert "\nlogprobs " in out


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--temperature", "-1", "expected 0 or 0.0009765625 to 1024, found -1.0"),
        ("--temperature", "hot", "expected a number, found 'hot'"),
        ("--temperature", "nan", "expected 0 or 0.0009765625 to 1024, found nan"),
        ("--seed", "-1", "expected a whole number of 0 to 18446744073709551615, found -1"),
        ("--seed", "1.5", "expected a whole number, found '1.5'"),
        ("--top-p", "0", "expected more than 0, up to 1, found 0.0"),
        ("--top-k", "-1", "found -1"),
        ("--min-p", "2", "expected 0 to 1, found 2.0"),
        ("--repetition-penalty", "0", "found 0.0"),
        ("--presence-penalty", "101", "expected -100 to 100, found 101.0"),
        ("--frequency-penalty", "-101", "expected -100 to 100, found -101.0"),
        ("--logprobs", "21", "expected 0 to 20, found 21"),
    ],
)
def test_a_value_out_of_range_is_one_clear_error(cli, model, flag, value, expected):
    ran = cli(*BASE, "--model", model, flag, value)
    assert ran.status == 2
    assert ran.err.startswith("T103: ")
    assert expected in ran.err
    assert flag in ran.err
    assert ran.out == ""
