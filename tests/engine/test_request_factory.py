"""The requests for the answers to one prompt."""

from collections.abc import Iterable

from ratoon.engine.prompt_parts import PromptTokens
from ratoon.engine.request_factory import RequestFactory
from ratoon.identity.extra_keys import ExtraKeys
from ratoon.identity.hash_chain import HashChain
from ratoon.request.sampling_params import SamplingParams
from ratoon.request.seed import child_seed

PROMPT = PromptTokens(list(range(10)))
chains: list[HashChain] = []


def make_chain(token_ids: Iterable[int], extra_keys: ExtraKeys) -> HashChain:
    chains.append(HashChain(bytes(32), 4, extra_keys, token_ids))
    return chains[-1]


def factory() -> RequestFactory:
    chains.clear()
    return RequestFactory(make_chain, lambda params: None, draw_seed=lambda: 7)


def test_several_answers_differ_in_id_and_seed_and_hash_the_prompt_once() -> None:
    made = factory()
    requests = made.make(PROMPT, SamplingParams(n=3)) + made.make(PROMPT, SamplingParams(seed=9))
    assert [request.id for request in requests] == [1, 2, 3, 4]
    assert [request.seed for request in requests] == [*(child_seed(7, child) for child in range(3)), 9]
    assert len(chains) == 2
    assert all(request.chain.block_hashes == chains[0].block_hashes for request in requests)


def test_answers_grow_by_themselves() -> None:
    one, other = factory().make(PROMPT, SamplingParams(n=2))
    one.chain.append([1, 2])
    assert len(one.chain.block_hashes) == 3
    assert (other.num_known, len(other.chain.block_hashes), len(other.chain.block_tokens)) == (10, 2, 2)
    other.chain.append([1, 2])
    assert one.chain.block_hashes == other.chain.block_hashes


def test_the_prompt_is_scored_once_unless_every_answer_shows_it() -> None:
    params = SamplingParams(n=2, prompt_logprobs=1)
    once = factory().make(PROMPT, params)
    each = factory().make(PROMPT, params, score_prompt_once=False)
    assert [request.params.prompt_logprobs for request in once] == [1, None]
    assert [request.params.prompt_logprobs for request in each] == [1, 1]
