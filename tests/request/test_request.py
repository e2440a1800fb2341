from typing import Any

from ratoon.identity.hash_chain import HashChain
from ratoon.request.finish import Usage
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
