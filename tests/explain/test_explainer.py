"""Each reason made to happen, and found."""

import pytest

from ratoon.explain.explainer import Explainer
from ratoon.explain.recorded_cache import RecordedCache
from ratoon.request.explanation import MissReason, Pressure
from ratoon.spec.cache_group import CacheGroupSpec
from tests.explain.caches import SIZE, Session, chain_of

PROMPT = tuple(range(1, 14))
"""Three full blocks and one token."""


def test_a_prompt_that_begins_like_nothing_before_was_never_seen() -> None:
    session = Session()
    session.serve(chain_of(PROMPT))
    explanation = session.explain(chain_of(range(50, 63)))
    assert (explanation.reason, explanation.num_cached_tokens) == (MissReason.NEVER_SEEN, 0)
    assert (explanation.block, explanation.relative, explanation.record_s) == (0, None, None)


def test_new_text_after_a_cached_prefix_was_never_seen() -> None:
    session = Session()
    session.serve(chain_of(PROMPT[:8]))
    explanation = session.explain(chain_of(PROMPT))
    assert (explanation.reason, explanation.num_cached_tokens, explanation.block) == (
        MissReason.NEVER_SEEN,
        8,
        2,
    )


def test_a_prompt_diverges_from_the_nearest_relative_at_the_first_differing_token() -> None:
    session = Session()
    session.serve(chain_of((*PROMPT[:4], 90, 91, 92, 93, 94)))
    session.serve(chain_of((*PROMPT[:6], 80, 81, 82)))
    session.clock.now = 5.0
    explanation = session.explain(chain_of(PROMPT))
    assert (explanation.reason, explanation.num_cached_tokens) == (MissReason.DIVERGED, 4)
    relative = explanation.relative
    assert relative is not None
    assert (relative.num_common_tokens, relative.position) == (6, 6)
    assert (relative.before, relative.own, relative.other) == (PROMPT[:6], PROMPT[6:12], (80, 81))
    assert (relative.is_stored, relative.last_used_ago_s) == (True, 5.0)


def test_a_difference_at_a_block_s_first_token_after_a_cached_prefix_is_a_divergence() -> None:
    session = Session()
    session.serve(chain_of((*PROMPT[:4], 90, 91, 92, 93)))
    explanation = session.explain(chain_of(PROMPT))
    assert explanation.reason is MissReason.DIVERGED
    assert explanation.relative is not None
    assert explanation.relative.num_common_tokens == 4


def test_a_stored_relative_is_preferred_to_one_that_is_gone() -> None:
    session = Session(num_blocks=4)
    session.serve(chain_of((*PROMPT[:2], 70, 71)))
    session.serve(chain_of(range(100, 112)), owner="b")
    session.serve(chain_of((*PROMPT[:2], 60, 61)))
    relative = session.explain(chain_of(PROMPT)).relative
    assert relative is not None
    assert (relative.is_stored, relative.other) == (True, (60, 61))


def test_an_evicted_block_tells_when_and_for_whom_it_went() -> None:
    session = Session(num_blocks=4)
    session.serve(chain_of(PROMPT[:12]))
    session.clock.now = 10.0
    session.serve(chain_of(range(50, 58)), owner="b")
    session.clock.now = 13.0
    explanation = session.explain(chain_of(PROMPT))
    assert (explanation.reason, explanation.num_cached_tokens) == (MissReason.EVICTED, 4)
    eviction = explanation.eviction
    assert eviction is not None
    assert (eviction.ago_s, eviction.idle_s, eviction.pressure) == (3.0, 10.0, Pressure.OTHERS)
    assert explanation.num_remembered_tokens == 12


def test_a_caller_s_own_requests_are_told_apart_from_others_as_the_cause_of_an_eviction() -> None:
    session = Session(num_blocks=4)
    session.serve(chain_of(PROMPT[:12]))
    session.serve(chain_of(range(50, 62)))
    eviction = session.explain(chain_of(PROMPT)).eviction
    assert eviction is not None
    assert eviction.pressure is Pressure.OWN


def test_what_a_reset_dropped_was_reset_and_not_evicted() -> None:
    session = Session()
    session.serve(chain_of(PROMPT))
    session.cache.reset()
    assert session.explain(chain_of(PROMPT)).reason is MissReason.RESET
    session.serve(chain_of(PROMPT))
    assert session.explain(chain_of(PROMPT)).reason is MissReason.BELOW_ONE_BLOCK


def test_what_was_evicted_before_a_reset_stays_evicted() -> None:
    session = Session(num_blocks=4)
    session.serve(chain_of(PROMPT[:12]))
    session.serve(chain_of(range(50, 62)))
    session.cache.reset()
    assert session.explain(chain_of(PROMPT)).reason is MissReason.EVICTED


def test_the_same_tokens_under_another_salt_are_a_matter_of_salt() -> None:
    session = Session()
    session.serve(chain_of(PROMPT, salt="x"))
    explanation = session.explain(chain_of(PROMPT, salt="y"))
    assert explanation.reason is MissReason.SALT
    assert explanation.relative is not None
    assert explanation.relative.num_common_tokens == 12
    assert session.explain(chain_of(PROMPT)).reason is MissReason.SALT


