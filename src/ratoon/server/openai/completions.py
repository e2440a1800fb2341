"""`/v1/completions`: its body and its responses."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ratoon.engine.adapters import LoadedAdapter
from ratoon.engine.output import OutputDelta
from ratoon.lint.prompt import Piece, Role
from ratoon.server.generation.request import EncodedPrompt, GenerationRequest, Json
from ratoon.server.generation.usage import ResponseUsage
from ratoon.server.openai.body import MAX_LOGPROBS, GenerationBody
from ratoon.server.openai.format import Envelope, OpenAIFormat, finite_logprob, usage_body
from ratoon.server.openai.prompts import EmbedsPart, Files, Prompt, Prompts, encode_prompt
from ratoon.server.served_model import ServedModel


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

    def pieces(self) -> Sequence[Piece]:
        """Return the texts of the first prompt."""
        return [Piece(Role.TEXT, part) for part in self.prompts()[0] if isinstance(part, str)]

    def num_logprobs(self) -> int | None:
        """Return `logprobs`."""
        return self.logprobs

    def scores_prompt(self) -> bool:
        """Whether the prompt's log-probabilities are echoed with it."""
        return self.echo and self.logprobs is not None

    def request(self, adapter: LoadedAdapter | None) -> GenerationRequest:
        """Return what is asked for."""
        prompts = self.prompts()

        def encode(model: ServedModel) -> list[EncodedPrompt]:
            return [encode_prompt(model, prompt, echo=self.echo) for prompt in prompts]

        return self.generation_request("completions", len(prompts), encode, adapter)


class CompletionFormat(OpenAIFormat):
    """How `/v1/completions` responds."""

    kind = "text_completion"
    chunk_kind = "text_completion"

    def __init__(self, envelope: Envelope) -> None:
        super().__init__(envelope)
        self._offsets: dict[int, int] = {}

    def chunk_choices(self, output: OutputDelta) -> list[Json]:
        """Return a chunk with the new text."""
        return [self._choice(output)]

    def whole(self, outputs: Sequence[OutputDelta], usage: ResponseUsage) -> Json:
        """Return all choices."""
        return self._body(
            self.kind, [self._choice(output) for output in outputs], {"usage": usage_body(usage)}
        )

    def _choice(self, output: OutputDelta) -> Json:
        return {
            "index": output.index,
            "text": output.text,
            "logprobs": self._logprobs(output),
            "finish_reason": output.finish_reason,
            **self._token_ids(output),
        }

    def _logprobs(self, output: OutputDelta) -> Json | None:
        if output.logprobs is None:
            return None
        tokens = [self._text(token_id) for token_id in output.token_ids]
        offsets = []
        for token in tokens:
            offsets.append(self._offsets.setdefault(output.index, 0))
            self._offsets[output.index] += len(token)
        return {
            "tokens": tokens,
            "token_logprobs": [
                finite_logprob(entry[token_id]) if entry else None
                for entry, token_id in zip(output.logprobs, output.token_ids, strict=True)
            ],
            "top_logprobs": [
                {self._text(token_id): finite_logprob(value) for token_id, value in entry.items()} or None
                for entry in output.logprobs
            ],
            "text_offset": offsets,
        }

    def _text(self, token_id: int) -> str:
        return self._envelope.token_bytes(token_id).decode(errors="replace")
