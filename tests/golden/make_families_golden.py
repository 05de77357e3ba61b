"""Makes `transformers_families.npz`: small random models of every family as Hugging Face transformers computes them.

Run in the torch dependency group (torch 2.13.0, transformers 5.24.0) on directories that `tests/families.py` writes:

    python tests/golden/make_families_golden.py DIRECTORY... [--watched N] [--output FILE]

The name of a directory is the name of its model. Each is loaded in float32 with eager attention and eager experts,
on one thread; its matrices are bfloat16 in the file. Kept are the logits of every position of 65 and of 1,300 fixed
tokens, at 8 indices spread over the vocabulary (`--watched 0`: at all of them). Knows nothing of ticktrue.
"""

import argparse
import hashlib
from pathlib import Path

import numpy as np
import torch
import transformers

GOLDEN = Path(__file__).parent / "transformers_families.npz"
CONTEXTS = (65, 1_300)
WATCHED = 8


def token_ids(count, vocab):
    """`count` token ids, the same for every library and machine: high bits of a multiplicative generator."""
    state, ids = 1, []
    for _ in range(count):
        state = state * 48_271 % (2**31 - 1)
        ids.append((state >> 8) % vocab)
    return ids


@torch.no_grad()
def make(directory, watched):
    """The golden arrays of one model, by name."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
    )
    model.eval()
    vocab = model.config.vocab_size
    kept = np.arange(vocab) if watched == 0 else (np.arange(watched) * vocab) // watched
    name = directory.name
    found = {
        f"{name} watched": kept.astype(np.int32),
        f"{name} sha256": np.array(
            hashlib.sha256((directory / "model.safetensors").read_bytes()).hexdigest()
        ),
    }
    for context in CONTEXTS:
        ids = torch.tensor([token_ids(context, vocab)])
        found[f"{name} {context}"] = model(ids, use_cache=False).logits[0].numpy()[:, kept]
    return found


def main():
    """Write the golden file, or another one to compare with it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("directories", type=Path, nargs="+")
    parser.add_argument("--watched", type=int, default=WATCHED, help="vocabulary indices to keep; 0: all")
    parser.add_argument("-o", "--output", type=Path, default=GOLDEN)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = {"made_with": np.array(f"torch {torch.__version__}, transformers {transformers.__version__}")}
    for directory in arguments.directories:
        found |= make(directory, arguments.watched)
    np.savez_compressed(arguments.output, **found)


if __name__ == "__main__":
    main()
