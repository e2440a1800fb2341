"""`--adapter NAME=PATH`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratoon.cli.adapter_options import adapters, add_adapter_option, only_adapter
from ratoon.cli.main import Parser
from ratoon.errors import UsageError

Run = Callable[..., Any]
FEW = ("--max-tokens=5", "--kv-cache-bytes=64MiB")


def parsed(*argv: str) -> Any:
    parser = Parser()
    add_adapter_option(parser, "help")
    return parser.parse_args(argv)


def test_adapters_come_by_name() -> None:
    assert adapters(parsed()) == {}
    assert adapters(parsed("--adapter", "a=x/y", "--adapter=b=c=d")) == {"a": Path("x/y"), "b": Path("c=d")}


@pytest.mark.parametrize("text", ["", "name", "=path", "name="])
def test_what_is_not_a_name_and_a_path_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--adapter.*NAME=PATH"):
        parsed(f"--adapter={text}")


def test_a_name_stands_for_one_adapter() -> None:
    with pytest.raises(UsageError, match="'a'"):
        adapters(parsed("--adapter=a=x", "--adapter=a=y"))


def test_one_answer_goes_through_one_adapter() -> None:
    assert only_adapter(parsed()) is None
    assert only_adapter(parsed("--adapter=a=x")) == "a"
    with pytest.raises(UsageError, match="several"):
        only_adapter(parsed("--adapter=a=x", "--adapter=b=x"))


def test_generate_and_chat_answer_through_the_adapter(
    run: Run, model: str, smollm2_adapters: dict[str, Path]
) -> None:
    option = f"--adapter=it={smollm2_adapters['lora_b']}"
    plain, through = (run("generate", model, "Hello, my", *FEW, *more) for more in ((), (option,)))
    assert (plain.status, through.status) == (0, 0)
    assert plain.out != through.out
    plain, through = (run("chat", model, *FEW, *more, stdin=b"hello\n") for more in ((), (option,)))
    assert (plain.status, through.status) == (0, 0)
    assert plain.out != through.out


def test_an_adapter_that_is_not_there_is_one_sentence(run: Run, model: str, tmp_path: Path) -> None:
    ran = run("generate", model, "x", *FEW, f"--adapter=it={tmp_path / 'none'}")
    assert ran.status == 1
    assert ran.err.startswith(f"error: There is no adapter folder {tmp_path / 'none'}.\nhint: ")
