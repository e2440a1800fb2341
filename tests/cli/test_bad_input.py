"""Whatever a user gets wrong on the command line is told in one sentence, with status 2 or 1."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

LONG = "word " * 9000


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["generate", "MODEL", ""], 2, "The prompt has no tokens."),
        (["generate", "MODEL", LONG], 2, "the context holds 8192"),
        (["generate", "MODEL", LONG, "--kv-cache-bytes=8MiB"], 2, "the context holds 336"),
        (["generate", "MODEL", "hi", "--max-tokens=0"], 2, "max_tokens must be"),
        (["generate", "MODEL", "hi", "--temperature=-1"], 2, "temperature must be"),
        (["generate", "MODEL", "hi", "--temperature=nan"], 2, "temperature must be"),
        (["generate", "MODEL", "hi", "--top-k=x"], 2, "invalid int value: 'x'"),
        (["generate", "MODEL", "hi", "--block-size=0"], 2, "block_size must be"),
        (["generate", "MODEL", "hi", "--block-size=1000000"], 2, "not 2 blocks"),
        (["generate", "MODEL", "hi", "--kv-cache-bytes=0"], 2, "above zero"),
        (["generate", "MODEL", "hi", "--kv-cache-bytes=1000TB"], 2, "exceed this machine's"),
        (["generate", "MODEL", "hi", "--max-model-len=9000"], 2, "the model's context ends at 8192"),
        (["generate", "MODEL", "hi", "--logit-bias=99999=1"], 2, "outside the model's vocabulary"),
        (["generate", "no-such-model", "hi"], 2, "There is no model 'no-such-model'"),
        (["inspect", "EMPTY"], 1, "holds neither a GGUF file nor"),
        (["inspect", "TRUNCATED"], 1, "TRUNCATED"),
        (["inspect", "NOISE"], 1, "NOISE"),
        (["chat", "NOISE"], 1, "NOISE"),
    ],
)
def test_it_is_told_in_one_sentence(
    run: Run, model: str, tmp_path: Path, arguments: list[str], status: int, sentence: str
) -> None:
    with Path(model).open("rb") as file:
        (tmp_path / "TRUNCATED.gguf").write_bytes(file.read(1 << 16))
    (tmp_path / "NOISE.gguf").write_bytes(b"no model at all" * 1000)
    (tmp_path / "EMPTY").mkdir()
    named = {"MODEL": model, "EMPTY": str(tmp_path / "EMPTY")}
    named |= {name: str(tmp_path / f"{name}.gguf") for name in ("TRUNCATED", "NOISE")}

    ran = run(*(named.get(argument, argument) for argument in arguments))

    assert ran.status == status
    assert ran.out == ""
    error, *hint = ran.err.splitlines()
    assert error.startswith("error: ")
    assert sentence in error
    assert len(hint) <= 1
