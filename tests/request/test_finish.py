from ratoon.request.finish import Timings, Usage


def test_cached_and_computed_tokens_add_up_to_the_prompt() -> None:
    usage = Usage(prompt_tokens=100, cached_tokens=64, completion_tokens=5)
    assert usage.computed_tokens == 36


def test_durations_count_from_the_arrival() -> None:
    timings = Timings(arrival_s=10.0, finished_s=15.0, first_scheduled_s=11.0, first_token_s=13.0)
    assert (timings.queue_s, timings.ttft_s, timings.e2e_s) == (1.0, 3.0, 5.0)


def test_what_never_happened_has_no_duration() -> None:
    timings = Timings(arrival_s=10.0, finished_s=11.0)
    assert timings.queue_s is None
    assert timings.ttft_s is None
