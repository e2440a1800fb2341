"""When an answer ends: a stop token, its last allowed token, the end of the context."""

from collections.abc import Iterable

from ratoon.request.finish import FinishReason
from ratoon.request.request import Request


def set_stop_rules(request: Request, eos_token_ids: Iterable[int], max_model_len: int) -> None:
    """Fix at arrival what will end the request."""
    params = request.params
    request.stop_ids = frozenset(params.stop_token_ids).union(() if params.ignore_eos else eos_token_ids)
    request.token_limit = max_model_len
    if params.max_tokens is not None:
        request.token_limit = min(max_model_len, request.num_prompt_tokens + params.max_tokens)


def banned_token_ids(request: Request) -> tuple[int, ...]:
    """Return the tokens that may not come next: those that would end the answer before `min_tokens`."""
    if request.num_generated >= request.params.min_tokens:
        return ()
    return tuple(sorted(request.stop_ids))


def append_output(request: Request, token_ids: tuple[int, ...]) -> tuple[tuple[int, ...], FinishReason | None]:
    """Make tokens known up to the one that ends the answer; return those kept and why it ended, if it did."""
    for count, token_id in enumerate(token_ids, 1):
        request.chain.append((token_id,))
        if token_id in request.stop_ids:
            return token_ids[:count], FinishReason.STOP
        if request.num_known >= request.token_limit:
            return token_ids[:count], FinishReason.LENGTH
    return token_ids, None
