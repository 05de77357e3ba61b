"""Tokenizers from both kinds of file: ids, pre-tokenizers by name, streams that never cut a character."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models import BOS, EOS, TINY_KV2, tokenizer, write_gguf, write_llama

from ticktrue.errors import InputError, UnsupportedModel
from ticktrue.model import Tokenizer, load_model
from ticktrue.model.tokenizer import _PrefixStream, read_tokenizer

TEXTS = (
    "",
    "the heart of it",
    "a  12  b",
    "x = 345;\n\t y",
    "日本語 é 🙂",
    "it's 'round",
    "<|bos|>hi<|eos|>",
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_model(write_llama(tmp_path_factory.mktemp("tiny"), shape=TINY_KV2)).tokenizer()


def from_gguf(tmp_path: Path, **values: object) -> Tokenizer:
    keys = {"tokenizer__ggml__" + key: value for key, value in values.items()}
    return load_model(write_gguf(tmp_path / "m.gguf", **keys)).tokenizer()


@pytest.mark.parametrize("text", TEXTS)
def test_round_trip(tiny: Tokenizer, text: str) -> None:
    assert tiny.decode(tiny.encode(text), skip_special=False) == text


def test_special_tokens(tiny: Tokenizer) -> None:
    assert tiny.encode("<|bos|>e<|eos|>") == [BOS, tiny.id_of("e"), EOS]
    assert tiny.decode([BOS, *tiny.encode("ee"), EOS]) == "ee"
    assert (tiny.bos, tiny.eos, tiny.special) == ((BOS,), (EOS,), frozenset({BOS, EOS}))
    assert tiny.size == TINY_KV2.vocab
    assert (tiny.text_of(EOS), tiny.text_of(10**6), tiny.id_of("no such token")) == ("<|eos|>", None, None)


def test_gguf_tokenizer_equals_the_json_one(tmp_path: Path, tiny: Tokenizer) -> None:
    rebuilt = from_gguf(tmp_path, pre="gpt-2")
    for text in TEXTS:
        assert rebuilt.encode(text) == tiny.encode(text)
        assert rebuilt.decode(tiny.encode(text)) == tiny.decode(tiny.encode(text))
    assert (rebuilt.bos, rebuilt.eos, rebuilt.special, rebuilt.size) == (
        tiny.bos,
        tiny.eos,
        tiny.special,
        tiny.size,
    )


def spelled(tokenizer: Tokenizer, text: str) -> list[str]:
    return [str(tokenizer.text_of(token)) for token in tokenizer.encode(text, add_special=False)]


def pre_tokens(tmp_path: Path, pre: str, text: str) -> list[str]:
    """What the pre-tokenizer gives, spelled in the byte alphabet."""
    backend = from_gguf(tmp_path, pre=pre)._backend
    return [piece for piece, _ in backend.pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", ["Ab", "Ġ", "Ġ1234", "'s", "Ġx", "!?", "ĊĊ"]),
        ("smollm", ["Ab", "ĠĠ", "1", "2", "3", "4", "'s", "Ġx", "!?", "ĊĊ"]),
        ("llama-bpe", ["Ab", "Ġ", "Ġ", "123", "4", "'s", "Ġx", "!?ĊĊ"]),
        ("qwen2", ["Ab", "Ġ", "Ġ", "1", "2", "3", "4", "'s", "Ġx", "!?ĊĊ"]),
    ],
)
def test_pre_tokenizers_split_as_their_family_does(tmp_path: Path, pre: str, pieces: list[str]) -> None:
    assert pre_tokens(tmp_path, pre, "Ab  1234's x!?\n\n") == pieces


def test_digits_stand_apart_from_the_spaces_before_them(tmp_path: Path) -> None:
    """SmolLM's trap: "a  1" is a, two spaces, 1; GPT-2's own split is a, space, space-1."""
    assert pre_tokens(tmp_path, "smollm", "a  12") == ["a", "ĠĠ", "1", "2"]
    assert pre_tokens(tmp_path, "gpt-2", "a  12") == ["a", "Ġ", "Ġ12"]


def test_qwen2_composes_characters(tmp_path: Path) -> None:
    composed = from_gguf(tmp_path, pre="qwen2")
    assert composed.encode("e\u0301") == composed.encode("\u00e9")


def test_bos_is_added_where_the_file_says_so(tmp_path: Path) -> None:
    adding = from_gguf(tmp_path, add_bos_token=True)
    assert adding.encode("e") == [BOS, *adding.encode("e", add_special=False)]
    assert len(adding.encode("e", add_special=False)) == 1


def test_user_defined_tokens_are_kept_by_decode(tmp_path: Path) -> None:
    types = [3, 4] + [1] * (TINY_KV2.vocab - 2)
    user = from_gguf(tmp_path, token_type=types)
    assert user.special == frozenset({BOS})
    assert user.decode([BOS, EOS]) == "<|eos|>"


PIECES = [
    "<bos>",
    "<eos>",
    "<unk>",
    *(f"<0x{byte:02X}>" for byte in range(256)),
    "  ",
    "\n\n",
    "\u2581",
    *"theclo",
    "th",
]
PIECES += ["he", "the", "\u2581the", "\u2581\u2581", "hello"]


def pieces_from_gguf(tmp_path: Path, **values: object) -> Tokenizer:
    """A small SentencePiece BPE: "th" scores better than "he", so "the" is th + e; "hello" has no parts."""
    types = [3, 3, 2, *[6] * 256, 4, 4] + [1] * (len(PIECES) - 261)
    fields = {
        "model": "llama",
        "tokens": PIECES,
        "token_type": types,
        "scores": [float(-i) for i in range(len(PIECES))],
        "unknown_token_id": 2,
        "add_space_prefix": False,
    }
    return from_gguf(tmp_path, **(fields | values))


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("the", ["the"]),
        (" the", ["\u2581the"]),
        ("hethe", ["he", "the"]),
        ("the  the", ["the", "  ", "the"]),
        ("t   t", ["t", "  ", "\u2581", "t"]),
        ("e\n\n\n", ["e", "\n\n", "<0x0A>"]),
        ("hello", ["he", "l", "l", "o"]),
        ("té", ["t", "<0xC3>", "<0xA9>"]),
    ],
)
def test_sentence_piece(tmp_path: Path, text: str, pieces: list[str]) -> None:
    tokenizer = pieces_from_gguf(tmp_path)
    assert spelled(tokenizer, text) == pieces
    assert tokenizer.decode(tokenizer.encode(text, add_special=False)) == text


def test_sentence_piece_adds_bos_unless_told_otherwise(tmp_path: Path) -> None:
    assert pieces_from_gguf(tmp_path).encode("t", add_special=False) == [PIECES.index("t")]
    silent = pieces_from_gguf(tmp_path, add_bos_token=False)
    assert silent.encode("t") == [PIECES.index("t")]
    adding = pieces_from_gguf(tmp_path, add_bos_token=True)
    assert adding.encode("t") == [BOS, PIECES.index("t")]


@pytest.mark.parametrize("skip", [True, False])
@given(ids=st.lists(st.integers(0, len(PIECES) + 2) | st.integers(195, 260)))
def test_sentence_piece_stream_gives_the_whole_text(pieces: Tokenizer, skip: bool, ids: list[int]) -> None:
    stream = pieces.stream(skip_special=skip)
    text = "".join(stream.push(token) for token in ids) + stream.finish()
    assert text == pieces.decode(ids, skip_special=skip)


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return pieces_from_gguf(tmp_path_factory.mktemp("pieces"))


@pytest.mark.parametrize(
    ("values", "error", "code", "named"),
    [
        ({"add_space_prefix": True}, UnsupportedModel, "T332", "add_space_prefix"),
        ({"scores": [0.0]}, InputError, "T347", "1 scores"),
        ({"unknown_token_id": 5_000}, InputError, "T347", "unknown_token_id"),
        (
            {"tokens": ["<0xzz>" if piece == "<0x41>" else piece for piece in PIECES]},
            InputError,
            "T347",
            "<0x41>",
        ),
    ],
)
def test_sentence_piece_that_cannot_be_read(
    tmp_path: Path, values: dict[str, object], error: type[Exception], code: str, named: str
) -> None:
    with pytest.raises(error, match=named) as refusal:
        pieces_from_gguf(tmp_path, **values)
    assert refusal.value.code == code  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("key", "value"), [("pre", "tekken"), ("pre", "default"), ("model", "t5"), ("model", "bert")]
)
def test_unknown_kind_is_named(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"'{value}' is not supported") as refusal:
        from_gguf(tmp_path, **{key: value})
    assert refusal.value.code == "T332"


@pytest.mark.parametrize(
    ("values", "code", "named"),
    [
        ({"tokens": ["a", "a"], "token_type": [1, 1], "merges": ["a a"]}, "T347", "distinct"),
        ({"token_type": [1, 1]}, "T347", "2 types"),
        ({"merges": ["ab"]}, "T347", "'ab' is not two tokens"),
        ({"merges": ["zz qqq"]}, "T347", "do not fit the vocabulary"),
        (
            {"tokens": [str(i) for i in range(600)], "token_type": [1] * 600, "merges": ["1 2"]},
            "T347",
            "600 tokens",
        ),
        ({"tokens": ["a"], "token_type": [1], "merges": ["a a"]}, "T347", "special token"),
        ({"tokens": "all"}, "T341", "array of strings"),
        ({"token_type": [0.5]}, "T341", "integers"),
        ({"merges": [1]}, "T341", "strings"),
        ({"pre": 3}, "T341", "pre"),
    ],
)
def test_bad_vocabulary_is_one_clear_error(
    tmp_path: Path, values: dict[str, object], code: str, named: str
) -> None:
    with pytest.raises(InputError, match=named) as refusal:
        from_gguf(tmp_path, **values)
    assert refusal.value.code == code


@given(st.lists(st.integers(0, TINY_KV2.vocab + 3), max_size=30), st.booleans())
def test_stream_joined_is_decode(tiny: Tokenizer, ids: list[int], skip: bool) -> None:
    """Random ids: most bytes are no character, so this is about replacement and hold-back."""
    stream = tiny.stream(skip_special=skip)
    text = "".join(stream.push(token) for token in ids) + stream.finish()
    assert text == tiny.decode(ids, skip_special=skip)


@given(st.text(max_size=20))
def test_stream_gives_whole_characters_only(tiny: Tokenizer, text: str) -> None:
    stream, sent = tiny.stream(skip_special=False), ""
    for token in tiny.encode(text):
        piece = stream.push(token)
        sent += piece
        assert text.startswith(sent)
    assert sent + stream.finish() == text


def test_stream_holds_an_unfinished_character_and_lets_go_at_the_end(tiny: Tokenizer) -> None:
    smile = tiny.encode("🙂")
    assert len(smile) == 4
    stream = tiny.stream()
    assert [stream.push(token) for token in smile] == ["", "", "", "🙂"]
    stream = tiny.stream()
    assert [stream.push(token) for token in smile[:2]] == ["", ""]
    assert stream.finish() == "\N{REPLACEMENT CHARACTER}"


@given(st.text(max_size=12))
def test_prefix_stream_for_other_decoders(tiny: Tokenizer, text: str) -> None:
    stream, sent = _PrefixStream(tiny, skip_special=False), ""
    for token in tiny.encode(text):
        sent += stream.push(token)
    assert sent + stream.finish() == text


def test_stream_kind_follows_the_decoder(tmp_path: Path) -> None:
    document = tokenizer(300) | {"decoder": {"type": "Fuse"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    other = read_tokenizer(tmp_path / "tokenizer.json", (), ())
    assert isinstance(other.stream(), _PrefixStream)


def test_lone_surrogate_is_refused(tiny: Tokenizer) -> None:
    with pytest.raises(InputError, match="index 2") as refusal:
        tiny.encode("ab\ud800")
    assert refusal.value.code == "T347"


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"model": {"type": "Nope"}}'])
def test_broken_tokenizer_json_is_one_clear_error(tmp_path: Path, text: str | None) -> None:
    model = write_llama(tmp_path)
    (model / "tokenizer.json").unlink()
    if text is not None:
        (model / "tokenizer.json").write_text(text)
    with pytest.raises(InputError) as refusal:
        load_model(model).tokenizer()
    assert (refusal.value.code, refusal.value.where) == ("T347", str(model / "tokenizer.json"))
