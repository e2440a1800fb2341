"""`CompletionBody`: the body of `/v1/completions`."""

from typing import Annotated, ClassVar

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ratoon.server.generation_body import MAX_LOGPROBS, GenerationBody
from ratoon.server.prompt_body import EmbedsPart, Files, Prompt, Prompts


class CompletionBody(GenerationBody):
    """The body of `/v1/completions`."""

    prompt_embeds: Files | None = None
    prompt: Annotated[Prompts | None, Field(validate_default=True)] = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None

    default_max_tokens: ClassVar[int | None] = 16

    @field_validator("prompt")
    @classmethod
    def _some_prompt(cls, prompt: Prompts | None, info: ValidationInfo) -> Prompts | None:
        if prompt is None and info.data.get("prompt_embeds") is None:
            raise ValueError("is needed where there is no prompt_embeds")
        return prompt

    @model_validator(mode="after")
    def _fields_agree(self) -> "CompletionBody":
        if self.max_tokens == 0 and not self.echo:
            raise ValueError("max_tokens may be 0 only with echo.")
        if self.echo and any(isinstance(part, EmbedsPart) for prompt in self.prompts() for part in prompt):
            raise ValueError("echo is not possible with prompt embeddings, which have no text.")
        return self

    def prompts(self) -> list[Prompt]:
        """Return all prompts in the order of their answers: those of `prompt_embeds` come first, as in vLLM.

        An empty text beside them is none: OpenAI's client must send something as `prompt`.
        """
        files = self.prompt_embeds or []
        embeds: list[Prompt] = [[EmbedsPart(type="prompt_embeds", data=data)] for data in files]
        return embeds + ([] if files and self.prompt == [[""]] else self.prompt or [])

    def num_logprobs(self) -> int | None:
        """Return `logprobs`."""
        return self.logprobs
