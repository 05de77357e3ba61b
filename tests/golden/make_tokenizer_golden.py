"""Makes tokenizer_smollm2.json: 1,000 strings and their ids, on which two references that are not ours agree.

    python tests/golden/make_tokenizer_golden.py SmolLM2-135M-Instruct.Q4_1.gguf

Needs gguf, regex, transformers and torch (the torch dependency group). The references:

1. GPT-2's published byte-level BPE written out in plain Python over `regex`, with digits split off one by
   one first, as llama.cpp does for `tokenizer.ggml.pre = smollm`; vocabulary read by `gguf`'s own reader.
2. `transformers.AutoTokenizer` from the same GGUF. Its converter does not look at `tokenizer.ggml.pre` and
   leaves the digit split out, so the pre-tokenizer of SmolLM2's own tokenizer.json (Digits, individual, then
   ByteLevel) is put in. How many strings the unrepaired converter gets wrong is recorded in the file.
"""

import json
import random
import sys
import tempfile
from functools import cache
from itertools import pairwise
from pathlib import Path

import gguf
import regex

COUNT = 1_000
SEED = 20_251_130
SPLIT = regex.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
)
DIGIT = regex.compile(r"\p{N}")

SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "I'm sure they'll say it's fine; don't you think we've seen what she'd do? They're 'round.",
    "IT'S ALL CAPS, I'M TOLD, THEY'LL SEE",
    "Größe, Straße, naïve café, Ångström, façade, coöperate, Łódź, İstanbul",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.",
    "דג סקרן שט בים מאוכזב ולפתע מצא לו חברה",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण",
    "我能吞下玻璃而不伤身体。你好，世界！",
    "いろはにほへと ちりぬるを カタカナ ﾊﾝｶｸ",
    "키스의 고유조건은 입술끼리 만나야 하고",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า",
    "Tiếng Việt có dấu: ắ ằ ẳ ẵ ặ, đường phố",
    "ქართული ანბანი და მხედრული",
    "Հայերեն այբուբեն",
    "አማርኛ ፊደል ገበታ",
    "தமிழ் எழுத்துக்கள் மற்றும் বাংলা বর্ণমালা",
    "ខ្មែរ ລາວ မြန်မာ བོད་ཡིག",
    "e\u0301 combining vs é composed, a\u0308o\u0308u\u0308, Z\u0351\u0343a\u0334l\u0321go\u0310",
    (
        "\U0001f600\U0001f44d\U0001f3fd\U0001f1fa\U0001f1f8 \u2764\ufe0f "
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f3f4\u200d\u2620\ufe0f"
    ),
    "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β = ¬(¬α ∨ β), ℕ ⊆ ℤ ⊂ ℚ",
    "½ ⅓ ² ³ ₄ Ⅷ ⑨ ٣٤٥ १२३ ௧௨ 一二三 〇",
    "€1,234.56 + £99 - ¥1000 = 50% of $3e-10",
    "2024-12-31T23:59:60Z 192.168.0.1 v1.2.3-rc4 #42 1st 2nd 0xDEADBEEF 1_000_000",
    "  leading, trailing  ",
    "a  12  b   345    c",
    "\ttabs\t\tand \n newlines\n\n\nand\r\nCRLF \r alone\n  \n \t \n",
    "\u00a0no-break\u00a0space \u2003em\u2003 \u3000ideographic\u3000 \u200bzero\u200bwidth \ufeffbom",
    "def f(x: int) -> list[int]:\n    return [i ** 2 for i in range(x) if i % 3 != 0]  # squares\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] * c[i]; } /* loop */ // end",
    'fn main() {\n\tprintln!("{:?}", vec![1u8; 4]);\n}',
    '<html><body class="x">&nbsp;</body></html> {{ template }} ${var} `tick` ~~~',
    "SELECT * FROM t WHERE a >= 10 AND b <> 'it''s' -- comment",
    "https://example.org/a/b?c=d&e=f#g user@example.com C:\\Windows\\System32 /usr/bin/env",
    "!!!??? ... --- *** ((([[[{{{}}}]]]))) <<>> |||| ==== ____ \\\\\\\\",
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis aaaaaaaaaaaaaaaaaaaaaaaa",
    "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt",
    "\x00\x01\x7f control \x0b\x0c\x85 bytes",
    "<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\n",
    "text<|endoftext|> more<file_sep>x <|im_start|> spaced <|im_end|>",
    "<|im_star|> <|im_start | > almost special",
)
BLOCKS = (
    (0x20, 0x7e), (0xa0, 0x24f), (0x370, 0x3ff), (0x400, 0x4ff), (0x5d0, 0x5ea),
    (0x620, 0x64a), (0x904, 0x939), (0xe01, 0xe2e), (0x1e00, 0x1eff), (0x2010, 0x2027),
    (0x2190, 0x21ff), (0x2200, 0x22ff), (0x2500, 0x257f), (0x3041, 0x3096), (0x30a1, 0x30fa),
    (0x4e00, 0x9fa5), (0xac00, 0xd7a3), (0x1f300, 0x1f5ff), (0x1f600, 0x1f64f), (0x10000, 0x1000b),
    (0x20000, 0x2a6d6),
)  # fmt: skip
SPACES = (" ", "  ", "   ", "       ", "\n", "\n\n", "\t", " \n", "\n ", "\r\n", "\u00a0", "\u3000")
CHUNKS = (
    "0",
    "7",
    "12",
    "345",
    "2024",
    " 9",
    "'s",
    "'re",
    "'T",
    "don't",
    "==",
    "->",
    "::",
    "_x",
    "<|im_end|>",
    "é",
    "ß",
)


