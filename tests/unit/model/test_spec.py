"""ModelSpec refuses what no model can have, by field; its digest covers what shapes the numbers."""

import math
from dataclasses import replace

import pytest
from tests.models import SPEC

from ticktrue.errors import InputError, UnsupportedModel
from ticktrue.model import FactorScaling, LinearScaling, Llama3Scaling
from ticktrue.model.family import family_of


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layers", 0),
        ("layers", -1),
        ("layers", 10**9),
        ("layers", 2.0),
        ("layers", True),
        ("hidden", 217),
        ("hidden", 1 << 40),
        ("heads", 10),
        ("kv_heads", 0),
        ("head_dim", 63),
        ("head_dim", 0),
        ("ffn", -5),
        ("vocab", 0),
        ("max_positions", 0),
        ("rope_theta", math.nan),
        ("rope_theta", math.inf),
        ("rope_theta", -1.0),
        ("rms_eps", 0.0),
        ("rms_eps", math.nan),
        ("rms_eps", 2.0),
        ("bos", (509,)),
        ("eos", (-1,)),
        ("rope_scaling", LinearScaling(0.0)),
        ("rope_scaling", LinearScaling(math.nan)),
        ("rope_scaling", Llama3Scaling(8.0, 4.0, 1.0, 8_192)),
        ("rope_scaling", Llama3Scaling(8.0, 1.0, 4.0, 0)),
        ("rope_scaling", FactorScaling((1.0,))),
        ("rope_scaling", FactorScaling((1.0,) * 31 + (0.0,))),
    ],
)
def test_absurd_value_is_refused_by_field(field: str, value: object) -> None:
    with pytest.raises(InputError) as refusal:
        replace(SPEC, **{field: value})
    assert refusal.value.code == "T342"
    assert refusal.value.where.split(".")[0] == field


@pytest.mark.parametrize("field", ["attention_bias", "mlp_bias"])
def test_biases_are_refused(field: str) -> None:
    with pytest.raises(UnsupportedModel) as refusal:
        replace(SPEC, **{field: True})
    assert (refusal.value.code, refusal.value.where) == ("T333", field)


def test_digest_covers_what_shapes_the_numbers_and_nothing_else() -> None:
    digest = SPEC.digest()
    assert replace(SPEC, name="other", bos=(3,), eos=()).digest() == digest
    changes = {
        "layers": 3, "hidden": 220, "ffn": 348, "vocab": 510, "heads": 6, "kv_heads": 1, "head_dim": 32,
        "rope_theta": 5e5, "rms_eps": 1e-6, "max_positions": 4_096, "tied_embeddings": True,
        "rope_scaling": LinearScaling(2.0),
    }  # fmt: skip
    digests = {replace(SPEC, **{field: value}).digest() for field, value in changes.items()}
    assert len(digests | {digest}) == len(changes) + 1


def test_digest_does_not_change_between_versions() -> None:
    assert SPEC.digest() == "59c0a9b759c4c1de4c1883231a67f8028b882fee6512352a599e4814b978f09b"


def test_epsilon_is_a_float32() -> None:
    assert SPEC.rms_eps == 9.999999747378752e-06
    assert replace(SPEC, rms_eps=SPEC.rms_eps) == SPEC


@pytest.mark.parametrize("kind", ["phi3", "gemma2", "gpt-oss", "deepseek2", "mixtral", "kimi_k2"])
def test_known_family_that_does_not_run_yet_is_named(kind: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"'{kind}' is known but not runnable yet") as refusal:
        family_of(kind, "config.json")
    assert refusal.value.code == "T330"


def test_unknown_family_is_named() -> None:
    with pytest.raises(UnsupportedModel, match="unknown model family 'mamba'"):
        family_of("mamba", "config.json")
