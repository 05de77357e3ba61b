"""The codes, their page, and how a violation reads."""

from pathlib import Path

from tests.unit.verify import programs as p

from ticktrue.verify import CODES, LIMIT, Verdict, Violation, explain, reference_page, verify

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "violations.md"


def test_the_page_is_generated_from_the_codes() -> None:
    assert PAGE.read_text() == reference_page(), "write `ticktrue.verify.reference_page()` there"


def test_every_code_is_explained() -> None:
    assert list(CODES) == sorted(CODES)
    for code, entry in CODES.items():
        text = explain(code)
        assert text.startswith(f"{code}: {entry.title}")
        assert entry.text in text
        assert entry.remedy in text


def test_a_code_that_does_not_exist_has_no_explanation() -> None:
    assert explain("V999") == ""


def test_a_violation_is_one_line() -> None:
    message = "chip 3 VXM2 is driven twice at cycle 10_412: by a ADD row 1 and by b FOLD row 2"
    v = Violation("V101", message, 3, 10_412, "a", "b", "T1")
    assert str(v) == f"V101: {message} [T1]"


def test_a_verdict_lists_its_codes_once() -> None:
    v = [Violation(code, "", 0, 0, "", "", "") for code in ("V105", "V101", "V105")]
    verdict = Verdict(tuple(v), 3, 1, 10, 4)
    assert verdict.codes == ("V101", "V105")
    assert not verdict.clean
    assert len(v) < LIMIT


def test_culprits_chip_and_cycle_are_named() -> None:
    program, system = p.good()
    (v,) = verify(p.stored(program, "pair", 3, port=0), system).violations
    assert (v.chip, v.first, v.second) == (0, "pair ADD row 2", "pair MUL row 3")
    told = f"V101: chip 0 VXM0 is driven twice at cycle {v.cycle:_}: by pair ADD row 2 and by pair MUL row 3"
    assert str(v) == f"{told} [T4.S1.B8.last.chip, chain 1 row 2]"
    (v,) = verify(p.stored(program, "pair", 1, port=0), system).violations
    assert str(v).startswith(
        f"V102: chip 0 read port 0 of bank group 0 serves two events at cycle {v.cycle:_}: by pair LOAD"
    )
