"""The bodies of `/tokenize` and `/detokenize`."""

from ratoon.server.body import Body
from ratoon.server.chat_body import Conversation


class TokenizeBody(Body):
    """The body of `/tokenize` for a text."""

    model: str | None = None
    prompt: str
    add_special_tokens: bool = True


class TokenizeChatBody(Conversation):
    """The body of `/tokenize` for a conversation, as `/v1/chat/completions` takes it."""

    model: str | None = None


class DetokenizeBody(Body):
    """The body of `/detokenize`."""

    model: str | None = None
    tokens: list[int]
