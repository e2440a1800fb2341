"""`CompletionFormat`: answers as `/v1/completions` gives them."""

from collections.abc import Sequence

from ratoon.server.answer_format import (
    Envelope,
    EnvelopedFormat,
    Json,
    Part,
    chosen_logprob,
    finite_logprob,
)


class CompletionFormat(EnvelopedFormat):
    """`/v1/completions`."""

    kind = "text_completion"
    chunk_kind = "text_completion"

    def __init__(self, envelope: Envelope) -> None:
        super().__init__(envelope)
        self._offsets: dict[int, int] = {}

    def opening(self, index: int) -> list[Json]:
        """Completions begin with their text."""
        return []

    def chunk(self, index: int, part: Part) -> Json:
        """Return a chunk with the new text."""
        return self._chunk(self._choice(index, part))

    def whole(self, answers: Sequence[Part], usage: Json) -> Json:
        """Return all answers."""
        choices = [self._choice(index, part) for index, part in enumerate(answers)]
        return self._body(self.kind, choices, {"usage": usage})

    def _choice(self, index: int, part: Part) -> Json:
        return {
            "index": index,
            "text": part.text,
            "logprobs": self._logprobs(index, part),
            "finish_reason": part.finish_reason,
            **self._token_ids(part),
        }

    def _logprobs(self, index: int, part: Part) -> Json | None:
        if part.logprobs is None:
            return None
        tokens = [self._text(token_id) for token_id in part.token_ids]
        offsets = []
        for token in tokens:
            offsets.append(self._offsets.setdefault(index, 0))
            self._offsets[index] += len(token)
        return {
            "tokens": tokens,
            "token_logprobs": [
                None if entry is None else chosen_logprob(entry, token_id)
                for entry, token_id in zip(part.logprobs, part.token_ids, strict=True)
            ],
            "top_logprobs": [
                None
                if entry is None
                else {self._text(token_id): finite_logprob(value) for token_id, value in entry}
                for entry in part.logprobs
            ],
            "text_offset": offsets,
        }

    def _text(self, token_id: int) -> str:
        return self._envelope.token_bytes(token_id).decode(errors="replace")
