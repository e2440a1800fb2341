"""Tasks: what a checked body of either endpoint asks for, in the same words for both."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ratoon.engine.adapters import LoadedAdapter
from ratoon.server.answer_format import AnswerFormat, Envelope
from ratoon.server.chat_body import ChatBody, Conversation
from ratoon.server.chat_format import ChatFormat
from ratoon.server.completion_body import CompletionBody
from ratoon.server.completion_format import CompletionFormat
from ratoon.server.generation_body import GenerationBody
from ratoon.server.served_model import ServedModel
from ratoon.text.chat_prompt import encode_chat


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt's tokens, not yet checked, and what `echo` puts before the answer; None is their own text."""

    token_ids: Sequence[int]
    echo: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """`encode` raises `TextError` and runs on a thread, so it may take its time."""

    endpoint: str
    body: GenerationBody
    num_prompts: int
    encode: Callable[[ServedModel], list[EncodedPrompt]]
    id_prefix: str
    form: Callable[[Envelope], AnswerFormat]
    num_top: int = 0
    """How many alternatives per token a chat shows."""
    scores_prompt: bool = False
    """Whether the prompt's log-probabilities are echoed with it."""
    adapter: LoadedAdapter | None = None
    """What `model` named, if it was not the model itself."""


def completion_task(body: CompletionBody) -> Task:
    """Return the task of `/v1/completions`."""

    def encode(model: ServedModel) -> list[EncodedPrompt]:
        return [_encode_prompt(model, prompt) for prompt in body.prompt]

    return Task(
        endpoint="completions",
        body=body,
        num_prompts=len(body.prompt),
        encode=encode,
        id_prefix="cmpl",
        form=CompletionFormat,
        scores_prompt=body.echo and body.logprobs is not None,
    )


def chat_task(body: ChatBody) -> Task:
    """Return the task of `/v1/chat/completions`."""

    def encode(model: ServedModel) -> list[EncodedPrompt]:
        final = body.messages[-1].for_template()["content"] if body.continue_final_message else ""
        return [EncodedPrompt(encode_conversation(model, body), final)]

    return Task(
        endpoint="chat",
        body=body,
        num_prompts=1,
        encode=encode,
        id_prefix="chatcmpl",
        form=ChatFormat,
        num_top=body.top_logprobs or 0,
    )


def encode_conversation(model: ServedModel, body: Conversation) -> list[int]:
    """Return the tokens of a conversation. Raises `TextError` of some kind."""
    return encode_chat(
        model.tokenizer,
        model.load_chat_template(),
        [message.for_template() for message in body.messages],
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=body.continue_final_message,
        tools=body.tools,
        variables=body.template_variables(),
    )


def _encode_prompt(model: ServedModel, prompt: str | list[int]) -> EncodedPrompt:
    if isinstance(prompt, str):
        return EncodedPrompt(model.tokenizer.encode(prompt, add_special=True, parse_special=True), prompt)
    return EncodedPrompt(prompt, None)
