"""Choices: the answers of one HTTP request in the making, and how they are made from it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ratoon.engine.output import OutputDelta, TokenLogprobs
from ratoon.engine.output_processor import OutputProcessor
from ratoon.errors import PromptTooLongError
from ratoon.request.finish import FinishReason
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams
from ratoon.sched.delta import RequestDelta
from ratoon.server.generation.request import EncodedPrompt, GenerationRequest
from ratoon.server.generation.usage import ChoiceUsage
from ratoon.server.http.errors import ApiError
from ratoon.server.served_model import ServedModel
from ratoon.server.tenants import Tenant, request_salt
from ratoon.text.tokenizer import Tokenizer


class Choice:
    """One answer: its index in the response, the request that the engine is given for it, and its text.

    The engine owns `request` once it was submitted; from then on a choice knows only what deltas tell.
    `note` takes every delta when it comes, `take` those that the text still needs, when the client can be
    sent more.
    """

    def __init__(
        self,
        index: int,
        request: Request,
        prompt: EncodedPrompt,
        tokenizer: Tokenizer,
        *,
        show_output: bool = True,
    ) -> None:
        self.index = index
        self.request = request
        self.prompt = prompt
        self.usage = ChoiceUsage(request.num_prompt_tokens)
        self.is_in_engine = False
        self.last_token_s: float | None = None
        self._processor = OutputProcessor(
            tokenizer,
            request.params,
            request_id=request.id,
            index=index,
            shown_control_ids=prompt.shown_control_ids,
        )
        self._has_logprobs = request.params.logprobs is not None
        self._show_output = show_output
        self._has_begun = False

    @property
    def has_ended(self) -> bool:
        """Whether the text has ended; a stop string ends it before the engine knows."""
        return self._processor.hit_stop_string or self._processor.finish_reason is not None

    @property
    def was_cut(self) -> bool:
        """Whether the text ended because of its length."""
        return self._processor.finish_reason is FinishReason.LENGTH and not self._processor.hit_stop_string

    def note(self, delta: RequestDelta) -> None:
        """Keep what a delta tells of usage and timings."""
        self.usage.usage = delta.usage or self.usage.usage
        if delta.finish_reason is not None:
            self.usage.timings = delta.timings
            self.is_in_engine = False

    def take(self, delta: RequestDelta) -> OutputDelta:
        """Return what a delta adds to the response. Raises the `EngineError` of a failed step."""
        output = self._processor.take(delta)
        logprobs = output.logprobs or [] if self._has_logprobs else None
        if self._processor.hit_stop_string:
            reason, stop_reason = FinishReason.STOP.value, self._processor.stop_reason
            output = replace(output, finish_reason=reason, stop_reason=stop_reason)
        if not self._show_output:
            output = replace(output, text="", token_ids=[], finish_reason=FinishReason.LENGTH.value)
            logprobs = logprobs and []
        self.usage.num_shown_tokens += len(output.token_ids)
        if not self._has_begun:
            self._has_begun = True
            return self._with_echo(output, delta, logprobs)
        return output if logprobs == output.logprobs else replace(output, logprobs=logprobs)

    def _with_echo(
        self, output: OutputDelta, delta: RequestDelta, logprobs: list[TokenLogprobs] | None
    ) -> OutputDelta:
        token_ids = output.token_ids
        if delta.prompt_logprobs and logprobs is not None:
            token_ids = [*self.prompt.tokens.ids, *token_ids]
            logprobs = [*(dict(entry or ()) for entry in delta.prompt_logprobs), *logprobs]
        text = self.prompt.echo + output.text
        return replace(output, text=text, token_ids=token_ids, logprobs=logprobs)


def make_choices(model: ServedModel, tenant: Tenant, request: GenerationRequest) -> list[Choice]:
    """Encode the prompts and return their choices, `n` of each prompt after the other.

    Takes long for long prompts. Raises `ApiError` where a limit is passed, and `RatoonError`s of several
    kinds where a prompt or a parameter is not right.
    """
    choices: list[Choice] = []
    for prompt in request.encode(model):
        params = _limited(request.params, tenant, len(prompt.tokens.ids))
        if prompt.form is not None:
            params = replace(params, structured_outputs=prompt.form)
        requests = model.requests.make(
            prompt.tokens,
            params,
            salt=request_salt(tenant.scope, request.cache_salt),
            priority=request.priority,
            adapter=request.adapter,
            tenant=tenant.name,
            read_cache=request.read_cache,
            write_cache=request.write_cache,
            score_prompt_once=False,
        )
        for own in requests:
            choices.append(
                Choice(len(choices), own, prompt, model.tokenizer, show_output=request.show_output)
            )
    return choices


def prompt_texts(choices: Sequence[Choice], n: int, decode: Callable[[Sequence[int]], str]) -> str:
    """Return the prompts' texts, control tokens by name; input rows have no text."""
    texts = []
    for choice in choices[::n]:
        tokens = choice.prompt.tokens
        ids = list(tokens.ids)
        for offset, rows in reversed(tokens.rows):
            del ids[offset : offset + rows.num_rows]
        texts.append(decode(ids))
    return "\n".join(texts)


def _limited(params: SamplingParams, tenant: Tenant, num_prompt_tokens: int) -> SamplingParams:
    """Check a prompt and its output against the tenant's limits; return the parameters that hold."""
    limits = tenant.limits
    if limits.max_prompt_tokens is not None and num_prompt_tokens > limits.max_prompt_tokens:
        raise PromptTooLongError(
            f"The prompt has {num_prompt_tokens} tokens; the limit is {limits.max_prompt_tokens}."
        )
    most = limits.max_output_tokens
    if most is None:
        return params
    if params.max_tokens is None:
        return replace(params, max_tokens=most)
    if params.max_tokens > most:
        message = f"At most {most} output tokens may be asked for, not {params.max_tokens}."
        raise ApiError(400, message, code="too_many_tokens", param="max_tokens")
    return params
