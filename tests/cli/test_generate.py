"""`ratoon generate` continues a prompt."""

import json
from collections.abc import Callable
from typing import Any

FRANCE = "The capital of France is"
FEW = ("--max-tokens=5", "--kv-cache-bytes=64MiB")
Run = Callable[..., Any]


def test_the_answer_goes_to_stdout_and_the_talk_to_stderr(run: Run, model: str) -> None:
    ran = run("generate", model, FRANCE, *FEW)
    assert ran.status == 0
    assert ran.out == " Paris.\n\nThe\n"
    assert "[5 prompt tokens, 0 of them cached; 5 generated; first token after" in ran.err


def test_json_holds_everything(run: Run, model: str) -> None:
    ran = run(
        "generate", model, FRANCE, *FEW, "--json", "--n=2", "--logprobs=1", "--temperature=1", "--seed=1"
    )
    found = json.loads(ran.out)
    assert found["usage"] == {
        "prompt_tokens": 5,
        "cached_tokens": 0,
        "computed_tokens": 5,
        "completion_tokens": 10,
        "limited_by": "nothing: every full block was cached",
        "committed_tokens": 0,
        "draft_tokens": 0,
        "accepted_draft_tokens": 0,
    }
    assert [len(answer["token_ids"]) for answer in found["outputs"]] == [5, 5]
    assert all(answer["logprobs"] for answer in found["outputs"])
    assert found["ttft_s"] > 0


def test_a_dash_reads_the_prompt_from_stdin(run: Run, model: str) -> None:
    assert run("generate", model, "-", *FEW, stdin=FRANCE.encode()).out == " Paris.\n\nThe\n"


def test_stdin_that_is_not_utf8_is_refused(run: Run, model: str) -> None:
    ran = run("generate", model, "-", stdin=b"abc\xff")
    assert ran.status == 1
    assert ran.err.startswith("error: Standard input is not UTF-8: byte 3 is 0xff.\nhint: ")


def test_an_argument_that_is_not_utf8_is_refused(run: Run, model: str) -> None:
    ran = run("generate", model, b"abc\xff".decode(errors="surrogateescape"))
    assert ran.status == 1
    assert ran.err.startswith("error: The prompt is not UTF-8: byte 3 is 0xff.")


def test_several_answers_are_json_only(run: Run, model: str) -> None:
    ran = run("generate", model, FRANCE, "--n=2")
    assert ran.status == 2
    assert (
        ran.err == "error: Several answers are printed as JSON only.\nhint: Add --json, or leave out --n.\n"
    )
