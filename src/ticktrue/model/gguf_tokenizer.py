"""Rebuild a tokenizer from `tokenizer.ggml.*`: byte-level BPE with the pre-tokenizer that the file names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from ticktrue.errors import InputError, UnsupportedModel
from ticktrue.model.gguf_file import GgufFile
from ticktrue.model.spec import ModelSpec
from ticktrue.model.tokenizer import CODE, Tokenizer

if TYPE_CHECKING:
    import tokenizers
    from tokenizers.normalizers import Normalizer
    from tokenizers.pre_tokenizers import PreTokenizer

# Token types of the format (llama.cpp `llama_token_type`).
_CONTROL, _USER_DEFINED = 3, 4

# Splits of the two families, as their own tokenizer.json spell them.
_LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_SPLIT = _LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")


@dataclass(frozen=True, slots=True)
class _Recipe:
    """What a name in `tokenizer.ggml.pre` stands for."""

    split: Callable[[], "PreTokenizer"]
    normalizer: "Callable[[], Normalizer] | None" = None
    ignore_merges: bool = False
    adds_bos: bool = False


def tokenizer_from_gguf(file: GgufFile, spec: ModelSpec) -> Tokenizer:
    """The tokenizer that a GGUF file carries.

    Raises:
        InputError: T341 or T347, for missing or inconsistent vocabulary data.
        UnsupportedModel: T332, naming the tokenizer model or the pre-tokenizer.
    """
    where = str(file.path)
    recipe = _recipe(file, where)
    tokens = file.strings("tokenizer.ggml.tokens")
    types = file.integers("tokenizer.ggml.token_type")
    merges = [_pair(merge, where) for merge in file.strings("tokenizer.ggml.merges")]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    if not len(vocabulary) == len(tokens) == len(types):
        raise InputError(
            f"the vocabulary must have distinct tokens, each with a type; found {len(tokens)} tokens, "
            f"{len(vocabulary)} of them distinct, and {len(types)} types",
            code=CODE,
            where=where,
        )
    if len(tokens) > spec.vocab:
        raise InputError(
            f"{len(tokens)} tokens for a model of vocabulary {spec.vocab}", code=CODE, where=where
        )
    for token in (*spec.bos, *spec.eos):
        if token >= len(tokens):
            raise InputError(
                f"special token {token} is past the {len(tokens)} tokens", code=CODE, where=where
            )
    backend = _backend(recipe, vocabulary, merges, where)
    _add_special(backend, tokens, types)
    if file.get("tokenizer.ggml.add_bos_token", bool, recipe.adds_bos) and spec.bos:
        _prepend(backend, tokens[spec.bos[0]], spec.bos[0])
    return Tokenizer(backend, spec.bos, spec.eos)


def _recipe(file: GgufFile, where: str) -> _Recipe:
    model = file.get("tokenizer.ggml.model", str)
    if model != "gpt2":
        raise UnsupportedModel(
            f"tokenizer model {model!r} is not supported; supported: gpt2 (byte-level BPE)",
            code="T332",
            where=where,
        )
    name = file.get("tokenizer.ggml.pre", str)
    recipes = _recipes()
    if name not in recipes:
        raise UnsupportedModel(
            f"pre-tokenizer {name!r} is not supported; supported: {', '.join(sorted(recipes))}",
            code="T332",
            where=where,
        )
    return recipes[name]


def _recipes() -> Mapping[str, _Recipe]:
    from tokenizers import Regex, normalizers
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

    def plain() -> "PreTokenizer":
        return ByteLevel(add_prefix_space=False, use_regex=True)

    def digits_apart() -> "PreTokenizer":
        return Sequence([Digits(individual_digits=True), plain()])

    def split_by(pattern: str) -> "Callable[[], PreTokenizer]":
        def made() -> "PreTokenizer":
            split = Split(Regex(pattern), behavior="isolated")
            return Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])

        return made

    return MappingProxyType(
        {
            "gpt-2": _Recipe(plain),
            "smollm": _Recipe(digits_apart),
            "llama-bpe": _Recipe(split_by(_LLAMA3_SPLIT), ignore_merges=True, adds_bos=True),
            "qwen2": _Recipe(split_by(_QWEN2_SPLIT), normalizer=normalizers.NFC),
        }
    )


def _pair(merge: str, where: str) -> tuple[str, str]:
    left, space, right = merge.partition(" ")
    if not (left and space and right):
        raise InputError(f"merge {merge!r} is not two tokens", code=CODE, where=where)
    return left, right


def _backend(
    recipe: _Recipe, vocabulary: dict[str, int], merges: list[tuple[str, str]], where: str
) -> "tokenizers.Tokenizer":
    import tokenizers
    from tokenizers import decoders, models

    try:
        model = models.BPE(vocab=vocabulary, merges=merges, ignore_merges=recipe.ignore_merges)
    except Exception as problem:  # tokenizers raises bare Exception
        raise InputError(
            f"the BPE merges do not fit the vocabulary: {problem}", code=CODE, where=where
        ) from problem
    backend = tokenizers.Tokenizer(model)
    if recipe.normalizer is not None:
        backend.normalizer = recipe.normalizer()
    backend.pre_tokenizer = recipe.split()
    backend.decoder = decoders.ByteLevel()
    return backend


def _add_special(backend: "tokenizers.Tokenizer", tokens: list[str], types: list[int]) -> None:
    from tokenizers import AddedToken

    control = [token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL]
    user = [token for token, kind in zip(tokens, types, strict=True) if kind == _USER_DEFINED]
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    backend.add_tokens([AddedToken(token, special=False, normalized=False) for token in user])


def _prepend(backend: "tokenizers.Tokenizer", token: str, number: int) -> None:
    from tokenizers.processors import TemplateProcessing

    backend.post_processor = TemplateProcessing(
        single=[token, "$A"], pair=[token, "$A", token, "$B"], special_tokens=[(token, number)]
    )
