"""Readable text -> program: the way back from `program.text`; an error names the line."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NoReturn

import msgspec
import numpy as np
import numpy.typing as npt

from ticktrue.errors import InputError
from ticktrue.isa import Op
from ticktrue.program import columns as col
from ticktrue.program.text_words import COLUMN_DEFAULTS, COLUMN_ENUMS, FIRST_LINE, region_names
from ticktrue.program.types import (
    Image,
    ImageKey,
    Loop,
    Output,
    Packing,
    Program,
    Region,
    RegionClass,
    StepKind,
    Tensor,
    Timetable,
)

CODE = "T354"
_COLUMN = {name: i for i, name in enumerate(col.T_NAMES)}


def from_text(text: str, where: str = "text") -> Program:
    """The program that `to_text` wrote as `text`.

    Raises:
        InputError: T354, naming the line that is not understood.
    """
    return _Reader(where).read(text)


@dataclass(slots=True)
class _Draft:
    """A timetable as its lines come."""

    kind: StepKind
    duration: int
    dataflow: str
    deskew: int
    scratch: list[Region] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    templates: list[list[int]] = field(default_factory=list)
    template_start: list[int] = field(default_factory=list)
    chains: list[tuple[int, int, int]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    regions: dict[str, int] = field(default_factory=dict)


class _Reader:
    """Reads lines in order; what a line belongs to is what came before it."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._number = 0
        self._key: dict[str, Any] = {}
        self._tensors: list[Tensor] = []
        self._regions: list[Region] = []
        self._pieces: list[list[int]] = []
        self._scales: list[tuple[int, ...]] = []
        self._drafts: list[_Draft] = []
        self._kinds: dict[str, Callable[[list[str]], None]] = {
            "key": self._take_key, "tensor": self._take_tensor, "region": self._take_region, "piece": self._take_piece,
            "kv_scale": self._take_scale,
            "timetable": self._take_timetable, "scratch": self._take_scratch, "output": self._take_output,
            "loop": self._take_loop, "template": self._take_template, "row": self._take_row, "chain": self._take_chain,
        }  # fmt: skip

    def read(self, text: str) -> Program:
        """The whole program."""
        lines = text.split("\n")
        if lines[0] != FIRST_LINE:
            self._number = 1
            self._fail(f"expected {FIRST_LINE!r}, found {lines[0][:60]!r}")
        for number, line in enumerate(lines[1:], start=2):
            self._number = number
            words = line.split()
            if words and not words[0].startswith("#"):
                self._take(words, line)
        return self._program()

    def _take(self, words: list[str], line: str) -> None:
        take = self._kinds.get(words[0])
        if take is None:
            self._fail(f"expected one of {', '.join(self._kinds)}, found {words[0][:60]!r}")
        rest = line.split(None, 2)[1:] if words[0] == "key" else words[1:]
        try:
            take(rest)
        except InputError:
            raise
        except (ValueError, KeyError, IndexError, TypeError, OverflowError, msgspec.MsgspecError) as problem:
            self._fail(
                f"a line of kind {words[0]!r} that is not understood ({type(problem).__name__}: {problem})"
            )

    def _fail(self, message: str) -> NoReturn:
        raise InputError(message, code=CODE, where=f"{self._where}, line {self._number}")

    def _draft(self) -> _Draft:
        if not self._drafts:
            self._fail("expected a timetable line before this one")
        return self._drafts[-1]

    def _in_order(self, number: str, count: int) -> None:
        if int(number) != count:
            self._fail(f"expected number {count}, found {number}")

    def _take_key(self, words: list[str]) -> None:
        self._key[words[0]] = json.loads(words[1])

    def _take_tensor(self, words: list[str]) -> None:
        self._in_order(words[0], len(self._tensors))
        p = _pairs(words[2:], ("outputs", "inputs", "shard"), ("stack",))
        self._tensors.append(Tensor(_text(words[1]), **p))

    def _take_region(self, words: list[str]) -> None:
        self._in_order(words[0], len(self._regions))
        self._regions.append(_region(words[1:]))

    def _take_scratch(self, words: list[str]) -> None:
        draft = self._draft()
        self._in_order(words[0], len(self._regions) + len(draft.scratch))
        draft.scratch.append(_region(words[1:]))
        draft.regions = {}

    def _take_piece(self, words: list[str]) -> None:
        p = _pairs(words, col.P_NAMES)
        self._pieces.append([p[n] for n in col.P_NAMES])

    def _take_scale(self, words: list[str]) -> None:
        self._in_order(words[0], len(self._scales))
        self._scales.append(tuple(int(w) for w in words[1:]))

    def _take_timetable(self, words: list[str]) -> None:
        text = dict(w.split("=", 1) for w in words)
        tokens, slots, blocks = (int(text.pop(n)) for n in ("tokens", "slots", "blocks"))
        kind = StepKind(tokens, slots, blocks, _text(text.pop("logits")), _text(text.pop("sampler")))
        duration, deskew = int(text.pop("duration")), int(text.pop("deskew"))
        self._drafts.append(_Draft(kind, duration, _text(text.pop("dataflow")), deskew))
        if text:
            self._fail(f"unknown names: {', '.join(text)}")

    def _take_output(self, words: list[str]) -> None:
        p = _pairs(words[1:], ("region", "base", "rows", "vectors"))
        self._draft().outputs.append(Output(_text(words[0]), p["region"], p["base"], p["rows"], p["vectors"]))

    def _take_loop(self, words: list[str]) -> None:
        text = dict(w.split("=", 1) for w in words)
        strides = tuple((int(a), int(b)) for a, b in (s.split(":") for s in text["strides"].split(",") if s))
        first, last, count, period = (int(text[n]) for n in ("first", "last", "count", "period"))
        self._draft().loops.append(Loop(first, last, count, period, strides))

    def _take_template(self, words: list[str]) -> None:
        draft = self._draft()
        self._in_order(words[0], len(draft.template_start))
        draft.template_start.append(len(draft.templates))

    def _take_row(self, words: list[str]) -> None:
        draft = self._draft()
        if not draft.template_start:
            self._fail("expected a template line before this one")
        self._in_order(words[0], len(draft.templates) - draft.template_start[-1])
        row = list(COLUMN_DEFAULTS)
        row[col.T_OP] = _number(words[1], Op)
        for w in words[2:]:
            name, value = w.split("=", 1)
            column = _COLUMN[name]
            row[column] = _number(value, COLUMN_ENUMS.get(column))
        draft.templates.append(row)

    def _take_chain(self, words: list[str]) -> None:
        draft = self._draft()
        if not draft.regions:
            draft.regions = {n: i for i, n in enumerate(region_names((*self._regions, *draft.scratch)))}
        self._in_order(words[0], len(draft.chains))
        colon = words.index(":", 2)
        p = _pairs(words[2:colon], ("template", "start"), optional=("late",))
        rows = [_value(w, draft.regions) for w in words[colon + 1 :]]
        starts = [*draft.template_start, len(draft.templates)]
        expected = starts[p["template"] + 1] - starts[p["template"]]
        if len(rows) != expected:
            self._fail(f"expected {expected} rows as template {p['template']} has, found {len(rows)}")
        draft.chains.append((p["template"], p["start"], p.get("late", 0)))
        draft.labels.append(_text(words[1]))
        draft.rows += rows

    def _program(self) -> Program:
        try:
            key = msgspec.convert(self._key, ImageKey)
            pieces = _array(self._pieces, np.int32, col.P_COLUMNS)
            image = Image(key, tuple(self._tensors), tuple(self._regions), pieces, tuple(self._scales))
            return Program(image, tuple(_finished(d) for d in self._drafts))
        except (msgspec.ValidationError, OverflowError) as problem:
            self._fail(str(problem))


