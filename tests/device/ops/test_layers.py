"""Layers in one call: the last one computes what is read, and K and V of all."""

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
    Layer,
    Ops,
    Rope,
    StepInputs,
)
from ratoon.device.ops.reference import ReferenceOps

HIDDEN, DIM, BLOCK, LENGTHS = 32, 16, 16, (40, 7)
STEP = StepInputs(
    positions=np.concatenate([np.arange(n, dtype=np.int32) for n in LENGTHS]),
    cu_seqlens=np.cumsum([0, *LENGTHS]).astype(np.int32),
    block_tables=(np.array([[2, 4, 1], [3, 0, 0]], np.int32),),
    slot_mapping=(np.concatenate([np.r_[32:48, 64:80, 16:24], np.r_[48:55]]),),
)


class Run:
    """Two layers over pages of their own."""

    def __init__(self, ops: Ops) -> None:
        rng = np.random.default_rng(5)

        def weight(rows: int, columns: int) -> RawTensor:
            values = rng.standard_normal((rows, columns), dtype=np.float32)
            return RawTensor("w", (rows, columns), "F32", memoryview(values.tobytes()))

        norm, angles = np.ones(HIDDEN, np.float32), np.ones((64, DIM // 2), np.float32)
        self.pages, self._ops = ops.pages(KVLayout(5, BLOCK, 2, 1, DIM)), ops
        self.x: Floats = rng.standard_normal((sum(LENGTHS), HIDDEN), dtype=np.float32)
        common: dict[str, Any] = {"norm": norm, "eps": 1e-5, "post_norm": None}
        attention: dict[str, Any] = {
            "qkv_bias": None, "q_norm": None, "k_norm": None, "num_heads": 2, "num_kv_heads": 1,
            "head_dim": DIM, "scale": 0.25, "softcap": 0.0, "window": None, "group": 0,
            "rope": Rope(angles, angles, False),
        }  # fmt: skip
        self.layers = ops.layers(
            [
                Layer(
                    ops.attention(
                        AttentionWeights(
                            qkv=(weight(2 * DIM, HIDDEN), weight(DIM, HIDDEN), weight(DIM, HIDDEN)),
                            out=weight(HIDDEN, 2 * DIM), slot=slot, **common, **attention,
                        ),
                        self.pages,
                    ),
                    ops.feed_forward(
                        FeedForwardWeights(
                            gate=weight(64, HIDDEN), up=weight(64, HIDDEN), down=weight(HIDDEN, 64),
                            activation="silu", **common,
                        )
                    ),
                )
                for slot in range(2)
            ]
        )  # fmt: skip

    def rows(self, *rows: int) -> Floats:
        """Run the step and return the last output of these rows."""
        return self.layers(self.x.copy(), self._ops.begin(STEP), np.array(rows, np.intp))


@pytest.fixture(params=["reference", *available_variants()])
def ops(request: pytest.FixtureRequest) -> Ops:
    return ReferenceOps() if request.param == "reference" else NativeOps(2, request.param)


@pytest.mark.parametrize("rows", [(46,), (39, 46), (46, 3, 3, 0), tuple(range(1, 47)), ()])
def test_rows_have_the_same_bits_whichever_are_read(ops: Ops, rows: tuple[int, ...]) -> None:
    every, some = Run(ops), Run(ops)
    expected = every.rows(*range(47))[list(rows)]
    assert some.rows(*rows).tobytes() == expected.tobytes()
    assert every.pages.pages.any()
    assert some.pages.pages.tobytes() == every.pages.pages.tobytes()


@pytest.mark.parametrize("row", [-1, 47])
def test_a_row_that_is_not_there_is_refused(row: int) -> None:
    run = Run(NativeOps(1))
    with pytest.raises(ValueError, match="no such row"):
        run.rows(0, row)
    assert not run.pages.pages.any()
