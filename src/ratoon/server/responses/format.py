"""`ResponsesFormat`: how `/v1/responses` responds, whole or as a stream of numbered events."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from ratoon.chat.answer_reader import AnswerReader
from ratoon.chat.events import CallArguments, CallBegun, ContentText, Event, ReasoningText
from ratoon.engine.output import OutputDelta
from ratoon.server.generation.chat import ChatTurn
from ratoon.server.generation.request import Json
from ratoon.server.generation.usage import ResponseUsage
from ratoon.server.generation.writers import event
from ratoon.server.http.errors import ApiError
from ratoon.server.responses.items import call_item, message_item, reasoning_item, text_part


class ResponsesFormat:
    """The `ResponseFormat` of one response.

    `echoed` are the fields of the body that a response repeats. `keep` is given the finished response and its
    output. A stream has one item open at a time; every event carries its type and a number.
    """

    def __init__(
        self, turn: ChatTurn, *, response_id: str, echoed: Json, keep: Callable[[Json, list[Json]], None]
    ) -> None:
        self._turn = turn
        self._id = response_id
        self._echoed = echoed
        self._keep = keep
        self._created = int(time.time())
        self._reader: AnswerReader | None = None
        self._num_events = 0
        self._items: list[Json] = []
        self._open: Event | None = None
        self._text = ""
        self._was_cut = False

    def begin(self, usage: ResponseUsage) -> bytes:
        """Say that the response exists and is being made."""
        response = self._response("in_progress", [], None)
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def output(self, output: OutputDelta) -> bytes:
        """Return the events of items, and what begins and ends them."""
        if self._reader is None:
            self._reader = self._turn.reader()
        found = self._reader.feed(output.text)
        if output.finish_reason is not None:
            found += self._reader.finish()
            self._was_cut = output.finish_reason == "length"
        return b"".join(map(self._events_of, found))

    def end(self, usage: ResponseUsage) -> bytes:
        """End the last item and the response."""
        closed = self._close()
        response = self._finished(usage)
        return closed + self._event(f"response.{response['status']}", response=response)

    def error(self, error: ApiError) -> bytes:
        """Return the failure as an event."""
        response = self._response("failed", [], None)
        response["error"] = {"code": error.code or "server_error", "message": error.message}
        return self._event("response.failed", response=response)

    def whole(self, outputs: Sequence[OutputDelta], usage: ResponseUsage) -> Json:
        """Return the response."""
        self.output(outputs[0])
        self._close()
        return self._finished(usage)

    def _finished(self, usage: ResponseUsage) -> Json:
        response = self._response("incomplete" if self._was_cut else "completed", self._items, usage)
        self._keep(response, self._items)
        return response

    def _response(self, status: str, output: list[Json], usage: ResponseUsage | None) -> Json:
        response: Json = {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            **self._echoed,
            "output": output,
            "usage": None if usage is None else _usage(usage),
        }
        warning = None if self._reader is None else self._reader.warning
        return response if warning is None else response | {"warning": warning}

    def _events_of(self, found: Event) -> bytes:
        before = b""
        if isinstance(found, CallBegun) or not (
            isinstance(found, CallArguments) or isinstance(self._open, type(found))
        ):
            before = self._close() + self._begin(found)
        where = self._where()
        match found:
            case ContentText(text):
                self._text += text
                what = "response.output_text.delta"
                return before + self._event(what, **where, content_index=0, delta=text, logprobs=[])
            case ReasoningText(text):
                self._text += text
                what = "response.reasoning_text.delta"
                return before + self._event(what, **where, content_index=0, delta=text)
            case CallArguments(_, text):
                self._text += text
                return self._event("response.function_call_arguments.delta", **where, delta=text)
        return before

    def _begin(self, found: Event) -> bytes:
        self._open, self._text = found, ""
        added = self._item_event("added", self._item("in_progress"))
        return added + (self._part_event("added") if isinstance(found, ContentText) else b"")

    def _close(self) -> bytes:
        """End the item that is open."""
        if self._open is None:
            return b""
        where, text = self._where(), self._text
        item = self._item("incomplete" if self._was_cut else "completed")
        match self._open:
            case ContentText():
                what = "response.output_text.done"
                data = self._event(what, **where, content_index=0, text=text, logprobs=[])
                data += self._part_event("done")
            case ReasoningText():
                data = self._event("response.reasoning_text.done", **where, content_index=0, text=text)
            case _:
                data = self._event("response.function_call_arguments.done", **where, arguments=text)
        data += self._item_event("done", item)
        self._items.append(item)
        self._open = None
        return data

    def _item(self, status: str) -> Json:
        """Return the open item as it is now."""
        item_id = self._where()["item_id"]
        match self._open:
            case CallBegun(_, call_id, name):
                return call_item(item_id, call_id, name, self._text, status)
            case ReasoningText():
                return reasoning_item(item_id, self._text)
        return message_item(item_id, self._text, status)

    def _where(self) -> dict[str, Any]:
        """Return which item is open."""
        prefix = "fc" if isinstance(self._open, CallBegun) else "msg"
        if isinstance(self._open, ReasoningText):
            prefix = "rs"
        index = len(self._items)
        return {"item_id": f"{prefix}_{self._id.partition('_')[2]}{index:02x}", "output_index": index}

    def _item_event(self, what: str, item: Json) -> bytes:
        return self._event(f"response.output_item.{what}", output_index=len(self._items), item=item)

    def _part_event(self, what: str) -> bytes:
        part = text_part(self._text)
        return self._event(f"response.content_part.{what}", **self._where(), content_index=0, part=part)

    def _event(self, kind: str, **fields: object) -> bytes:
        self._num_events += 1
        return event({"type": kind, "sequence_number": self._num_events - 1, **fields}, kind)


def _usage(usage: ResponseUsage) -> Json:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
