"""What callers may give as prompts: one or several, as text, token ids or messages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ratoon.errors import InvalidParameterError
from ratoon.request.sampling_params import SamplingParams
from ratoon.text.chat_template import Message

Prompt = str | Sequence[int]
"""A text, or token ids."""

Conversation = Sequence[Message]
"""Messages, each with `role` and `content`."""


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """A prompt as the engine takes it, with its text if it was given as one."""

    ids: Sequence[int]
    text: str | None = None


def listed(value: object, is_one: Callable[[object], bool]) -> Sequence[object]:
    """Return several of something as they are, and one as a list of one."""
    if isinstance(value, Sequence) and not isinstance(value, str) and not (value and is_one(value)):
        return value
    return [value]


def is_prompt(value: object) -> bool:
    """Whether this is one prompt, not a list of them."""
    if isinstance(value, str):
        return True
    return isinstance(value, Sequence) and all(isinstance(item, int) for item in value)


def is_conversation(value: object) -> bool:
    """Whether this is one conversation, not a list of them."""
    return isinstance(value, Sequence) and all(isinstance(message, Mapping) for message in value)


def one_for_each(
    params: SamplingParams | Sequence[SamplingParams] | None, num_prompts: int
) -> Sequence[SamplingParams]:
    """Return the parameters of each prompt. Raises `InvalidParameterError` if there are not as many."""
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * num_prompts
    if len(params) != num_prompts:
        raise InvalidParameterError(f"There are {num_prompts} prompts, but {len(params)} SamplingParams.")
    return params
