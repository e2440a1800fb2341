"""`Answer`: one request's deltas on their way to text."""

from collections.abc import Sequence
from dataclasses import dataclass

from ratoon.request.finish import FinishReason, Timings, Usage
from ratoon.request.sampling_params import SamplingParams
from ratoon.sched.delta import RequestDelta
from ratoon.step import Logprobs
from ratoon.text.detokenizer import Detokenizer
from ratoon.text.stop_strings import StopStrings
from ratoon.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Piece:
    """What one delta brought: the tokens that belong to the answer, and the text that may be shown now."""

    text: str
    token_ids: Sequence[int]
    logprobs: Sequence[Logprobs]


class Answer:
    """Follows one request from its first delta to its last, and keeps all that came.

    Once `hit_stop_string` is true the answer is complete, and whoever reads it cancels the request; what
    the engine computed meanwhile is passed over. The first `min_tokens` tokens end nothing. The reasons,
    `usage` and `timings` come with the last delta; `usage` counts what the engine computed, `token_ids`
    what belongs to the answer.
    """

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams) -> None:
        self._params = params
        self._detokenizer = Detokenizer(tokenizer, skip_special=params.skip_special_tokens)
        self._stops = StopStrings(params.stop, include=params.include_stop_str_in_output)
        self.text = ""
        self.token_ids: list[int] = []
        self.logprobs: list[Logprobs] = []
        self.prompt_logprobs: tuple[Logprobs | None, ...] = ()
        self.finish_reason: FinishReason | None = None
        self.stop_reason: str | int | None = None
        self.usage: Usage | None = None
        self.timings: Timings | None = None

    @property
    def hit_stop_string(self) -> bool:
        """Whether the text has come to one of the stop strings."""
        return self._stops.matched is not None

    def take(self, delta: RequestDelta) -> Piece:
        """Take the next delta and return what it adds. Raises the delta's error if it has one."""
        if delta.error is not None:
            raise delta.error
        text, count = "", 0
        while count < len(delta.token_ids) and not self.hit_stop_string:
            text += self._text_of(delta, count)
            self.token_ids.append(delta.token_ids[count])
            count += 1
        if delta.finish_reason is not None:
            text += self._stops.feed(self._detokenizer.flush()) + self._stops.flush()
            self._finish(delta)
        self.text += text
        self.logprobs += delta.logprobs[:count]
        self.prompt_logprobs += delta.prompt_logprobs
        return Piece(text, delta.token_ids[:count], delta.logprobs[:count])

    def _text_of(self, delta: RequestDelta, place: int) -> str:
        """Return what may be shown now that this token of the delta has come."""
        ended_it = delta.finish_reason is FinishReason.STOP and place == len(delta.token_ids) - 1
        if ended_it and not self._params.include_stop_str_in_output:
            return ""
        text = self._detokenizer.feed(delta.token_ids[place])
        return self._stops.feed(text, may_end=len(self.token_ids) >= self._params.min_tokens)

    def _finish(self, delta: RequestDelta) -> None:
        self.usage, self.timings, self.finish_reason = delta.usage, delta.timings, delta.finish_reason
        if self.hit_stop_string:
            self.finish_reason, self.stop_reason = FinishReason.STOP, self._stops.matched
        elif delta.finish_reason is FinishReason.STOP and delta.token_ids[-1] in self._params.stop_token_ids:
            self.stop_reason = delta.token_ids[-1]
