"""The engine's settings as command-line options, the same for every command that runs a model.

The options are read off `EngineConfig`: `max_model_len` becomes `--max-model-len`, a truth value gets a
`--no-` form.
"""

import argparse
from collections.abc import Callable
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, TypeVar

from ratoon.engine.config import EngineConfig
from ratoon.errors import InvalidParameterError
from ratoon.util.sizes import format_bytes, parse_bytes

T = TypeVar("T")


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    """Declare MODEL."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a pulled name (smollm2), a path, or a Hugging Face repo id (OWNER/NAME)",
    )


def add_chat_template_option(parser: argparse.ArgumentParser) -> None:
    """Declare --chat-template."""
    parser.add_argument(
        "--chat-template",
        type=Path,
        metavar="FILE",
        help="a Jinja template for chat messages (default: the model's own)",
    )


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Declare one option per engine setting."""
    group = parser.add_argument_group("engine options")
    for setting in fields(EngineConfig):
        option = "--" + setting.name.replace("_", "-")
        help_text = setting.metadata["doc"] + _default(setting)
        if isinstance(setting.default, bool):
            group.add_argument(
                option, action=argparse.BooleanOptionalAction, default=setting.default, help=help_text
            )
        elif choices := setting.metadata["choices"]:
            group.add_argument(option, choices=choices, default=setting.default, help=help_text)
        elif setting.name.endswith("_bytes"):
            group.add_argument(
                option, type=argument(parse_bytes), default=setting.default, metavar="SIZE", help=help_text
            )
        elif setting.metadata["is_text"]:
            group.add_argument(option, metavar="NAME", help=help_text)
        else:
            group.add_argument(option, type=int, default=setting.default, metavar="N", help=help_text)


def engine_settings(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the settings that were declared by `add_engine_options`, as `LLM` takes them."""
    return {setting.name: getattr(arguments, setting.name) for setting in fields(EngineConfig)}


def argument(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Let argparse name the option in front of a parser's own error message."""

    def parsed(text: str) -> T:
        try:
            return parse(text)
        except InvalidParameterError as error:
            raise argparse.ArgumentTypeError(error.message) from error

    return parsed


def _default(setting: "Field[Any]") -> str:
    default = getattr(EngineConfig(), setting.name)
    if default is None:
        return ""  # the text itself says what happens
    return f" (default: {format_bytes(default) if setting.name.endswith('_bytes') else default})"
