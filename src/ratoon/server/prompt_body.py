"""Prompts as `/v1/completions` takes them: text, token ids or parts, or a list of any of these."""

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

from ratoon.server.body import utf8_text

MAX_PARTS = 1024
"""In one request; a part takes far longer to check than a token."""


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
