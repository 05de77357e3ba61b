"""The float32 reference of `perplexity.py`: the same windows by Hugging Face transformers, on weights rounded to bfloat16.

Run in the torch dependency group: python benchmarks/perplexity_transformers.py FILE.gguf ... It knows nothing of ticktrue:
transformers reads the GGUF and splits the text by its own tokenizer.
"""

import math
import sys
from pathlib import Path

import torch
import transformers

TEXT = Path(__file__).parent / "data" / "alice_chapter5.txt"
WINDOWS, WINDOW = 4, 512


def load(gguf):
    """The model in float32 with matrices rounded to bfloat16, nearest even, and its tokenizer."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, attn_implementation="eager"
    )
    model.eval()
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.copy_(parameter.to(torch.bfloat16).to(torch.float32))
    return model, transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)


def windows(tokenizer):
    """Windows of token ids, following each other in the text; each begins as the tokenizer begins a text."""
    text = TEXT.read_text(encoding="utf-8")
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    whole = tokenizer(text)["input_ids"]
    begin = whole[: len(whole) - len(ids)]
    step = WINDOW - len(begin)
    return [begin + ids[i * step : (i + 1) * step] for i in range(WINDOWS)]


@torch.no_grad()
def main():
    """Prints a line per model."""
    torch.set_num_threads(1)
    for gguf in map(Path, sys.argv[1:]):
        model, tokenizer = load(gguf)
        found = []
        for ids in windows(tokenizer):
            z = torch.log_softmax(model(torch.tensor([ids]), use_cache=False).logits[0].double(), dim=1)
            found += [-float(z[i, token]) for i, token in enumerate(ids[1:])]
        value = math.exp(math.fsum(found) / len(found))
        print(f"{gguf.name}: {len(found):,} tokens, perplexity {value:.3f}", flush=True)


if __name__ == "__main__":
    main()
