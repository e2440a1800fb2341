"""Settings are checked when they are made."""

from dataclasses import FrozenInstanceError

import pytest

from ratoon.engine.config import EngineConfig
from ratoon.errors import InvalidParameterError


def test_the_defaults_are_valid_and_frozen() -> None:
    config = EngineConfig()
    assert config.block_size == 16
    with pytest.raises(FrozenInstanceError):
        config.block_size = 32  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_model_len", 0),
        ("max_num_seqs", -1),
        ("max_num_batched_tokens", 0),
        ("block_size", 16.0),
        ("kv_cache_bytes", "512MiB"),
        ("threads", 0),
        ("threads", 5000),
        ("enable_prefix_caching", 1),
        ("share_in_flight", "yes"),
        ("kv_cache_dtype", "f8"),
        ("eviction", "fifo"),
        ("ops", "cuda"),
        ("max_num_seqs", True),
        ("max_num_seqs", None),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(InvalidParameterError, match=name):
        EngineConfig.from_settings({name: value})


def test_an_unknown_setting_hints_at_the_nearest_known_one() -> None:
    with pytest.raises(InvalidParameterError) as raised:
        EngineConfig.from_settings({"max_num_seq": 4})
    assert raised.value.hint == "Did you mean max_num_seqs?"


def test_an_unknown_setting_like_no_other_lists_what_there_is() -> None:
    with pytest.raises(InvalidParameterError) as raised:
        EngineConfig.from_settings({"tensor_parallelism": 4})
    assert raised.value.hint is not None
    assert "block_size" in raised.value.hint
