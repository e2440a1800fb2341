"""`ChatRequest` and `ChatTurn`: a conversation as every dialect asks for it, and how its answers are read.

A dialect brings messages, tools and wishes into one shape, that of OpenAI's messages, which is also what chat
templates expect. From there on the tokens are the same whatever the dialect, so conversations share blocks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ratoon.chat.answer_reader import AnswerReader
from ratoon.chat.chat_model import ChatModel
from ratoon.chat.tool_grammar import GrammarSettings, answer_grammar
from ratoon.chat.tool_prompt import with_fitting_ids, with_tools_written
from ratoon.chat.tools import ANY_ARGUMENTS, NO_TOOLS, Tool, ToolUse
from ratoon.engine.prompt_parts import PromptTokens
from ratoon.errors import GrammarError
from ratoon.request.structured_outputs import StructuredOutputs
from ratoon.server.generation.request import EncodedPrompt
from ratoon.server.served_model import ServedModel
from ratoon.text.chat_prompt import encode_chat

LONGEST_MARKER_TOKENS = 8
"""The end of a prompt, in tokens, that may hold a marker which opens the reasoning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One conversation.

    `messages` are mappings as OpenAI's API has them. `variables` are for the chat template. `form` is what an
    answer must have if it is not a call.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: ToolUse = NO_TOOLS
    form: StructuredOutputs | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    echo: bool = False
    """Whether the answer begins with the final message that it continues."""


class ChatTurn:
    """One request's conversation: first encoded, on a thread; then its choices are read, each by a reader."""

    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self._model: ChatModel | None = None
        self._is_reasoning = False

    def encode(self, model: ServedModel) -> list[EncodedPrompt]:
        """Return the prompt with the form of its answers.

        Raises `TextError` for messages that cannot be rendered, `GrammarError` and `InvalidParameterError`
        for a form or tools that answers cannot be held to.
        """
        request, chat = self._request, model.chat()
        self._model = chat
        ids = encode_conversation(model, request)
        if chat.reasoning is not None:
            tail = model.tokenizer.decode(ids[-LONGEST_MARKER_TOKENS:], skip_special=False)
            self._is_reasoning = tail.rstrip().endswith(chat.reasoning.begin)
        form, warnings = self._form(model, chat)
        echo = _text(request.messages[-1].get("content")) if request.echo else ""
        return [
            EncodedPrompt(
                PromptTokens(ids),
                echo,
                form=form,
                shown_control_ids=chat.marker_ids if request.tools.callable_tools else frozenset(),
                warnings=warnings,
            )
        ]

    def reader(self) -> AnswerReader:
        """Return a reader for one choice; only after `encode`."""
        assert self._model is not None, "the conversation was encoded"
        names = [tool.name for tool in self._request.tools.callable_tools]
        return AnswerReader(
            names, self._model.tool_format, self._model.reasoning, is_reasoning=self._is_reasoning
        )

    @property
    def ends_with_calls(self) -> bool:
        """Whether calls are why an answer with calls has ended; a call of a named function was no choice."""
        return self._request.tools.name is None

    def _form(self, model: ServedModel, chat: ChatModel) -> tuple[StructuredOutputs | None, tuple[str, ...]]:
        use, wanted = self._request.tools, self._request.form
        settings = GrammarSettings(model.tokenizer.control_ids, chat.reasoning, self._is_reasoning)
        warnings: list[str] = []
        if use.callable_tools and not use.must_call:
            if not model.has_grammars:
                return wanted, ()
            use = replace(use, tools=[_followed(tool, model, warnings) for tool in use.tools])
        return answer_grammar(use, chat.tool_format, settings, wanted), tuple(warnings)


def encode_conversation(model: ServedModel, request: ChatRequest) -> list[int]:
    """Return the tokens of a conversation. Raises `TextError` of some kind."""
    template, form = model.chat().template, model.chat().tool_format
    tools: Sequence[Tool] = request.tools.tools
    messages = with_fitting_ids(request.messages, form)
    if not template.reads_tools:
        messages, tools = with_tools_written(messages, tools, form), ()
    return encode_chat(
        model.tokenizer,
        template,
        messages,
        add_generation_prompt=request.add_generation_prompt,
        continue_final_message=request.continue_final_message,
        tools=[tool.for_template() for tool in tools] or None,
        variables=request.variables,
    )


def _followed(tool: Tool, model: ServedModel, warnings: list[str]) -> Tool:
    """Return a tool whose schema can be followed; one that is strict is returned as it is."""
    if tool.is_strict:
        return tool
    try:
        model.check_form(StructuredOutputs(json=tool.parameters))
    except GrammarError as error:
        warnings.append(f"arguments of {tool.name} are held to a JSON object only: {error.message}")
        return replace(tool, parameters=ANY_ARGUMENTS)
    return tool


def _text(content: Any) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    return "\n".join(part["text"] for part in content)
