import numpy as np
import pytest

from ratoon.device.ops.protocol import Adapter
from ratoon.device.runner.batch import BatchBuilder, given_rows
from ratoon.spec.cache_group import BlockTables
from ratoon.step import ChunkRows, ScheduledChunk, StepPlan


def _chunk(
    tokens: tuple[int, ...], first: int, tables: BlockTables, write_from: int | None = None
) -> ScheduledChunk:
    return ScheduledChunk(0, tokens, first, first if write_from is None else write_from, tables)


def test_chunks_are_laid_end_to_end() -> None:
    plan = StepPlan(1, (_chunk((9, 8, 7), 3, ((5, 6),)), _chunk((4,), 0, ((2,),))))
    token_ids, inputs = BatchBuilder(num_groups=1, block_size=4).build(plan)
    assert token_ids.tolist() == [9, 8, 7, 4]
    assert inputs.positions.tolist() == [3, 4, 5, 0]
    assert inputs.cu_seqlens.tolist() == [0, 3, 4]
    assert inputs.slot_mapping[0].tolist() == [5 * 4 + 3, 6 * 4, 6 * 4 + 1, 2 * 4]
    assert inputs.block_tables[0][:, :2].tolist() == [[5, 6], [2, 0]]
    assert token_ids.dtype == inputs.positions.dtype == inputs.cu_seqlens.dtype == np.int32
    assert inputs.slot_mapping[0].dtype == np.int64


def test_positions_below_write_from_write_nothing() -> None:
    plan = StepPlan(
        1, (_chunk((1, 2, 3), 6, ((3, 5, 4),), write_from=8), _chunk((1,), 3, ((7,),), write_from=4))
    )
    _, inputs = BatchBuilder(num_groups=1, block_size=4).build(plan)
    assert inputs.slot_mapping[0].tolist() == [-1, -1, 4 * 4, -1]


def test_each_group_has_its_own_tables_and_slots() -> None:
    plan = StepPlan(1, (_chunk((1, 2), 4, ((1, 2), (0, 9))),))
    _, inputs = BatchBuilder(num_groups=2, block_size=4).build(plan)
    assert [slots.tolist() for slots in inputs.slot_mapping] == [[8, 9], [36, 37]]
    assert inputs.block_tables[1][0, :2].tolist() == [0, 9]


def test_an_empty_plan_is_an_empty_batch() -> None:
    token_ids, inputs = BatchBuilder(num_groups=1, block_size=4).build(StepPlan(1, ()))
    assert len(token_ids) == len(inputs.positions) == 0
    assert inputs.cu_seqlens.tolist() == [0]


def test_rows_are_placed_where_their_chunk_begins_and_read_as_float32() -> None:
    values = np.array([[1.5, -2.0], [0.25, 3.0]], np.float32)
    bf16 = (values.view(np.uint32) >> 16).astype(np.uint16)
    first = _chunk((9, 8, 7), 3, ((5, 6),))._replace(input_rows=(ChunkRows(1, 2, "F32", values.tobytes()),))
    second = _chunk((4, 0, 0), 0, ((2,),))._replace(
        input_rows=(
            ChunkRows(0, 1, "F16", values[:1].astype(np.float16).tobytes()),
            ChunkRows(1, 2, "BF16", bf16.tobytes()),
        ),
    )
    found = list(given_rows(StepPlan(1, (first, second)), [0, 3, 6]))
    assert [place for place, _ in found] == [1, 3, 4]
    assert [rows.tolist() for _, rows in found] == [values.tolist(), values[:1].tolist(), values.tolist()]
    assert all(rows.dtype == np.float32 for _, rows in found)


def test_each_chunk_brings_its_adapter() -> None:
    plan = StepPlan(1, (_chunk((1,), 0, ((1,),)), _chunk((2,), 0, ((2,),))._replace(adapter=b"digest")))
    found: dict[bytes, Adapter] = {b"digest": object()}
    builder = BatchBuilder(num_groups=1, block_size=4, find_adapter=found.__getitem__)
    assert builder.build(plan)[1].adapters == (None, found[b"digest"])


def test_an_adapter_that_nobody_holds_is_our_own_mistake() -> None:
    plan = StepPlan(1, (_chunk((2,), 0, ((2,),))._replace(adapter=b"digest"),))
    with pytest.raises(KeyError, match="646967657374"):
        BatchBuilder(num_groups=1, block_size=4).build(plan)
