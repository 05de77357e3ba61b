"""Words of the text form that its writer and its reader share."""

import json
from collections.abc import Sequence
from enum import IntEnum

from ticktrue.isa import Dtype, Op
from ticktrue.isa.ops import RegFn
from ticktrue.program import columns as col
from ticktrue.program.types import Region

FIRST_LINE = "ticktrue program text v1"

COLUMN_ENUMS: dict[int, type[IntEnum]] = {col.T_OP: Op, col.T_DTYPE: Dtype, col.T_REGFN: RegFn}
"""Template columns whose values have names."""

_UNLESS_SAID = {col.T_GROUP: -1, col.T_N: 1, col.T_M: 1, col.T_S0: -1, col.T_S1: -1}
COLUMN_DEFAULTS = tuple(_UNLESS_SAID.get(c, 0) for c in range(col.T_COLUMNS))
"""What a template column holds where the text does not say."""


def region_names(regions: Sequence[Region]) -> list[str]:
    """How a chain's line names each region: by name where that is one plain word and no other's, else by number."""
    count: dict[str, int] = {}
    for r in regions:
        count[r.name] = count.get(r.name, 0) + 1
    return [r.name if count[r.name] == 1 and is_plain(r.name) else f"#{i}" for i, r in enumerate(regions)]


def is_plain(text: str) -> bool:
    """Whether a name can stand in a line as it is: a letter, then letters, digits, dots and underscores."""
    return bool(text) and text.isascii() and text[0].isalpha() and all(c.isalnum() or c in "._" for c in text)


def word(text: str) -> str:
    """A text as one word of a line: as it is, or as a JSON string without spaces."""
    ok = bool(text) and text.isascii() and all(c.isalnum() or c in "._-[]" for c in text)
    return text if ok else json.dumps(text).replace(" ", "\\u0020")


def name_of(kind: type[IntEnum], value: int) -> str:
    """The name of an enumerated value, or the number where it has none."""
    return kind(value).name if value in kind._value2member_map_ else str(value)
