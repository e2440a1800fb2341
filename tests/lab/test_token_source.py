import pytest

from ratoon.errors import InvalidParameterError
from ratoon.lab.token_source import TokenSource

VOCABULARY = range(100, 300)


def test_equal_seed_and_label_give_equal_tokens() -> None:
    assert TokenSource(1, VOCABULARY).tokens("a", 50) == TokenSource(1, VOCABULARY).tokens("a", 50)


def test_another_label_or_seed_gives_other_tokens() -> None:
    tokens = TokenSource(1, VOCABULARY).tokens("a", 50)

    assert tokens != TokenSource(1, VOCABULARY).tokens("b", 50)
    assert tokens != TokenSource(2, VOCABULARY).tokens("a", 50)


def test_the_order_of_the_vocabulary_does_not_matter() -> None:
    assert TokenSource(1, VOCABULARY).tokens("a", 9) == TokenSource(1, [*reversed(VOCABULARY), 100]).tokens(
        "a", 9
    )


def test_tokens_come_from_the_vocabulary() -> None:
    assert set(TokenSource(1, VOCABULARY).tokens("a", 500)) <= set(VOCABULARY)


def test_parting_sequences_part_at_their_first_token() -> None:
    sequences = TokenSource(1, VOCABULARY).parting("questions", [7, 9, 1, 30])

    assert [len(sequence) for sequence in sequences] == [7, 9, 1, 30]
    assert len({sequence[0] for sequence in sequences}) == 4


def test_a_handful_of_ids_is_no_vocabulary() -> None:
    with pytest.raises(InvalidParameterError, match="at least 64"):
        TokenSource(1, range(10))
