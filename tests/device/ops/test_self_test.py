"""Before a variant of the kernels is used, its bits are compared with those of plain C++."""

import logging
from collections.abc import Iterator

import pytest

from ratoon.device.ops import _native
from ratoon.device.ops.native import NativeOps, available_variants, best_variant, emulated_variants

VARIANTS = [*available_variants(), *emulated_variants()]

has_fma = pytest.mark.skipif("portable_fma" not in VARIANTS, reason="this processor has one variant")


@pytest.fixture(autouse=True)
def forget_the_choice() -> Iterator[None]:
    """Let each test choose afresh, and those after it too."""
    best_variant.cache_clear()
    yield
    best_variant.cache_clear()


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_passes(variant: str) -> None:
    assert _native.passes_self_test(variant)


@has_fma
def test_a_difference_in_rounding_is_found() -> None:
    assert _native.same_bits("portable_fma", "portable_fma")
    assert not _native.same_bits("portable", "portable_fma")


@has_fma
def test_variants_with_wrong_bits_are_passed_over_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_native, "passes_self_test", lambda isa: isa.startswith("portable"))
    with caplog.at_level(logging.WARNING):
        assert NativeOps(1).name == "native (portable_fma, 1 thread)"
        NativeOps(1)
    (warning,) = caplog.messages
    assert "avx2 kernels compute wrong results" in warning
    assert "portable_fma kernels are used" in warning


def test_where_all_variants_are_right_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert best_variant() == available_variants()[0]
    assert caplog.messages == []
