"""`ChatBody`: the body of `/v1/chat/completions`, and the part of it that a chat template sees."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from ratoon.server.body import Body
from ratoon.server.generation_body import MAX_LOGPROBS, GenerationBody


class TextPart(Body):
    """A part of a message's content."""

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One message. Further fields (`name`, `tool_calls`, ...) go to the chat template as they are."""

    model_config = ConfigDict(strict=True, extra="allow")

    role: Annotated[str, StringConstraints(min_length=1)]
    content: str | list[TextPart] | None = None

    def for_template(self) -> dict[str, Any]:
        """Return the message as templates expect it, its content as one text."""
        content = self.content
        if isinstance(content, list):
            content = "\n".join(part.text for part in content)
        return {**(self.model_extra or {}), "role": self.role, "content": content or ""}


class Conversation(Body):
    """The fields that a chat template sees."""

    messages: Annotated[list[Message], Field(min_length=1)]
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False

    @model_validator(mode="after")
    def _one_ending(self) -> "Conversation":
        if self.continue_final_message and self.add_generation_prompt:
            if "add_generation_prompt" in self.model_fields_set:
                raise ValueError("continue_final_message and add_generation_prompt exclude each other.")
            self.add_generation_prompt = False
        return self

    def template_variables(self) -> dict[str, Any]:
        """Return what the template sees besides the messages."""
        variables = dict(self.chat_template_kwargs or {})
        if self.tools is not None:
            variables["tools"] = self.tools
        if self.tool_choice is not None:
            variables["tool_choice"] = self.tool_choice
        return variables


class ChatBody(Conversation, GenerationBody):
    """The body of `/v1/chat/completions`."""

    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None

    @model_validator(mode="after")
    def _fields_agree(self) -> "ChatBody":
        if self.token_limit() == 0:
            raise ValueError("max_tokens must be at least 1.")
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs to be true.")
        return self

    def token_limit(self) -> int | None:
        """Return `max_completion_tokens`, or its older name."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    def num_logprobs(self) -> int | None:
        """Return `top_logprobs`, 0 where only the chosen token was asked for."""
        return (self.top_logprobs or 0) if self.logprobs else None
