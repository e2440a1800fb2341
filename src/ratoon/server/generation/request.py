"""`GenerationRequest`: what a client asks for, whatever dialect it speaks.

The seam between the dialects and the engine. In order:

1. A dialect checks the body that it was sent and makes a `GenerationRequest` and a `ResponseFormat`.
2. `GenerationResponse` (response.py) waits for admission, encodes the prompts, submits them, and follows the
   `Choice`s that run (choices.py).
3. What comes for each choice goes through the dialect's `ResponseFormat` to the client (writers.py).

A dialect imports from here; it knows no other dialect, no `Request` of the engine and no delta.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ratoon.engine.adapters import LoadedAdapter
from ratoon.engine.output import OutputDelta
from ratoon.engine.prompt_parts import PromptTokens
from ratoon.lint.prompt import Piece
from ratoon.request.sampling_params import SamplingParams
from ratoon.request.structured_outputs import StructuredOutputs
from ratoon.server.generation.usage import ResponseUsage
from ratoon.server.http.errors import ApiError
from ratoon.server.served_model import ServedModel

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt as token ids, not yet checked, and the text that its answers begin with.

    `form` is what its answers must have, if that follows from the prompt and not from the parameters alone.
    `shown_control_ids` are control tokens that stand in the text although others do not. `warnings` are told
    in a header.
    """

    tokens: PromptTokens
    echo: str = ""
    form: StructuredOutputs | None = None
    shown_control_ids: frozenset[int] = frozenset()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One or several prompts, each with `params.n` answers.

    `encode` returns the prompts in order; it runs on a thread, may take long, and raises `RatoonError`s or an
    `ApiError`. `params.max_tokens` is None where the answer may go on to the end of the context.
    """

    endpoint: str
    """How the log calls it."""
    num_prompts: int
    encode: Callable[[ServedModel], Sequence[EncodedPrompt]]
    params: SamplingParams
    adapter: LoadedAdapter | None = None
    """What the client named as its model, if that was not the served model itself."""
    cache_salt: str | None = None
    priority: int = 0
    read_cache: bool = True
    write_cache: bool = True
    stream: bool = False
    report_cache: bool = False
    """Whether the response's usage has a `CacheReport`."""
    explain_cache: bool = False
    """Whether that report explains what was not cached."""
    read_pieces: Callable[[], Sequence[Piece]] = tuple
    """Returns the texts that the first prompt was made from, in the order in which its template puts them.
    """
    show_output: bool = True
    """False where only the prompt is asked for, echoed and scored: the engine still computes one token."""

    @property
    def num_choices(self) -> int:
        """Answers that the engine is asked for."""
        return self.num_prompts * self.params.n


class ResponseFormat(Protocol):
    """How one response is written in a dialect. Made for each response; it may keep what it has written.

    What the first four return are the bytes of server-sent events, none, one or several.
    """

    def begin(self, usage: ResponseUsage) -> bytes:
        """Begin a stream. The prompts' tokens are counted in `usage` as far as their answers have begun."""
        ...

    def output(self, output: OutputDelta) -> bytes:
        """Write what came newly for the choice `output.index`; with its last output comes a `finish_reason`.

        `logprobs` has an entry for each of `token_ids` if they were asked for, an empty one where there is no
        log-probability, as for the first token of an echoed prompt.
        """
        ...

    def end(self, usage: ResponseUsage) -> bytes:
        """End a stream in which every choice has ended."""
        ...

    def error(self, error: ApiError) -> bytes:
        """End a stream in which something went wrong."""
        ...

    def whole(self, outputs: Sequence[OutputDelta], usage: ResponseUsage) -> Json:
        """Return the body of a response that is not a stream: one output for each choice, all of it."""
        ...
