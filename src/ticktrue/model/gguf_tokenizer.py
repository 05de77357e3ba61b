"""Rebuild a tokenizer from `tokenizer.ggml.*`: byte-level BPE, or SentencePiece BPE with byte fallback (Gemma 3)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from ticktrue.errors import InputError, UnsupportedModel
from ticktrue.model.gguf_file import GgufFile
from ticktrue.model.spec import ModelSpec
from ticktrue.model.tokenizer import CODE, SPACE, Tokenizer

if TYPE_CHECKING:
    import tokenizers
    from tokenizers.normalizers import Normalizer
    from tokenizers.pre_tokenizers import PreTokenizer

# Token types of the format (llama.cpp `llama_token_type`).
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4

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
    model = file.get("tokenizer.ggml.model", str)
    if model not in {"gpt2", "llama"}:
        raise UnsupportedModel(
            f"tokenizer model {model!r} is not supported; supported: gpt2 (byte-level BPE), "
            "llama (SentencePiece BPE)",
            code="T332",
            where=where,
        )
    recipe = _recipe(file, where) if model == "gpt2" else None
    tokens, types = _vocabulary(file, spec, where)
    if recipe is not None:
        merges = [_pair(merge, where) for merge in file.strings("tokenizer.ggml.merges")]
        backend = _byte_level(recipe, tokens, merges, where)
        adds_bos = recipe.adds_bos
    else:
        backend = _sentence_piece(file, tokens, types, where)
        adds_bos = True
    _add_special(backend, tokens, types)
    if file.get("tokenizer.ggml.add_bos_token", bool, adds_bos) and spec.bos:
        _prepend(backend, tokens[spec.bos[0]], spec.bos[0])
    return Tokenizer(backend, spec.bos, spec.eos)


def _vocabulary(file: GgufFile, spec: ModelSpec, where: str) -> tuple[list[str], list[int]]:
    tokens = file.strings("tokenizer.ggml.tokens")
    types = file.integers("tokenizer.ggml.token_type")
    distinct = len(set(tokens))
    if not distinct == len(tokens) == len(types):
        raise InputError(
            f"the vocabulary must have distinct tokens, each with a type; found {len(tokens)} tokens, "
            f"{distinct} of them distinct, and {len(types)} types",
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
    return tokens, types


def _recipe(file: GgufFile, where: str) -> _Recipe:
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


def _byte_level(
    recipe: _Recipe, tokens: list[str], merges: list[tuple[str, str]], where: str
) -> "tokenizers.Tokenizer":
    import tokenizers
    from tokenizers import decoders, models

    try:
        vocabulary = {token: i for i, token in enumerate(tokens)}
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


def _sentence_piece(
    file: GgufFile, tokens: list[str], types: list[int], where: str
) -> "tokenizers.Tokenizer":
    """SentencePiece BPE: spaces become U+2581, the pair with the best score merges, the rest falls back to bytes.

    Source: google/sentencepiece `src/bpe_model.cc`; a test compares with the library itself.
    """
    import tokenizers
    from tokenizers import decoders, models, normalizers

    if file.get("tokenizer.ggml.add_space_prefix", bool, True):
        raise UnsupportedModel(
            "a SentencePiece tokenizer that puts a space before the text (add_space_prefix) is not supported",
            code="T332",
            where=where,
        )
    scores = file.numbers("tokenizer.ggml.scores")
    if len(scores) != len(tokens):
        raise InputError(f"{len(tokens)} tokens, but {len(scores)} scores", code=CODE, where=where)
    unknown = file.get("tokenizer.ggml.unknown_token_id", int, 0)
    if not 0 <= unknown < len(tokens):
        raise InputError(
            f"unknown_token_id {unknown} is past the {len(tokens)} tokens", code=CODE, where=where
        )
    absent = sorted({f"<0x{byte:02X}>" for byte in range(256)} - set(tokens))
    if absent:
        raise InputError(f"byte token {absent[0]!r} is missing", code=CODE, where=where)
    normal = {token: i for i, (token, kind) in enumerate(zip(tokens, types, strict=True)) if kind == _NORMAL}
    model = models.BPE(
        vocab={token: i for i, token in enumerate(tokens)},
        merges=_merges(normal, scores),
        unk_token=tokens[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.Replace(" ", SPACE)
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return backend


def _merges(normal: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Every way to make a token of two others, best score of the token made first, longer left part first."""
    found = [
        (-scores[number], -cut, token)
        for token, number in normal.items()
        for cut in range(1, len(token))
        if token[:cut] in normal and token[cut:] in normal
    ]
    return [(token[:-minus], token[-minus:]) for _, minus, token in sorted(found)]


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
