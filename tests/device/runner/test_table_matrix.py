import numpy as np

from ratoon.device.runner.table_matrix import TableMatrix
from ratoon.spec.cache_group import BlockTables


def test_tables_become_rows_padded_with_zeros_one_matrix_per_group() -> None:
    first, second = TableMatrix(2).update([((1, 2, 3), (7,)), ((4,), (8, 9))])
    np.testing.assert_array_equal(first[:, :3], [[1, 2, 3], [4, 0, 0]])
    np.testing.assert_array_equal(second[:, :3], [[7, 0, 0], [8, 9, 0]])
    assert first.dtype == second.dtype == np.int32
    assert first.shape == second.shape
    assert not first[:, 3:].any()
    assert first.flags.c_contiguous


def test_a_row_is_left_alone_while_the_tuple_is_the_same_object() -> None:
    tables = TableMatrix(1)
    kept: BlockTables = ((1, 2),)
    (matrix,) = tables.update([kept, ((3, 4),)])
    matrix[:] = 99  # nobody may write; it shows what is written again
    (matrix,) = tables.update([kept, ((3, 4, 5),)])
    assert matrix[0, 0] == 99
    assert matrix[1, :4].tolist() == [3, 4, 5, 0]
    (matrix,) = tables.update([((*kept[0],),), kept])  # equal, but another object
    assert matrix[:, :3].tolist() == [[1, 2, 0], [1, 2, 0]]


def test_shorter_tables_leave_nothing_of_longer_ones() -> None:
    tables = TableMatrix(1)
    tables.update([((1, 2, 3, 4),)])
    (matrix,) = tables.update([((5,),)])
    assert matrix[0].tolist() == [5] + [0] * (matrix.shape[1] - 1)


def test_growth_in_either_direction_loses_nothing() -> None:
    tables = TableMatrix(1)
    rows: list[BlockTables] = [((i, i + 1),) for i in range(1, 4)]
    tables.update(rows[:1])
    rng = np.random.default_rng(0)
    for _ in range(200):
        if rng.random() < 0.2:
            rows.append(((int(rng.integers(100)),),))
        i = int(rng.integers(len(rows)))
        rows[i] = (rows[i][0] + (int(rng.integers(1, 100)),),)
        (matrix,) = tables.update(rows)
        for found, (expected,) in zip(matrix.tolist(), rows, strict=True):
            assert found == list(expected) + [0] * (matrix.shape[1] - len(expected))
