"""Qwen2.5-Coder 0.5B and Gemma 3 270M against transformers in float32: golden data of 20 prompts x 64 greedy tokens each.

`tests/golden/make_models_golden.py` makes the data. The oracle answers all prompts, the program on 8 chips some of them:
it takes minutes, and that it gives the oracle's bits is shown elsewhere. SmolLM2 has its own files (test_transformers.py and
test_smollm2_bits.py); docs/numerics.md has the measured figures that the bounds of `bf16` are twice of.
"""

import hashlib
import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.models import registry_file
from tests.stepping import Stepper

from ticktrue.execute import Machine
from ticktrue.graph.oracle import Oracle, greedy
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.model import Model, load_model
from ticktrue.program import StepKind

GOLDEN = Path(__file__).parents[1] / "golden"
SCRIPT, PROMPTS = GOLDEN / "make_models_golden.py", GOLDEN / "prompts.json"
NAMES = {"qwen2": "qwen2.5-coder-0.5b", "gemma3": "gemma-3-270m"}
VOCAB = {"qwen2": 151_936, "gemma3": 262_144}
F32_RMS = 1e-4
REMADE_TOLERANCE = 2e-3
"""Between two machines: torch picks other float32 kernels, logits reach 40."""
PROGRAM_PROMPTS = {"qwen2": (0, 4, 6, 12, 13, 14, 17, 19), "gemma3": range(20)}
"""Prompts that the program answers too, chat and raw ones; of Qwen as many as take about four minutes, of at most 65 tokens."""


@dataclass(frozen=True)
class Bounds:
    """Of `bf16`: how many greedy choices differ, the golden top-2 gap of each, rms error of the logits; `beyond`: see below."""

    differing: int
    gap: float
    rms: float
    beyond: frozenset[tuple[int, int]] = frozenset()


BF16 = {
    "qwen2": Bounds(6, 0.073, 0.069, frozenset({(13, 7)})),
    "gemma3": Bounds(4, 0.107, 0.096),
}
"""Twice the measured figures, all within 2.5 % of 1,280, 0.2 and 0.12. One position of Qwen (prompt, place in the answer) lies
beyond that gap, at 0.93: there the model makes a massive activation, whose size depends on the last bits of bf16, as
docs/numerics.md tells."""

families = pytest.mark.parametrize("family", NAMES)


@cache
def golden(family: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / f"transformers_{family}.npz") as data:
        return dict(data)


@cache
def prompts(family: str) -> list[list[int]]:
    data = golden(family)
    return [p.tolist() for p in np.split(data["prompt_ids"], np.cumsum(data["prompt_lengths"])[:-1])]


@cache
def model(family: str) -> Model:
    return load_model(str(registry_file(NAMES[family])))


def teacher_forced(family: str, prompt: int) -> tuple[list[int], range]:
    """Prompt and golden answer without its last token, and the 64 positions whose logits choose the answer."""
    before, answer = prompts(family)[prompt], golden(family)["tokens"][prompt].tolist()
    return before + answer[:-1], range(len(before) - 1, len(before) - 1 + len(answer))


@dataclass(frozen=True)
class Compared:
    """Greedy choices, those that differ as (prompt, place) with their top-2 gaps, and the rms error of the watched logits."""

    positions: int
    gaps: dict[tuple[int, int], float]
    rms: float


def compare(family: str, fmt: str) -> Compared:
    """The oracle on every golden prompt and answer, all positions of a prompt at once."""
    data = golden(family)
    oracle = Oracle(model(family).spec, model(family).weights(), fmt, fast_matmul)
    gaps, squares = {}, []
    for i in range(len(prompts(family))):
        ids, chosen = teacher_forced(family, i)
        logits = oracle.forward(ids, logits_at=chosen).logits
        gap = data["top_logits"][i, :, 0] - data["top_logits"][i, :, 1]
        differing = [j for j, row in enumerate(logits) if greedy(row) != data["tokens"][i, j]]
        gaps |= {(i, j): float(gap[j]) for j in differing}
        error = logits[:, data["watched_ids"]].astype(np.float64) - data["watched_logits"][i]
        squares.append(error**2)
    return Compared(data["tokens"].size, gaps, float(np.sqrt(np.mean(squares))))


