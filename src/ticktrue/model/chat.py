"""A model's own chat template, rendered in a sandbox that can neither reach Python nor change its inputs."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from ticktrue.errors import InputError

CODE = "T348"
TEMPLATE_FILE = "chat_template.jinja"
TOKENIZER_CONFIG = "tokenizer_config.json"


class _NamedTemplate(msgspec.Struct, frozen=True):
    name: str
    template: str


class _TokenizerConfig(msgspec.Struct, frozen=True):
    chat_template: str | list[_NamedTemplate] | None = None


class ChatTemplate:
    """Messages to the prompt text that the model was trained on.

    The dialect is that of `transformers`: trimmed blocks, `raise_exception`, `tojson`, loop controls.
    There is no `strftime_now`: a prompt must not depend on the day it is made (templates have a fixed date).

    Raises:
        InputError: T348, for a template with a syntax error.
    """

    __slots__ = ("_bos", "_eos", "_template", "source")

    def __init__(self, source: str, *, bos: str = "", eos: str = "", where: str = "chat template") -> None:
        from jinja2 import TemplateError
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols], autoescape=False
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        self.source = source
        self._bos, self._eos = bos, eos
        try:
            self._template = environment.from_string(source)
        except TemplateError as problem:
            raise InputError(f"the chat template is not valid: {problem}", code=CODE, where=where) from None

    def render(self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True) -> str:
        """The prompt text of a conversation; encode it with `add_special=False`.

        Args:
            messages: role and content of each turn, e.g. {"role": "user", "content": "Hi"}.
            add_generation_prompt: whether the opening of the assistant's turn is added.

        Raises:
            InputError: T348, where the template refuses the messages or fails.
        """
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                bos_token=self._bos,
                eos_token=self._eos,
            )
        except Exception as problem:  # a template can raise whatever Python can
            raise InputError(
                f"the chat template refuses the conversation: {problem}", code=CODE, where="messages"
            ) from problem


def read_template(directory: Path) -> str | None:
    """The chat template of a Hugging Face directory, or None.

    Raises:
        InputError: T348, for a file that is not valid.
    """
    own, path = directory / TEMPLATE_FILE, directory / TOKENIZER_CONFIG
    try:
        if own.is_file():
            return own.read_text(encoding="utf-8")
        if not path.is_file():
            return None
        found = msgspec.json.decode(path.read_bytes(), type=_TokenizerConfig).chat_template
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError) as problem:
        file = own if own.is_file() else path
        raise InputError(f"{file.name} is not valid: {problem}", code=CODE, where=str(file)) from None
    return found if isinstance(found, str | None) else _default(found)


def _default(templates: Iterable[_NamedTemplate]) -> str | None:
    return next((entry.template for entry in templates if entry.name == "default"), None)


def _to_json(value: object, indent: int | None = None) -> str:
    """Plain JSON; Jinja's own filter escapes HTML, which a prompt must not contain."""
    import json

    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)
