"""config.json to ModelSpec: picks the family's reader."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import msgspec

from ticktrue.errors import InputError
from ticktrue.model.family import PLANNED, Family, check_runnable, family_of
from ticktrue.model.huggingface_fields import decode, ids
from ticktrue.model.huggingface_gemma import read_gemma3, read_gemma4
from ticktrue.model.huggingface_plain import read_llama, read_mistral, read_qwen, read_qwen_moe
from ticktrue.model.huggingface_planned import read_deepseek, read_gpt_oss
from ticktrue.model.spec import ModelSpec

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"


_READERS: Mapping[Family, Callable[[bytes | msgspec.Raw, Path], ModelSpec]] = MappingProxyType(
    {
        Family.LLAMA: read_llama,
        Family.MISTRAL: read_mistral,
        Family.QWEN2: partial(read_qwen, family=Family.QWEN2),
        Family.QWEN3: partial(read_qwen, family=Family.QWEN3),
        Family.QWEN3_MOE: read_qwen_moe,
        Family.GEMMA3: read_gemma3,
        Family.GEMMA4: read_gemma4,
        Family.GPT_OSS: read_gpt_oss,
        Family.DEEPSEEK_V3: read_deepseek,
    }
)

_NO_TEXT = msgspec.Raw(b"null")


class _Kind(msgspec.Struct, frozen=True):
    model_type: str
    text_config: msgspec.Raw = _NO_TEXT
    tie_word_embeddings: bool | None = None


class _Generation(msgspec.Struct, frozen=True):
    eos_token_id: int | list[int] | None = None


def read_config(directory: Path) -> ModelSpec:
    """The ModelSpec that a directory's config.json (and generation_config.json) describes, of a family that runs.

    Raises:
        InputError: T341 for a file that cannot be read or lacks a field, T342 for an absurd value.
        UnsupportedModel: T330 or T334 for a family, T333 for a feature, each by name.
    """
    path = directory / CONFIG
    kind = decode(_read(path), _Kind, path).model_type
    family = family_of(kind, str(path), planned=True)
    if family in PLANNED:
        check_runnable(family, str(path))
    spec = read_spec(path)
    generation = directory / GENERATION_CONFIG
    if generation.is_file():
        ends = decode(_read(generation), _Generation, generation).eos_token_id
        if ends is not None:
            spec = replace(spec, eos=ids(ends))
    return spec


def read_spec(path: Path) -> ModelSpec:
    """The ModelSpec of a config.json alone, also of a family that can be planned for and not run.

    A multimodal file is read for its text model.

    Raises:
        InputError: T341 for a file that cannot be read or lacks a field, T342 for an absurd value.
        UnsupportedModel: T330 for a family, T333 for a feature, each by name.
    """
    data: bytes | msgspec.Raw = _read(path)
    kind = decode(data, _Kind, path)
    family = family_of(kind.model_type, str(path), planned=True)
    untied = False
    if bytes(kind.text_config) != bytes(_NO_TEXT):
        data, untied = kind.text_config, kind.tie_word_embeddings is False
    spec = _READERS[family](data, path)
    return replace(spec, tied_embeddings=False) if untied else spec


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise InputError(
            f"cannot read {path.name}: {problem.strerror}",
            code="T341",
            where=str(path),
            hint="a model directory holds config.json, *.safetensors and tokenizer.json",
        ) from None
