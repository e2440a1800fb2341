"""What distinguishes the model families, apart from numbers that stand in their files."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ratoon.spec.model_spec import LayerSpec, ModelSpec, RopeSpec
from ratoon.spec.settings import Settings


@dataclass(frozen=True, slots=True)
class Family:
    """`qkv_bias` and `qk_norm` as in `ModelSpec`.

    `is_gemma`: norms after each block too, tanh-GELU, embeddings scaled by the square root of their width, norm weights
    stored less one. `window_period` p > 0: every p-th layer sees everything, the others a window.
    `local_rope_base`: the base of windowed layers, where it is another one.
    """

    qkv_bias: bool = False
    qk_norm: bool = False
    is_gemma: bool = False
    window_period: int = 0
    local_rope_base: float | None = None
