"""Which operators and architecture features of a model are covered, which are planned shapes only, and which are not covered.

Any config.json will do, also of an architecture that is not read: then every field of it is looked up by its name.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from ticktrue.errors import InputError, UnsupportedModel
from ticktrue.model.count import known_shapes, known_spec
from ticktrue.model.huggingface import read_spec
from ticktrue.model.spec import LayerKind, ModelSpec
from ticktrue.plan.features import Field, Finding, State, feature_table, field_finding, shown
from ticktrue.plan.reference import find_config, find_spec
from ticktrue.plan.standin import lacking

_TEXT_MODELS = frozenset({"text_config", "llm_config", "language_config", "thinker_config"})
_ROPE = frozenset({"rope_scaling", "rope_parameters"})
_ROPE_RUNS = frozenset({"default", "linear", "llama3", "proportional"})
_LAYERS_RUN = frozenset({"full_attention", "sliding_attention"})
_MOST_NESTED = 4
QUANTISED = "hf_quant_config.json"
"""Beside a config.json that does not say so, it says that the weights are quantised."""


@dataclass(frozen=True, slots=True)
class Check:
    """What of a model is covered. `state`: of the whole text model; `why`: the first thing that keeps it from running."""

    family: str
    state: State
    why: str
    findings: tuple[Finding, ...]

    @property
    def runs(self) -> bool:
        """Whether the text model runs, with the very results that its configuration asks for."""
        return self.state == State.COVERED


def opcheck(ref: str, cache: Path | None = None) -> Check:
    """What of the model that `ref` names is covered (as `find_spec` names models); nothing is fetched.

    Raises:
        InputError: T340 for a reference that names nothing, T341 for a file that cannot be read or is not a JSON object.
    """
    path = find_config(ref)
    if path is None and ref in known_shapes():
        data = files("ticktrue.model").joinpath("configs", f"{ref}.json").read_bytes()
        return _of_fields(_object(data, ref), known_spec(ref), "")
    if path is None:
        return _of_file(ref, cache)
    try:
        found = _object(path.read_bytes(), str(path))
    except OSError as problem:
        raise InputError(
            f"cannot read {path.name}: {problem.strerror}", code="T341", where=str(path)
        ) from None
    if (path.parent / QUANTISED).is_file():
        found = {**found, "quantization_config": QUANTISED}
    try:
        return _of_fields(found, read_spec(path), "")
    except (UnsupportedModel, InputError) as problem:
        return _of_fields(found, None, problem.message)


def _of_file(ref: str, cache: Path | None) -> Check:
    """A model whose configuration is no config.json: a GGUF."""
    try:
        spec = find_spec(ref, cache)
    except UnsupportedModel as problem:
        return Check("", State.NOT_COVERED, problem.message, ())
    state, why = _verdict(spec)
    return Check(spec.family.value, state, why, operators(spec))


def _object(data: bytes, where: str) -> dict[str, object]:
    """A JSON object, as Python's own reader takes it: published files hold Infinity."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as problem:
        raise InputError(f"expected a JSON object, found none: {problem}", code="T341", where=where) from None
    if not isinstance(found, dict):
        raise InputError(f"expected a JSON object, found {shown(found)}", code="T341", where=where)
    return found


def _of_fields(config: Mapping[str, object], spec: ModelSpec | None, why: str) -> Check:
    family = config.get("model_type")
    name = family if isinstance(family, str) else ""
    found = tuple(_fields(config, spec.family.value if spec else name, feature_table()))
    if spec is None:
        return Check(name, State.NOT_COVERED, why, found)
    state, why = _verdict(spec, found)
    return Check(spec.family.value, state, why, (*operators(spec), *found))


def _verdict(spec: ModelSpec, found: Sequence[Finding] = ()) -> tuple[State, str]:
    """The state of a model that can be read: a field that its reader passes over counts as well."""
    for state in (State.NOT_COVERED, State.UNKNOWN):
        names = [f.name for f in found if f.state == state and not f.beside]
        if names:
            return state, f"{state.value}: {', '.join(names)}"
    why = lacking(spec)
    return (State.PLANNED, why) if why else (State.COVERED, "")


def _fields(
    config: Mapping[str, object], family: str, table: Mapping[str, Field], prefix: str = ""
) -> Iterator[Finding]:
    """Findings of every field that says something, the text model's among them."""
    for name, value in config.items():
        whole = f"{prefix}{name}"
        if name in _TEXT_MODELS and isinstance(value, dict) and prefix.count(".") < _MOST_NESTED:
            inner = value.get("model_type")
            yield from _fields(
                value,
                inner if isinstance(inner, str) and inner in _known(table) else family,
                table,
                f"{whole}.",
            )
        elif name in _ROPE and isinstance(value, dict):
            yield from _rope(whole, value, family)
        elif name == "layer_types" and isinstance(value, list):
            yield from _layer_types(whole, value, family)
        else:
            finding = field_finding(whole, value, family, table)
            if finding is not None:
                yield finding


def _known(table: Mapping[str, Field]) -> set[str]:
    return {family for field in table.values() for family in field.families}


