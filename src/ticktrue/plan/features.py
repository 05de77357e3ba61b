"""What the fields of a config.json ask of a machine: the table of `features.toml`, and the state of one field."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files

import msgspec

_NOTHING: tuple[object, ...] = (None, False, 0, "", [], {})
_SHOWN = 48


class State(StrEnum):
    """Whether something runs; `planned`: its shape is counted, its arithmetic does not run."""

    COVERED = "covered"
    PLANNED = "planned"
    NOT_COVERED = "not covered"
    UNKNOWN = "unknown"
    NO_EFFECT = "no effect"


@dataclass(frozen=True, slots=True)
class Finding:
    """One field or operator of a model, what it is, and the place where it would matter.

    `beside`: what it asks for lies beside the text model (images, sound), whose results are the same without it.
    """

    name: str
    value: str
    state: State
    what: str
    where: str
    beside: bool = False


class Field(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Some fields of one meaning, as in `features.toml`; `falsy`: false says something too, and is not covered.

    `beside`: as in `Finding`.
    """

    names: list[str]
    what: str
    where: str
    state: State
    values: dict[str, State] = {}
    families: dict[str, State] = {}
    off: list[int | float | str] = []
    falsy: bool = False
    beside: bool = False


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    field: list[Field]


def feature_table() -> Mapping[str, Field]:
    """The entry of every field that is known, by its name."""
    data = files("ticktrue.plan").joinpath("features.toml").read_bytes()
    fields = msgspec.toml.decode(data, type=_Table).field
    return {name: field for field in fields for name in field.names}


def field_finding(name: str, value: object, family: str, table: Mapping[str, Field]) -> Finding | None:
    """What a field asks for; None where its value says nothing."""
    field = table.get(name.rsplit(".", 1)[-1])
    if field is None:
        if any(value == nothing for nothing in _NOTHING):
            return None
        return Finding(name, shown(value), State.UNKNOWN, "a field that is not known here",
                       "ask the model's own code what it does")  # fmt: skip
    says_nothing = any(value == nothing for nothing in _NOTHING) and not field.falsy
    if says_nothing or value in field.off:
        return None
    state = field.families.get(family, field.state)
    if isinstance(value, str):
        state = field.values.get(value, state)
    if field.falsy and value is False:
        state = State.NOT_COVERED
    return Finding(name, shown(value), state, field.what, field.where, field.beside)


def shown(value: object) -> str:
    """A value in a few characters."""
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
