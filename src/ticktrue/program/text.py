"""Program <-> readable text: one line per region, piece, template row and chain; the text gives the program back exactly.

A line is a word, then values: `name=value` pairs, the usual values left out (zero; n=1, m=1; no group, no operand). A chain names
the region, base, port and attributes of each of its rows as `REGION+BASE/PORT[A0,A1,A2,A3]`, again without what is zero. Blank
lines and lines that begin with `#` mean nothing.
"""

import json
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from ticktrue.errors import InputError
from ticktrue.isa import Op
from ticktrue.program import columns as col
from ticktrue.program.codec import timetable_digest
from ticktrue.program.text_reader import from_text
from ticktrue.program.text_words import COLUMN_DEFAULTS, COLUMN_ENUMS, FIRST_LINE, name_of, region_names, word
from ticktrue.program.types import Image, Packing, Program, Region, Timetable

__all__ = ["FIRST_LINE", "from_text", "to_text"]


def to_text(program: Program) -> str:
    """The program as text; equal programs give equal text.

    Raises:
        InputError: T355 for tables so inconsistent that rows cannot be told apart (`ticktrue verify` says how).
    """
    return "\n".join(_lines(program)) + "\n"


def _lines(program: Program) -> Iterator[str]:
    yield FIRST_LINE
    yield from _image(program.image)
    for timetable in program.timetables:
        yield ""
        yield from _timetable(program.image, timetable)


def _image(image: Image) -> Iterator[str]:
    key = msgspec.to_builtins(image.key)
    for name in sorted(key):
        yield f"key {name} {json.dumps(key[name], sort_keys=True)}"
    yield ""
    for i, t in enumerate(image.tensors):
        stack = f" stack={t.stack}" if t.stack != 1 else ""
        yield f"tensor {i} {word(t.name)} outputs={t.outputs} inputs={t.inputs} shard={t.shard}{stack}"
    yield ""
    for i, r in enumerate(image.regions):
        yield f"region {i} {_region(r)}"
    for i, scales in enumerate(image.kv_scales):
        yield f"kv_scale {i} " + " ".join(map(str, scales))
    yield ""
    for row in image.pieces.tolist():
        yield "piece " + " ".join(f"{n}={v}" for n, v in zip(col.P_NAMES, row, strict=True))


def _region(r: Region) -> str:
    text = f"{word(r.name)} {r.cls.name} group={r.group} base={r.base} stride={r.stride} count={r.count}"
    if r.packing != Packing.NONE:
        text += f" packing={r.packing.name}"
    return text + "".join(
        f" {n}={v}" for n, v, no in (("tensor", r.tensor, -1), ("p0", r.p0, 0), ("p1", r.p1, 0)) if v != no
    )


def _timetable(image: Image, t: Timetable) -> Iterator[str]:
    k = t.kind
    yield (f"timetable tokens={k.tokens} slots={k.slots} blocks={k.blocks} logits={word(k.logits)} sampler={word(k.sampler)} "
           f"duration={t.duration} deskew={t.deskew} dataflow={word(t.dataflow)}")  # fmt: skip
    yield f"# {k.label()} sha256 {timetable_digest(t)}"
    for i, r in enumerate(t.scratch):
        yield f"scratch {len(image.regions) + i} {_region(r)}"
    for o in t.outputs:
        yield f"output {word(o.name)} region={o.region} base={o.base} rows={o.rows} vectors={o.vectors}"
    for loop in t.loops:
        strides = ",".join(f"{a}:{b}" for a, b in loop.strides)
        yield f"loop first={loop.first} last={loop.last} count={loop.count} period={loop.period} strides={strides}"
    yield from _templates(t)
    yield from _chains(t, region_names((*image.regions, *t.scratch)))


def _templates(t: Timetable) -> Iterator[str]:
    start = t.template_start.astype(np.int64)
    if len(start) == 0 or start[0] != 0 or start[-1] != len(t.templates) or (np.diff(start) < 0).any():
        raise _inconsistent(t, "template_start does not divide the template rows")
    table = t.templates.tolist()
    for k in range(len(start) - 1):
        yield f"template {k}"
        for i, row in enumerate(table[start[k] : start[k + 1]]):
            yield f"  row {i} {_row(row)}"


def _row(row: Sequence[int]) -> str:
    words = [name_of(Op, row[col.T_OP])]
    for c, value in enumerate(row):
        if c != col.T_OP and value != COLUMN_DEFAULTS[c]:
            kind = COLUMN_ENUMS.get(c)
            words.append(f"{col.T_NAMES[c]}={name_of(kind, value) if kind else value}")
    return " ".join(words)


def _chains(t: Timetable, names: Sequence[str]) -> Iterator[str]:
    size = np.diff(t.template_start.astype(np.int64))
    template = t.chains[:, 0]
    if len(t.labels) != len(t.chains):
        raise _inconsistent(t, f"{len(t.labels)} labels for {len(t.chains)} chains")
    if len(template) and (template.min() < 0 or template.max() >= len(size)):
        raise _inconsistent(t, "a chain names a template that does not exist")
    rows = np.concatenate([[0], np.cumsum(size[template])])
    if rows[-1] != len(t.rows):
        raise _inconsistent(t, f"{len(t.rows)} rows for chains of {rows[-1]} rows")
    values, at = t.rows.tolist(), rows.tolist()
    for c, (k, start, late) in enumerate(t.chains.tolist()):
        own = " ".join(_value(v, names) for v in values[at[c] : at[c + 1]])
        tail = f" late={late}" if late else ""
        yield f"chain {c} {word(t.labels[c])} template={k} start={start}{tail} : {own}".rstrip()


def _value(v: Sequence[int], names: Sequence[str]) -> str:
    region, base, port = v[col.V_REGION], v[col.V_BASE], v[col.V_PORT]
    text = "-" if region == -1 else names[region] if 0 <= region < len(names) else f"#{region}"
    text += f"{base:+d}" if base else ""
    text += f"/{port}" if port else ""
    attributes = v[col.V_A0 :]
    return text + (f"[{','.join(map(str, attributes))}]" if any(attributes) else "")


def _inconsistent(t: Timetable, message: str) -> InputError:
    return InputError(f"the program cannot be written as text: {message}", code="T355", where=t.kind.label(),
                      hint="`ticktrue verify FILE` says what is wrong with it")  # fmt: skip
