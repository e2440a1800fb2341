"""`ratoon chat MODEL`: a prompt loop that shows after each turn what the cache saved.

Each turn sends the whole conversation again; what earlier turns computed is found in the cache. Ctrl-C
stops an answer, a second one leaves, as do `/exit` and the end of the input. `/reset` begins a new
conversation.
"""

import argparse
import sys
from contextlib import suppress

from ratoon.cli.adapter_options import adapters, add_adapter_option, only_adapter
from ratoon.cli.engine_options import add_chat_template_option, add_engine_options, add_model_argument
from ratoon.cli.load import load_llm
from ratoon.cli.sampling_options import add_sampling_options, sampling_params
from ratoon.cli.summary import summary
from ratoon.engine.llm import LLM
from ratoon.errors import RequestError, TextError
from ratoon.request.sampling_params import SamplingParams
from ratoon.text.messages import Message
from ratoon.text.utf8 import decode_utf8

with suppress(ImportError):
    import readline  # noqa: F401  # gives input() a history

COMMANDS = "/reset begins a new conversation, /exit leaves."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare model and options."""
    add_model_argument(parser)
    add_chat_template_option(parser)
    add_adapter_option(parser, "LoRA adapter that the answers go through")
    add_sampling_options(parser, leave_out=("n", "logprobs", "prompt_logprobs", "structured_outputs"))
    add_engine_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Talk until the input ends."""
    params = sampling_params(arguments)
    adapter = only_adapter(arguments)
    with load_llm(arguments, adapters(arguments), arguments.chat_template) as llm:
        chat = Chat(llm, params, adapter)
        say(COMMANDS)
        while (line := read_line()) is not None and line != "/exit":
            if line == "/reset":
                chat.messages.clear()
            elif line.startswith("/"):
                say(COMMANDS)
            elif line:
                chat.turn(line)
    return 0


class Chat:
    """A conversation with its engine. Raises `ChatTemplateError` where the model has no template."""

    def __init__(self, llm: LLM, params: SamplingParams, adapter: str | None) -> None:
        self.messages: list[Message] = []
        self._llm = llm
        self._params = params
        self._adapter = adapter
        _ = llm.chat_template  # fail before the first question

    def turn(self, question: str) -> None:
        """Print the answer as it comes; what was said so far is kept when Ctrl-C stops it."""
        asked: list[Message] = [*self.messages, {"role": "user", "content": question}]
        answer = ""
        try:
            deltas = self._llm.stream_chat(asked, self._params, adapter=self._adapter)
            for delta in deltas:
                print(delta.text, end="", flush=True)
                answer += delta.text
        except RequestError as error:
            say(f"{error.message} {COMMANDS}")
            return
        except KeyboardInterrupt:
            print()
            say("[stopped; Ctrl-C again leaves]")
        else:
            print()
            assert delta.result is not None, "the last delta carries the result"
            say(summary(delta.result))
        self.messages = [*asked, {"role": "assistant", "content": answer}]


def read_line() -> str | None:
    """Return the next line, stripped, None at the end. Raises `TextError` if it is not UTF-8."""
    if not sys.stdin.isatty():
        data = sys.stdin.buffer.readline()
        return decode_utf8(data, "Standard input").strip() if data else None
    try:
        line = input("> ")
    except EOFError:
        return None
    except UnicodeDecodeError as error:
        raise TextError("Standard input is not UTF-8.") from error
    # Where the locale is none of UTF-8's, other bytes arrive as lone surrogates.
    return decode_utf8(line.encode(errors="surrogateescape"), "Standard input").strip()


def say(text: str) -> None:
    """Print a line for the user that is not part of the answer."""
    print(text, file=sys.stderr)
