"""Strands: the answers of one HTTP request in the making, and how they are made from a task."""

from dataclasses import replace

from ratoon.engine.answer import Answer
from ratoon.engine.prompt_parts import PromptTokens
from ratoon.errors import PromptTooLongError
from ratoon.request.finish import FinishReason
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams
from ratoon.request.seed import child_seed
from ratoon.sched.delta import RequestDelta
from ratoon.server.answer_format import Part
from ratoon.server.api_error import ApiError
from ratoon.server.generation_body import CacheOptions
from ratoon.server.salts import request_salt
from ratoon.server.served_model import ServedModel
from ratoon.server.tasks import EncodedPrompt, Task
from ratoon.server.tenants import Tenant
from ratoon.step import Logprobs
from ratoon.text.tokenizer import Tokenizer


class Strand:
    """One answer: its place in the response, what the engine is asked for, the text so far.

    `echo` is what stands before the answer. `shows_tokens` is false where only that was asked for.
    """

    def __init__(
        self, index: int, request: Request, tokenizer: Tokenizer, *, echo: str = "", shows_tokens: bool = True
    ) -> None:
        self.index = index
        self.request = request
        self.is_in_engine = False
        self.last_token_s: float | None = None
        self._answer = Answer(tokenizer, request.params)
        self._echo = echo
        self._shows_tokens = shows_tokens

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the text has ended; a stop string ends it before the engine knows."""
        return FinishReason.STOP if self._answer.hit_stop_string else self._answer.finish_reason

    @property
    def num_tokens(self) -> int:
        """Output tokens that the response shows."""
        return len(self._answer.token_ids) if self._shows_tokens else 0

    def prompt_text(self, tokenizer: Tokenizer) -> str:
        """Return the prompt, control tokens by name; input rows have no text."""
        tokens = self.request.tokens_between(0, self.request.num_prompt_tokens)
        return tokenizer.decode((token for token in tokens if token is not None), skip_special=False)

    def take(self, delta: RequestDelta) -> Part:
        """Return what a delta adds to the response. Raises the `EngineError` of a failed step."""
        is_first = not self._answer.token_ids
        piece = self._answer.take(delta)
        logprobs: list[Logprobs | None] = list(piece.logprobs)
        text, token_ids = piece.text, piece.token_ids
        if not self._shows_tokens:
            text, token_ids, logprobs = "", (), []
        if is_first:
            text = self._echo + text
            if delta.prompt_logprobs:
                token_ids = (*self.request.chain.tokens[: self.request.num_prompt_tokens], *token_ids)
                logprobs = [*delta.prompt_logprobs, *logprobs]
        reason = self.finish_reason if self._shows_tokens else FinishReason.LENGTH
        has_logprobs = self.request.params.logprobs is not None
        return Part(text, token_ids, logprobs if has_logprobs else None, reason)


def make_strands(model: ServedModel, tenant: Tenant, task: Task) -> list[Strand]:
    """Encode the prompts and return their answers, `n` of each after the other.

    Takes its time for long prompts. Raises `ApiError` where a limit is passed, and `RatoonError`s of
    several kinds where a prompt or a parameter is not right.
    """
    strands: list[Strand] = []
    for prompt in task.encode(model):
        params = _params(model, tenant, task, len(prompt.tokens.ids))
        seed = model.draw_seed() if params.seed is None else params.seed
        requests = [
            _request(model, tenant, task, prompt.tokens, params, child_seed(seed, child))
            for child in range(params.n)
        ]
        echo = _echo(model, prompt) if task.body.echo else ""
        for request in requests:
            shows_tokens = task.body.max_tokens != 0
            strands.append(
                Strand(len(strands), request, model.tokenizer, echo=echo, shows_tokens=shows_tokens)
            )
    return strands


def _echo(model: ServedModel, prompt: EncodedPrompt) -> str:
    if prompt.echo is None:
        return model.tokenizer.decode(prompt.tokens.ids, skip_special=False)
    return prompt.echo


def _request(
    model: ServedModel,
    tenant: Tenant,
    task: Task,
    prompt: PromptTokens,
    params: SamplingParams,
    seed: int,
) -> Request:
    cache = task.body.cache or CacheOptions()
    return model.make_request(
        prompt,
        params,
        seed=seed,
        salt=request_salt(tenant.scope, task.body.cache_salt),
        priority=task.body.priority,
        adapter=task.adapter,
        read_cache=cache.read,
        write_cache=cache.write,
    )


def _params(model: ServedModel, tenant: Tenant, task: Task, num_prompt_tokens: int) -> SamplingParams:
    limits = tenant.limits
    if limits.max_prompt_tokens is not None and num_prompt_tokens > limits.max_prompt_tokens:
        raise PromptTooLongError(
            f"The prompt has {num_prompt_tokens} tokens; the limit is {limits.max_prompt_tokens}."
        )
    wanted = task.body.token_limit()
    if limits.max_output_tokens is not None:
        if wanted is None:
            wanted = limits.max_output_tokens
        elif wanted > limits.max_output_tokens:
            message = f"At most {limits.max_output_tokens} output tokens may be asked for, not {wanted}."
            raise ApiError(400, message, code="too_many_tokens", param="max_tokens")
    params = task.body.sampling_params(wanted or (1 if wanted == 0 else None))
    model.check_params(params)
    return replace(params, prompt_logprobs=params.logprobs) if task.scores_prompt else params
