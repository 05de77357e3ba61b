"""Chat templates: found where a model keeps them, rendered as trained, shut in a sandbox."""

import json
from pathlib import Path

import pytest
from tests.models import write_gguf, write_llama

from ticktrue.errors import InputError
from ticktrue.model import ChatTemplate, load_model

SIMPLE = (
    "{{ bos_token }}{% for m in messages %}\n"
    "    {% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}\n"
    "[{{ m.role }}] {{ m.content | trim }}{{ eos_token }}\n"
    "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
HI = [{"role": "user", "content": " Hi <b> "}]


def model_with(tmp_path: Path, **files: str) -> ChatTemplate | None:
    model = write_llama(tmp_path)
    for name, text in files.items():
        (model / name.replace("__", ".")).write_text(text)
    return load_model(model).chat_template()


def test_renders_with_trimmed_blocks_and_the_models_tokens(tmp_path: Path) -> None:
    template = model_with(tmp_path, chat_template__jinja=SIMPLE)
    assert template is not None
    assert template.render(HI) == "<|bos|>[user] Hi <b><|eos|>\n[assistant]"
    assert template.render(HI, add_generation_prompt=False) == "<|bos|>[user] Hi <b><|eos|>\n"


@pytest.mark.parametrize(
    "stored", [SIMPLE, [{"name": "tool_use", "template": "x"}, {"name": "default", "template": SIMPLE}]]
)
def test_found_in_tokenizer_config(tmp_path: Path, stored: object) -> None:
    template = model_with(tmp_path, tokenizer_config__json=json.dumps({"chat_template": stored, "other": 1}))
    assert template is not None
    assert template.source == SIMPLE


def test_own_file_comes_first(tmp_path: Path) -> None:
    config = json.dumps({"chat_template": "old"})
    template = model_with(tmp_path, chat_template__jinja="new", tokenizer_config__json=config)
    assert template is not None
    assert template.source == "new"


def test_found_in_gguf(tmp_path: Path) -> None:
    model = load_model(write_gguf(tmp_path / "m.gguf", tokenizer__chat_template=SIMPLE))
    template = model.chat_template()
    assert template is not None
    assert template.render(HI) == "<|bos|>[user] Hi <b><|eos|>\n[assistant]"


@pytest.mark.parametrize("config", [None, "{}", '{"chat_template": null}', '{"chat_template": []}'])
def test_base_model_has_none(tmp_path: Path, config: str | None) -> None:
    files = {} if config is None else {"tokenizer_config__json": config}
    assert model_with(tmp_path, **files) is None
    assert load_model(write_gguf(tmp_path / "m.gguf")).chat_template() is None


def test_json_is_plain_and_loop_controls_work() -> None:
    source = (
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m | tojson }}{% endfor %}"
    )
    assert ChatTemplate(source).render([*HI, *HI]) == '{"role": "user", "content": " Hi <b> "}'


def test_template_cannot_change_the_messages() -> None:
    messages = [{"role": "user", "content": "x"}]
    with pytest.raises(InputError) as refusal:
        ChatTemplate("{{ messages.append(1) }}").render(messages)
    assert refusal.value.code == "T348"
    assert messages == [{"role": "user", "content": "x"}]


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{% for i in range(10000000000) %}x{% endfor %}",
        "{{ undefined_function() }}",
        "{{ 1 // 0 }}",
        "{% include 'etc' %}",
    ],
)
def test_sandbox(source: str) -> None:
    with pytest.raises(InputError) as refusal:
        ChatTemplate(source).render(HI)
    assert refusal.value.code == "T348"


def test_template_can_refuse(tmp_path: Path) -> None:
    template = model_with(tmp_path, chat_template__jinja=SIMPLE)
    assert template is not None
    with pytest.raises(InputError, match="no tools") as refusal:
        template.render([{"role": "tool", "content": "x"}])
    assert (refusal.value.code, refusal.value.where) == ("T348", "messages")


def test_syntax_error_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not valid") as refusal:
        model_with(tmp_path, chat_template__jinja="{% for %}")
    assert (refusal.value.code, refusal.value.where) == ("T348", str(tmp_path))


def test_template_that_is_not_text(tmp_path: Path) -> None:
    model = write_llama(tmp_path)
    (model / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"chat_template\.jinja") as refusal:
        load_model(model).chat_template()
    assert refusal.value.code == "T348"


@pytest.mark.parametrize("text", ["{", '{"chat_template": 3}'])
def test_broken_tokenizer_config(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="tokenizer_config") as refusal:
        model_with(tmp_path, tokenizer_config__json=text)
    assert refusal.value.code == "T348"
