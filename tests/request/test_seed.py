from ratoon.request.seed import child_seed, draw_seed


def test_the_first_answer_keeps_the_given_seed() -> None:
    assert child_seed(42, 0) == 42


def test_the_answers_of_one_prompt_have_different_seeds() -> None:
    assert len({child_seed(42, child) for child in range(128)}) == 128


def test_neighbouring_seeds_do_not_share_children() -> None:
    children = {child_seed(seed, child) for seed in range(50) for child in range(50)}
    assert len(children) == 50 * 50


def test_a_child_seed_depends_on_nothing_but_seed_and_number() -> None:
    # Pinned: answers drawn with a seed must stay the same in every process and release.
    assert child_seed(42, 1) == 0xBDD732262FEB6E95
    assert child_seed(42, 127) == 0x0CF0EDB8AC7E566C


def test_every_seed_is_a_64_bit_number() -> None:
    for seed in (-1, -(2**63), 2**64 - 1, draw_seed()):
        assert all(0 <= child_seed(seed, child) < 2**64 for child in range(3))


def test_drawn_seeds_differ() -> None:
    assert len({draw_seed() for _ in range(8)}) == 8
