"""Input rows as clients send them: a `.npy` or `.safetensors` file in base64.

Both are read here without running anything that the client sent; a pickle, which is also what `torch.save`
writes, is neither. Sizes are checked against what was sent before anything is copied.
Formats: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html,
https://github.com/huggingface/safetensors#format
"""

import base64
import binascii
import re

from ratoon.checkpoint.safetensors_folder import read_tensors
from ratoon.errors import CheckpointError, InvalidParameterError
from ratoon.request.input_rows import InputRows, input_rows

NPY_MAGIC = b"\x93NUMPY"
PICKLE_MAGICS = (b"PK\x03\x04", b"\x80")
"""A ZIP archive, as `torch.save` and `np.savez` write, and a bare pickle."""

NPY_DTYPES = {"<f4": "F32", "<f2": "F16"}
NPY_FIELDS = {"descr": "'([^']*)'", "fortran_order": "(True|False)", "shape": r"\(([\d, ]*)\)"}
MAX_NPY_HEADER = 10_000
"""NumPy's own limit: an array of numbers needs some hundred bytes."""


def read_rows(text: str, width: int) -> InputRows:
    """Return the rows of a file in base64. Raises `InvalidParameterError`, as `input_rows` does."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidParameterError(f"Prompt embeddings must be base64: {error}.") from None
    return (_read_npy if data.startswith(NPY_MAGIC) else _read_safetensors)(memoryview(data), width)


def _read_npy(data: memoryview, width: int) -> InputRows:
    """Read magic, two bytes of version, the header's length in 2 bytes (version 1) or 4, header, rows."""
    start = 10 if len(data) > 6 and data[6] == 1 else 12
    end = start + int.from_bytes(data[8:start], "little")
    if end > min(len(data), MAX_NPY_HEADER):
        raise InvalidParameterError("The .npy file ends inside its header, or has a very long one.")
    header = bytes(data[start:end]).decode("latin-1")
    dtype, order, shape = (
        re.search(rf"'{name}'\s*:\s*{value}", header) for name, value in NPY_FIELDS.items()
    )
    if dtype is None or order is None or shape is None:
        raise InvalidParameterError("The .npy file holds no plain array.")
    if order[1] == "True":
        raise InvalidParameterError(
            "The .npy file holds columns, not rows.", hint="Save numpy.ascontiguousarray of the array."
        )
    sizes = [int(size) for size in re.findall(r"\d{1,12}", shape[1])]
    return input_rows(NPY_DTYPES.get(dtype[1], f"`{dtype[1]}`"), sizes, data[end:], width=width)


def _read_safetensors(data: memoryview, width: int) -> InputRows:
    try:
        tensors = list(read_tensors(data, "The file"))
    except CheckpointError as error:
        if bytes(data[:4]).startswith(PICKLE_MAGICS):  # a header may begin so, but would have been read
            raise InvalidParameterError(
                "Prompt embeddings look like a pickle or a torch.save file, which are never loaded.",
                hint="Send what numpy.save or safetensors' save writes.",
            ) from None
        raise InvalidParameterError(
            f"Prompt embeddings are neither .npy nor .safetensors. {error.message}"
        ) from None
    if len(tensors) != 1:
        raise InvalidParameterError(f"The .safetensors file has {len(tensors)} tensors; there must be one.")
    [tensor] = tensors
    return input_rows(tensor.dtype, tensor.shape, tensor.data, width=width)
