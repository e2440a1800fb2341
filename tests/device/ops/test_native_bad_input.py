"""What contradicts itself is refused before memory is touched."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ratoon.checkpoint.tensor import RawTensor
from ratoon.device.ops.native import NativeOps, available_variants
from ratoon.device.ops.protocol import (
    AttentionWeights,
    FeedForwardWeights,
    Floats,
    KVLayout,
    Rope,
    StepInputs,
)
from ratoon.errors import InvalidParameterError, UnsupportedModelError

HIDDEN, DIM, BLOCK, NUM_BLOCKS = 32, 16, 16, 5
OPS = NativeOps(2)
ONES = np.ones(HIDDEN, np.float32)


def tensor(rows: int, columns: int, dtype: str = "F32") -> RawTensor:
    values = np.full((rows, columns), 0.01, np.float32)
    return RawTensor("blk.0.some.weight", (rows, columns), dtype, memoryview(values.tobytes()))


ANGLES = np.zeros((40, DIM // 2), np.float32)
WEIGHTS = AttentionWeights(
    norm=ONES,
    qkv=(tensor(2 * DIM, HIDDEN), tensor(DIM, HIDDEN), tensor(DIM, HIDDEN)),
    qkv_bias=None,
    q_norm=None,
    k_norm=None,
    out=tensor(HIDDEN, 2 * DIM),
    post_norm=None,
    eps=1e-5,
    num_heads=2,
    num_kv_heads=1,
    head_dim=DIM,
    scale=1.0,
    softcap=0.0,
    window=None,
    rope=Rope(ANGLES, ANGLES, False),
    group=0,
    slot=0,
)
LAYOUT = KVLayout(NUM_BLOCKS, BLOCK, 1, 1, DIM)
GOOD = StepInputs(
    positions=np.array([16, 17, 3], np.int32),
    cu_seqlens=np.array([0, 2, 3], np.int32),
    block_tables=(np.array([[1, 2], [3, 0]], np.int32),),
    slot_mapping=(np.array([32, 33, 51], np.int64),),
)


def run(inputs: StepInputs, x: Floats | None = None) -> None:
    pages = OPS.pages(LAYOUT)
    block = OPS.attention(WEIGHTS, pages)
    try:
        block(np.ones((3, HIDDEN), np.float32) if x is None else x, OPS.begin(inputs))
    except (TypeError, ValueError):
        assert not pages.pages.any()
        raise


def test_a_good_step_runs() -> None:
    run(GOOD)


def _tables(*rows: list[int]) -> dict[str, Any]:
    return {"block_tables": (np.array(rows, np.int32),)}


def _slots(*slots: int) -> dict[str, Any]:
    return {"slot_mapping": (np.array(slots, np.int64),)}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cu_seqlens": np.array([0, 2], np.int32)}, "one row per sequence"),
        ({"cu_seqlens": np.array([0, 2, 4], np.int32)}, "number of rows"),
        ({"cu_seqlens": np.array([0, 4, 3], np.int32)}, "not decrease"),
        ({"cu_seqlens": np.array([1, 2, 3], np.int32)}, "from 0"),
        ({"cu_seqlens": np.array([], np.int32)}, "one row per sequence"),
        ({"positions": np.array([16, 18, 3], np.int32)}, "consecutive"),
        ({"positions": np.array([16, 17, -1], np.int32)}, "not negative"),
        ({"positions": np.array([16, 17], np.int32)}, "number of rows"),
        ({"positions": np.array([16, 17, 40], np.int32)}, "rotary"),
        (_tables([1], [3]), "ends before position 17"),
        (_tables([1, 0], [3, 0]), "block id 0 at 1"),
        (_tables([0, 2], [3, 0]), "block id 0 at 0"),
        (_tables([1, NUM_BLOCKS], [3, 0]), "outside 1 to 4"),
        (_tables([1, -7], [3, 0]), "block id -7"),
        (_tables([1, 2]), "one row per sequence"),
        (_slots(32, 33, NUM_BLOCKS * BLOCK), "slot 80"),
        (_slots(32, 33, -2), "slot -2"),
        (_slots(32, 33, BLOCK - 1), "slot 15"),
        (_slots(32, 33), "one entry per row"),
        ({"block_tables": (), "slot_mapping": ()}, "no cache group 0"),
        ({"slot_mapping": ()}, "every cache group"),
    ],
)
def test_a_step_that_contradicts_itself_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        run(replace(GOOD, **change))


@pytest.mark.parametrize(
    "change",
    [
        {"positions": GOOD.positions.astype(np.int64)},
        {"block_tables": (np.zeros((2, 4), np.int32)[:, ::2],)},
        {"slot_mapping": (GOOD.slot_mapping[0].astype(np.int32),)},
    ],
)
def test_arrays_of_another_type_or_order_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        run(replace(GOOD, **change))


@pytest.mark.parametrize(
    ("x", "error"),
    [
        (np.ones((3, HIDDEN), np.float64), TypeError),
        (np.ones((HIDDEN, 3), np.float32).T, TypeError),
        (np.ones((3, HIDDEN + 1), np.float32), ValueError),
        (np.ones((2, HIDDEN), np.float32), ValueError),
    ],
)
def test_rows_of_another_shape_are_refused(x: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        run(GOOD, x)


@pytest.mark.parametrize(
    "change",
    [
        {"qkv": (tensor(2 * DIM, HIDDEN), tensor(DIM, HIDDEN))},
        {"qkv": (tensor(2 * DIM, HIDDEN), tensor(DIM, HIDDEN), tensor(DIM - 1, HIDDEN))},
        {"qkv": (tensor(4 * DIM, HIDDEN + 32),)},
        {"out": tensor(HIDDEN, DIM)},
        {"qkv_bias": ONES},
        {"q_norm": ONES},
        {"k_norm": ONES},
        {"post_norm": np.ones(3, np.float32)},
        {"num_kv_heads": 2},
        {"num_heads": 3},
        {"slot": 1},
        {"rope": Rope(np.ones((40, DIM), np.float32), np.ones((40, DIM), np.float32), True)},
        {"rope": Rope(ANGLES, ANGLES[1:].copy(), True)},
    ],
)
def test_attention_weights_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        OPS.attention(replace(WEIGHTS, **change), OPS.pages(LAYOUT))


@pytest.mark.parametrize(
    "change",
    [
        {"up": tensor(32, HIDDEN)},
        {"down": tensor(HIDDEN, 32)},
        {"gate": tensor(48, HIDDEN), "up": tensor(48, HIDDEN), "down": tensor(HIDDEN, 48)},
        {"activation": "relu"},
        {"post_norm": np.ones(3, np.float32)},
    ],
)
def test_feed_forward_weights_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    wide, back = tensor(64, HIDDEN), tensor(HIDDEN, 64)
    good = FeedForwardWeights(ONES, wide, wide, back, None, 1e-5, "silu")
    OPS.feed_forward(good)
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        OPS.feed_forward(replace(good, **change))


@pytest.mark.parametrize("make", [lambda t: OPS.linear([t]), lambda t: OPS.embedding(t, 1.0)])
def test_a_storage_format_without_kernels_is_refused_by_name(make: Callable[[RawTensor], object]) -> None:
    assert not OPS.supports("IQ2_XXS")
    with pytest.raises(UnsupportedModelError, match=r"blk.0.some.weight.*IQ2_XXS"):
        make(tensor(2, 32, "IQ2_XXS"))


def test_a_tensor_whose_bytes_are_not_its_shape_is_refused() -> None:
    short = replace(tensor(2, 32), shape=(3, 32))
    with pytest.raises(ValueError, match="size"):
        OPS.linear([short])
    with pytest.raises(ValueError, match="Q4_0"):
        OPS.linear([tensor(2, 40, "Q4_0")])


def test_a_token_outside_the_vocabulary_is_refused() -> None:
    embedding = OPS.embedding(tensor(3, 32), 1.0)
    for token in (3, -1):
        with pytest.raises(ValueError, match=f"token id {token}"):
            embedding(np.array([0, token], np.int32))
    assert embedding(np.array([2], np.int32)).shape == (1, 32)


def test_a_variant_or_a_number_of_threads_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="mmx"):
        NativeOps(1, "mmx")
    for num_threads in (0, -1, 10**6):
        with pytest.raises(InvalidParameterError, match="threads"):
            NativeOps(num_threads)


def test_the_best_variant_is_the_default_and_the_name_says_which() -> None:
    assert available_variants()[-1] == "portable"
    assert NativeOps(2).name == f"native ({available_variants()[0]}, 2 threads)"
    assert NativeOps(1, "portable").name == "native (portable, 1 thread)"
