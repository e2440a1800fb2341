"""`Generation`: one prompt on its way to `n` answers."""

from collections.abc import Sequence
from dataclasses import replace

from ratoon.engine.output import CompletionOutput, OutputDelta, RequestOutput
from ratoon.engine.output_processor import OutputProcessor
from ratoon.request.request import Request
from ratoon.sched.delta import RequestDelta
from ratoon.text.tokenizer import Tokenizer


class Generation:
    """Collects what the engine finds for one prompt. `requests` are its answers, in order, not yet begun."""

    def __init__(self, prompt: str | None, requests: Sequence[Request], tokenizer: Tokenizer) -> None:
        self.requests = tuple(requests)
        self._prompt = prompt
        self._prompt_token_ids = list(requests[0].chain.tokens)
        self._index_of = {request.id: index for index, request in enumerate(requests)}
        self._answers = [
            OutputProcessor(tokenizer, request.params, request_id=requests[0].id, index=index)
            for index, request in enumerate(requests)
        ]

    @property
    def request_id(self) -> int:
        """The id by which callers know the prompt: its first answer's."""
        return self.requests[0].id

    @property
    def is_finished(self) -> bool:
        """Whether every answer has come to its end."""
        return all(answer.finish_reason is not None for answer in self._answers)

    def is_complete(self, request_id: int) -> bool:
        """Whether this answer needs no more tokens, although the engine may not know."""
        return self._answers[self._index_of[request_id]].hit_stop_string

    def take(self, delta: RequestDelta) -> OutputDelta:
        """Take the next delta of one of the requests. Raises the delta's error if it has one."""
        output = self._answers[self._index_of[delta.request_id]].take(delta)
        return replace(output, result=self._result()) if self.is_finished else output

    def _result(self) -> RequestOutput:
        first = self._answers[0]
        assert first.usage is not None, "the last delta of a request carries its usage"
        prompt_logprobs = [None if entry is None else dict(entry) for entry in first.prompt_logprobs]
        usages = [answer.usage for answer in self._answers if answer.usage is not None]
        timings = [answer.timings for answer in self._answers if answer.timings is not None]
        ttfts = [moments.ttft_s for moments in timings if moments.ttft_s is not None]
        return RequestOutput(
            request_id=self.request_id,
            prompt=self._prompt,
            prompt_token_ids=self._prompt_token_ids,
            prompt_logprobs=prompt_logprobs or None,
            outputs=[_completion(index, answer) for index, answer in enumerate(self._answers)],
            usage=replace(
                first.usage,
                completion_tokens=sum(len(answer.token_ids) for answer in self._answers),
                committed_tokens=sum(usage.committed_tokens for usage in usages),
                draft_tokens=sum(usage.draft_tokens for usage in usages),
                accepted_draft_tokens=sum(usage.accepted_draft_tokens for usage in usages),
            ),
            ttft_s=min(ttfts, default=None),
            e2e_s=max(moments.e2e_s for moments in timings),
        )


def _completion(index: int, answer: OutputProcessor) -> CompletionOutput:
    return CompletionOutput(
        index=index,
        text=answer.text,
        token_ids=answer.token_ids,
        logprobs=answer.logprobs or None,
        finish_reason=answer.finish_reason and answer.finish_reason.value,
        stop_reason=answer.stop_reason,
    )
