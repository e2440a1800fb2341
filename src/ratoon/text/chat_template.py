"""`ChatTemplate`: messages to the text that the model was trained on.

Templates are programs in Jinja that come with the model, so they run in jinja2's sandbox. They expect
what the `transformers` library gives them: its way of trimming blocks, its functions, its JSON.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from ratoon.checkpoint.checkpoint import Checkpoint
from ratoon.errors import ChatTemplateError, TextError
from ratoon.text.messages import Message, prepared
from ratoon.text.tokenizer import Tokenizer
from ratoon.text.utf8 import decode_utf8


class ChatTemplate:
    """A compiled template. Raises `ChatTemplateError` where it cannot be compiled."""

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "") -> None:
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, _GenerationTag]
        )
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _refuse, "strftime_now": _strftime_now}
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise ChatTemplateError(f"The chat template is not valid Jinja: {error}.") from error
        self.source = source
        parsed = environment.parse(source)
        self._reads = jinja2.meta.find_undeclared_variables(parsed)
        self._constants = {constant.value for constant in parsed.find_all(jinja2.nodes.Const)}

    @property
    def reads_tools(self) -> bool:
        """Whether the template writes tools into the prompt."""
        return "tools" in self._reads

    @cached_property
    def takes_parts(self) -> bool:
        """Whether the template walks a content that is a list of text parts, and writes the texts alone."""
        parts = [{"type": "text", "text": text} for text in ("one", "two")]
        given = {"messages": [{"role": "user", "content": parts}], "add_generation_prompt": False}
        try:
            rendered = self._template.render(self._tokens | given)
        except Exception:
            return False  # it has no way to say so
        return "one" in rendered and "two" in rendered and not re.search("['\"]text['\"]", rendered)

    def prepared(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """Return messages as the template expects them, which are the same if they are prepared again.

        Raises `ChatTemplateError` for a role that it does not know and for a part that is no text.
        """
        return prepared(
            messages, takes_parts=self.takes_parts, names_role=lambda role: role in self._constants
        )

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the prompt. `variables` are further names the template may use (`enable_thinking`, ...).

        They replace no other variable. Raises `ChatTemplateError` with the template's own words where it
        refuses the messages.
        """
        given = {
            "messages": self.prepared(messages),
            "add_generation_prompt": add_generation_prompt,
            "tools": tools,
            "documents": documents,
        }
        try:
            return self._template.render(dict(variables or {}) | self._tokens | given)
        except Exception as error:  # a template is a program: it can fail in any way
            raise ChatTemplateError(f"The chat template refuses these messages: {error}.") from error


def load_chat_template(
    checkpoint: Checkpoint, tokenizer: Tokenizer, file: str | Path | None = None
) -> ChatTemplate:
    """Return the template in `file`, or the model's own. Raises `TextError`, most often of the chat kind."""
    ends = tokenizer.eos_token_ids[:1]
    bos, eos = (
        "" if token_id is None else tokenizer.token_text(token_id)
        for token_id in (tokenizer.bos_token_id, ends[0] if ends else None)
    )
    source = _source(checkpoint) if file is None else _read(Path(file))
    return ChatTemplate(source, bos_token=bos, eos_token=eos)


def _read(file: Path) -> str:
    try:
        data = file.expanduser().read_bytes()
    except OSError as error:
        raise TextError(f"The chat template {file} cannot be read: {error.strerror}.") from error
    return decode_utf8(data, f"The chat template {file}")


def _source(checkpoint: Checkpoint) -> str:
    metadata = checkpoint.metadata
    configured = metadata.get("tokenizer_config.json")
    template = metadata.get("tokenizer.chat_template") or metadata.get("chat_template.jinja")
    if template is None and isinstance(configured, dict):
        template = configured.get("chat_template")
    if isinstance(template, list):  # several under names
        named = (entry for entry in template if isinstance(entry, Mapping))
        template = next((entry.get("template") for entry in named if entry.get("name") == "default"), None)
    if not isinstance(template, str):
        raise ChatTemplateError(
            "The model has no chat template.",
            hint="It may be a base model: give it plain prompts, or name a file with --chat-template "
            "(chat_template in Python).",
        )
    return template


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is; Jinja's own filter escapes it for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


class _GenerationTag(jinja2.ext.Extension):
    """`{% generation %}` marks answers for training; here it is passed over."""

    tags = {"generation"}  # noqa: RUF012  # jinja2 declares it so

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
