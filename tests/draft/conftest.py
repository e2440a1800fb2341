"""Requests with a limit of tokens, as the scheduler leaves them."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest

from ratoon.identity.extra_keys import NO_EXTRAS, ExtraKeys
from ratoon.identity.hash_chain import HashChain
from ratoon.request.input_rows import InputRows
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams

MakeRequest = Callable[..., Request]


@pytest.fixture
def make_request() -> MakeRequest:
    """Return a function of the prompt's tokens, and fields of `Request` and `SamplingParams`."""
    ids = count(1)

    def make(
        tokens: Sequence[int], *, extras: ExtraKeys = NO_EXTRAS, write_cache: bool = True, **params: Any
    ) -> Request:
        settings = {"temperature": 0, "max_tokens": None, **params}
        chain = HashChain(bytes(32), 4, extras, tokens)
        rows = tuple(InputRows("F32", item.length, bytes(4), item.content) for item in extras.media)
        request = Request(next(ids), chain, SamplingParams(**settings), 7, write_cache=write_cache, rows=rows)
        request.token_limit = 1000
        return request

    return make
