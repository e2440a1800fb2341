"""`OutputProcessor`: turns the deltas of one request into text."""

from collections.abc import Collection

from ratoon.engine.output import OutputDelta, TokenLogprobs
from ratoon.request.finish import FinishReason, Timings, Usage
from ratoon.request.sampling_params import SamplingParams
from ratoon.sched.delta import RequestDelta
from ratoon.step import Logprobs
from ratoon.text.detokenizer import Detokenizer
from ratoon.text.stop_strings import StopStrings
from ratoon.text.tokenizer import Tokenizer


class OutputProcessor:
    """Follows one request from its first delta to its last, and keeps all that came.

    Once `hit_stop_string` is true the answer is complete, and the caller cancels the request; tokens that the
    engine computed meanwhile are left out. The first `min_tokens` tokens end nothing. `finish_reason` and
    `timings` come with the last delta, `usage` with the first and again with the last: it counts what the
    engine computed, `token_ids` what belongs to the answer. `request_id` and `index` are written on what
    `take` returns. `shown_control_ids` stand in the text in any case.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        params: SamplingParams,
        *,
        request_id: int = 0,
        index: int = 0,
        shown_control_ids: Collection[int] = (),
    ) -> None:
        self._params = params
        self._detokenizer = Detokenizer(
            tokenizer, skip_special=params.skip_special_tokens, shown=shown_control_ids
        )
        self._stops = StopStrings(params.stop, include=params.include_stop_str_in_output)
        self._request_id = request_id
        self._index = index
        self.text = ""
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.prompt_logprobs: tuple[Logprobs | None, ...] = ()
        self.finish_reason: FinishReason | None = None
        self.stop_reason: str | int | None = None
        self.usage: Usage | None = None
        self.timings: Timings | None = None

    @property
    def hit_stop_string(self) -> bool:
        """Whether the text has come to one of the stop strings."""
        return self._stops.matched is not None

    def take(self, delta: RequestDelta) -> OutputDelta:
        """Take the next delta and return what it adds: the tokens that belong to the answer, and their text.

        Raises the delta's error if it has one.
        """
        if delta.error is not None:
            raise delta.error
        text, count = "", 0
        while count < len(delta.token_ids) and not self.hit_stop_string:
            text += self._text_of(delta, count)
            self.token_ids.append(delta.token_ids[count])
            count += 1
        if delta.finish_reason is not None:
            text += self._stops.feed(self._detokenizer.flush()) + self._stops.flush()
        self._note_end(delta)
        logprobs = [dict(entry) for entry in delta.logprobs[:count]]
        self.text += text
        self.logprobs += logprobs
        self.prompt_logprobs += delta.prompt_logprobs
        return OutputDelta(
            request_id=self._request_id,
            index=self._index,
            text=text,
            token_ids=list(delta.token_ids[:count]),
            logprobs=logprobs or None,
            finish_reason=self.finish_reason and self.finish_reason.value,
            stop_reason=self.stop_reason if self.finish_reason else None,
        )

    def _text_of(self, delta: RequestDelta, index: int) -> str:
        """Return what may be shown now that this token of the delta has come."""
        ended_it = delta.finish_reason is FinishReason.STOP and index == len(delta.token_ids) - 1
        if ended_it and not self._params.include_stop_str_in_output:
            return ""
        text = self._detokenizer.feed(delta.token_ids[index])
        return self._stops.feed(text, may_end=len(self.token_ids) >= self._params.min_tokens)

    def _note_end(self, delta: RequestDelta) -> None:
        self.usage = delta.usage or self.usage
        self.timings, self.finish_reason = delta.timings, delta.finish_reason
        if self.hit_stop_string:
            self.stop_reason = self._stops.matched
            self.finish_reason = delta.finish_reason and FinishReason.STOP
        elif delta.finish_reason is FinishReason.STOP and delta.token_ids[-1] in self._params.stop_token_ids:
            self.stop_reason = delta.token_ids[-1]
