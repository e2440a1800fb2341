"""`ChatModel`: what is known of a model's chat from its template, or was said by the operator."""

from dataclasses import dataclass

from ratoon.chat.reasoning import REASONING_FORMATS, ReasoningFormat, reasoning_format_of
from ratoon.chat.tool_format import TOOL_FORMATS, ToolFormat, tool_format_of
from ratoon.text.chat_template import ChatTemplate
from ratoon.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ChatModel:
    """`marker_ids` are the control tokens among the markers of the tool format."""

    template: ChatTemplate
    tool_format: ToolFormat
    reasoning: ReasoningFormat | None
    marker_ids: frozenset[int]


def chat_model(
    template: ChatTemplate,
    tokenizer: Tokenizer,
    *,
    tool_parser: str | None = None,
    reasoning_parser: str | None = None,
) -> ChatModel:
    """Return what holds for a template. The parsers are names of formats, chosen by the template if None.

    The reasoning parser `none` leaves reasoning in the text.
    """
    tool_format = TOOL_FORMATS[tool_parser] if tool_parser else tool_format_of(template.source)
    reasoning = REASONING_FORMATS.get(reasoning_parser) if reasoning_parser else None
    if reasoning_parser is None:
        reasoning = reasoning_format_of(template.source)
    ids = tokenizer.control_ids
    marker_ids = frozenset(ids[marker] for marker in tool_format.markers if marker in ids)
    return ChatModel(template, tool_format, reasoning, marker_ids)
