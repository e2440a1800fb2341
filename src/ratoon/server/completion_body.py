"""`CompletionBody`: the body of `/v1/completions`."""

from typing import Annotated, ClassVar

from pydantic import Field, PlainValidator, model_validator

from ratoon.server.body import utf8_text
from ratoon.server.generation_body import MAX_LOGPROBS, GenerationBody


def _prompts(value: object) -> list[str | list[int]]:
    """Return the prompts of text, token ids or a list of either.

    By hand: a union would report every item thrice.
    """
    if isinstance(value, str):
        return [utf8_text(value)]
    if isinstance(value, list) and value:
        if all(type(item) is int for item in value):
            return [value]
        if all(isinstance(item, str) for item in value):
            return [utf8_text(item) for item in value]
        if all(
            isinstance(item, list) and item and all(type(token) is int for token in item) for item in value
        ):
            return value
    raise ValueError("must be a text, a list of token ids, or a non-empty list of either")


PROMPT_SCHEMA = str | list[str] | list[int] | list[list[int]]
Prompts = Annotated[list[str | list[int]], PlainValidator(_prompts, json_schema_input_type=PROMPT_SCHEMA)]


class CompletionBody(GenerationBody):
    """The body of `/v1/completions`."""

    prompt: Prompts
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None

    default_max_tokens: ClassVar[int | None] = 16

    @model_validator(mode="after")
    def _some_output(self) -> "CompletionBody":
        if self.max_tokens == 0 and not self.echo:
            raise ValueError("max_tokens may be 0 only with echo.")
        return self

    def num_logprobs(self) -> int | None:
        """Return `logprobs`."""
        return self.logprobs
