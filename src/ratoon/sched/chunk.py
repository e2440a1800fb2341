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
    tokens = request.chain.tokens
    prompt_logprobs = None
    prompt_targets: tuple[int | None, ...] = ()
    if request.params.prompt_logprobs is not None and not request.num_generated:
        prompt_logprobs = request.params.prompt_logprobs
        prompt_targets = tuple(request.tokens_between(first + 1, end + 1))
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
        input_rows=tuple(_input_rows(request, first, end)) if request.rows else (),
        adapter=request.chain.extra_keys.adapter,
    )


def _input_rows(request: Request, first: int, end: int) -> Iterator[ChunkRows]:
    """Cut what the chunk needs out of the request's rows."""
    extra_keys = request.chain.extra_keys
    for number in extra_keys.media_between(first, end):
        item, rows = extra_keys.media[number], request.rows[number]
        start, stop = max(item.offset, first), min(item.end, end)
        data = rows.cut(start - item.offset, stop - item.offset)
        yield ChunkRows(start - first, stop - start, rows.dtype, data)


def sample_spec(request: Request) -> SampleSpec:
    """Say how the token after the known ones is chosen."""
    prompt: list[int | None] = []
    output: tuple[int, ...] = ()
    if request.params.has_penalties:
        prompt = request.tokens_between(0, request.num_prompt_tokens)
        output = tuple(request.chain.tokens[request.num_prompt_tokens :])
    return SampleSpec(
        params=request.params,
        seed=request.seed,
        num_generated=request.num_generated,
        prompt_token_ids=tuple(token for token in prompt if token is not None),
        output_token_ids=output,
        banned_token_ids=banned_token_ids(request),
    )