def _rope(name: str, value: Mapping[str, object], family: str) -> Iterator[Finding]:
    """The scheme of rotary positions: one, or one for each type of layer."""
    nested = {k: v for k, v in value.items() if isinstance(v, dict)}
    if nested and name.count(".") <= _MOST_NESTED:
        for key, inner in nested.items():
            yield from _rope(f"{name}.{key}", inner, family)
        return
    kind = shown(value.get("rope_type") or value.get("type") or "default")
    state = State.COVERED if kind in _ROPE_RUNS else State.NOT_COVERED
    if kind == "yarn":
        state = State.PLANNED if family in {"gpt_oss", "deepseek_v3", "kimi_k2"} else State.NOT_COVERED
    part = value.get("partial_rotary_factor") not in (None, 1.0) if kind != "proportional" else False
    if part or "mrope_section" in value:
        state = State.NOT_COVERED
    yield Finding(name, kind, state, "the frequencies of rotary positions", "RoPE tables, numerics row 12")


def _layer_types(name: str, value: list[object], family: str) -> Iterator[Finding]:
    """One finding for each type of layer that occurs."""
    for kind in dict.fromkeys(v if isinstance(v, str) else shown(v) for v in value):
        runs = State.PLANNED if family == "gpt_oss" else State.COVERED
        state = runs if kind in _LAYERS_RUN else State.NOT_COVERED
        count = sum(v == kind for v in value)
        yield Finding(name, f"{kind} x {count}", state, "a type of layer", "the graph, layer by layer")


def operators(spec: ModelSpec) -> tuple[Finding, ...]:
    """Operators of one step of a model that can be read, in the order of a step."""
    out = [
        _op("embedding", f"{spec.vocab:,} x {spec.hidden:,}", "GATHER", there=True),
        _op("RMS norm", f"{spec.hidden:,}", "VXM, row 5", there=True),
        *_attention_operators(spec),
        *_feed_forward_operators(spec),
        _op("logits and choice", f"{spec.vocab:,}", "MXM, NOISE, PICK", there=True),
    ]
    optional = (
        (spec.final_softcap, "softcap of logits", "VXM", True),
        (spec.post_norms, "norms of both blocks' results", "VXM, row 5", True),
        (spec.layer_scalar, "a scalar of each layer", "VXM", True),
        (spec.yarn is not None, "YaRN", "RoPE tables", False),
        (spec.mlp_bias, "biases of router and experts", "VXM", False),
        (spec.output_bias, "bias of the output product", "VXM", False),
    )
    return (*out, *(_op(name, "", where, there=there) for on, name, where, there in optional if on))


def _attention_operators(spec: ModelSpec) -> Iterator[Finding]:
    if spec.latent is not None:
        yield _op("latent attention", f"{spec.heads} heads, ranks {spec.latent.q_rank} and {spec.latent.kv_rank}",
                  "products, KV cache, scores", there=False)  # fmt: skip
        return
    for kind in spec.kinds:
        at = spec.attention_of(kind)
        count = sum(spec.kind(layer) == kind for layer in range(spec.layers))
        shape = f"{count} layers, {at.heads} heads of {at.head_dim}, {at.kv_heads} of KV"
        shape += f", window {at.window:,}" if kind == LayerKind.SLIDING else ""
        yield _op(f"{kind.value} attention", shape, "MXM, MASK, EXP, DIVIDE, KV cache", there=True)
    if spec.qk_norm:
        yield _op("norms of heads", "", "VXM, row 11", there=True)
    yield _op("rotary positions", f"{spec.rotary_fraction:g} of each head", "ROPE, row 12", there=True)
    if spec.attention_bias:
        yield _op("biases of q, k and v", "", "VXM", there=not spec.sinks)
    if spec.sinks:
        yield _op("attention sinks", "", "scores", there=False)


def _feed_forward_operators(spec: ModelSpec) -> Iterator[Finding]:
    experts = spec.experts
    dense = spec.layers if experts is None else experts.dense_layers
    if dense:
        yield _op(f"feed-forward block, {spec.activation.value}", f"{dense} layers of {spec.ffn:,}",
                  "MXM, SILU_MUL or GELU_MUL", there=True)  # fmt: skip
    if experts is not None:
        shape = f"{experts.per_token} of {experts.count} of {experts.ffn:,}"
        plain = not (experts.shared or spec.gate_limit or experts.router != "softmax")
        yield _op("experts", shape, "TOPK, LATCH, tiles that registers name", there=plain)
        if experts.shared:
            yield _op("shared experts", f"{experts.shared}", "the feed-forward block", there=False)
        yield _op(
            f"router, {experts.router}",
            f"{experts.count}",
            "router, row 27",
            there=experts.router == "softmax",
        )
    if spec.gate_limit:
        yield _op("clamped gate", f"{spec.gate_limit:g}", "VXM, row 21", there=False)


def _op(name: str, value: str, where: str, *, there: bool) -> Finding:
    return Finding(name, value, State.COVERED if there else State.PLANNED, "an operator", where)
