"""When an answer ends: a stop token, its last allowed token, the end of the context."""

from collections.abc import Iterable

from ratoon.request.finish import FinishReason
from ratoon.request.request import Request


def stop_ids(request: Request, eos_token_ids: Iterable[int]) -> frozenset[int]:
    """Return the tokens that end the answer when they come."""
    return frozenset(request.params.stop_token_ids).union(() if request.params.ignore_eos else eos_token_ids)


def token_limit(request: Request, max_model_len: int) -> int:
    """Return how many tokens, prompt included, end the answer whatever the last one is."""
    max_tokens = request.params.max_tokens
    if max_tokens is None:
        return max_model_len
    return min(max_model_len, request.num_prompt_tokens + max_tokens)


def banned_token_ids(request: Request) -> tuple[int, ...]:
    """Return the tokens that may not come next: those that would end the answer before `min_tokens`."""
    if request.num_generated >= request.params.min_tokens:
        return ()
    return tuple(sorted(request.stop_ids))


def append_output(
    request: Request, token_ids: tuple[int, ...]
) -> tuple[tuple[int, ...], FinishReason | None]:
    """Make tokens known up to the one that ends the answer; return these and why it ended, if it did."""
    room = request.token_limit - request.num_known
    reason = None
    if len(token_ids) >= room:
        token_ids, reason = token_ids[:room], FinishReason.LENGTH
    for count, token_id in enumerate(token_ids, 1):
        if token_id in request.stop_ids:
            token_ids, reason = token_ids[:count], FinishReason.STOP
            break
    request.chain.append(token_ids)
    return token_ids, reason
