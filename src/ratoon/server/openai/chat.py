"""`/v1/chat/completions`: its body, the part of it that a chat template sees, and its responses."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from ratoon.engine.adapters import LoadedAdapter
from ratoon.engine.output import OutputDelta
from ratoon.engine.prompt_parts import PromptTokens
from ratoon.server.generation.request import EncodedPrompt, GenerationRequest, Json
from ratoon.server.generation.usage import ResponseUsage
from ratoon.server.http.body import Body
from ratoon.server.openai.body import MAX_LOGPROBS, GenerationBody
from ratoon.server.openai.format import Envelope, OpenAIFormat, finite_logprob, usage_body
from ratoon.server.served_model import ServedModel
from ratoon.text.chat_prompt import encode_chat


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

    def encode(self, model: ServedModel) -> list[int]:
        """Return the tokens of the conversation. Raises `TextError` of some kind."""
        return encode_chat(
            model.tokenizer,
            model.load_chat_template(),
            [message.for_template() for message in self.messages],
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
            tools=self.tools,
            variables=self.template_variables(),
        )


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

    def request(self, adapter: LoadedAdapter | None) -> GenerationRequest:
        """Return what is asked for."""

        def encode(model: ServedModel) -> list[EncodedPrompt]:
            final = self.messages[-1].for_template()["content"] if self.continue_final_message else ""
            tokens = PromptTokens(self.encode(model))
            return [EncodedPrompt(tokens, final if self.echo else "")]

        return self.generation_request("chat", 1, encode, adapter)


class ChatFormat(OpenAIFormat):
    """How `/v1/chat/completions` responds."""

    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def __init__(self, envelope: Envelope) -> None:
        super().__init__(envelope)
        self._begun: set[int] = set()

    def chunk_choices(self, output: OutputDelta) -> list[Json]:
        """Return a chunk with the new text, and before the first of a choice one that names the role."""
        chunk: Json = {
            "index": output.index,
            "delta": {"content": output.text} if output.text or output.finish_reason is None else {},
            "logprobs": self._logprobs(output),
            "finish_reason": output.finish_reason,
            **self._token_ids(output),
        }
        if output.index in self._begun:
            return [chunk]
        self._begun.add(output.index)
        delta = {"role": "assistant", "content": ""}
        return [{"index": output.index, "delta": delta, "logprobs": None, "finish_reason": None}, chunk]

    def whole(self, outputs: Sequence[OutputDelta], usage: ResponseUsage) -> Json:
        """Return all choices as messages."""
        choices: list[Json] = [
            {
                "index": output.index,
                "message": {"role": "assistant", "content": output.text, "refusal": None},
                "logprobs": self._logprobs(output),
                "finish_reason": output.finish_reason,
                **self._token_ids(output),
            }
            for output in outputs
        ]
        return self._body(self.kind, choices, {"usage": usage_body(usage)})

    def _logprobs(self, output: OutputDelta) -> Json | None:
        if output.logprobs is None:
            return None
        num_top = self._envelope.num_top
        content = [
            {
                **self._token(token_id, entry[token_id]),
                "top_logprobs": [self._token(other, entry[other]) for other in list(entry)[:num_top]],
            }
            for entry, token_id in zip(output.logprobs, output.token_ids, strict=True)
        ]
        return {"content": content, "refusal": None}

    def _token(self, token_id: int, logprob: float) -> Json:
        data = self._envelope.token_bytes(token_id)
        return {
            "token": data.decode(errors="replace"),
            "logprob": finite_logprob(logprob),
            "bytes": list(data),
        }
