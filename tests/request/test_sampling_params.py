import math
from typing import Any

import pytest

from ratoon.errors import InvalidParameterError
from ratoon.request.sampling_params import RANGES, SamplingParams


def refused(**settings: Any) -> str:
    with pytest.raises(InvalidParameterError) as caught:
        SamplingParams(**settings)
    return caught.value.message


def test_the_defaults_are_valid() -> None:
    assert SamplingParams().max_tokens == 16


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("min_tokens", -1),
        ("min_tokens", None),
        ("temperature", -0.1),
        ("top_p", 0),
        ("top_p", 1.01),
        ("top_k", -2),
        ("top_k", 1.0),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("repetition_penalty", 0),
        ("repetition_penalty", 1e-320),
        ("repetition_penalty", 1e300),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("seed", 2**64),
        ("seed", -(2**63) - 1),
        ("seed", "1"),
        ("n", 0),
        ("n", 129),
        ("logprobs", -1),
        ("prompt_logprobs", -1),
        ("ignore_eos", 1),
        ("include_stop_str_in_output", "yes"),
        ("skip_special_tokens", None),
        ("stop", ""),
        ("stop", ["a", ""]),
        ("stop", [1]),
        ("stop_token_ids", 3),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", ["3"]),
        ("stop_token_ids", [True]),
        ("logit_bias", [1]),
        ("logit_bias", {"1": 2.0}),
        ("logit_bias", {-1: 2.0}),
        ("logit_bias", {1: 101}),
        ("logit_bias", {1: math.nan}),
    ],
)
def test_a_value_out_of_range_is_refused_by_the_name_of_its_parameter(name: str, value: object) -> None:
    message = refused(**{name: value})
    assert name in message
    assert message.endswith(".")


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("value", [True, math.nan, math.inf, -math.inf, "1", [1], 10**400, -(10**400)])
def test_what_is_no_finite_number_is_refused_by_every_numeric_parameter(name: str, value: object) -> None:
    # An absurdly large whole number is a legal max_tokens only as far as a float can hold it.
    assert name in refused(**{name: value})


def test_the_message_says_what_the_range_is() -> None:
    assert refused(top_p=0) == "top_p must be a number above 0 and at most 1, not 0."
    assert refused(n=0) == "n must be a whole number from 1 to 128, not 0."
    assert refused(max_tokens=0) == "max_tokens must be a whole number of at least 1 or None, not 0."


def test_more_min_tokens_than_max_tokens_is_refused() -> None:
    assert refused(min_tokens=5, max_tokens=4) == "min_tokens must be at most max_tokens (4), not 5."
    assert SamplingParams(min_tokens=5, max_tokens=None).min_tokens == 5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", None),
        ("top_p", 1),
        ("top_k", 0),
        ("min_p", 1),
        ("seed", 2**64 - 1),
        ("seed", -(2**63)),
        ("n", 128),
    ],
)
def test_the_ends_of_a_range_belong_to_it(name: str, value: object) -> None:
    assert getattr(SamplingParams(**{name: value}), name) == value  # type: ignore[arg-type]


def test_one_stop_string_and_lists_become_tuples() -> None:
    params = SamplingParams(stop="end", stop_token_ids=[3, 4])  # type: ignore[arg-type]
    assert params.stop == ("end",)
    assert params.stop_token_ids == (3, 4)
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["stop", "stop_token_ids", "logit_bias"])
def test_none_stands_for_an_empty_list_or_table(name: str) -> None:
    nothing: dict[str, Any] = {name: None}
    assert SamplingParams(**nothing) == SamplingParams()


def test_whole_numbers_become_floats_where_a_float_is_meant() -> None:
    params = SamplingParams(temperature=1, logit_bias={7: 2})
    assert isinstance(params.temperature, float)
    assert isinstance(params.logit_bias[7], float)


def test_a_top_k_of_minus_one_is_off_like_zero() -> None:
    assert SamplingParams(top_k=-1) == SamplingParams(top_k=0)


def test_the_callers_bias_table_may_change_afterwards() -> None:
    bias = {1: 1.0}
    params = SamplingParams(logit_bias=bias)
    bias[1] = 50.0
    assert params.logit_bias == {1: 1.0}


@pytest.mark.parametrize("name", ["repetition_penalty", "presence_penalty", "frequency_penalty"])
def test_any_penalty_is_noticed(name: str) -> None:
    assert not SamplingParams().has_penalties
    penalty: dict[str, Any] = {name: 0.5}
    assert SamplingParams(**penalty).has_penalties
