import pytest

from ratoon.checkpoint.digest import weights_digest
from ratoon.checkpoint.tensor import RawTensor
from ratoon.util.progress import no_progress


def tensor(
    name: str = "x", shape: tuple[int, ...] = (4,), dtype: str = "F16", data: bytes = b"12345678"
) -> RawTensor:
    return RawTensor(name, shape, dtype, memoryview(data))


@pytest.mark.parametrize(
    "other",
    [
        tensor(name="y"),
        tensor(shape=(2, 2)),
        tensor(shape=(8,), dtype="I8"),
        tensor(data=b"12345679"),
    ],
)
def test_name_shape_storage_and_bytes_all_count(other: RawTensor) -> None:
    assert weights_digest([tensor()], no_progress) != weights_digest([other], no_progress)


def test_the_order_of_tensors_does_not_count() -> None:
    pair = [tensor(name="x"), tensor(name="y", data=b"87654321")]
    assert weights_digest(pair, no_progress) == weights_digest(reversed(pair), no_progress)


def test_the_digest_is_the_same_on_every_machine() -> None:
    digest = weights_digest([tensor()], no_progress).hex()
    assert digest == "f126c75b8698f48795a2758faa3b16aeff00665a66781ebb5460fe0abbbf9010"
