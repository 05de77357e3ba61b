"""Makes `transformers_qwen2.npz` and `transformers_gemma3.npz`: two more real models as Hugging Face transformers computes them.

Run in the torch dependency group (torch 2.13.0, transformers 5.24.0, accelerate for its GGUF reader):

    python tests/golden/make_models_golden.py path/to/Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf
    python tests/golden/make_models_golden.py path/to/gemma-3-270m-Q4_K_M.gguf

transformers reads the GGUF itself, tokenizer included, in float32 with eager attention. Matrices and embedding are then
rounded to bfloat16, nearest even, by torch; norm weights and biases stay float32 as read. For each prompt of `prompts.json`:
64 greedy tokens, end-of-sequence tokens included like any other. They are drawn for all prompts at once, padded on the
left; then one pass over each prompt with its tokens, alone, must choose the same tokens, or the script fails. Its logits at
the 64 positions that choose a token are kept: the two largest, and those of 32 indices spread over the vocabulary.

A model without a chat template (Gemma 3 270M is a base model) takes the contents of a prompt's messages, a line each.
Knows nothing of ticktrue.
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
FAMILIES = {
    "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32": "qwen2",
    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818": "gemma3",
}
TOP = 2
WATCHED = 32


def load(gguf):
    """The model in float32 with matrices rounded to bfloat16, and its tokenizer."""
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
    if "messages" in prompt and tokenizer.chat_template:
        text = tokenizer.apply_chat_template(prompt["messages"], tokenize=False, add_generation_prompt=True)
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])
    text = prompt["text"] if "text" in prompt else "\n".join(m["content"] for m in prompt["messages"])
    return list(tokenizer(text)["input_ids"])


def greedy(model, prompts, count):
    """int[prompts, count]: greedy tokens after each prompt, all prompts side by side."""
    most = max(map(len, prompts))
    ids = torch.tensor([[0] * (most - len(p)) + p for p in prompts])
    seen = torch.tensor([[0] * (most - len(p)) + [1] * len(p) for p in prompts])
    positions = (seen.cumsum(1) - 1).clamp(min=0)
    tokens, cache = [], None
    for _ in range(count):
        out = model(
            ids, attention_mask=seen, position_ids=positions, cache=cache, use_cache=True,
            logits_to_keep=1,
        )  # fmt: skip
        cache = out.cache
        ids = out.logits[:, -1].argmax(dim=1, keepdim=True)
        seen = torch.cat([seen, torch.ones_like(ids)], dim=1)
        positions = positions[:, -1:] + 1
        tokens.append(ids)
    return torch.cat(tokens, dim=1).tolist()


def teacher_forced(model, ids, tokens):
    """float32[len(tokens), vocab]: logits at the positions that choose each of `tokens`."""
    out = model(torch.tensor([ids + tokens[:-1]]), use_cache=False, logits_to_keep=len(tokens))
    return out.logits[0].numpy()


@torch.no_grad()
def make(gguf):
    """The golden arrays by name."""
    listed = json.loads(PROMPTS.read_text(encoding="utf-8"))
    model, tokenizer = load(gguf)
    vocab = model.config.get_text_config().vocab_size
    watched = np.arange(WATCHED, dtype=np.int64) * vocab // WATCHED
    ids = [prompt_ids(tokenizer, prompt) for prompt in listed["prompts"]]
    tokens = greedy(model, ids, listed["max_tokens"])
    top, top_ids, watched_logits = [], [], []
    for prompt, before, after in zip(listed["prompts"], ids, tokens, strict=True):
        logits = teacher_forced(model, before, after)
        order = np.argsort(-logits, axis=1, kind="stable")[:, :TOP]
        if not np.array_equal(order[:, 0], after):
            raise SystemExit(f"{prompt['name']}: tokens drawn side by side and teacher-forced differ")
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
        "made_with": np.array(f"torch {torch.__version__}, transformers {transformers.__version__}"),
    }


def main():
    """Write the golden file, or another one to compare with it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("gguf", type=Path, help="one of the two files, as the registry fetches them")
    parser.add_argument("-o", "--output", type=Path, help="tests/golden/transformers_FAMILY.npz if not given")
    arguments = parser.parse_args()
    digest = hashlib.sha256(arguments.gguf.read_bytes()).hexdigest()
    if digest not in FAMILIES:
        raise SystemExit(f"{arguments.gguf}: sha256 {digest} is not that of a file in the registry")
    torch.set_num_threads(1)
    output = arguments.output or HERE / f"transformers_{FAMILIES[digest]}.npz"
    np.savez_compressed(output, **make(arguments.gguf), gguf_sha256=np.array(digest))


if __name__ == "__main__":
    main()
