"""How tokens are chosen and when an answer ends, as command-line options: one per field of `SamplingParams`.

Greedy is the default here, so that the same command gives the same answer.
"""

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from ratoon.request.sampling_params import SamplingParams
from ratoon.request.structured_outputs import StructuredOutputs


def _bias(text: str) -> tuple[int, float]:
    token_id, _, bias = text.partition("=")
    try:
        return int(token_id), float(bias)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a token id and a number, as in 42=-5") from None


def _schema(name: str) -> StructuredOutputs:
    """Read a JSON schema. What is wrong with it is said as the engine says it."""
    try:
        return StructuredOutputs(json=Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"{name!r} cannot be read: {error}") from None


OPTIONS = {
    "max_tokens": ("--max-tokens", int, "N", "most tokens of an answer"),
    "min_tokens": ("--min-tokens", int, "N", "tokens before which nothing ends an answer"),
    "temperature": ("--temperature", float, "X", "0 takes the best token each time"),
    "top_p": ("--top-p", float, "X", "keep the likeliest tokens that together have this probability"),
    "top_k": ("--top-k", int, "N", "keep this many likeliest tokens; 0 keeps all"),
    "min_p": ("--min-p", float, "X", "keep tokens at least this likely, relative to the best one"),
    "repetition_penalty": (
        "--repetition-penalty",
        float,
        "X",
        "above 1 makes tokens seen before less likely",
    ),
    "presence_penalty": ("--presence-penalty", float, "X", "subtracted from logits of tokens in the answer"),
    "frequency_penalty": ("--frequency-penalty", float, "X", "the same, once per occurrence"),
    "logit_bias": ("--logit-bias", _bias, "ID=X", "added to a token's logit; may be given several times"),
    "seed": ("--seed", int, "N", "the same seed gives the same answer (default: different each time)"),
    "n": ("--n", int, "N", "answers to one prompt"),
    "stop": ("--stop", str, "TEXT", "end the answer before this text; may be given several times"),
    "stop_token_ids": ("--stop-token-id", int, "ID", "end at this token; may be given several times"),
    "include_stop_str_in_output": ("--include-stop-str-in-output", bool, "", "show the stop text too"),
    "ignore_eos": ("--ignore-eos", bool, "", "go on where the model would end"),
    "logprobs": ("--logprobs", int, "N", "with --json: report the N best tokens at each position"),
    "prompt_logprobs": ("--prompt-logprobs", int, "N", "with --json: report the same for the prompt"),
    "skip_special_tokens": ("--skip-special-tokens", bool, "", "leave control tokens out of the text"),
    "structured_outputs": ("--json-schema", _schema, "FILE", "make the answer JSON of this schema"),
}
"""Option, type, what stands for its value, and help, by parameter."""

REPEATED = ("logit_bias", "stop", "stop_token_ids")
DEFAULTS = {"max_tokens": 256, "temperature": 0.0}


def add_sampling_options(parser: argparse.ArgumentParser, *, leave_out: tuple[str, ...] = ()) -> None:
    """Declare the options, except for parameters that have no meaning for a command."""
    group = parser.add_argument_group("sampling options")
    for parameter in fields(SamplingParams):
        name = parameter.name
        if name in leave_out:
            continue
        option, kind, shown, text = OPTIONS[name]
        default = DEFAULTS.get(name, parameter.default)
        form: dict[str, Any]
        if kind is bool:
            form = {"action": argparse.BooleanOptionalAction, "default": default}
        elif name in REPEATED:
            form = {"action": "append", "type": kind, "metavar": shown, "default": []}
        else:
            form = {"type": kind, "metavar": shown, "default": default}
            text += "" if default is None else f" (default: {default})"
        group.add_argument(option, dest=name, help=text, **form)


def sampling_params(arguments: argparse.Namespace) -> SamplingParams:
    """Return the parameters that were given. Raises `InvalidParameterError` as `SamplingParams` does."""
    given = {name: value for name, value in vars(arguments).items() if name in OPTIONS}
    given["logit_bias"] = dict(given["logit_bias"])
    return SamplingParams(**given)
