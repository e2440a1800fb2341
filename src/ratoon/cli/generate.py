"""`ratoon generate MODEL PROMPT`: continues a prompt."""

import argparse
import json
import sys
from dataclasses import asdict

from ratoon.cli.adapter_options import adapters, add_adapter_option, only_adapter
from ratoon.cli.engine_options import add_engine_options, add_model_argument
from ratoon.cli.load import load_llm
from ratoon.cli.prompt_text import read_prompt
from ratoon.cli.sampling_options import add_sampling_options, sampling_params
from ratoon.cli.summary import summary
from ratoon.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare model, prompt and options."""
    add_model_argument(parser)
    parser.add_argument("prompt", metavar="PROMPT", help="the text to continue; - reads it from stdin")
    parser.add_argument("--json", action="store_true", help="print one object with tokens and usage")
    add_adapter_option(parser, "LoRA adapter that the answer goes through")
    add_sampling_options(parser)
    add_engine_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the answer as it comes, or everything about it as JSON at the end."""
    params = sampling_params(arguments)
    if params.n > 1 and not arguments.json:
        raise UsageError("Several answers are printed as JSON only.", hint="Add --json, or leave out --n.")
    adapter = only_adapter(arguments)
    prompt = read_prompt(arguments.prompt)
    with load_llm(arguments, adapters(arguments)) as llm:
        for delta in llm.stream(prompt, params, adapter=adapter):
            if not arguments.json:
                print(delta.text, end="", flush=True)
            result = delta.result
    assert result is not None, "the last delta carries the result"
    if arguments.json:
        fields = asdict(result)
        fields["usage"]["limited_by"] = str(result.usage.limited_by)
        if result.usage.explanation is None:
            del fields["usage"]["explanation"]
        fields["usage"]["computed_tokens"] = result.usage.computed_tokens
        print(json.dumps(fields))
    else:
        print()
    print(summary(result), file=sys.stderr)
    return 0
