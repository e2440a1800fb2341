import random

import pytest

from ratoon.lab.prefix_model import PrefixModel


def test_nothing_is_found_in_an_empty_cache() -> None:
    assert PrefixModel(4).predict(range(100)) == 0


def test_only_full_blocks_are_found() -> None:
    model = PrefixModel(4)
    model.add([*range(10), 90, 91])

    assert model.predict([*range(10), 80, 81, 82]) == 8


def test_the_published_pair_shares_107_blocks_of_16() -> None:
    model = PrefixModel(16)
    prefix = list(range(1_720))
    model.add(prefix + [9] * 7)

    assert model.predict(prefix + [8] * 9) == 107 * 16 == 1_712


def test_another_first_token_hides_all_that_follows() -> None:
    model = PrefixModel(4)
    model.add(range(40))

    assert model.predict([99, *range(1, 40)]) == 0


def test_a_shared_middle_is_no_prefix() -> None:
    model = PrefixModel(4)
    model.add(range(40))

    assert model.predict([90, 91, 92, 93, *range(4, 40)]) == 0


def test_a_full_hit_still_computes_the_last_token() -> None:
    model = PrefixModel(4)
    model.add(range(8))

    assert model.predict(range(8)) == 7
    assert model.predict(range(9)) == 8


def test_a_server_like_vllm_computes_the_last_block_of_a_full_hit() -> None:
    model = PrefixModel(4, "last block")
    model.add(range(8))

    assert model.predict(range(8)) == 4


def test_namespaces_do_not_see_each_other() -> None:
    model = PrefixModel(4)
    model.add(range(8), "a")

    assert model.predict(range(9), "b") == 0
    assert model.predict(range(9), "a") == 8


@pytest.mark.parametrize("seed", range(20))
def test_the_tree_agrees_with_comparing_every_pair_of_prompts(seed: int) -> None:
    chance = random.Random(seed)
    model, known = PrefixModel(3), list[list[int]]()
    for _ in range(40):
        prompt = [chance.randrange(2) for _ in range(chance.randrange(1, 16))]
        longest = 0
        for other in known:
            common = next((i for i, (a, b) in enumerate(zip(prompt, other, strict=False)) if a != b), None)
            common = min(len(prompt), len(other)) if common is None else common
            longest = max(longest, common // 3 * 3)
        assert model.predict(prompt) == min(longest, len(prompt) - 1)
        model.add(prompt)
        known.append(prompt)
