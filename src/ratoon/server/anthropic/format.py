"""`MessagesFormat`: how `/v1/messages` responds, whole or as a stream of named events."""

import json
from collections.abc import Sequence
from typing import Any

from ratoon.chat.answer import Answer
from ratoon.chat.answer_reader import AnswerReader
from ratoon.chat.events import CallArguments, CallBegun, ContentText, Event, ReasoningText
from ratoon.engine.output import OutputDelta
from ratoon.server.anthropic.errors import error_body
from ratoon.server.generation.chat import ChatTurn
from ratoon.server.generation.request import Json
from ratoon.server.generation.usage import ResponseUsage
from ratoon.server.generation.writers import event
from ratoon.server.http.errors import ApiError


class MessagesFormat:
    """The `ResponseFormat` of one message.

    A stream has one block open at a time: reasoning, text, then calls, each begun when its first piece comes.
    """

    def __init__(self, turn: ChatTurn, *, response_id: str, model: str, block_size: int) -> None:
        self._turn = turn
        self._id = response_id
        self._model = model
        self._block_size = block_size
        self._reader: AnswerReader | None = None
        self._num_blocks = 0
        self._open: type[Event] | None = None
        self._last: OutputDelta | None = None

    def begin(self, usage: ResponseUsage) -> bytes:
        """Begin the message; what of the prompt was cached is known already."""
        message = self._message([], usage, stop_reason=None, stop_sequence=None)
        return _named("message_start", message=message) + _named("ping")

    def output(self, output: OutputDelta) -> bytes:
        """Return the deltas of blocks, and what begins and ends them."""
        if self._reader is None:
            self._reader = self._turn.reader()
        found = self._reader.feed(output.text)
        if output.finish_reason is not None:
            found += self._reader.finish()
            self._last = output
        return b"".join(map(self._delta, found))

    def end(self, usage: ResponseUsage) -> bytes:
        """End the last block and the message."""
        assert self._reader is not None, "the answer has come"
        assert self._last is not None, "the answer has ended"
        ending = self._ending(self._last, self._reader)
        delta = _named("message_delta", delta=ending, usage=self._usage(usage))
        return self._close() + delta + _named("message_stop")

    def error(self, error: ApiError) -> bytes:
        """Return the error as an event."""
        return event(error_body(error), "error")

    def whole(self, outputs: Sequence[OutputDelta], usage: ResponseUsage) -> Json:
        """Return the message."""
        reader, answer = self._turn.reader(), Answer()
        answer.add(reader.feed(outputs[0].text) + reader.finish())
        content: list[Json] = []
        if answer.reasoning:
            content.append({"type": "thinking", "thinking": answer.reasoning, "signature": ""})
        if answer.content:
            content.append({"type": "text", "text": answer.content})
        for call in answer.calls:
            block = {"type": "tool_use", "id": call.call_id, "name": call.name}
            content.append({**block, "input": _mapping(call.arguments)})
        return self._message(content, usage, **self._ending(outputs[0], reader))

    def _message(self, content: list[Json], usage: ResponseUsage, **ending: object) -> Json:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            **ending,
            "usage": self._usage(usage),
        }

    def _ending(self, output: OutputDelta, reader: AnswerReader) -> dict[str, Any]:
        """Return why the message ended, and what could not be read of it."""
        reason, sequence = "end_turn", None
        if output.finish_reason == "length":
            reason = "max_tokens"
        elif isinstance(output.stop_reason, str):
            reason, sequence = "stop_sequence", output.stop_reason
        elif reader.num_calls:
            reason = "tool_use"
        ending: dict[str, Any] = {"stop_reason": reason, "stop_sequence": sequence}
        return ending if reader.warning is None else ending | {"warning": reader.warning}

    def _usage(self, usage: ResponseUsage) -> Json:
        """Return the usage; the three counts of input add up to the prompt.

        Created are the tokens of full blocks that were not cached: those that others can find from now on.
        """
        num_full = usage.prompt_tokens // self._block_size * self._block_size
        created = max(0, num_full - usage.cached_tokens)
        if usage.cached_tokens >= usage.prompt_tokens - 1:
            created = 0  # only the last token ran, for its logits
        return {
            "input_tokens": usage.prompt_tokens - usage.cached_tokens - created,
            "cache_creation_input_tokens": created,
            "cache_read_input_tokens": usage.cached_tokens,
            "output_tokens": usage.completion_tokens,
        }

    def _delta(self, found: Event) -> bytes:
        block: Json
        match found:
            case ReasoningText(text):
                block = {"type": "thinking", "thinking": "", "signature": ""}
                return self._in_block(found, block, {"type": "thinking_delta", "thinking": text})
            case ContentText(text):
                block = {"type": "text", "text": ""}
                return self._in_block(found, block, {"type": "text_delta", "text": text})
            case CallBegun(_, call_id, name):
                block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
                return self._close() + self._begin(CallBegun, block)
            case CallArguments(_, text):
                return self._piece({"type": "input_json_delta", "partial_json": text})

    def _in_block(self, found: Event, block: Json, delta: Json) -> bytes:
        """Write a piece of text, in a new block if the open one is of another kind."""
        if self._open is type(found):
            return self._piece(delta)
        return self._close() + self._begin(type(found), block) + self._piece(delta)

    def _begin(self, kind: type[Event], block: Json) -> bytes:
        self._open = kind
        self._num_blocks += 1
        return _named("content_block_start", index=self._num_blocks - 1, content_block=block)

    def _piece(self, delta: Json) -> bytes:
        return _named("content_block_delta", index=self._num_blocks - 1, delta=delta)

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        signature = b""
        if self._open is ReasoningText:
            signature = self._piece({"type": "signature_delta", "signature": ""})
        self._open = None
        return signature + _named("content_block_stop", index=self._num_blocks - 1)


def _named(name: str, **fields: object) -> bytes:
    return event({"type": name, **fields}, name)


def _mapping(arguments: str) -> Any:
    """Return a call's arguments; none where they were cut."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
