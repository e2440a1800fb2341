"""What callers may give as prompts: one or several, as text, token ids, parts or messages."""

from collections.abc import Callable, Mapping, Sequence

from ratoon.engine.prompt_parts import PromptParts, are_whole_numbers
from ratoon.errors import InvalidParameterError
from ratoon.request.sampling_params import SamplingParams
from ratoon.text.messages import Message

Prompt = str | Sequence[int] | PromptParts
"""A text, token ids, or parts of any kind."""

Conversation = Sequence[Message]
"""Messages, each with `role` and `content`."""


def listed(value: object, is_one: Callable[[object], bool]) -> Sequence[object]:
    """Return several of something as they are, and one as a list of one."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray | memoryview):
        return [value]
    return [value] if value and is_one(value) else value


def is_prompt(value: object) -> bool:
    """Whether this is one prompt, not a list of them. Bytes are none: they might be meant as text."""
    if isinstance(value, str | PromptParts):
        return True
    if not isinstance(value, Sequence) or isinstance(value, bytes | bytearray | memoryview):
        return False
    return are_whole_numbers(value)


def is_conversation(value: object) -> bool:
    """Whether this is one conversation, not a list of them."""
    return isinstance(value, Sequence) and all(isinstance(message, Mapping) for message in value)


def adapter_for_each(adapter: str | Sequence[str | None] | None, num_prompts: int) -> Sequence[str | None]:
    """Return the adapter's name for each prompt. Raises `InvalidParameterError` if there are not as many."""
    if adapter is None or isinstance(adapter, str):
        return [adapter] * num_prompts
    if not isinstance(adapter, Sequence) or not all(isinstance(name, str | None) for name in adapter):
        raise InvalidParameterError(f"adapter must be a name or a list of names, not {adapter!r}.")
    if len(adapter) != num_prompts:
        raise InvalidParameterError(f"There are {num_prompts} prompts, but {len(adapter)} names of adapters.")
    return adapter


def one_for_each(
    params: SamplingParams | Sequence[SamplingParams] | None, num_prompts: int
) -> Sequence[SamplingParams]:
    """Return the parameters of each prompt. Raises `InvalidParameterError` if there are not as many."""
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * num_prompts
    if not isinstance(params, Sequence) or not all(isinstance(each, SamplingParams) for each in params):
        raise InvalidParameterError(f"params must be SamplingParams or a list of them, not {params!r}.")
    if len(params) != num_prompts:
        raise InvalidParameterError(f"There are {num_prompts} prompts, but {len(params)} SamplingParams.")
    return params
