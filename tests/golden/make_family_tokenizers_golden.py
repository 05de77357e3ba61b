"""Makes tokenizer_gemma3.json and tokenizer_qwen2.json: ids of the strings of tokenizer_smollm2.json, by references not ours.

    python tests/golden/make_family_tokenizers_golden.py gemma-3-270m-q4_k_m.gguf qwen2.5-coder-0.5b-instruct-q4_k_m.gguf

Needs gguf, regex, sentencepiece, protobuf, and for Qwen also transformers and torch. The references:

1. Gemma 3: the SentencePiece library on a model file put together from the GGUF's tokens, scores and types.
2. Qwen2.5: byte-level BPE written out in plain Python over `regex`, on which `transformers.AutoTokenizer` from the same GGUF
   must agree, string by string. Its converter leaves out the normalizer of Qwen's own tokenizer.json (NFC), so it gets
   text that is NFC already.
"""

import json
import sys
import unicodedata
from itertools import pairwise
from pathlib import Path

import gguf
import regex

HOME = Path(__file__).parent
QWEN_SPLIT = regex.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# GGUF token types and those of a SentencePiece model have the same numbers.
UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4


def field(reader: gguf.GGUFReader, key: str) -> list:
    return reader.get_field(f"tokenizer.ggml.{key}").contents()


def gemma(path: str, texts: list[str]) -> list[list[int]]:
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as pb

    reader = gguf.GGUFReader(path)
    model = pb.ModelProto()
    model.trainer_spec.model_type = pb.TrainerSpec.BPE
    model.trainer_spec.byte_fallback = True
    model.trainer_spec.unk_id = field(reader, "unknown_token_id")
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = False
    model.normalizer_spec.remove_extra_whitespaces = False
    model.normalizer_spec.escape_whitespaces = True
    for i, (token, score, kind) in enumerate(
        zip(field(reader, "tokens"), field(reader, "scores"), field(reader, "token_type"), strict=True)
    ):
        piece = model.pieces.add()
        piece.piece, piece.score = token.replace(" ", "\u2581"), score
        piece.type = UNKNOWN if i == model.trainer_spec.unk_id else kind
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    return [processor.encode(text) for text in texts]


def qwen(path: str, texts: list[str]) -> list[list[int]]:
    import transformers

    reader = gguf.GGUFReader(path)
    tokens, types = field(reader, "tokens"), field(reader, "token_type")
    special = [token for token, kind in zip(tokens, types, strict=True) if kind in {CONTROL, USER_DEFINED}]
    vocab = {token: i for i, token in enumerate(tokens)}
    ranks = {tuple(merge.split(" ")): i for i, merge in enumerate(field(reader, "merges"))}
    found = [qwen_ids(text, vocab, ranks, special) for text in texts]
    theirs = transformers.AutoTokenizer.from_pretrained(Path(path).parent, gguf_file=Path(path).name)
    for text, ids in zip(texts, found, strict=True):
        other = theirs(unicodedata.normalize("NFC", text), add_special_tokens=False)["input_ids"]
        if other != ids:
            raise SystemExit(f"the references differ on {text!r}: {ids} and {other}")
    return found


def qwen_ids(text: str, vocab: dict[str, int], ranks: dict, special: list[str]) -> list[int]:
    ids = []
    for piece in regex.split(
        "(" + "|".join(map(regex.escape, sorted(special, key=len, reverse=True))) + ")", text
    ):
        if piece in special:
            ids.append(vocab[piece])
            continue
        for word in QWEN_SPLIT.findall(unicodedata.normalize("NFC", piece)):
            symbols = [alphabet()[byte] for byte in word.encode()]
            while len(symbols) > 1:
                best = min(pairwise(symbols), key=lambda pair: ranks.get(pair, 1 << 60))
                if best not in ranks:
                    break
                merged, i = [], 0
                while i < len(symbols):
                    two = tuple(symbols[i : i + 2]) == best
                    merged.append("".join(best) if two else symbols[i])
                    i += 2 if two else 1
                symbols = merged
            ids += [vocab[symbol] for symbol in symbols]
    return ids


def alphabet() -> list[str]:
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


if __name__ == "__main__":
    strings = [text for text, _ in json.loads((HOME / "tokenizer_smollm2.json").read_text())["cases"]]
    strings += (
        [" " * n + "x" for n in range(2, 45)]
        + ["\n" * n + "\t" * n for n in range(2, 40)]
        + ["a<b>c <table>\n</table>"]
    )
    for name, ids in (("gemma3", gemma(sys.argv[1], strings)), ("qwen2", qwen(sys.argv[2], strings))):
        rows = ",\n".join(json.dumps([text, row]) for text, row in zip(strings, ids, strict=True))
        (HOME / f"tokenizer_{name}.json").write_text(f"[\n{rows}\n]\n")
