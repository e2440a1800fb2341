import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratoon.errors import InvalidParameterError
from ratoon.spec.cache_group import CacheGroupSpec
from ratoon.spec.kv_budget import KVBudget, blocks_for, kv_budget
from ratoon.spec.model_spec import LayerSpec, ModelSpec, RopeSpec

SMOLLM2 = ModelSpec(
    architecture="llama",
    hidden_size=576,
    intermediate_size=1536,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    vocab_size=49152,
    max_context=8192,
    norm_eps=1e-5,
    layers=(LayerSpec(None, RopeSpec(1e5, 64, interleaved=True)),) * 30,
    attention_scale=0.125,
)
ONE_GROUP = (CacheGroupSpec(None, tuple(range(30))),)


def test_the_formula_in_numbers() -> None:
    budget = kv_budget(SMOLLM2, ONE_GROUP, block_size=16, kv_dtype="int16", kv_cache_bytes=512 << 20)
    assert budget.bytes_per_token == 2 * 30 * 3 * (64 * 2 + 4)
    assert budget.page_bytes == 16 * budget.bytes_per_token
    assert budget.num_blocks == (512 << 20) // budget.page_bytes == 1412
    assert budget.max_tokens(10**6) == 1411 * 16
    assert budget.max_tokens(8192) == 8192


def test_f32_takes_twice_the_bytes_of_integers_without_their_scales() -> None:
    integers, floats = (
        kv_budget(SMOLLM2, ONE_GROUP, block_size=16, kv_dtype=dtype, kv_cache_bytes=1 << 30)
        for dtype in ("int16", "f32")
    )
    scales = 2 * 30 * 3 * 16 * 4
    assert floats.page_bytes == 2 * (integers.page_bytes - scales)


def test_a_page_is_sized_by_the_largest_group() -> None:
    groups = (CacheGroupSpec(None, (0, 1)), CacheGroupSpec(8, (2,)))
    budget = kv_budget(SMOLLM2, groups, block_size=4, kv_dtype="int16", kv_cache_bytes=1 << 20)
    assert budget.page_bytes == 2 * 2 * 3 * 4 * (64 * 2 + 4)
    assert budget.bytes_per_token == 2 * budget.page_bytes // 4


def test_a_budget_below_two_blocks_is_refused() -> None:
    page = 16 * 2 * 30 * 3 * (64 * 2 + 4)
    kv_budget(SMOLLM2, ONE_GROUP, block_size=16, kv_dtype="int16", kv_cache_bytes=2 * page)
    with pytest.raises(InvalidParameterError, match=r"371\.2 KiB"):
        kv_budget(SMOLLM2, ONE_GROUP, block_size=16, kv_dtype="int16", kv_cache_bytes=2 * page - 1)


def test_a_budget_below_a_block_for_every_group_is_refused() -> None:
    groups = (CacheGroupSpec(None, (0,)), CacheGroupSpec(8, (1,)), CacheGroupSpec(8, (2,)))
    page = 2 * 3 * 4 * (64 * 2 + 4)
    least = kv_budget(SMOLLM2, groups, block_size=4, kv_dtype="int16", kv_cache_bytes=4 * page)
    assert least.max_tokens(100, max_chunk=16) == 4
    with pytest.raises(InvalidParameterError, match=r"not 4 blocks of 3\.1 KiB"):
        kv_budget(SMOLLM2, groups, block_size=4, kv_dtype="int16", kv_cache_bytes=4 * page - 1)


def test_beyond_the_windows_only_full_attention_grows() -> None:
    groups = (CacheGroupSpec(None, (0,)), CacheGroupSpec(8, (1,)), CacheGroupSpec(20, (2,)))
    budget = kv_budget(SMOLLM2, groups, block_size=4, kv_dtype="int16", kv_cache_bytes=1 << 20)
    assert budget.bytes_per_token == 3 * budget.bytes_per_token_beyond_windows == 3 * 2 * 3 * (64 * 2 + 4)


def blocks_by_walking(window: int | None, block_size: int, num_tokens: int, chunk: int) -> int:
    """Grow a request in chunks that begin anywhere, and count the blocks that it holds at once."""
    most = 0
    for begin in range(num_tokens):
        end = min(begin + chunk, num_tokens)
        num_filled = begin // block_size * block_size
        first = 0 if window is None else max(0, num_filled - window)
        most = max(most, (end - 1) // block_size - first // block_size + 1)
    return most


@given(
    window=st.none() | st.integers(1, 20),
    block_size=st.integers(1, 8),
    num_tokens=st.integers(1, 60),
    chunk=st.integers(1, 60),
)
def test_no_chunk_needs_more_blocks_than_the_formula_says(
    window: int | None, block_size: int, num_tokens: int, chunk: int
) -> None:
    groups = [CacheGroupSpec(window)]
    needed = blocks_by_walking(window, block_size, num_tokens, chunk)
    said = blocks_for(groups, block_size, num_tokens, chunk)
    assert needed <= said <= needed + 1
    assert said <= blocks_for(groups, block_size, num_tokens)


@given(
    windows=st.lists(st.none() | st.integers(1, 20), min_size=1, max_size=3),
    num_blocks=st.integers(2, 30),
    chunk=st.integers(1, 10),
)
def test_the_longest_request_fits_and_one_token_more_does_not(
    windows: list[int | None], num_blocks: int, chunk: int
) -> None:
    budget = KVBudget(tuple(map(CacheGroupSpec, windows)), 4, 1, 100, num_blocks)
    longest = budget.max_tokens(200, chunk)
    assert longest == 0 or blocks_for(budget.groups, 4, longest, chunk) <= budget.num_usable_blocks
    assert longest == 200 or blocks_for(budget.groups, 4, longest + 1, chunk) > budget.num_usable_blocks
