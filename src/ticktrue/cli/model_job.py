"""What the verbs of `ticktrue model` do."""

import sys
from pathlib import Path

import msgspec

from ticktrue.cli.documents import (
    FetchedDocument,
    ModelDocument,
    ModelsDocument,
    RegistryPart,
    SpecPart,
    encode,
    header,
)
from ticktrue.cli.output import Terminal
from ticktrue.cli.surroundings import model_cache
from ticktrue.errors import EnvironmentProblem, InputError
from ticktrue.model.count import parameters
from ticktrue.model.fetch import cached, fetch
from ticktrue.model.load import Model, load_model
from ticktrue.model.registry import RegistryModel, list_models, registry_model
from ticktrue.model.spec import LayerKind, ModelSpec


def _cached(model: RegistryModel) -> Path | None:
    try:
        return cached(model, model_cache())
    except EnvironmentProblem:
        return None


def _part(model: RegistryModel) -> RegistryPart:
    path = _cached(model)
    return RegistryPart(
        name=model.name, title=model.title, licence=model.licence, runnable=model.runnable, size_bytes=model.size_bytes,
        sha256=model.sha256, path=str(path) if path else "",
    )  # fmt: skip


def tell_list(terminal: Terminal) -> None:
    """Prints the registry."""
    parts = tuple(_part(m) for m in list_models())
    if terminal.json:
        terminal.document(encode(ModelsDocument(**header(sys.argv[1:]), models=parts)))
        return
    rows = [
        (
            p.name,
            p.title,
            p.licence,
            "runnable" if p.runnable else "not yet",
            "in the cache" if p.path else "",
            f"{p.size_bytes / 1e6:,.0f}",
        )
        for p in parts
    ]
    terminal.table(("name", "title", "licence", "state", "fetched", "MB"), rows, left=5)


def tell_fetched(name: str, terminal: Terminal) -> None:
    """Fetches and prints the path."""
    model = registry_model(name)
    terminal.note(f"{model.title}, licence: {model.licence}")
    with terminal.bar() as progress:
        path = fetch(name, model_cache(), progress)
    if terminal.json:
        terminal.document(
            encode(FetchedDocument(**header(sys.argv[1:]), name=name, path=str(path), sha256=model.sha256))
        )
    else:
        terminal.line(str(path))


def tell_model(ref: str, terminal: Terminal) -> None:
    """Prints shape and constants."""
    known = next((m for m in list_models() if m.name == ref), None)
    if known is not None and not Path(ref).exists():
        path = _cached(known)
        if path is None:
            raise InputError(
                f"{ref} is not in the cache yet", code="T340", where=ref, hint=f"`ticktrue model fetch {ref}`"
            )
        _tell(ref, load_model(path), known.licence, terminal)
    else:
        _tell(ref, load_model(ref), "", terminal)


def _tell(ref: str, model: Model, licence: str, terminal: Terminal) -> None:
    spec, template = model.spec, model.chat_template() is not None
    part = spec_part(spec)
    if terminal.json:
        document = ModelDocument(**header(sys.argv[1:]), ref=ref, path=str(model.path), spec_sha256=spec.digest(),
                                 chat_template=template, licence=licence, spec=part)  # fmt: skip
        terminal.document(encode(document))
        return
    terminal.line(f"{spec.name}: {model.path}")
    terminal.line(f"spec sha256 {spec.digest()}")
    terminal.line()
    for name, value in [
        *msgspec.structs.asdict(part).items(),
        ("chat_template", "yes" if template else "no"),
        ("licence", licence or "not known"),
    ]:
        terminal.line(f"{name:18s} {_shown(value)}")


def spec_part(spec: ModelSpec) -> SpecPart:
    """Shape and constants as a part of a document."""
    return SpecPart(
        family=spec.family.value, name=spec.name, layers=spec.layers, hidden=spec.hidden, heads=spec.heads,
        kv_heads=spec.kv_heads, head_dim=spec.head_dim, ffn=spec.ffn, vocab=spec.vocab, rope_theta=spec.rope_theta,
        rms_eps=spec.rms_eps, max_positions=spec.max_positions, rope_scaling=str(spec.rope_scaling or ""),
        tied_embeddings=spec.tied_embeddings, bos=spec.bos, eos=spec.eos, activation=spec.activation.value,
        sliding_layers=spec.layer_kinds.count(LayerKind.SLIDING), window=spec.sliding.window if spec.sliding else 0,
        experts=spec.experts.count if spec.experts else 0, experts_per_token=spec.experts.per_token if spec.experts else 0,
        parameters=parameters(spec),
    )  # fmt: skip


def _shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, tuple):
        value = ", ".join(map(str, value))
    return str(value) or "none"
