"""From a request and a range of positions to the `ScheduledChunk` that the runner sees."""

from ratoon.request.request import Request
from ratoon.sched.stopping import banned_token_ids
from ratoon.step import SampleSpec, ScheduledChunk


def make_chunk(request: Request, first: int, end: int, write_from: int) -> ScheduledChunk:
    """Describe positions `first` to `end`; the chunk samples if it ends at the last known token."""
    tokens = request.chain.tokens
    prompt_logprobs = None
    prompt_targets: tuple[int, ...] = ()
    if request.params.prompt_logprobs is not None and not request.num_generated:
        prompt_logprobs = request.params.prompt_logprobs
        prompt_targets = tuple(tokens[first + 1 : end + 1])
    return ScheduledChunk(
        request_id=request.id,
        token_ids=tuple(tokens[first:end]),
        first_position=first,
        write_from=write_from,
        block_tables=request.block_tables,
        sample=_sample_spec(request) if end == len(tokens) else None,
        prompt_logprobs=prompt_logprobs,
        prompt_targets=prompt_targets,
        adapter=request.chain.extra_keys.adapter,
    )


def _sample_spec(request: Request) -> SampleSpec:
    num_prompt = request.num_prompt_tokens
    history = request.chain.tokens if request.params.has_penalties else ()
    return SampleSpec(
        params=request.params,
        seed=request.seed,
        num_generated=request.num_generated,
        prompt_token_ids=tuple(history[:num_prompt]),
        output_token_ids=tuple(history[num_prompt:]),
        banned_token_ids=banned_token_ids(request),
    )
