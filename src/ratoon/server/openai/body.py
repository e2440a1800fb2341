"""`GenerationBody`: what the bodies of completions and chat completions have in common.

Beside OpenAI's fields there are vLLM's and our own. `SamplingParams` knows the ranges of sampling parameters.
Fields known to OpenAI's clients that would change the answer and that this server does not do are refused,
unless they ask for nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from ratoon.engine.adapters import LoadedAdapter
from ratoon.errors import InvalidParameterError
from ratoon.lint.log import read_request
from ratoon.lint.prompt import Piece
from ratoon.request.sampling_params import SamplingParams
from ratoon.request.structured_outputs import StructuredOutputs, structured_outputs
from ratoon.server.generation.request import EncodedPrompt, GenerationRequest
from ratoon.server.http.body import Body, utf8_text
from ratoon.server.served_model import ServedModel

MAX_STOP_STRINGS = 64
MAX_LOGPROBS = 20
MAX_PRIORITY = 1000

UNSUPPORTED: Mapping[str, tuple[object, ...]] = {
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


def _checked_form(value: dict[str, Any] | None) -> dict[str, Any] | None:
    """Check the shape of a `response_format`."""
    match value:
        case None | {"type": "text" | "json_object"}:
            return value
        case {"type": "json_schema", "json_schema": {"schema": dict() | bool()}}:
            return value
        case {"type": "json_schema"}:
            raise ValueError("A json_schema is an object with a schema.")
    raise ValueError("The type is text, json_object or json_schema.")


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
    explain_cache: bool = False
    return_token_ids: bool = False
    cache_salt: Annotated[str, StringConstraints(min_length=1), AfterValidator(utf8_text)] | None = None
    cache: CacheOptions | None = None
    priority: Annotated[int, Field(ge=0, le=MAX_PRIORITY)] = 0
    """Lower goes first, as in vLLM; no request may go before those that ask for nothing."""

    response_format: Annotated[dict[str, Any] | None, AfterValidator(_checked_form)] = None
    structured_outputs: dict[str, Any] | None = None

    accepted_in_silence: ClassVar[frozenset[str]] = WITHOUT_EFFECT | UNSUPPORTED.keys()
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
        return (
            self.include_cache_report
            or self.explain_cache
            or (self.stream_options or StreamOptions()).include_usage
        )

    def token_limit(self) -> int | None:
        """Return the most output tokens that were asked for; None up to the end of the context."""
        return self.default_max_tokens if self.max_tokens is None else self.max_tokens

    def pieces(self) -> Sequence[Piece]:
        """Return the texts of the first prompt."""
        return read_request(self.model_dump(exclude_none=True)).pieces

    def num_logprobs(self) -> int | None:
        """Return how many alternatives per output token were asked for; None asks for no logprobs at all."""
        return None

    def scores_prompt(self) -> bool:
        """Whether the prompt's log-probabilities are echoed with it."""
        return False

    def form(self) -> StructuredOutputs | None:
        """Return the form that an answer must have. Raises `InvalidParameterError` where it is malformed."""
        wanted = structured_outputs(self.structured_outputs)
        if self.response_format is None or self.response_format["type"] == "text":
            return wanted
        if wanted is not None:
            raise InvalidParameterError("response_format and structured_outputs exclude each other.")
        if self.response_format["type"] == "json_object":
            return StructuredOutputs(json_object=True)
        return StructuredOutputs(json=self.response_format["json_schema"].get("schema", True))

    def sampling_params(self) -> SamplingParams:
        """Return the parameters; an answer of no token is computed as one of one. May raise as they do."""
        given: dict[str, Any] = {
            name: value for name in SAMPLING_FIELDS if (value := getattr(self, name)) is not None
        }
        if self.logit_bias is not None:
            given["logit_bias"] = {int(token): bias for token, bias in self.logit_bias.items()}
        limit, logprobs = self.token_limit(), self.num_logprobs()
        return SamplingParams(
            max_tokens=1 if limit == 0 else limit,
            logprobs=logprobs,
            prompt_logprobs=logprobs if self.scores_prompt() else None,
            structured_outputs=self.form(),
            **given,
        )

    def generation_request(
        self,
        endpoint: str,
        num_prompts: int,
        encode: Callable[[ServedModel], Sequence[EncodedPrompt]],
        adapter: LoadedAdapter | None,
    ) -> GenerationRequest:
        """Return what is asked for. Raises `InvalidParameterError` for a parameter out of its range."""
        cache = self.cache or CacheOptions()
        return GenerationRequest(
            endpoint=endpoint,
            num_prompts=num_prompts,
            encode=encode,
            params=self.sampling_params(),
            adapter=adapter,
            cache_salt=self.cache_salt,
            priority=self.priority,
            read_cache=cache.read,
            write_cache=cache.write,
            stream=bool(self.stream),
            report_cache=self.include_cache_report or self.explain_cache,
            explain_cache=self.explain_cache,
            read_pieces=self.pieces,
            show_output=self.token_limit() != 0,
        )