def _finished(d: _Draft) -> Timetable:
    start = np.array([*d.template_start, len(d.templates)], dtype=np.int32)
    start.flags.writeable = False
    return Timetable(
        kind=d.kind, scratch=tuple(d.scratch), templates=_array(d.templates, np.int32, col.T_COLUMNS), template_start=start,
        chains=_array(d.chains, np.int64, 3), rows=_array(d.rows, np.int32, col.V_COLUMNS), labels=tuple(d.labels),
        outputs=tuple(d.outputs), loops=tuple(d.loops), duration=d.duration, dataflow=d.dataflow,
        deskew=d.deskew,
    )  # fmt: skip


def _array(rows: Sequence[Sequence[int]], dtype: type[np.signedinteger[Any]], width: int) -> npt.NDArray[Any]:
    array = np.array(rows, dtype=dtype).reshape(-1, width)
    array.flags.writeable = False
    return array


def _region(words: list[str]) -> Region:
    text = dict(w.split("=", 1) for w in words[2:])
    packing = Packing[text.pop("packing", "NONE")]
    p = {n: int(v) for n, v in text.items()}
    return Region(_text(words[0]), RegionClass[words[1]], packing=packing, **p)


def _pairs(words: Sequence[str], names: Sequence[str], optional: Sequence[str] = ()) -> dict[str, int]:
    found = {name: int(value) for name, value in (w.split("=", 1) for w in words)}
    wrong = [n for n in names if n not in found] + [n for n in found if n not in names and n not in optional]
    if wrong:
        raise KeyError(wrong[0])
    return found


def _number(value: str, kind: type[IntEnum] | None) -> int:
    if kind is not None and value in kind.__members__:
        return int(kind[value])
    return int(value)


def _text(value: str) -> str:
    return str(json.loads(value)) if value.startswith('"') else value


def _value(value: str, regions: dict[str, int]) -> list[int]:
    """One row of a chain: REGION+BASE/PORT[A0,A1,A2,A3]."""
    rest, _, attributes = value.partition("[")
    a = [int(x) for x in attributes.removesuffix("]").split(",")] if attributes else [0] * 4
    if len(a) != col.V_COLUMNS - col.V_A0:
        raise ValueError(value)
    rest, _, port = rest.partition("/")
    name, base = _split_base(rest)
    region = -1 if name == "-" else int(name[1:]) if name.startswith("#") else regions[name]
    return [region, base, int(port or 0), *a]


def _split_base(text: str) -> tuple[str, int]:
    at = next(_signs(text), len(text))
    return text[:at], int(text[at:] or 0)


def _signs(text: str) -> Iterator[int]:
    """Where a base begins: the first sign after the region; `-` alone stands for none, `#-7` for one that cannot be."""
    first = 2 if text.startswith("#") else 1
    return (i for i, c in enumerate(text) if i >= first and c in "+-")
