"""A chunk says what its own positions need, and no more."""

import struct

import pytest

from ratoon.identity.extra_keys import ExtraKeys, MediaItem
from ratoon.identity.hash_chain import HashChain
from ratoon.request.input_rows import input_rows
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams
from ratoon.sched.chunk import make_chunk
from ratoon.step import ChunkRows


def floats(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def make_request(**params: float) -> Request:
    """Tokens 1 and 2, three rows, token 3, two rows, token 4; one token of output, 5."""
    rows = (
        input_rows("F32", (3, 1), floats(10, 11, 12), width=1),
        input_rows("F32", (2, 1), floats(20, 21), width=1),
    )
    media = (MediaItem(rows[0].content, 2, 3), MediaItem(rows[1].content, 6, 2))
    chain = HashChain(bytes(32), 4, ExtraKeys(media=media), [1, 2, 0, 0, 0, 3, 0, 0, 4])
    request = Request(1, chain, SamplingParams(**params), 7, rows=rows)  # type: ignore[arg-type]
    request.chain.append([5])
    return request


@pytest.mark.parametrize(
    ("first", "end", "expected"),
    [
        (0, 2, ()),
        (0, 3, (ChunkRows(2, 1, "F32", floats(10)),)),
        (3, 4, (ChunkRows(0, 1, "F32", floats(11)),)),
        (4, 7, (ChunkRows(0, 1, "F32", floats(12)), ChunkRows(2, 1, "F32", floats(20)))),
        (5, 6, ()),
        (0, 10, (ChunkRows(2, 3, "F32", floats(10, 11, 12)), ChunkRows(6, 2, "F32", floats(20, 21)))),
        (8, 10, ()),
    ],
)
def test_a_chunk_has_the_rows_of_its_positions(first: int, end: int, expected: tuple[ChunkRows, ...]) -> None:
    chunk = make_chunk(make_request(), first, end, first)
    assert chunk.input_rows == expected
    assert len(chunk.token_ids) == end - first


def test_no_token_follows_where_a_row_does() -> None:
    request = make_request(prompt_logprobs=0)
    request.num_prompt_tokens += 1  # as if nothing had been generated yet
    assert make_chunk(request, 0, 6, 0).prompt_targets == (2, None, None, None, 3, None)
    assert make_chunk(request, 6, 10, 6).prompt_targets == (None, 4, 5)


def test_penalties_look_at_tokens_only() -> None:
    sample = make_chunk(make_request(presence_penalty=1), 9, 10, 9).sample
    assert sample is not None
    assert (sample.new_prompt_token_ids, sample.new_output_token_ids) == ((1, 2, 3, 4), (5,))
    plain = make_chunk(make_request(), 9, 10, 9).sample
    assert plain is not None
    assert (plain.new_prompt_token_ids, plain.new_output_token_ids) == ((), ())


def test_the_runner_is_told_each_token_once() -> None:
    request = make_request(presence_penalty=1)
    make_chunk(request, 0, 9, 0)  # does not sample, so tells nothing
    make_chunk(request, 9, 10, 9)
    request.chain.append([6, 7])
    sample = make_chunk(request, 11, 12, 11).sample
    assert sample is not None
    assert (sample.new_prompt_token_ids, sample.new_output_token_ids) == ((), (6, 7))
