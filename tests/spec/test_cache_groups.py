import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratoon.spec.cache_group import CacheGroupSpec
from ratoon.spec.cache_groups import cache_groups
from ratoon.spec.model_spec import LayerSpec, ModelSpec, RopeSpec

ROPE = RopeSpec(1e4, 4, interleaved=False)


def model(*windows: int | None) -> ModelSpec:
    return ModelSpec(
        architecture="llama",
        hidden_size=16,
        intermediate_size=24,
        num_heads=4,
        num_kv_heads=2,
        head_dim=4,
        vocab_size=11,
        max_context=128,
        norm_eps=1e-5,
        layers=tuple(LayerSpec(window, ROPE) for window in windows),
        attention_scale=0.5,
    )


@pytest.mark.parametrize("window", [None, 8])
def test_layers_of_one_kind_are_one_group(window: int | None) -> None:
    assert cache_groups(model(*[window] * 5)) == (CacheGroupSpec(window, (0, 1, 2, 3, 4)),)


def test_gemma_3_270m_becomes_one_full_group_and_five_sliding_ones() -> None:
    groups = cache_groups(model(*([512] * 5 + [None]) * 3))
    assert groups[0] == CacheGroupSpec(None, (5, 11, 17))
    assert [group.window for group in groups] == [None] + [512] * 5
    assert groups[1].layers == (0, 1, 2)
    assert {len(group.layers) for group in groups} == {3}


def test_the_last_group_of_a_kind_may_be_smaller() -> None:
    groups = cache_groups(model(8, 8, None, 8, None))
    assert [group.layers for group in groups] == [(2, 4), (0, 1), (3,)]


@given(st.lists(st.sampled_from([None, 8, 16]), min_size=1, max_size=40))
def test_every_layer_stands_in_one_group_of_its_kind(windows: list[int | None]) -> None:
    groups = cache_groups(model(*windows))
    assert sorted(layer for group in groups for layer in group.layers) == list(range(len(windows)))
    assert all(windows[layer] == group.window for group in groups for layer in group.layers)
    size = min(windows.count(window) for window in set(windows))
    assert max(len(group.layers) for group in groups) == size
