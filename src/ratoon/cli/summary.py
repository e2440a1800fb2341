"""What is said about an answer after it: its tokens and its times."""

from ratoon.engine.output import RequestOutput


def summary(result: RequestOutput) -> str:
    """Return one line."""
    usage = result.usage
    assert result.ttft_s is not None, "a finished answer has a first token"
    rate = ""
    if usage.completion_tokens > 1 and result.e2e_s > result.ttft_s:
        rate = f", then {(usage.completion_tokens - 1) / (result.e2e_s - result.ttft_s):.1f} tokens/s"
    return (
        f"[{usage.prompt_tokens} prompt tokens, {usage.cached_tokens} of them cached; "
        f"{usage.completion_tokens} generated; first token after {result.ttft_s:.3f} s{rate}]"
    )
