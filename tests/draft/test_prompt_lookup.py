from collections.abc import Callable, Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ratoon.draft.drafter import NO_GUESS, Guess
from ratoon.draft.prompt_lookup import LONGEST_MATCH, MAX_CANDIDATES, PromptLookup, TokenIndex
from ratoon.identity.extra_keys import ExtraKeys, MediaItem
from ratoon.request.request import Request

MakeRequest = Callable[..., Request]


def guess(tokens: Sequence[int], count: int) -> Guess:
    index = TokenIndex()
    index.grow(tokens)
    return index.continuation(tokens, count)


def test_what_followed_the_last_tokens_before_is_guessed() -> None:
    assert guess([1, 2, 3, 4, 5, 9, 1, 2], 3) == Guess([3, 4, 5], 2)


def test_without_an_earlier_pair_nothing_is_guessed() -> None:
    for tokens in ([], [1], [1, 2], [1, 2, 3], [1, 2, 9, 2, 1]):
        assert guess(tokens, 3) is NO_GUESS


def test_a_longer_match_counts_more_than_a_later_one() -> None:
    assert guess([7, 1, 2, 3, 8, 1, 2, 4, 7, 1, 2], 1).tokens == [3]


def test_of_equal_matches_the_latest_counts() -> None:
    assert guess([5, 1, 2, 3, 6, 1, 2, 4, 7, 1, 2], 1).tokens == [4]


def test_a_repetition_goes_on() -> None:
    assert guess([9, 1, 2, 3, 1, 2, 3, 1, 2], 7).tokens == [3, 1, 2, 3, 1, 2, 3]
    assert guess([4, 4, 4], 4).tokens == [4, 4, 4, 4]


def test_longer_matches_are_another_kind_up_to_a_length() -> None:
    kinds = []
    for length in (2, 3, 4, 8, LONGEST_MATCH, 2 * LONGEST_MATCH):
        text = [*range(100, 100 + length), 1]
        kinds.append(guess([*text, 2, *text[:-1]], 1).kind)
    assert kinds == [2, 2, 3, 4, 5, 5]


def test_only_the_latest_candidates_are_compared() -> None:
    tokens = [8, 9, 1, 2, 3] + [1, 2, 4] * (MAX_CANDIDATES + 1) + [8, 9, 1, 2]
    assert guess(tokens, 1).tokens == [4]


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 6), st.data())
def test_an_index_that_grew_is_one_built_at_once(tokens: list[int], count: int, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(tokens)), max_size=5)))
    index = TokenIndex()
    for cut in (*cuts, len(tokens)):
        index.grow(tokens[:cut])
        index.continuation(tokens[:cut], 1)
    found = index.continuation(tokens, count)
    assert found == guess(tokens, count)
    assert len(found.tokens) in (0, count)
    assert bool(found.tokens) == ([*tokens[-2:]] in map(list, pairwise(tokens[:-1])))


def test_requests_are_told_apart_and_forgotten(make_request: MakeRequest) -> None:
    drafter = PromptLookup()
    one, other = make_request([1, 2, 3, 1, 2]), make_request([1, 2, 4, 1, 2])
    assert [found.tokens for found in drafter.propose([(one, 1), (other, 2)])] == [[3], [4, 1]]
    one.chain.append([3, 9, 2, 3])
    assert [found.tokens for found in drafter.propose([(one, 2)])] == [[9, 2]]
    assert list(drafter._indexes) == [one.id]
    drafter.reset_cache()
    assert [found.tokens for found in drafter.propose([(one, 1)])] == [[9]]


def test_placeholders_of_input_rows_are_not_guessed(make_request: MakeRequest) -> None:
    extras = ExtraKeys(media=(MediaItem(b"x", 0, 3),))
    tokens = [0, 0, 0, 5, 6, 7, 0, 0]
    assert PromptLookup().propose([(make_request(tokens), 1)])[0].tokens == [5]
    assert PromptLookup().propose([(make_request(tokens, extras=extras), 1)])[0] is NO_GUESS
    assert PromptLookup().propose([(make_request([*tokens, 5, 6], extras=extras), 1)])[0].tokens == [7]
