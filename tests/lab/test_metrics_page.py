import pytest

from ratoon.errors import LabError
from ratoon.lab.metrics_page import CacheCounters, MetricsPage

RATOON = """\
# HELP ratoon_prefix_cache_queries_total Prompt tokens looked up.
# TYPE ratoon_prefix_cache_queries_total counter
ratoon_prefix_cache_queries_total 3456.0
ratoon_prefix_cache_hits_total 1.712e+03
ratoon_kv_cache_blocks{state="active"} 3.0
ratoon_kv_cache_blocks{state="idle"} 5.0
ratoon_kv_cache_blocks{state="free"} 92.0
"""

VLLM = """\
vllm:prefix_cache_queries_total{engine="0",model_name="a b{c}"} 100.0
vllm:prefix_cache_queries_total{engine="1",model_name="a b{c}"} 20.0
vllm:prefix_cache_hits_total{engine="0",model_name="a b{c}"} 60.0 1700000000000
vllm:prefix_cache_hits_total{engine="1",model_name="a b{c}"} 4.0
vllm:prefix_cache_hits_created{engine="1",model_name="a b{c}"} 1.7e9
vllm:cache_config_info{block_size="32",num_gpu_blocks="1000",cache_dtype="auto"} 1.0
"""


def test_ratoon_counters_are_read() -> None:
    assert MetricsPage(RATOON).counters() == CacheCounters(queries=3_456, hits=1_712)


def test_vllm_counters_are_summed_over_their_labels() -> None:
    assert MetricsPage(VLLM).counters() == CacheCounters(queries=120, hits=64)


def test_the_older_names_of_vllm_are_known() -> None:
    older = VLLM.replace("vllm:prefix", "vllm:gpu_prefix")

    assert MetricsPage(older).counters() == CacheCounters(queries=120, hits=64)


def test_own_counters_come_first_where_both_dialects_are_spoken() -> None:
    page = MetricsPage(VLLM + RATOON)

    assert page.counters() == CacheCounters(queries=3_456, hits=1_712)
    assert not page.is_vllm
    assert MetricsPage(VLLM).is_vllm


def test_a_page_without_cache_counters_has_none() -> None:
    page = MetricsPage("process_cpu_seconds_total 3.0\n")

    assert page.counters() is None
    assert page.num_blocks() is None
    assert page.block_size() is None


def test_the_pool_is_the_sum_of_its_block_states() -> None:
    assert MetricsPage(RATOON).num_blocks() == 100


def test_vllm_tells_its_pool_and_block_size_in_labels() -> None:
    page = MetricsPage(VLLM)

    assert (page.num_blocks(), page.block_size()) == (1_000, 32)


def test_what_happened_between_two_reads_is_a_difference() -> None:
    before, after = CacheCounters(1_727, 0), CacheCounters(3_456, 1_712)

    assert after.since(before) == CacheCounters(1_729, 1_712)


def test_a_counter_that_went_backwards_is_no_difference() -> None:
    with pytest.raises(LabError, match="went backwards"):
        CacheCounters(10, 2).since(CacheCounters(20, 4))
