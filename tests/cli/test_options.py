"""Options follow the settings and parameters they stand for."""

from dataclasses import fields

import pytest

from ratoon.cli.engine_options import add_engine_options, engine_settings
from ratoon.cli.main import Parser
from ratoon.cli.sampling_options import DEFAULTS, OPTIONS, add_sampling_options, sampling_params
from ratoon.engine.config import EngineConfig
from ratoon.errors import InvalidParameterError, UsageError
from ratoon.request.sampling_params import SamplingParams


def engine(*argv: str) -> EngineConfig:
    parser = Parser()
    add_engine_options(parser)
    return EngineConfig.from_settings(engine_settings(parser.parse_args(argv)))


def sampling(*argv: str) -> SamplingParams:
    parser = Parser()
    add_sampling_options(parser)
    return sampling_params(parser.parse_args(argv))


def test_without_options_the_engine_has_its_defaults() -> None:
    assert engine() == EngineConfig()


def test_engine_options_set_what_they_are_named_after() -> None:
    config = engine(
        "--max-model-len=100", "--max-num-seqs=2", "--max-num-batched-tokens=3", "--block-size=4",
        "--no-enable-prefix-caching", "--kv-cache-bytes=1GiB", "--kv-cache-dtype=f32", "--threads=5",
        "--no-share-in-flight", "--eviction=lru", "--ops=reference",
    )  # fmt: skip
    assert config == EngineConfig(
        max_model_len=100, max_num_seqs=2, max_num_batched_tokens=3, block_size=4,
        enable_prefix_caching=False, kv_cache_bytes=1 << 30, kv_cache_dtype="f32", threads=5,
        share_in_flight=False, eviction="lru", ops="reference",
    )  # fmt: skip


def test_a_size_that_is_none_is_refused_with_the_options_name() -> None:
    with pytest.raises(UsageError, match=r"--kv-cache-bytes.*'many' is not a size"):
        engine("--kv-cache-bytes=many")


def test_every_sampling_parameter_has_an_option() -> None:
    assert OPTIONS.keys() == {parameter.name for parameter in fields(SamplingParams)}


def test_without_options_sampling_is_greedy_and_otherwise_as_in_python() -> None:
    assert sampling() == SamplingParams(**DEFAULTS)  # type: ignore[arg-type]


def test_sampling_options_set_what_they_are_named_after() -> None:
    params = sampling(
        "--max-tokens=9", "--min-tokens=1", "--temperature=0.5", "--top-p=0.9", "--top-k=4", "--min-p=0.1",
        "--repetition-penalty=1.2", "--presence-penalty=0.3", "--frequency-penalty=0.4", "--logit-bias=5=-1",
        "--logit-bias=6=2.5", "--seed=7", "--n=2", "--stop=a", "--stop=b", "--stop-token-id=8",
        "--include-stop-str-in-output", "--ignore-eos", "--logprobs=3", "--prompt-logprobs=0",
        "--no-skip-special-tokens",
    )  # fmt: skip
    assert params == SamplingParams(
        max_tokens=9, min_tokens=1, temperature=0.5, top_p=0.9, top_k=4, min_p=0.1,
        repetition_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.4, logit_bias={5: -1.0, 6: 2.5},
        seed=7, n=2, stop=("a", "b"), stop_token_ids=(8,),
        include_stop_str_in_output=True, ignore_eos=True, logprobs=3, prompt_logprobs=0,
        skip_special_tokens=False,
    )  # fmt: skip


def test_a_bias_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="'5' is not a token id and a number"):
        sampling("--logit-bias=5")


def test_an_absurd_parameter_is_refused_by_name() -> None:
    with pytest.raises(InvalidParameterError, match="max_tokens"):
        sampling("--max-tokens=-5")
