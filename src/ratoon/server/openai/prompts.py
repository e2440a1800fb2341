"""Prompts as `/v1/completions` takes them: text, token ids or parts, or a list of any of these.

Input rows come as a `.npy` or `.safetensors` file in base64. Both are read here without running anything that
the client sent; a pickle, which is also what `torch.save` writes, is neither. Sizes are checked against what
was sent before anything is copied.
Formats: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html,
https://github.com/huggingface/safetensors#format
"""

import base64
import binascii
import re
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    TypeAdapter,
    ValidationError,
)

from ratoon.checkpoint.safetensors_folder import read_tensors
from ratoon.engine.prompt_parts import join_parts
from ratoon.errors import CheckpointError, InvalidParameterError
from ratoon.request.input_rows import InputRows, input_rows
from ratoon.server.generation.request import EncodedPrompt
from ratoon.server.http.body import utf8_text
from ratoon.server.http.errors import to_api_error
from ratoon.server.served_model import ServedModel

MAX_PARTS = 1024
"""In one request; a part takes far longer to check than a token."""

NPY_MAGIC = b"\x93NUMPY"
PICKLE_MAGICS = (b"PK\x03\x04", b"\x80")
"""A ZIP archive, as `torch.save` and `np.savez` write, and a bare pickle."""

NPY_DTYPES = {"<f4": "F32", "<f2": "F16"}
NPY_FIELDS = {"descr": "'([^']*)'", "fortran_order": "(True|False)", "shape": r"\(([\d, ]*)\)"}
MAX_NPY_HEADER = 10_000
"""NumPy's own limit: an array of numbers needs some hundred bytes."""


class Part(BaseModel):
    """A part of a prompt. It has a type and what belongs to it, and nothing else."""

    model_config = ConfigDict(strict=True, extra="forbid")


class TextPart(Part):
    """A text; names of control tokens in it become control tokens."""

    type: Literal["text"]
    text: Annotated[str, AfterValidator(utf8_text)]


class TokenIdsPart(Part):
    """Token ids."""

    type: Literal["token_ids"]
    token_ids: Annotated[list[int], Field(min_length=1)]


class EmbedsPart(Part):
    """Rows of input embeddings: a `.npy` or `.safetensors` file [n, hidden size] in base64."""

    type: Literal["prompt_embeds"]
    data: str


Prompt = list[str | list[int] | EmbedsPart]
"""One prompt: its parts in order, of which there is one where a text or token ids were sent."""


def _prompts(value: object) -> list[Prompt]:
    """Return the prompts of one prompt or a list of them.

    By hand: a union would report every item once for each of its members.
    """
    if isinstance(value, str) or (isinstance(value, list) and value and isinstance(value[0], int | dict)):
        value = [value]
    if not isinstance(value, list) or not value:
        raise ValueError(f"must be {PROMPT}, or a non-empty list of these")
    mixed = [item for item in value if isinstance(item, list) and item and isinstance(item[0], dict)]
    if sum(map(len, mixed)) > MAX_PARTS:
        raise ValueError(f"must have at most {MAX_PARTS} parts in all")
    return [_prompt(item) for item in value]


def _prompt(value: object) -> Prompt:
    if isinstance(value, str):
        return [utf8_text(value)]
    if isinstance(value, list) and value:
        if all(type(item) is int for item in value):
            return [value]
        if all(isinstance(item, dict) for item in value):
            return [_part(number, item) for number, item in enumerate(value)]
    raise ValueError(f"each prompt must be {PROMPT}")


def _part(number: int, value: dict[str, object]) -> str | list[int] | EmbedsPart:
    try:
        part = PART.validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]
        path = ".".join(map(str, problem["loc"]))
        raise ValueError(f"part {number}: {f'{path}: ' if path else ''}{problem['msg']}") from None
    match part:
        case TextPart():
            return part.text
        case TokenIdsPart():
            return part.token_ids
        case _:
            return part


PROMPT = "a text, a list of token ids or a list of parts"
AnyPart = Annotated[TextPart | TokenIdsPart | EmbedsPart, Field(discriminator="type")]
PART: TypeAdapter[TextPart | TokenIdsPart | EmbedsPart] = TypeAdapter(AnyPart)

Files = Annotated[
    list[str],
    Field(min_length=1, max_length=MAX_PARTS),
    BeforeValidator(
        lambda value: [value] if isinstance(value, str) else value, json_schema_input_type=str | list[str]
    ),
]
"""Prompts that are rows alone: one file or a list of them, as in `EmbedsPart`."""

OnePrompt = str | list[int] | list[AnyPart]
Prompts = Annotated[
    list[Prompt], PlainValidator(_prompts, json_schema_input_type=OnePrompt | list[OnePrompt])
]


def encode_prompt(model: ServedModel, prompt: Prompt, *, echo: bool) -> EncodedPrompt:
    """Return a prompt's tokens, and with `echo` the text that its answers begin with."""
    parts = [_read_rows(model, part) if isinstance(part, EmbedsPart) else part for part in prompt]
    tokens = join_parts(parts, model.tokenizer)
    if not echo:
        return EncodedPrompt(tokens)
    text = model.tokenizer.decode(tokens.ids, skip_special=False) if tokens.text is None else tokens.text
    return EncodedPrompt(tokens, text)


def _read_rows(model: ServedModel, part: EmbedsPart) -> InputRows:
    try:
        return read_rows(part.data, model.hidden_size)
    except InvalidParameterError as error:
        named = to_api_error(error)
        named.param = part.type
        raise named from None


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
