"""`ChatFormat`: answers as `/v1/chat/completions` gives them."""

from collections.abc import Sequence

from ratoon.server.answer_format import EnvelopedFormat, Json, Part, chosen_logprob, finite_logprob


class ChatFormat(EnvelopedFormat):
    """`/v1/chat/completions`."""

    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def opening(self, index: int) -> list[Json]:
        """Return the chunk that names the role."""
        delta = {"role": "assistant", "content": ""}
        return [self._chunk({"index": index, "delta": delta, "logprobs": None, "finish_reason": None})]

    def chunk(self, index: int, part: Part) -> Json:
        """Return a chunk with the new text."""
        return self._chunk(
            {
                "index": index,
                "delta": {"content": part.text} if part.text or part.finish_reason is None else {},
                "logprobs": self._logprobs(part),
                "finish_reason": part.finish_reason,
                **self._token_ids(part),
            }
        )

    def whole(self, answers: Sequence[Part], usage: Json) -> Json:
        """Return all answers as messages."""
        choices: list[Json] = [
            {
                "index": index,
                "message": {"role": "assistant", "content": part.text, "refusal": None},
                "logprobs": self._logprobs(part),
                "finish_reason": part.finish_reason,
                **self._token_ids(part),
            }
            for index, part in enumerate(answers)
        ]
        return self._body(self.kind, choices, {"usage": usage})

    def _logprobs(self, part: Part) -> Json | None:
        if part.logprobs is None:
            return None
        content = [
            {
                **self._token(token_id, chosen_logprob(entry, token_id)),
                "top_logprobs": [
                    self._token(other, value) for other, value in entry[: self._envelope.num_top]
                ],
            }
            for entry, token_id in zip(part.logprobs, part.token_ids, strict=True)
            if entry is not None
        ]
        return {"content": content, "refusal": None}

    def _token(self, token_id: int, logprob: float) -> Json:
        data = self._envelope.token_bytes(token_id)
        return {
            "token": data.decode(errors="replace"),
            "logprob": finite_logprob(logprob),
            "bytes": list(data),
        }