def strings() -> list[str]:
    """1,000 distinct strings, the same every time."""
    draw = random.Random(SEED)
    found = dict.fromkeys(["", *SENTENCES, *(a + b for a in SPACES for b in ("x", "1", ".", ""))])
    while len(found) < COUNT:
        kind = draw.randrange(4)
        if kind == 0:
            text = _cut(draw) + draw.choice(SPACES) + _cut(draw)
        elif kind == 1:
            low, high = draw.choice(BLOCKS)
            text = "".join(chr(draw.randint(low, high)) for _ in range(draw.randint(1, 24)))
        elif kind == 2:
            parts = (
                draw.choice((*SPACES, *CHUNKS, *draw.choice(SENTENCES).split(" ")))
                for _ in range(draw.randint(2, 14))
            )
            text = "".join(parts)
        else:
            text = draw.choice(SPACES).join(_cut(draw) for _ in range(3)) + str(draw.randrange(10**9))
        found[text] = None
    return list(found)


def _cut(draw: random.Random) -> str:
    sentence = draw.choice(SENTENCES)
    start = draw.randrange(len(sentence))
    return sentence[start : start + draw.randint(1, 40)]


class PlainBpe:
    """GPT-2's BPE, from its paper and published encoder, over a GGUF's vocabulary."""

    def __init__(self, path: str) -> None:
        fields = gguf.GGUFReader(path).fields
        tokens = fields["tokenizer.ggml.tokens"].contents()
        types = fields["tokenizer.ggml.token_type"].contents()
        self.ids = {token: i for i, token in enumerate(tokens)}
        self.ranks = {
            tuple(m.split(" ")): i for i, m in enumerate(fields["tokenizer.ggml.merges"].contents())
        }
        self.special = regex.compile(
            "|".join(regex.escape(t) for t, k in zip(tokens, types, strict=True) if k == 3)
        )
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        spare = iter(range(256, 512))
        self.letters = {byte: chr(byte if byte in printable else next(spare)) for byte in range(256)}

    def encode(self, text: str) -> list[int]:
        ids, at = [], 0
        for match in self.special.finditer(text):
            ids += [*self._plain(text[at : match.start()]), self.ids[match[0]]]
            at = match.end()
        return [*ids, *self._plain(text[at:])]

    def _plain(self, text: str) -> list[int]:
        pieces, at = [], 0
        for match in DIGIT.finditer(text):
            pieces += [*SPLIT.findall(text[at : match.start()]), match[0]]
            at = match.end()
        pieces += SPLIT.findall(text[at:])
        return [self.ids[token] for piece in pieces for token in self._merge(piece)]

    @cache  # noqa: B019  one instance, one run
    def _merge(self, piece: str) -> tuple[str, ...]:
        word = [self.letters[byte] for byte in piece.encode()]
        while len(word) > 1:
            rank, i = min(
                (self.ranks.get((a, b), len(self.ranks)), i) for i, (a, b) in enumerate(pairwise(word))
            )
            if rank == len(self.ranks):
                break
            pair = word[i] + word[i + 1]
            merged, j = [], 0
            first = (word[i], word[i + 1])
            while j < len(word):
                if j + 1 < len(word) and (word[j], word[j + 1]) == first:
                    merged.append(pair)
                    j += 2
                else:
                    merged.append(word[j])
                    j += 1
            word = merged
        return tuple(word)


def main(path: str) -> None:
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    texts = strings()
    plain = PlainBpe(path)
    ours = [plain.encode(text) for text in texts]
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "model.gguf").symlink_to(Path(path).resolve())
        reference = AutoTokenizer.from_pretrained(directory, gguf_file="model.gguf")
    unrepaired = [reference.encode(text, add_special_tokens=False) for text in texts]
    reference.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    theirs = [reference.encode(text, add_special_tokens=False) for text in texts]
    for text, a, b in zip(texts, ours, theirs, strict=True):
        if a != b:
            sys.exit(f"the references disagree on {text!r}:\n  plain BPE    {a}\n  transformers {b}")
    wrong = sum(a != b for a, b in zip(unrepaired, theirs, strict=True))
    document = {
        "model": "SmolLM2-135M-Instruct.Q4_1.gguf",
        "made_by": "tests/golden/make_tokenizer_golden.py",
        "strings_the_unrepaired_transformers_converter_gets_wrong": wrong,
        "cases": [[text, ids] for text, ids in zip(texts, theirs, strict=True)],
    }
    out = Path(__file__).with_name("tokenizer_smollm2.json")
    lines = json.dumps(document["cases"], separators=(",", ":")).replace("]],[", "]],\n[")
    head = json.dumps({k: v for k, v in document.items() if k != "cases"}, indent=1)[:-2]
    out.write_text(f'{head},\n "cases": {lines}\n}}\n')
    print(f"{len(texts)} strings, {sum(map(len, theirs))} ids, unrepaired converter wrong on {wrong}")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
