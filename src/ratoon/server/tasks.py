"""Tasks: what a checked body of either endpoint asks for, in the same words for both."""

from collections.abc import Callable
from dataclasses import dataclass

from ratoon.engine.adapters import LoadedAdapter
from ratoon.engine.prompt_parts import PromptTokens, join_parts
from ratoon.errors import InvalidParameterError
from ratoon.request.input_rows import InputRows
from ratoon.server.answer_format import AnswerFormat, Envelope
from ratoon.server.api_error import to_api_error
from ratoon.server.chat_body import ChatBody, Conversation
from ratoon.server.chat_format import ChatFormat
from ratoon.server.completion_body import CompletionBody
from ratoon.server.completion_format import CompletionFormat
from ratoon.server.generation_body import GenerationBody
from ratoon.server.prompt_body import EmbedsPart, Prompt
from ratoon.server.rows_file import read_rows
from ratoon.server.served_model import ServedModel
from ratoon.text.chat_prompt import encode_chat


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt, not yet checked, and what `echo` puts before the answer; None is the tokens' own text."""

    tokens: PromptTokens
    echo: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """`encode` raises `RatoonError`s and `ApiError` and runs on a thread, so it may take its time."""

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
    prompts = body.prompts()

    def encode(model: ServedModel) -> list[EncodedPrompt]:
        return [_encode_prompt(model, prompt) for prompt in prompts]

    return Task(
        endpoint="completions",
        body=body,
        num_prompts=len(prompts),
        encode=encode,
        id_prefix="cmpl",
        form=CompletionFormat,
        scores_prompt=body.echo and body.logprobs is not None,
    )


def chat_task(body: ChatBody) -> Task:
    """Return the task of `/v1/chat/completions`."""

    def encode(model: ServedModel) -> list[EncodedPrompt]:
        final = body.messages[-1].for_template()["content"] if body.continue_final_message else ""
        return [EncodedPrompt(PromptTokens(encode_conversation(model, body)), final)]

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


def _encode_prompt(model: ServedModel, prompt: Prompt) -> EncodedPrompt:
    parts = [_read_rows(model, part) if isinstance(part, EmbedsPart) else part for part in prompt]
    tokens = join_parts(parts, model.tokenizer)
    return EncodedPrompt(tokens, tokens.text)


def _read_rows(model: ServedModel, part: EmbedsPart) -> InputRows:
    try:
        return read_rows(part.data, model.hidden_size)
    except InvalidParameterError as error:
        named = to_api_error(error)
        named.param = part.type
        raise named from None
