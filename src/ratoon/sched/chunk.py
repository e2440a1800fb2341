"""From a request and a range of positions to the `ScheduledChunk` that the runner sees."""

from collections.abc import Iterator

from ratoon.request.request import Request
from ratoon.sched.stopping import banned_token_ids
from ratoon.step import ChunkRows, SampleSpec, ScheduledChunk


def make_chunk(
    request: Request, first: int, end: int, write_from: int, drafts: tuple[int, ...] = ()
) -> ScheduledChunk:
    """Describe positions `first` to `end`, and drafts after them.

    The chunk samples if `end` is the end of the known tokens, as it must be where there are drafts.
    """
    chain = request.chain
    prompt_logprobs = None
    prompt_targets: tuple[int | None, ...] = ()
    if request.params.prompt_logprobs is not None and not request.num_generated:
        prompt_logprobs = request.params.prompt_logprobs
        prompt_targets = tuple(request.tokens_between(first + 1, end + 1))
    sample = None
    if end == len(chain.tokens):
        sample = sample_spec(request, request.num_told)
        request.num_told = end
    return ScheduledChunk(  # without names, which would double the time it takes
        request.id,
        (*chain.tokens[first:end], *drafts),
        first,
        write_from,
        request.block_tables,
        sample,
        len(drafts),
        prompt_logprobs,
        prompt_targets,
        tuple(_input_rows(request, first, end)) if request.rows else (),
        chain.extra_keys.adapter,
    )


def _input_rows(request: Request, first: int, end: int) -> Iterator[ChunkRows]:
    """Cut what the chunk needs out of the request's rows."""
    extra_keys = request.chain.extra_keys
    for number in extra_keys.media_between(first, end):
        item, rows = extra_keys.media[number], request.rows[number]
        start, stop = max(item.offset, first), min(item.end, end)
        data = rows.cut(start - item.offset, stop - item.offset)
        yield ChunkRows(start - first, stop - start, rows.dtype, data)


def sample_spec(request: Request, num_told: int) -> SampleSpec:
    """Say how the token after the known ones is chosen; the runner has been told the first `num_told`."""
    params = request.params
    prompt: tuple[int, ...] = ()
    output: tuple[int, ...] = ()
    num_prompt = request.num_prompt_tokens
    if params.needs_history:
        output = tuple(request.chain.tokens[max(num_told, num_prompt) :])
    if params.has_penalties:
        new = request.tokens_between(num_told, num_prompt) if num_told < num_prompt else ()
        prompt = tuple(token for token in new if token is not None)
    banned = banned_token_ids(request) if params.min_tokens else ()
    return SampleSpec(params, request.seed, request.num_generated, prompt, output, (), banned)
