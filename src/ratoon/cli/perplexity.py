"""`ratoon perplexity MODEL FILE`: how well a model predicts a text.

The text is cut into windows, each scored by itself: the mean negative log-likelihood (in nats) of every token
but the first, given those before it in the window.
"""

import argparse
import json
import math
from collections.abc import Sequence
from typing import Any

from ratoon.cli.engine_options import add_engine_options, add_model_argument
from ratoon.cli.load import load_llm
from ratoon.cli.prompt_text import read_file
from ratoon.engine.llm import LLM
from ratoon.errors import EmptyPromptError, InvalidParameterError, PromptTooLongError
from ratoon.request.sampling_params import SamplingParams
from ratoon.text.tokenizer import Tokenizer
from ratoon.util.progress import TerminalProgress

SCORE_PROMPT = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0)

Windows = list[list[int]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare model, file and options."""
    add_model_argument(parser)
    parser.add_argument(
        "file",
        metavar="FILE",
        help="text, a JSON list of token ids, or a list of such lists, which are the windows; - is stdin",
    )
    parser.add_argument(
        "--window", type=int, default=1024, metavar="N", help="tokens of a window (default: 1024)"
    )
    parser.add_argument("--json", action="store_true", help="print one object")
    add_engine_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the score of each window and of all."""
    if arguments.window < 2:
        raise InvalidParameterError(f"A window must hold at least 2 tokens, not {arguments.window}.")
    content = read_file(arguments.file)
    with load_llm(arguments) as llm, TerminalProgress() as progress:
        windows = cut(content, arguments.window, llm.model.tokenizer)
        check_length(windows, llm)
        scores = []
        for number, window in enumerate(windows):
            progress("scoring", number, len(windows))
            scores.append(negative_log_likelihoods(llm, window))
    every = [value for score in scores for value in score]
    mean = math.fsum(every) / len(every)
    report = {
        "nll_mean": mean,
        "perplexity": math.exp(mean),
        "windows": [{"nll_mean": math.fsum(score) / len(score), "count": len(score)} for score in scores],
    }
    print(json.dumps(report) if arguments.json else lines(report))
    return 0


def cut(content: str, size: int, tokenizer: Tokenizer) -> Windows:
    """Return the windows of a file's content; those of less than two tokens have nothing to score.

    Where the model expects a text to begin with a token of its own, each window of a text does.
    """
    ids = _token_ids(content)
    if ids is not None and all(isinstance(window, list) for window in ids):
        windows = ids
    else:
        start: list[int] = []
        if ids is None:
            ids = tokenizer.encode(content, add_special=False, parse_special=False)
            start = tokenizer.encode("", add_special=True, parse_special=False)
        step = size - len(start)
        windows = [start + ids[i : i + step] for i in range(0, len(ids), step)]
    windows = [window for window in windows if len(window) > 1]
    if not windows:
        raise EmptyPromptError("There is nothing to score: a window needs at least 2 tokens.")
    return windows


def check_length(windows: Windows, llm: LLM) -> None:
    """Raise `PromptTooLongError` before anything is scored if there is a window that cannot be."""
    assert llm.model.config.max_model_len is not None, "a loaded model knows its limits"
    longest, limit = max(map(len, windows)), llm.model.config.max_model_len - 1
    if longest > limit:
        raise PromptTooLongError(
            f"A window has {longest} tokens; here at most {limit} can be scored at once.",
            hint="Choose a smaller --window, or allow for more with --max-model-len and --kv-cache-bytes.",
        )


def negative_log_likelihoods(llm: LLM, window: Sequence[int]) -> list[float]:
    """Return -ln p of each token but the first."""
    [output] = llm.generate(window, SCORE_PROMPT)
    assert output.prompt_logprobs is not None, "asked for"
    return [-entry[token] for token, entry in zip(window, output.prompt_logprobs, strict=True) if entry]


def lines(report: dict[str, Any]) -> str:
    """Return the report for people."""
    rows = [
        f"window {number}: {window['nll_mean']:.4f} over {window['count']} tokens"
        for number, window in enumerate(report["windows"])
    ]
    return "\n".join([*rows, f"mean {report['nll_mean']:.4f} nats, perplexity {report['perplexity']:.3f}"])


def _token_ids(content: str) -> list[Any] | None:
    """Return the content as token ids, or lists of them, if it is JSON of that form; else it is text."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, list):
        return None
    return value if _all_ids(value) or (value and all(map(_all_ids, value))) else None


def _all_ids(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value)
