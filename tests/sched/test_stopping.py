from typing import Any

import pytest

from ratoon.identity.hash_chain import HashChain
from ratoon.request.finish import FinishReason
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams
from ratoon.sched.stopping import append_output, banned_token_ids, stop_ids, token_limit

EOS = 9


def make_request(**params: Any) -> Request:
    """Make a request with a prompt of three tokens in a context of ten."""
    request = Request(1, HashChain(bytes(32), 4, tokens=[1, 2, 3]), SamplingParams(**params), 7)
    request.stop_ids = stop_ids(request, (EOS,))
    request.token_limit = token_limit(request, max_model_len=10)
    return request


@pytest.mark.parametrize(("max_tokens", "limit"), [(1, 4), (7, 10), (8, 10), (None, 10)])
def test_an_answer_ends_at_max_tokens_or_with_the_context(max_tokens: int | None, limit: int) -> None:
    assert make_request(max_tokens=max_tokens).token_limit == limit


def test_tokens_are_kept_up_to_the_limit() -> None:
    request = make_request(max_tokens=2)
    assert append_output(request, (5,)) == ((5,), None)
    assert append_output(request, (6, 7)) == ((6,), FinishReason.LENGTH)
    assert list(request.chain.tokens) == [1, 2, 3, 5, 6]


def test_the_stop_token_belongs_to_the_answer() -> None:
    request = make_request()
    assert append_output(request, (5, EOS, 6)) == ((5, EOS), FinishReason.STOP)
    assert list(request.chain.tokens) == [1, 2, 3, 5, EOS]


def test_a_stop_token_in_the_last_place_is_a_stop() -> None:
    assert append_output(make_request(max_tokens=1), (EOS,)) == ((EOS,), FinishReason.STOP)


def test_stop_token_ids_stop_too_even_where_the_end_of_sequence_is_ignored() -> None:
    request = make_request(stop_token_ids=[5], ignore_eos=True)
    assert append_output(request, (EOS,)) == ((EOS,), None)
    assert append_output(request, (5,)) == ((5,), FinishReason.STOP)


def test_what_would_end_the_answer_is_banned_before_min_tokens() -> None:
    request = make_request(min_tokens=2, stop_token_ids=[4])
    assert banned_token_ids(request) == (4, EOS)
    append_output(request, (5,))
    assert banned_token_ids(request) == (4, EOS)
    append_output(request, (5,))
    assert banned_token_ids(request) == ()


def test_a_chunk_that_sampled_nothing_ends_nothing() -> None:
    assert append_output(make_request(), ()) == ((), None)
