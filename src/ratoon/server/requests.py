"""Request bodies as OpenAI's clients send them, with vLLM's and our own fields beside OpenAI's.

A known field is checked strictly: no number in quotes, no truth value for a number. Fields that nobody
knows are kept aside (`unknown_fields`) and answered with a warning. Fields known to OpenAI's clients
that would change the answer and that this server does not do are refused unless they ask for nothing
(`UNSUPPORTED`). The ranges of sampling parameters are `SamplingParams`' own business.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    StringConstraints,
    field_validator,
    model_validator,
)

from ratoon.request.sampling_params import SamplingParams

MAX_STOP_STRINGS = 64
MAX_LOGPROBS = 20

UNSUPPORTED: Mapping[str, tuple[object, ...]] = {
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "functions": ([],),
    "function_call": ("none",),
    "prediction": (),
    "web_search_options": (),
    "chat_template": (),
    "suffix": ("",),
    "best_of": (1,),
}
"""Fields this server does not do, with the values that ask for nothing besides null."""

WITHOUT_EFFECT = frozenset(
    {
        "user",
        "metadata",
        "store",
        "safety_identifier",
        "service_tier",
        "prompt_cache_key",
        "prompt_cache_retention",
    }
)
"""Fields that describe the caller and not the answer: accepted in silence."""


def _text(value: str) -> str:
    value.encode()  # half a surrogate pair, which JSON can carry and UTF-8 cannot, is a ValueError
    return value


class Body(BaseModel):
    """A JSON object with known fields checked strictly and unknown ones kept aside."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    def unknown_fields(self) -> list[str]:
        """Return the paths of the fields that have no meaning here, in this object and those inside it."""
        names = [name for name in self.model_extra or {} if name not in WITHOUT_EFFECT | UNSUPPORTED.keys()]
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, Body):
                names += [f"{name}.{inner}" for inner in value.unknown_fields()]
        return names


class StreamOptions(Body):
    """What a stream carries besides the text."""

    include_usage: bool = False


class CacheOptions(Body):
    """How a request uses the prefix cache: `read` takes cached blocks, `write` leaves its own behind."""

    read: bool = True
    write: bool = True


class GenerationBody(Body):
    """What completions and chat completions have in common."""

    model: str | None = None
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    min_tokens: int = 0
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    n: int | None = None
    stop: str | Annotated[list[str], Field(max_length=MAX_STOP_STRINGS)] | None = None
    stop_token_ids: Annotated[list[int], Field(max_length=MAX_STOP_STRINGS)] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    echo: bool = False
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    include_cache_report: bool = False
    return_token_ids: bool = False
    cache_salt: Annotated[str, StringConstraints(min_length=1), AfterValidator(_text)] | None = None
    cache: CacheOptions | None = None

    default_max_tokens: ClassVar[int | None] = None

    @model_validator(mode="after")
    def _refuse_unsupported(self) -> "GenerationBody":
        for name, value in (self.model_extra or {}).items():
            if name in UNSUPPORTED and value is not None and value not in UNSUPPORTED[name]:
                raise ValueError(f"{name} is not supported by this server.")
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options needs stream to be true.")
        return self

    @field_validator("logit_bias")
    @classmethod
    def _token_ids_as_keys(cls, value: dict[str, float] | None) -> dict[str, float] | None:
        for key in value or {}:
            if not (key.isascii() and key.isdigit() and len(key) < 10):
                raise ValueError(f"{key!r} is not a token id.")
        return value

    def sends_usage(self) -> bool:
        """Whether a stream ends with usage; a cache report needs one to be in."""
        return self.include_cache_report or (self.stream_options or StreamOptions()).include_usage

    def token_limit(self) -> int | None:
        """Return the most output tokens that were asked for; None up to the end of the context."""
        return self.default_max_tokens if self.max_tokens is None else self.max_tokens

    def num_logprobs(self) -> int | None:
        """Return how many alternatives per output token were asked for; None asks for no logprobs at all."""
        return None

    def sampling_params(self, max_tokens: int | None) -> SamplingParams:
        """Return the parameters with the given output limit. Raises `InvalidParameterError`."""
        given = {name: value for name in SAMPLING_FIELDS if (value := getattr(self, name)) is not None}
        if self.logit_bias is not None:
            given["logit_bias"] = {int(token): bias for token, bias in self.logit_bias.items()}
        return SamplingParams(max_tokens=max_tokens, logprobs=self.num_logprobs(), **given)


SAMPLING_FIELDS = (
    "min_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "n",
    "stop",
    "stop_token_ids",
    "include_stop_str_in_output",
    "ignore_eos",
    "skip_special_tokens",
)
"""Fields that go to `SamplingParams` under their own name; left out, its default holds."""


def _prompts(value: object) -> list[str | list[int]]:
    """Return the prompts of text, token ids or a list of either.

    By hand: a union would report every item thrice.
    """
    if isinstance(value, str):
        return [_text(value)]
    if isinstance(value, list) and value:
        if all(type(item) is int for item in value):
            return [value]
        if all(isinstance(item, str) for item in value):
            return [_text(item) for item in value]
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


class TextPart(Body):
    """A part of a message's content."""

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One message. Further fields (`name`, `tool_calls`, ...) go to the chat template as they are."""

    model_config = ConfigDict(strict=True, extra="allow")

    role: Annotated[str, StringConstraints(min_length=1)]
    content: str | list[TextPart] | None = None

    def for_template(self) -> dict[str, Any]:
        """Return the message as templates expect it, its content as one text."""
        content = self.content
        if isinstance(content, list):
            content = "\n".join(part.text for part in content)
        return {**(self.model_extra or {}), "role": self.role, "content": content or ""}


class Conversation(Body):
    """The fields that a chat template sees."""

    messages: Annotated[list[Message], Field(min_length=1)]
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False

    @model_validator(mode="after")
    def _one_ending(self) -> "Conversation":
        if self.continue_final_message and self.add_generation_prompt:
            if "add_generation_prompt" in self.model_fields_set:
                raise ValueError("continue_final_message and add_generation_prompt exclude each other.")
            self.add_generation_prompt = False
        return self

    def template_variables(self) -> dict[str, Any]:
        """Return what the template sees besides the messages."""
        variables = dict(self.chat_template_kwargs or {})
        if self.tools is not None:
            variables["tools"] = self.tools
        if self.tool_choice is not None:
            variables["tool_choice"] = self.tool_choice
        return variables


class ChatBody(Conversation, GenerationBody):
    """The body of `/v1/chat/completions`."""

    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None

    @model_validator(mode="after")
    def _fields_agree(self) -> "ChatBody":
        if self.token_limit() == 0:
            raise ValueError("max_tokens must be at least 1.")
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs to be true.")
        return self

    def token_limit(self) -> int | None:
        """Return `max_completion_tokens`, or its older name."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    def num_logprobs(self) -> int | None:
        """Return `top_logprobs`, 0 where only the chosen token was asked for."""
        return (self.top_logprobs or 0) if self.logprobs else None


class TokenizeBody(Body):
    """The body of `/tokenize`: a text, or a conversation as `/v1/chat/completions` takes it."""

    model: str | None = None
    prompt: str
    add_special_tokens: bool = True


class TokenizeChatBody(Conversation):
    """The body of `/tokenize` for a conversation."""

    model: str | None = None


class DetokenizeBody(Body):
    """The body of `/detokenize`."""

    model: str | None = None
    tokens: list[int]
