"""The extension module built from `native/`. Arrays must be C-contiguous and of exactly the named type."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Bytes = NDArray[np.uint8]

def available_variants() -> list[str]: ...
def emulated_variants() -> list[str]: ...
def passes_self_test(isa: str) -> bool: ...
def same_bits(isa: str, expected: str) -> bool: ...
def supports(dtype: str) -> bool: ...

class Engine:
    def __init__(self, num_threads: int, isa: str, keeps_to_cores: bool) -> None: ...
    @property
    def num_threads(self) -> int: ...

class Matrix: ...

def pack(engine: Engine, data: Bytes, dtype: str, rows: int, columns: int, unit: int) -> Matrix: ...

class Step:
    def __init__(
        self,
        positions: Ints,
        cu_seqlens: Ints,
        block_tables: Sequence[Ints],
        slot_mapping: Sequence[NDArray[np.int64]],
    ) -> None: ...
    def shared_blocks(self) -> list[tuple[int, list[int], int]]: ...

class Adapter:
    def __init__(self, num_layers: int, scale: float) -> None: ...
    def add(
        self,
        layer: int,
        target: int,
        a: Bytes,
        dtype_a: str,
        b: Bytes,
        dtype_b: str,
        rank: int,
        depth: int,
        columns: int,
        unit: int,
    ) -> None: ...

class AdapterRows:
    def __init__(self, num_rows: int, spans: Sequence[tuple[int, int, Adapter]]) -> None: ...

class Linear:
    def __init__(self, engine: Engine, matrices: Sequence[Matrix]) -> None: ...
    @property
    def columns(self) -> int: ...
    def run(self, x: Floats, out: Floats) -> None: ...

class Embedding:
    def __init__(self, engine: Engine, dtype: str, columns: int, scale: float) -> None: ...
    @property
    def columns(self) -> int: ...
    def run(self, stored: Bytes, out: Floats) -> None: ...

class Rope:
    def __init__(self, cos: Floats, sin: Floats, interleaved: bool) -> None: ...

class Attention:
    def __init__(
        self,
        *,
        engine: Engine,
        norm: Floats,
        qkv: Sequence[Matrix],
        bias: Floats | None,
        q_norm: Floats | None,
        k_norm: Floats | None,
        out: Matrix,
        post_norm: Floats | None,
        eps: float,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        scale: float,
        softcap: float,
        window: int,
        rope: Rope,
        group: int,
        slot: int,
        layer: int,
        pages: Bytes,
        block_size: int,
        num_slots: int,
        integers: bool,
    ) -> None: ...
    def run(self, x: Floats, step: Step, adapters: AdapterRows | None) -> None: ...

class FeedForward:
    def __init__(
        self,
        *,
        engine: Engine,
        norm: Floats,
        gate: Matrix,
        up: Matrix,
        down: Matrix,
        post_norm: Floats | None,
        eps: float,
        activation: str,
        layer: int,
    ) -> None: ...
    def run(self, x: Floats, adapters: AdapterRows | None) -> None: ...

class Layers:
    def __init__(self, attention: list[Attention], feed_forward: list[FeedForward]) -> None: ...
    def run(
        self, x: Floats, step: Step, rows: NDArray[np.int64], out: Floats, adapters: AdapterRows | None
    ) -> None: ...

class LMHead:
    def __init__(self, *, engine: Engine, norm: Floats, out: Matrix, eps: float, softcap: float) -> None: ...
    @property
    def columns(self) -> int: ...
    def run(self, x: Floats, out: Floats, best: Ints) -> None: ...
