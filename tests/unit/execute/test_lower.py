"""What lowering promises: segments that chips may run in any order, LOADs left out only while nothing changed what they read."""

from pathlib import Path

import numpy as np
import pytest
from tests.models import TINY_KV3, write_llama
from tests.stepping import Stepper

from ticktrue.errors import InputError
from ticktrue.execute import Machine
from ticktrue.execute import lower as lo
from ticktrue.isa import Op
from ticktrue.model import load_model
from ticktrue.program import StepKind, Timetable
from ticktrue.program import columns as col

KIND = StepKind(4, 2, 3, "all", "chip")
READERS = (int(Op.STORE), int(Op.SCATTER))


def _made(tmp_path: Path, chips: int = 6, fmt: str = "bf16") -> tuple[Stepper, Timetable]:
    model = load_model(str(write_llama(tmp_path / "m", 3, TINY_KV3)))
    s = Stepper.make(model.spec, model.weights(), chips, fmt, 300, slots=2)
    return s, s.timetable(KIND)


def _lowered(s: Stepper, timetable: Timetable) -> lo.Lowered:
    return lo.lower(s.image, timetable, s.system, Machine(s.image, s.weights, s.system).memory)


def test_no_chip_reads_what_another_makes_in_the_same_segment_or_lets_go_before_it_ends(
    tmp_path: Path,
) -> None:
    """Writers of a buffer that a peer reads lie in segments before the reader, and again only in segments after it."""
    lowered = _lowered(*_made(tmp_path))
    steps, bounds = lowered.steps, lowered.bounds
    segment = np.searchsorted(bounds, np.arange(len(steps)), side="right") - 1
    own = np.arange(lowered.source.shape[1])
    heard = [
        x for x in range(len(steps)) if steps[x, lo.L_OP] in READERS and (lowered.source[x] != own).any()
    ]
    assert len(heard) > 20
    assert len(bounds) > 10
    writes = [x for x in range(len(steps)) if steps[x, lo.L_OP] not in READERS and steps[x, lo.L_SO] > 0]
    floats = np.array([_events(steps[x]) * steps[x, lo.L_SO] for x in writes])
    first = steps[writes, lo.L_O]
    for x in heard:
        begin = steps[x, lo.L_A]
        end = begin + steps[x, lo.L_N] * steps[x, lo.L_M] * steps[x, lo.L_SA]
        over = np.flatnonzero((first < end) & (first + floats > begin))
        makers = [writes[i] for i in over if writes[i] < x]
        assert makers
        assert all(segment[w] != segment[x] for w in (writes[i] for i in over))


def _events(step: np.ndarray) -> int:  # type: ignore[type-arg]
    n, m, x0, op = (int(step[c]) for c in (lo.L_N, lo.L_M, lo.L_X0, lo.L_OP))
    if op in {Op.MAX, Op.FOLD, Op.MERGE, Op.LANE_SUM, Op.LANE_ARGMAX, Op.PICK, Op.TOPK, Op.ACCEPT}:
        return m
    return x0 * m if op in {Op.TRANSPOSE, Op.SPREAD} else n * m


def test_some_loads_are_left_out_and_none_across_a_store_to_their_region(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s, timetable = _made(tmp_path)
    found: dict[int, int] = {}
    flats = []
    real = lo._loaded_again

    def spy(flat: object, order: object) -> dict[int, int]:
        flats.append(flat)
        found.update(real(flat, order))  # type: ignore[arg-type]
        return found

    monkeypatch.setattr(lo, "_loaded_again", spy)
    fewer = _lowered(s, timetable)
    monkeypatch.setattr(lo, "_loaded_again", lambda _flat, _order: {})
    all_rows = _lowered(s, timetable)
    assert found
    assert len(all_rows.steps) - len(fewer.steps) == len(found)
    rows = flats[0].rows  # type: ignore[attr-defined]
    for again, before in found.items():
        assert rows[again, col.C_ABS] == rows[before, col.C_ABS]
        stores = np.isin(rows[:, col.C_OP], READERS) & (rows[:, col.C_REGION] == rows[again, col.C_REGION])
        issue = rows[stores, col.C_ISSUE]
        assert not ((issue > rows[before, col.C_ISSUE]) & (issue < rows[again, col.C_ISSUE])).any()


@pytest.mark.parametrize("threads", [2, 3, 5, 8, None])
def test_bits_do_not_depend_on_threads(tmp_path: Path, threads: int | None) -> None:
    s, timetable = _made(tmp_path)
    one, many = Machine(s.image, s.weights, s.system), Machine(s.image, s.weights, s.system, threads)
    rng = np.random.default_rng(7)
    pos = [0, 5]
    for _ in range(12):
        tokens = rng.integers(0, s.image.key.vocab, (2, 4)).tolist()
        a, b = one.batch(timetable, tokens, pos), many.batch(timetable, tokens, pos)
        assert a.logits.tobytes() == b.logits.tobytes()
        assert (a.next_token == b.next_token).all()
        assert (a.accept == b.accept).all()
        assert (one.memory.words == many.memory.words).all()
        pos = [p + 4 for p in pos]


def test_less_than_one_thread_is_refused(tmp_path: Path) -> None:
    s, _ = _made(tmp_path)
    with pytest.raises(InputError, match="expected at least 1 thread, found 0") as info:
        Machine(s.image, s.weights, s.system, 0)
    assert info.value.code == "T363"
