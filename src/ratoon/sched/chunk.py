"""From a request and a range of positions to the `ScheduledChunk` that the runner sees."""

from ratoon.request.request import Request
from ratoon.sched.stopping import banned_token_ids
from ratoon.step import SampleSpec, ScheduledChunk


def make_chunk(
    request: Request, first: int, end: int, write_from: int, drafts: tuple[int, ...] = ()
) -> ScheduledChunk:
    """Describe positions `first` to `end`, and drafts after them.

    The chunk samples if `end` is the end of the known tokens, as it must be where there are drafts.
    """
    tokens = request.chain.tokens
    prompt_logprobs = None
    prompt_targets: tuple[int, ...] = ()
    if request.params.prompt_logprobs is not None and not request.num_generated:
        prompt_logprobs = request.params.prompt_logprobs
        prompt_targets = tuple(tokens[first + 1 : end + 1])
    return ScheduledChunk(
        request_id=request.id,
        token_ids=(*tokens[first:end], *drafts),
        first_position=first,
        write_from=write_from,
        block_tables=request.block_tables,
        sample=sample_spec(request) if end == len(tokens) else None,
        num_drafts=len(drafts),
        prompt_logprobs=prompt_logprobs,
        prompt_targets=prompt_targets,
    )


def sample_spec(request: Request) -> SampleSpec:
    """Say how the token after the known ones is chosen."""
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
