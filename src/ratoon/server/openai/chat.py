"""`/v1/chat/completions`: its body, the part of it that a chat template sees, and its responses."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, StringConstraints, model_validator

from ratoon.chat.answer import Answer
from ratoon.chat.answer_reader import AnswerReader
from ratoon.engine.adapters import LoadedAdapter
from ratoon.engine.output import OutputDelta
from ratoon.request.structured_outputs import StructuredOutputs
from ratoon.server.generation.chat import ChatRequest, ChatTurn, encode_conversation
from ratoon.server.generation.request import GenerationRequest, Json
from ratoon.server.generation.usage import ResponseUsage
from ratoon.server.http.body import Body
from ratoon.server.openai.body import MAX_LOGPROBS, GenerationBody
from ratoon.server.openai.format import Envelope, OpenAIFormat, finite_logprob, usage_body
from ratoon.server.openai.tools import MAX_TOOLS, ToolBody, ToolChoice, call_body, delta_of, tool_use
from ratoon.server.served_model import ServedModel
from ratoon.text.messages import TEXT_PARTS


def _content(value: object) -> object:
    """Check the content of a message: nothing, a text, or a list of text parts."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ValueError("Content is a text or a list of text parts.")
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str):
            raise ValueError("A part of a content is an object with a type.")
        if kind not in TEXT_PARTS:
            raise ValueError(f"A part of the type {kind!r} cannot be read; this model takes text only.")
        if not isinstance(part.get("text"), str):
            raise ValueError(f"A part of the type {kind!r} needs a text.")
    return value


Content = Annotated[str | list[dict[str, Any]] | None, PlainValidator(_content)]


class Message(BaseModel):
    """One message. Further fields (`name`, `reasoning_content`, ...) go to the chat template as they are."""

    model_config = ConfigDict(strict=True, extra="allow")

    role: Annotated[str, StringConstraints(min_length=1)]
    content: Content = None
    tool_calls: list[dict[str, Any]] | None = None

    def for_template(self) -> dict[str, Any]:
        """Return the message as it is, without what is null."""
        message = {**(self.model_extra or {}), "role": self.role, "content": self.content}
        return message | ({"tool_calls": self.tool_calls} if self.tool_calls else {})


class Conversation(Body):
    """The fields that a chat template sees."""

    messages: Annotated[list[Message], Field(min_length=1)]
    tools: Annotated[list[ToolBody], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
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

    def chat_request(self, form: StructuredOutputs | None = None, *, echo: bool = False) -> ChatRequest:
        """Return what is asked for. Raises `InvalidParameterError` for tools that contradict each other."""
        return ChatRequest(
            messages=[message.for_template() for message in self.messages],
            tools=tool_use(self.tools, self.tool_choice, parallel=self.parallel_tool_calls),
            form=form,
            variables=self.chat_template_kwargs or {},
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
            echo=echo,
        )

    def encode(self, model: ServedModel) -> list[int]:
        """Return the tokens of the conversation. Raises `TextError` of some kind."""
        return encode_conversation(model, self.chat_request())


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

    def turn(self) -> ChatTurn:
        """Return the conversation, by which its answers are read."""
        echo = self.echo and self.continue_final_message
        return ChatTurn(self.chat_request(self.form(), echo=echo))

    def request(self, adapter: LoadedAdapter | None, turn: ChatTurn | None = None) -> GenerationRequest:
        """Return what is asked for."""
        return self.generation_request("chat", 1, (turn or self.turn()).encode, adapter)


class ChatFormat(OpenAIFormat):
    """How `/v1/chat/completions` responds."""

    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def __init__(self, envelope: Envelope, turn: ChatTurn) -> None:
        super().__init__(envelope)
        self._turn = turn
        self._readers: dict[int, AnswerReader] = {}

    def chunk_choices(self, output: OutputDelta) -> list[Json]:
        """Return a chunk for each thing that came, and before the first of a choice one that names the role.

        Log-probabilities stand in the first chunk, the reason for the end in the last.
        """
        chunks: list[Json] = []
        reader = self._readers.get(output.index)
        if reader is None:
            reader = self._readers[output.index] = self._turn.reader()
            chunks.append(self._chunk(output.index, {"role": "assistant", "content": ""}))
        events = reader.feed(output.text)
        if output.finish_reason is not None:
            events += reader.finish()
        deltas = [delta_of(event) for event in events]
        new = [self._chunk(output.index, delta) for delta in deltas]
        if not new and (output.logprobs or output.finish_reason is not None or not output.text):
            new = [self._chunk(output.index, {} if output.finish_reason is not None else {"content": ""})]
        if new:
            new[0] |= {"logprobs": self._logprobs(output), **self._token_ids(output)}
            new[-1] |= self._ending(output, reader)
        return chunks + new

    def whole(self, outputs: Sequence[OutputDelta], usage: ResponseUsage) -> Json:
        """Return all choices as messages."""
        choices: list[Json] = []
        for output in outputs:
            reader, answer = self._turn.reader(), Answer()
            answer.add(reader.feed(output.text) + reader.finish())
            choices.append(
                {
                    "index": output.index,
                    "message": _message(answer),
                    "logprobs": self._logprobs(output),
                    **self._ending(output, reader),
                    **self._token_ids(output),
                }
            )
        return self._body(self.kind, choices, {"usage": usage_body(usage)})

    def _chunk(self, index: int, delta: Json) -> Json:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def _ending(self, output: OutputDelta, reader: AnswerReader) -> Json:
        """Return why the answer ended, and what could not be read of it."""
        reason = output.finish_reason
        if reason == "stop" and reader.num_calls and self._turn.ends_with_calls:
            reason = "tool_calls"
        ending: Json = {"finish_reason": reason, "stop_reason": output.stop_reason}
        return ending if reader.warning is None else ending | {"warning": reader.warning}

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


def _message(answer: Answer) -> Json:
    """Return an answer as a message; its content is null where it consists of calls alone."""
    message: Json = {"role": "assistant", "content": answer.content, "refusal": None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["content"] = answer.content or None
        message["tool_calls"] = [call_body(call) for call in answer.calls]
    return message
