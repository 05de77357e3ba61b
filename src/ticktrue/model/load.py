"""From a reference (directory, .gguf file, registry name, org/name) to a model that can be run."""

import re
from pathlib import Path
from typing import Protocol

from ticktrue.errors import InputError, UnsupportedModel
from ticktrue.model.chat import ChatTemplate, read_template
from ticktrue.model.fetch import fetch
from ticktrue.model.gguf_file import GgufFile
from ticktrue.model.gguf_model import GgufNaming, read_metadata
from ticktrue.model.gguf_tokenizer import tokenizer_from_gguf
from ticktrue.model.hub import hub_directory
from ticktrue.model.huggingface import read_config
from ticktrue.model.huggingface_naming import HuggingFaceNaming
from ticktrue.model.registry import list_models, registry_model
from ticktrue.model.safetensor import open_safetensors
from ticktrue.model.spec import ModelSpec
from ticktrue.model.tensor_file import Progress
from ticktrue.model.tokenizer import Tokenizer, read_tokenizer
from ticktrue.model.weights import Weights

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_TEMPLATE_KEY = "tokenizer.chat_template"


class ModelFiles(Protocol):
    """One model on disk, whatever the format."""

    def spec(self) -> ModelSpec:
        """Shape and constants."""
        ...

    def weights(self, spec: ModelSpec) -> Weights:
        """The canonical weights, checked, not yet converted."""
        ...

    def tokenizer(self, spec: ModelSpec) -> Tokenizer:
        """The model's tokenizer."""
        ...

    def template(self) -> str | None:
        """The source of the chat template, or None."""
        ...


class HuggingFaceFiles:
    """A directory with config.json, safetensors and tokenizer.json."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def spec(self) -> ModelSpec:
        """Shape and constants, from config.json."""
        return read_config(self._path)

    def weights(self, spec: ModelSpec) -> Weights:
        """The canonical weights, checked, not yet converted."""
        file = open_safetensors(self._path)
        return Weights(spec, file, HuggingFaceNaming(spec, file.tensors), str(self._path))

    def tokenizer(self, spec: ModelSpec) -> Tokenizer:
        """The tokenizer of tokenizer.json."""
        return read_tokenizer(self._path / "tokenizer.json", spec.bos, spec.eos)

    def template(self) -> str | None:
        """The source of the chat template, or None."""
        return read_template(self._path)


class GgufFiles:
    """One .gguf file."""

    __slots__ = ("_file",)

    def __init__(self, path: Path) -> None:
        self._file = GgufFile(path)

    def spec(self) -> ModelSpec:
        """Shape and constants, from the metadata."""
        return read_metadata(self._file)

    def weights(self, spec: ModelSpec) -> Weights:
        """The canonical weights, checked, not yet converted."""
        return Weights(spec, self._file, GgufNaming(spec), str(self._file.path))

    def tokenizer(self, spec: ModelSpec) -> Tokenizer:
        """The tokenizer rebuilt from `tokenizer.ggml.*`."""
        return tokenizer_from_gguf(self._file, spec)

    def template(self) -> str | None:
        """The source of the chat template, or None."""
        return self._file.get(_TEMPLATE_KEY, str) if _TEMPLATE_KEY in self._file.metadata else None


class Model:
    """What is to be run: `spec` at once; weights, tokenizer and chat template when they are asked for."""

    __slots__ = ("_files", "_tokenizer", "_weights", "path", "spec")

    def __init__(self, path: Path, files: ModelFiles) -> None:
        self.path = path
        self.spec = files.spec()
        self._files = files
        self._weights: Weights | None = None
        self._tokenizer: Tokenizer | None = None

    def weights(self) -> Weights:
        """The canonical weights, opened and checked; each tensor is converted at its first use.

        Raises:
            InputError: T344 for a malformed file, T345 for a tensor missing or misshapen.
            UnsupportedModel: T331 for a number format, T333 for an unknown tensor.
        """
        if self._weights is None:
            self._weights = self._files.weights(self.spec)
        return self._weights

    def tokenizer(self) -> Tokenizer:
        """The model's own tokenizer.

        Raises:
            InputError: T341 or T347, for missing or malformed tokenizer data.
            UnsupportedModel: T332, for a tokenizer of an unknown kind.
        """
        if self._tokenizer is None:
            self._tokenizer = self._files.tokenizer(self.spec)
        return self._tokenizer

    def chat_template(self) -> ChatTemplate | None:
        """The model's own chat template, or None where it has none (a base model).

        Raises:
            InputError: T348, for a malformed template.
        """
        source = self._files.template()
        if source is None:
            return None
        bos, eos = (self._spelled(ids) for ids in (self.spec.bos, self.spec.eos))
        return ChatTemplate(source, bos=bos, eos=eos, where=str(self.path))

    def _spelled(self, ids: tuple[int, ...]) -> str:
        return (self.tokenizer().text_of(ids[0]) or "") if ids else ""


def load_model(ref: str | Path, *, cache: Path | None = None, progress: Progress | None = None) -> Model:
    """The model at `ref`: a Hugging Face directory, a .gguf file, a registry name or `org/name`.

    Args:
        ref: what to load.
        cache: where fetched models are kept (see `default_cache_dir`); without it nothing is fetched.
        progress: called while something is fetched.

    Raises:
        InputError: T340 for a reference that names nothing, T341-T345 for a file that cannot be used.
        UnsupportedModel: T330-T334, naming the family, type or feature.
        EnvironmentProblem: T410-T415, where fetching fails.
    """
    path = resolve(ref, cache=cache, progress=progress)
    return Model(path, HuggingFaceFiles(path) if path.is_dir() else GgufFiles(path))


def load_weights(model: Model, *, progress: Progress | None = None, workers: int = 2) -> Weights:
    """The canonical weights of `model`, every tensor read and converted."""
    weights = model.weights()
    weights.load(progress, workers)
    return weights


def resolve(ref: str | Path, *, cache: Path | None = None, progress: Progress | None = None) -> Path:
    """The local directory or .gguf file that `ref` names, fetched where it must be.

    Raises:
        InputError: T340, for a reference that names nothing.
        UnsupportedModel: T334, for a registry model that is not runnable yet.
        EnvironmentProblem: T410-T415, where fetching fails.
    """
    path, name = Path(ref), str(ref)
    if _exists(path):
        return path
    if any(name == model.name for model in list_models()):
        return _from_registry(name, cache, progress)
    if isinstance(ref, str) and _HUB_NAME.fullmatch(name) and cache is not None:
        return hub_directory(name, cache)
    known = ", ".join(model.name for model in list_models())
    raise InputError(
        f"no model at {name!r}: not a directory, not a file, not a name",
        code="T340",
        where=name,
        hint=f"names: {known}; or org/name of the Hugging Face hub",
    )


def _exists(path: Path) -> bool:
    try:
        return path.is_dir() or path.is_file()
    except OSError:  # a name too long for the file system names nothing
        return False


def _from_registry(name: str, cache: Path | None, progress: Progress | None) -> Path:
    model = registry_model(name)
    if not model.runnable:
        raise UnsupportedModel(
            f"{name} is {model.status}: its family waits for a later version", code="T334", where=name
        )
    if cache is None:
        raise InputError(f"{name} must be fetched, and no cache directory is given", code="T340", where=name)
    return fetch(name, cache, progress)  # checks the sha256 of what is there: a damaged file is never run