@families
def test_golden_data_fits_the_prompts(family: str) -> None:
    """20 prompts x 64 tokens, made from the committed prompts; the greedy token is the largest logit."""
    listed = json.loads(PROMPTS.read_text(encoding="utf-8"))
    data = golden(family)
    assert str(data["prompts_sha256"]) == hashlib.sha256(PROMPTS.read_bytes()).hexdigest()
    assert data["tokens"].shape == (len(listed["prompts"]), listed["max_tokens"]) == (20, 64)
    assert data["top_ids"].shape == data["top_logits"].shape == (20, 64, 2)
    assert data["watched_logits"].shape == (20, 64, 32)
    assert (data["top_ids"][..., 0] == data["tokens"]).all()
    assert (data["top_logits"][..., 0] >= data["top_logits"][..., 1]).all()
    assert int(data["prompt_lengths"].sum()) == len(data["prompt_ids"])
    assert data["tokens"].max() < VOCAB[family]
    assert (GOLDEN / f"transformers_{family}.npz").stat().st_size < 300_000


@pytest.mark.slow
@families
def test_prompts_get_the_token_ids_of_transformers(family: str) -> None:
    """Our tokenizer and chat template against transformers' own; Gemma 3 270M has no template."""
    tokenizer, template = model(family).tokenizer(), model(family).chat_template()
    assert (template is None) == (family == "gemma3")
    listed = json.loads(PROMPTS.read_text(encoding="utf-8"))["prompts"]
    for prompt, expected in zip(listed, prompts(family), strict=True):
        if "messages" in prompt and template is not None:
            ids = tokenizer.encode(template.render(prompt["messages"]), add_special=False)
        else:
            lines = [m["content"] for m in prompt.get("messages", ())]
            ids = tokenizer.encode(prompt.get("text") or "\n".join(lines))
        assert list(ids) == expected, prompt["name"]


@pytest.mark.slow
@families
def test_f32_oracle_gives_the_greedy_tokens_of_transformers(family: str) -> None:
    """Equal choices at every teacher-forced position, hence 20 x 64 equal greedy tokens."""
    compared = compare(family, "f32")
    assert compared.positions == 1_280
    assert compared.gaps == {}
    assert compared.rms < F32_RMS


@pytest.mark.slow
@families
def test_bf16_is_within_the_stated_figures(family: str) -> None:
    compared, bounds = compare(family, "bf16"), BF16[family]
    assert len(compared.gaps) <= bounds.differing <= 0.025 * compared.positions
    beyond = {at for at, gap in compared.gaps.items() if gap > bounds.gap}
    assert beyond <= bounds.beyond
    assert compared.rms <= bounds.rms


@pytest.mark.slow
@families
def test_f32_program_gives_the_greedy_tokens_of_transformers(family: str) -> None:
    """On 8 chips, two steps of 64; equal choices at every teacher-forced position, hence equal greedy tokens."""
    data, weights = golden(family), model(family).weights()
    stepper = Stepper.make(model(family).spec, weights, 8, "f32", 128)
    timetable = stepper.timetable(StepKind(64, 1, 2, "all", "chip"))
    for i in PROGRAM_PROMPTS[family]:
        ids, chosen = teacher_forced(family, i)
        machine = Machine(stepper.image, weights, stepper.system)
        found = [machine.step(timetable, ids[pos : pos + 64], pos) for pos in range(0, len(ids), 64)]
        logits = np.concatenate([step.logits for step in found])[chosen]
        assert logits.argmax(axis=1).tolist() == data["tokens"][i].tolist(), f"prompt {i}"
        on_chip = np.concatenate([step.next_token for step in found])[chosen]
        assert on_chip.tolist() == data["tokens"][i].tolist(), f"prompt {i}"
        error = logits[:, data["watched_ids"]].astype(np.float64) - data["watched_logits"][i]
        assert np.sqrt(np.mean(error**2)) < F32_RMS, f"prompt {i}"


@pytest.mark.torch
@families
def test_golden_data_can_be_made_again(family: str, tmp_path: Path) -> None:
    """The script in this Python: equal prompts and tokens, logits within the noise of another machine."""
    missing = [name for name in ("torch", "transformers", "accelerate") if not importlib.util.find_spec(name)]
    if missing:
        pytest.skip(f"needs the torch dependency group: {', '.join(missing)} not installed")
    again = tmp_path / "again.npz"
    file = registry_file(NAMES[family])
    subprocess.run([sys.executable, SCRIPT, file, "--output", again], check=True, capture_output=True)
    with np.load(again) as data:
        for name in (
            "prompt_ids",
            "prompt_lengths",
            "tokens",
            "watched_ids",
            "prompts_sha256",
            "gguf_sha256",
        ):
            assert (data[name] == golden(family)[name]).all(), name
        for name in ("top_logits", "watched_logits"):
            assert np.abs(data[name] - golden(family)[name]).max() < REMADE_TOLERANCE, name
