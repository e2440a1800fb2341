import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import pytest

from ratoon.checkpoint.formats import open_checkpoint
from ratoon.checkpoint.tensor import RawTensor
from ratoon.errors import ChatTemplateError
from ratoon.text.chat_template import ChatTemplate, load_chat_template
from ratoon.text.tokenizer import Tokenizer

GOLDEN = Path(__file__).parents[1] / "golden"
USER = {"role": "user", "content": "Hello"}


@dataclass
class FakeCheckpoint:
    metadata: Mapping[str, object]
    format: Literal["gguf", "safetensors"] = "gguf"
    architecture: str = "llama"
    path: Path = Path("model")
    tokenizer_json: str = ""
    digest: bytes = b""
    names: tuple[str, ...] = field(default=())

    def tensor_names(self) -> tuple[str, ...]:
        return self.names

    def tensor(self, name: str) -> RawTensor:
        raise AssertionError(name)


def test_the_real_template_renders_every_golden_case(smollm2_path: Path, smollm2: Tokenizer) -> None:
    template = load_chat_template(open_checkpoint(smollm2_path), smollm2)
    cases: list[dict[str, Any]] = json.loads((GOLDEN / "smollm2/chat_cases.json").read_text("utf-8"))
    assert len(cases) == 18
    for case in cases:
        rendered = template.render(case["messages"], add_generation_prompt=case["add_generation_prompt"])
        assert rendered == case["rendered"]
        assert smollm2.encode(rendered, add_special=False, parse_special=True) == case["ids"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "<s>Hello</s>"),
        ("{% if add_generation_prompt %}go{% endif %}", "go"),
        ("{% for m in messages %}\n    {% if true %}\n  x\n    {% endif %}\n{% endfor %}", "  x\n"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("a{% generation %}b{% endgeneration %}c", "abc"),
        ("{{ tools | length }}{{ tools[0].name }}", "1f"),
        ("{{ documents[0].text }}", "d"),
        ("{{ enable_thinking }}", "no"),
        ("{{ undefined_name }}", ""),
        ("{{ {'a': '<ü>'} | tojson }}", '{"a": "<ü>"}'),
        ("{{ {'a': 'ü'} | tojson(ensure_ascii=true, indent=1) }}", '{\n "a": "\\u00fc"\n}'),
        ("{{ strftime_now('%Y') }}", str(datetime.now().year)),
        ("{{ messages[0]['content'].strip().upper() }}", "HELLO"),
    ],
)
def test_templates_find_what_they_expect(source: str, expected: str) -> None:
    template = ChatTemplate(source, bos_token="<s>", eos_token="</s>")
    rendered = template.render(
        [USER], tools=[{"name": "f"}], documents=[{"text": "d"}], variables={"enable_thinking": "no"}
    )
    assert rendered == expected


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("{{ raise_exception('Roles must alternate') }}", "Roles must alternate"),
        ("{{ messages[5].content.x }}", "no element 5"),
        ("{{ messages[0].content + 1 }}", "concatenate"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{% for i in range(10**9) %}{% endfor %}", "Range too big"),
        ("{{ 1 // 0 }}", "zero"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ],
)
def test_a_template_that_refuses_or_fails_is_one_sentence(source: str, part: str) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        ChatTemplate(source).render([USER])
    assert part in caught.value.message


@pytest.mark.parametrize("source", ["{% if %}", "{{ a", "{% nonsense %}", "{{ a | nonsense }}"])
def test_a_broken_template_is_refused(source: str) -> None:
    with pytest.raises(ChatTemplateError, match="not valid Jinja"):
        ChatTemplate(source)


def test_text_parts_are_joined_and_other_parts_refused() -> None:
    template = ChatTemplate("{{ messages[0].content }}")
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert template.render([{"role": "user", "content": parts}]) == "one\ntwo"
    with pytest.raises(ChatTemplateError, match="text only"):
        template.render([{"role": "user", "content": [{"type": "image_url"}]}])


TEMPLATE = "{{ messages[0].content }}"


@pytest.mark.parametrize(
    "metadata",
    [
        {"tokenizer.chat_template": TEMPLATE},
        {"chat_template.jinja": TEMPLATE, "tokenizer_config.json": {"chat_template": "old"}},
        {"tokenizer_config.json": {"chat_template": TEMPLATE}},
        {"tokenizer_config.json": {"chat_template": [
            {"name": "tool_use", "template": "no"}, {"name": "default", "template": TEMPLATE}]}},
    ],
)  # fmt: skip
def test_the_models_own_template_is_found(metadata: dict[str, object], byte_level: Tokenizer) -> None:
    assert load_chat_template(FakeCheckpoint(metadata), byte_level).render([USER]) == "Hello"


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"tokenizer_config.json": {}},
        {"tokenizer_config.json": {"chat_template": ["default", 5]}},
        {"tokenizer.chat_template": 5},
    ],
)
def test_a_model_without_a_template_says_what_to_do(
    metadata: dict[str, object], byte_level: Tokenizer
) -> None:
    with pytest.raises(ChatTemplateError, match="no chat template") as caught:
        load_chat_template(FakeCheckpoint(metadata), byte_level)
    assert "--chat-template" in (caught.value.hint or "")


def test_a_template_knows_the_tokens_that_begin_and_end_a_text(byte_level: Tokenizer) -> None:
    checkpoint = FakeCheckpoint({"tokenizer.chat_template": "{{ bos_token }}mine{{ eos_token }}"})
    assert load_chat_template(checkpoint, byte_level).render([USER]) == "<s>mine</s>"
