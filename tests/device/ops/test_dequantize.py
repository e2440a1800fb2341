import gguf
import numpy as np
import pytest
from gguf import quants

from ratoon.checkpoint.tensor import RawTensor
from ratoon.device.ops.dequantize import FORMATS, dequantize, tensor_values

PLAIN = {"F32": np.float32, "F16": np.float16}


@pytest.mark.parametrize("dtype", FORMATS)
def test_any_bytes_expand_to_the_bits_that_gguf_gives(dtype: str) -> None:
    rng = np.random.default_rng(1)
    data = rng.integers(0, 256, (40, 3 * FORMATS[dtype].num_bytes), np.uint8)
    quantised = data.view(PLAIN[dtype]) if dtype in PLAIN else data
    with np.errstate(all="ignore"):  # random scales are often infinite or not a number
        expected = quants.dequantize(quantised, gguf.GGMLQuantizationType[dtype])
        found = dequantize(data, dtype)
    np.testing.assert_array_equal(found, expected)  # counts NaNs as equal
    assert np.isfinite(expected).any()


@pytest.mark.parametrize("dtype", FORMATS)
def test_the_table_of_formats_has_the_sizes_of_gguf(dtype: str) -> None:
    sizes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[dtype]]
    assert (FORMATS[dtype].num_elements, FORMATS[dtype].num_bytes) == sizes


def test_a_tensor_keeps_its_shape_and_does_not_alias_the_file() -> None:
    data = np.arange(12, dtype=np.float32)
    values = tensor_values(RawTensor("t", (2, 3, 2), "F32", memoryview(data.tobytes())))
    assert values.shape == (2, 3, 2)
    values += 1  # the file is read-only
    np.testing.assert_array_equal(values.ravel(), data + 1)
