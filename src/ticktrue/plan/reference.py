"""From what a user names (a shipped shape, a config.json, a directory, a .gguf file, a registry name) to a shape; no weights."""

from pathlib import Path

from ticktrue.errors import InputError
from ticktrue.model.count import known_shapes, known_spec
from ticktrue.model.fetch import cached
from ticktrue.model.huggingface import CONFIG, read_spec
from ticktrue.model.load import load_model
from ticktrue.model.registry import list_models
from ticktrue.model.spec import ModelSpec


def find_spec(ref: str, cache: Path | None = None) -> ModelSpec:
    """The shape that `ref` names; the model need not be one that runs, and nothing is fetched.

    Raises:
        InputError: T340 for a reference that names nothing or is not in the cache yet, T341 and T342 for a file that cannot
            be used.
        UnsupportedModel: T330 for a family, T333 for a feature, each by name.
    """
    path = find_config(ref)
    if path is not None:
        return read_spec(path)
    if ref in known_shapes():
        return known_spec(ref)
    return load_model(_model_file(ref, cache)).spec


def find_config(ref: str) -> Path | None:
    """The config.json that `ref` names: the file itself, or the one in a directory; None where it names something else."""
    path = Path(ref)
    try:
        if path.is_dir():
            return path / CONFIG
        return path if path.is_file() and path.suffix == ".json" else None
    except OSError:  # a name too long for the file system names nothing
        return None


def _model_file(ref: str, cache: Path | None) -> Path:
    """A .gguf file, or that of a registry model which is in the cache."""
    path = Path(ref)
    if path.suffix == ".gguf" and path.is_file():
        return path
    for model in list_models():
        if model.name == ref:
            found = cached(model, cache) if cache is not None else None
            if found is not None:
                return found
            raise InputError(
                f"{ref} is not in the cache yet", code="T340", where=ref, hint=f"`ticktrue model fetch {ref}`"
            )
    raise InputError(
        f"no model or shape at {ref!r}: not a config.json, not a directory, not a .gguf file, not a name", code="T340", where=ref,
        hint=f"shapes: {', '.join(known_shapes())}; models: {', '.join(m.name for m in list_models())}",
    )  # fmt: skip