def test_the_same_tokens_with_another_adapter_are_a_matter_of_the_adapter() -> None:
    session = Session()
    session.serve(chain_of(PROMPT, adapter=b"one"))
    for adapter in (b"two", None):
        assert session.explain(chain_of(PROMPT, adapter=adapter)).reason is MissReason.ADAPTER


def test_the_same_tokens_around_another_image_are_a_matter_of_input_rows() -> None:
    session = Session()
    session.serve(chain_of(PROMPT, image=b"cat"))
    assert session.explain(chain_of(PROMPT, image=b"dog")).reason is MissReason.INPUT_ROWS


def test_an_equal_salt_that_diverges_later_is_no_matter_of_salt() -> None:
    session = Session()
    session.serve(chain_of(PROMPT, salt="x"))
    session.serve(chain_of((*PROMPT[:6], 99, 99), salt="y"))
    explanation = session.explain(chain_of(PROMPT, salt="y"))
    assert (explanation.reason, explanation.num_cached_tokens) == (MissReason.DIVERGED, 4)


def test_a_prefix_whose_window_was_evicted_is_limited_by_the_window() -> None:
    session = Session(None, 8, num_blocks=15)
    session.serve(chain_of(range(1, 29)))
    session.serve(chain_of((200, 201, 202, 203)), owner="b")
    found = {session.explain(chain_of((*range(1, length + 1), 300))).reason for length in range(4, 28, 4)}
    assert MissReason.WINDOW in found


def test_what_another_request_is_about_to_store_is_still_computed() -> None:
    session = Session()
    running = session.start(chain_of(PROMPT))
    assert session.explain(chain_of(PROMPT)).reason is MissReason.STILL_COMPUTED
    assert session.explain(chain_of(PROMPT), owner="b").reason is MissReason.NEVER_SEEN
    session.finish(running)
    assert session.explain(chain_of(PROMPT)).reason is MissReason.BELOW_ONE_BLOCK


def test_a_request_that_leaves_no_trace_is_not_waited_for() -> None:
    session = Session()
    session.start(chain_of(PROMPT), writes=False)
    assert session.explain(chain_of(PROMPT)).reason is MissReason.NEVER_SEEN


@pytest.mark.parametrize("num_tokens", [1, SIZE - 1])
def test_a_prompt_shorter_than_a_block_is_below_one_block(num_tokens: int) -> None:
    assert Session().explain(chain_of(PROMPT[:num_tokens])).reason is MissReason.BELOW_ONE_BLOCK


def test_of_a_prompt_that_is_cached_whole_only_the_last_token_runs() -> None:
    session = Session()
    session.serve(chain_of(PROMPT[:12]))
    explanation = session.explain(chain_of(PROMPT[:12]))
    assert (explanation.reason, explanation.num_cached_tokens) == (MissReason.ONLY_LAST_TOKEN, 11)


def test_a_request_that_does_not_read_is_told_so() -> None:
    session = Session()
    session.serve(chain_of(PROMPT))
    assert session.explain(chain_of(PROMPT), reads=False).reason is MissReason.READ_DISABLED


def test_a_cache_that_is_off_is_the_reason() -> None:
    cache = RecordedCache(
        [CacheGroupSpec()], num_blocks=8, block_size=SIZE, num_ghosts=10, enable_prefix_caching=False
    )
    chain = chain_of(PROMPT)
    explanation = Explainer(cache).explain(chain, chain.num_tokens, 0, "a")
    assert explanation.reason is MissReason.CACHING_OFF


def test_a_collision_has_no_known_reason() -> None:
    session = Session()
    session.serve(chain_of(PROMPT))
    session.cache.pool.block_tokens[1] = b"other tokens...."
    assert session.explain(chain_of(PROMPT)).reason is MissReason.UNKNOWN


def test_another_owner_s_blocks_are_no_evidence() -> None:
    session = Session(num_blocks=4)
    session.serve(chain_of(PROMPT[:12]), owner="b")
    session.serve(chain_of((*PROMPT[:6], 99, 99)), owner="b")
    explanation = session.explain(chain_of((*PROMPT[:5], 98, 98, 98)), owner="a")
    assert explanation.reason is MissReason.NEVER_SEEN
    assert explanation.relative is None
    assert session.explain(chain_of(PROMPT), owner="a").reason is MissReason.NEVER_SEEN


def test_a_block_that_a_caller_hit_is_its_own_too() -> None:
    session = Session()
    session.serve(chain_of(PROMPT[:12]), owner="b")
    session.serve(chain_of(PROMPT[:8]), owner="a")
    assert session.explain(chain_of((*PROMPT[:6], 99, 99)), owner="a").reason is MissReason.DIVERGED
    assert session.explain(chain_of((*PROMPT[:9], 9, 9, 9)), owner="a").reason is MissReason.NEVER_SEEN
