"""Our test models in `transformers`: it loads every tensor of them, and reads the same constants out of their config.json."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.families import FAMILIES, write_family

from ticktrue.model import LayerKind, load_model, rope_inv_freq
from ticktrue.model.count import parameters

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore"),  # transformers and torch warn as they please
]


@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_reads_the_same_model(tmp_path: Path, family: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    directory = write_family(tmp_path, family, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, loading = transformers.AutoModelForCausalLM.from_pretrained(
            directory,
            dtype=torch.float32,
            attn_implementation="eager",
            experts_implementation="eager",
            output_loading_info=True,
        )
    assert not any(loading.values()), loading  # nothing missing, left over or of another shape
    spec = load_model(directory).spec
    assert sum(p.numel() for p in theirs.parameters()) == parameters(spec)
    for number, layer in enumerate(theirs.model.layers):
        at, attention = spec.attention(number), layer.self_attn
        assert attention.head_dim == at.head_dim
        assert np.float32(attention.scaling) == np.float32(at.scale)
        assert attention.k_proj.weight.shape[0] == at.kv_heads * at.head_dim
        window = getattr(attention, "sliding_window", None)
        if family == "mistral":  # its attention reads the config
            window = theirs.config.sliding_window
        assert (window or 0) == at.window
        assert (getattr(attention, "v_proj", None) is None) == at.k_is_v
        kind = "sliding" if spec.kind(number) == LayerKind.SLIDING else "full"
        rotary = theirs.model.rotary_emb
        frequencies = getattr(rotary, f"{kind}_attention_inv_freq", None)
        frequencies = rotary.inv_freq if frequencies is None else frequencies
        assert np.allclose(frequencies.numpy(), rope_inv_freq(at), rtol=1e-6, atol=0)
    scale = getattr(theirs.model.embed_tokens, "embed_scale", None)
    assert np.float32(1 if scale is None else float(scale)) == np.float32(spec.embed_scale)
    assert (getattr(theirs.config, "final_logit_softcapping", None) or 0) == spec.final_softcap
