from typing import Any

from ratoon.identity.extra_keys import ExtraKeys, MediaItem
from ratoon.identity.hash_chain import HashChain
from ratoon.request.finish import Usage
from ratoon.request.input_rows import input_rows
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams


def make_request(*, read_cache: bool = True, **params: Any) -> Request:
    return Request(
        1, HashChain(bytes(32), 4, tokens=[1, 2, 3]), SamplingParams(**params), 7, read_cache=read_cache
    )


def test_output_tokens_are_those_after_the_prompt() -> None:
    request = make_request()
    request.chain.append([4, 5])
    assert request.num_known == 5
    assert request.num_generated == 2
    assert request.usage == Usage(prompt_tokens=3, cached_tokens=0, completion_tokens=2)


def test_a_prompt_that_is_scored_reads_no_cached_block() -> None:
    assert make_request().reads_cache
    assert not make_request(prompt_logprobs=0).reads_cache
    assert not make_request(read_cache=False).reads_cache


def test_there_are_no_tokens_where_rows_stand() -> None:
    rows = (input_rows("F32", (2, 1), bytes(8), width=1), input_rows("F32", (1, 1), bytes(4), width=1))
    media = (MediaItem(b"a", 1, 2), MediaItem(b"b", 4, 1))
    chain = HashChain(bytes(32), 4, ExtraKeys(media=media), [1, 0, 0, 2, 0])
    request = Request(1, chain, SamplingParams(), 7, rows=rows)
    request.chain.append([0])
    whole = [1, None, None, 2, None, 0]
    for first in range(7):
        for end in range(first, 8):
            assert request.tokens_between(first, end) == whole[first:end]
