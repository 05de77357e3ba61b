"""Text to token ids and back, from a model's own files; streams never cut a character in two."""

import codecs
import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from ticktrue.errors import InputError

if TYPE_CHECKING:
    import tokenizers

CODE = "T347"

SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
"""How SentencePiece spells a space inside a token."""

# The decoder of a SentencePiece BPE without space prefix, as the library writes it down.
_PIECES = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ],
}
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


class TextStream(Protocol):
    """Ids in, text out: the pushes and `finish()` joined are what `decode` gives for all the ids."""

    def push(self, token: int) -> str:
        """The text that became certain with this token; may be empty."""
        ...

    def finish(self) -> str:
        """What is left: a replacement character for bytes that never became one."""
        ...


class Tokenizer:
    """A model's tokenizer: `encode`, `decode`, `stream`, and the ids that mean something.

    `eos` are the ids that end a generation; `special` those that `decode` leaves out.
    """

    __slots__ = ("_backend", "bos", "eos", "special")

    def __init__(
        self, backend: "tokenizers.Tokenizer", bos: tuple[int, ...] = (), eos: tuple[int, ...] = ()
    ) -> None:
        self._backend = backend
        self.bos = bos
        self.eos = eos
        added = backend.get_added_tokens_decoder()
        self.special = frozenset(token for token, content in added.items() if content.special)

    @property
    def size(self) -> int:
        """Number of entries, added ones included; a model's vocabulary may be larger (padding)."""
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """Ids of `text`; special tokens spelled out in it are recognised.

        Args:
            text: any str.
            add_special: whether the tokens that the model wants around a text (often BOS) are added; False
                for text that a chat template made.

        Raises:
            InputError: T347, for text that is not Unicode (a lone surrogate).
        """
        try:
            text.encode()
        except UnicodeEncodeError as problem:
            raise InputError(
                f"the text is not valid Unicode: a lone surrogate at index {problem.start}",
                code=CODE,
                where="text",
            ) from None
        return list(self._backend.encode(text, add_special_tokens=add_special).ids)

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Text of `ids`; bytes that form no character become U+FFFD, ids past the vocabulary nothing."""
        return str(self._backend.decode(list(ids), skip_special_tokens=skip_special))

    def stream(self, *, skip_special: bool = True) -> TextStream:
        """A new stream for one sequence of ids."""
        from tokenizers.decoders import ByteLevel

        decoder = self._backend.decoder
        if isinstance(decoder, ByteLevel):
            return _ByteStream(self, skip_special=skip_special)
        if decoder is not None and json.loads(decoder.__getstate__()) == _PIECES:
            return _PieceStream(self, skip_special=skip_special)
        return _PrefixStream(self, skip_special=skip_special)

    def text_of(self, token: int) -> str | None:
        """The vocabulary entry of a token, as the file spells it; None past the vocabulary."""
        entry: str | None = self._backend.id_to_token(token)
        return entry

    def id_of(self, entry: str) -> int | None:
        """The id of a vocabulary entry, as the file spells it; None where there is none."""
        token: int | None = self._backend.token_to_id(entry)
        return token


class _ByteStream:
    """Byte-level BPE: each token is some bytes; the decoder holds back an unfinished character."""

    __slots__ = ("_decoder", "_skip", "_tokenizer")

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool) -> None:
        self._tokenizer = tokenizer
        self._skip = tokenizer.special if skip_special else frozenset[int]()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """The text that became certain with this token; may be empty."""
        entry = self._tokenizer.text_of(token)
        if entry is None or token in self._skip:
            return ""
        return self._decoder.decode(_bytes_of(entry))

    def finish(self) -> str:
        """What is left: a replacement character for bytes that never became one."""
        return self._decoder.decode(b"", final=True)


class _PieceStream:
    """SentencePiece BPE: tokens are text or single bytes; a run of bytes is held back until it ends.

    A run that is not UTF-8 as a whole becomes one U+FFFD for each byte, as the library decodes it.
    """

    __slots__ = ("_run", "_skip", "_tokenizer")

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool) -> None:
        self._tokenizer = tokenizer
        self._skip = tokenizer.special if skip_special else frozenset[int]()
        self._run = bytearray()

    def push(self, token: int) -> str:
        """The text that became certain with this token; may be empty."""
        entry = self._tokenizer.text_of(token)
        if entry is None or token in self._skip:
            return ""
        byte = _BYTE_TOKEN.fullmatch(entry)
        if byte is not None:
            self._run.append(int(byte[1], 16))
            return ""
        return self.finish() + entry.replace(SPACE, " ")

    def finish(self) -> str:
        """The bytes that are held back, as text."""
        run, self._run = self._run, bytearray()
        try:
            return run.decode()
        except UnicodeDecodeError:
            return "\N{REPLACEMENT CHARACTER}" * len(run)


class _PrefixStream:
    """Any other decoder: decode all ids so far, give what is new and ends in a whole character."""

    __slots__ = ("_ids", "_sent", "_skip", "_tokenizer")

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special
        self._ids: list[int] = []
        self._sent = ""

    def push(self, token: int) -> str:
        """The text that became certain with this token; may be empty."""
        self._ids.append(token)
        text = self._tokenizer.decode(self._ids, skip_special=self._skip)
        if text.endswith("\N{REPLACEMENT CHARACTER}") or not text.startswith(self._sent):
            return ""
        fresh, self._sent = text[len(self._sent) :], text
        return fresh

    def finish(self) -> str:
        """What is left: a replacement character for bytes that never became one."""
        text = self._tokenizer.decode(self._ids, skip_special=self._skip)
        return text[len(self._sent) :]


def read_tokenizer(path: Path, bos: tuple[int, ...], eos: tuple[int, ...]) -> Tokenizer:
    """The tokenizer of a tokenizer.json.

    Raises:
        InputError: T347, for a missing or malformed file.
    """
    import tokenizers

    try:
        data = path.read_bytes()
    except OSError as problem:
        raise InputError(
            f"cannot read {path.name}: {problem.strerror}",
            code=CODE,
            where=str(path),
            hint="only fast tokenizers (tokenizer.json) are read",
        ) from None
    try:
        return Tokenizer(tokenizers.Tokenizer.from_buffer(data), bos, eos)
    except Exception as problem:  # tokenizers raises bare Exception
        raise InputError(f"{path.name} is not valid: {problem}", code=CODE, where=str(path)) from problem


@cache
def _alphabet() -> MappingProxyType[str, int]:
    """Character to byte of GPT-2's byte-level BPE: printable Latin-1 as itself, the rest from U+0100 up.

    Source: `bytes_to_unicode` in openai/gpt-2 `encoder.py`.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
    return MappingProxyType(table)


def _bytes_of(entry: str) -> bytes:
    """Bytes of a vocabulary entry; one not spelled in the byte alphabet (an added token) is plain text."""
    table = _alphabet()
    try:
        return bytes(table[character] for character in entry)
    except KeyError:
        return entry.encode()
