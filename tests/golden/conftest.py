"""The real model, run over given tokens."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ratoon.checkpoint.formats import open_checkpoint
from ratoon.device.model.decoder import Decoder
from ratoon.device.model.load import load_decoder
from ratoon.device.ops.protocol import Adapter, Floats, KVLayout, Ops, StepInputs
from ratoon.spec.cache_groups import cache_groups
from ratoon.spec.model_reader import read_model_spec

BLOCK = 16
NUM_BLOCKS = 100


@pytest.fixture(scope="session")
def load_smollm2(smollm2_path: Path) -> Callable[[Ops, str], Decoder]:
    """Return a function that loads SmolLM2 for these ops and this KV dtype, with room for one sequence."""

    def load(ops: Ops, kv_dtype: str) -> Decoder:
        checkpoint = open_checkpoint(smollm2_path)
        spec = read_model_spec(checkpoint)
        layout = KVLayout(1 + NUM_BLOCKS, BLOCK, spec.num_layers, spec.num_kv_heads, spec.head_dim, kv_dtype)
        return load_decoder(
            checkpoint, spec, cache_groups(spec), ops, ops.pages(layout), num_positions=NUM_BLOCKS * BLOCK
        )

    return load


@pytest.fixture(scope="session")
def forced_logits() -> Callable[..., Floats]:
    """Return a function: the logits that follow each of the tokens from number `first` on."""

    def run(decoder: Decoder, token_ids: list[int], first: int, adapter: Adapter | None = None) -> Floats:
        positions = np.arange(len(token_ids), dtype=np.int32)
        table = np.arange(1, 1 + NUM_BLOCKS, dtype=np.int32)
        inputs = StepInputs(
            positions,
            np.array([0, len(token_ids)], np.int32),
            (table[None],),
            (positions.astype(np.int64) + BLOCK,),
            (adapter,),
        )
        return decoder.logits(
            decoder(np.array(token_ids, np.int32), inputs, np.arange(first, len(token_ids)))
        )

    return run
