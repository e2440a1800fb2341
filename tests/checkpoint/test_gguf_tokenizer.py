import json
from typing import Any

import pytest

from ratoon.checkpoint.gguf_tokenizer import translate_tokenizer
from ratoon.errors import CorruptCheckpointError, UnsupportedModelError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def byte_level(**changes: object) -> dict[str, object]:
    keys: dict[str, object] = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": ["<unk>", "<s>", "</s>", "a", "b", "ab", "<tag>"],
        "token_type": [UNKNOWN, CONTROL, CONTROL, NORMAL, NORMAL, NORMAL, USER_DEFINED],
        "merges": ["a b"],
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in (keys | changes).items() if value is not None}


def sentencepiece(**changes: object) -> dict[str, object]:
    return byte_level(
        model="llama",
        tokens=["<unk>", "<s>", "</s>", "a", "b", "aa", "aab", "<0x41>", "ba"],
        token_type=[UNKNOWN, CONTROL, CONTROL, NORMAL, NORMAL, NORMAL, NORMAL, BYTE, UNUSED],
        scores=[0.0, 0.0, 0.0, -5.0, -5.0, -2.0, -1.0, 0.0, -3.0],
        merges=None,
        pre=None,
        **changes,
    )


def translated(metadata: dict[str, object]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(translate_tokenizer(metadata, "file"))
    return document


def test_control_tokens_are_special_and_user_defined_ones_are_only_added() -> None:
    added = {token["content"]: token for token in translated(byte_level())["added_tokens"]}
    assert {name: (token["id"], token["special"]) for name, token in added.items()} == {
        "<unk>": (0, True),
        "<s>": (1, True),
        "</s>": (2, True),
        "<tag>": (6, False),
    }


def test_merges_and_ids_of_byte_level_vocabularies_are_kept() -> None:
    model = translated(byte_level())["model"]
    assert model["merges"] == ["a b"]
    assert model["vocab"]["ab"] == 5
    assert not model["ignore_merges"]
    assert translated(byte_level(pre="llama-bpe"))["model"]["ignore_merges"]


def test_scores_become_merges_of_the_best_token_first_without_control_and_byte_tokens() -> None:
    model = translated(sentencepiece())["model"]
    assert model["merges"] == ["aa b", "a a", "b a"]
    assert model["byte_fallback"]
    assert model["unk_token"] == "<unk>"


@pytest.mark.parametrize(
    ("metadata", "before", "after"),
    [
        (byte_level(), [], []),
        (byte_level(add_bos_token=True), ["<s>"], []),
        (byte_level(add_bos_token=True, add_eos_token=True), ["<s>"], ["</s>"]),
        (byte_level(pre="llama-bpe"), ["<s>"], []),
        (byte_level(pre="llama-bpe", add_bos_token=False), [], []),
        (sentencepiece(), ["<s>"], []),
        (sentencepiece(bos_token_id=2), ["</s>"], []),
        (sentencepiece(add_bos_token=False, add_eos_token=True), [], ["</s>"]),
    ],
)
def test_a_text_is_framed_as_the_file_asks(
    metadata: dict[str, object], before: list[str], after: list[str]
) -> None:
    frame = translated(metadata)["post_processor"]
    if not before and not after:
        assert frame is None
        return
    names = [part["SpecialToken"]["id"] if "SpecialToken" in part else "text" for part in frame["single"]]
    assert names == [*before, "text", *after]
    assert set(frame["special_tokens"]) == {*before, *after}


@pytest.mark.parametrize("leading_space", [True, False])
def test_a_space_goes_in_front_where_the_file_asks_and_comes_off_again(leading_space: bool) -> None:
    document = translated(sentencepiece(add_space_prefix=leading_space))
    normalizers = [step["type"] for step in document["normalizer"]["normalizers"]]
    decoders = [step["type"] for step in document["decoder"]["decoders"]]
    assert ("Prepend" in normalizers) is leading_space
    assert ("Strip" in decoders) is leading_space


@pytest.mark.parametrize(
    ("metadata", "part"),
    [
        ({}, "no tokenizer"),
        (byte_level(model="bert"), "'bert'"),
        (byte_level(model=None), "None"),
        (byte_level(pre="deepseek-v9"), "'deepseek-v9'"),
    ],
)
def test_an_unknown_kind_is_refused_by_name(metadata: dict[str, object], part: str) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        translate_tokenizer(metadata, "file")
    assert part in caught.value.message


@pytest.mark.parametrize(
    "metadata",
    [
        byte_level(tokens="abc"),
        byte_level(tokens=[1, 2]),
        byte_level(tokens=["a", "a"], token_type=None),
        byte_level(token_type=[1]),
        byte_level(token_type=["x"] * 7),
        byte_level(add_bos_token=True, bos_token_id=7),
        byte_level(add_bos_token=True, bos_token_id=-1),
        byte_level(add_bos_token=True, bos_token_id="<s>"),
        sentencepiece(unknown_token_id=99),
        sentencepiece() | {"tokenizer.ggml.scores": [1.0]},
    ],
)
def test_lists_that_do_not_fit_each_other_are_refused(metadata: dict[str, object]) -> None:
    with pytest.raises(CorruptCheckpointError):
        translate_tokenizer(metadata, "file")
