import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from ratoon.checkpoint.gguf_tokenizer import translate_tokenizer
from ratoon.errors import TextError
from ratoon.text.tokenizer import Tokenizer

GOLDEN = Path(__file__).parents[1] / "golden"


def golden(name: str) -> list[Any]:
    cases: list[Any] = json.loads((GOLDEN / name).read_text("utf-8"))
    return cases


def gemma3_excerpt() -> tuple[Tokenizer, list[int]]:
    """Return a tokenizer of the tokens that the golden texts can contain, and the model's own ids of them."""
    rows = golden("gemma3/vocabulary_excerpt.json")
    ids, tokens, scores, kinds = (list(column) for column in zip(*rows, strict=True))
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.unknown_token_id": ids.index(3),
        "tokenizer.ggml.bos_token_id": ids.index(2),
        "tokenizer.ggml.add_space_prefix": False,
    }
    return Tokenizer(translate_tokenizer(metadata, "file"), bos=ids.index(2)), ids


def test_smollm2_encodes_and_decodes_every_golden_case(smollm2: Tokenizer) -> None:
    cases = golden("smollm2/tokenizer_cases.json")
    assert len(cases) == 181
    for case in cases:
        ids = smollm2.encode(
            case["text"], add_special=case["add_special"], parse_special=case["parse_special"]
        )
        assert ids == case["ids"], case["text"]
        assert smollm2.decode(ids, skip_special=False) == case["text"]


def test_gemma3_encodes_and_decodes_every_golden_case() -> None:
    tokenizer, own_ids = gemma3_excerpt()
    cases = golden("gemma3/tokenizer_cases.json")
    assert len(cases) == 186
    for case in cases:
        ids = tokenizer.encode(
            case["text"], add_special=case["add_special"], parse_special=case["parse_special"]
        )
        assert [own_ids[number] for number in ids] == case["ids"], case["text"]
        front = "<bos>" if case["add_special"] else ""
        assert tokenizer.decode(ids, skip_special=False) == front + case["text"]


def test_the_tokens_that_end_an_answer_are_all_known(smollm2: Tokenizer) -> None:
    assert smollm2.bos_token_id == 1
    assert smollm2.eos_token_ids == (2, 0)
    assert smollm2.vocab_size == 49152


def test_control_tokens_are_text_unless_asked_for(byte_level: Tokenizer) -> None:
    asked = byte_level.encode("a<|x|>b", add_special=False, parse_special=True)
    plain = byte_level.encode("a<|x|>b", add_special=False, parse_special=False)
    assert byte_level.control_ids["<|x|>"] in asked
    assert not set(plain) & set(byte_level.control_ids.values())
    assert byte_level.decode(plain) == byte_level.decode(asked, skip_special=False) == "a<|x|>b"
    assert byte_level.decode(asked) == "ab"


@pytest.mark.parametrize("parse_special", [True, False])
def test_user_defined_tokens_are_found_in_any_text(byte_level: Tokenizer, parse_special: bool) -> None:
    assert byte_level.encode("<tag>", add_special=False, parse_special=parse_special) == [3]


def test_added_tokens_beyond_the_vocabulary_keep_their_ids_in_plain_text() -> None:
    # As in Qwen's files: control and other added tokens take turns behind the vocabulary.
    whole = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "b": 1}, []))
    whole.decoder = tokenizers.decoders.ByteLevel()
    for name, special in [("<c1>", True), ("<t1>", False), ("<c2>", True), ("<t2>", False)]:
        whole.add_tokens([tokenizers.AddedToken(name, special=special)])
    tokenizer = Tokenizer(whole.to_str())
    for parse_special in (True, False):
        ids = tokenizer.encode("a<t2>b<t1>", add_special=False, parse_special=parse_special)
        assert ids == [0, 5, 1, 3]
    assert tokenizer.encode("<c2>", add_special=False, parse_special=True) == [4]
    assert 4 not in tokenizer.encode("<c2>", add_special=False, parse_special=False)


def test_truncation_and_padding_in_the_file_are_switched_off(byte_level: Tokenizer) -> None:
    whole = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0}, []))
    whole.decoder = tokenizers.decoders.ByteLevel()
    whole.enable_truncation(2)
    whole.enable_padding(length=5, pad_id=0, pad_token="a")
    assert Tokenizer(whole.to_str()).encode("aaaa", add_special=True, parse_special=True) == [0] * 4


def test_a_space_in_front_comes_off_a_whole_text(sentencepiece: Tokenizer) -> None:
    ids = sentencepiece.encode("ab a", add_special=True, parse_special=False)
    assert ids[0] == sentencepiece.bos_token_id
    assert sentencepiece.decode(ids) == "ab a"


@pytest.mark.parametrize("name", ["byte_level", "sentencepiece"])
@given(text=st.text())
def test_any_text_comes_back_as_it_went_and_as_the_library_decodes_it(
    request: pytest.FixtureRequest, name: str, text: str
) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(name)
    text = text.replace("\u2581", "")  # to SentencePiece that is a space
    ids = tokenizer.encode(text, add_special=True, parse_special=False)
    assert tokenizer.decode(ids) == text == tokenizer._whole.decode(ids)


def test_bytes_that_are_no_text_become_replacement_characters(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("ö", add_special=False, parse_special=False)
    assert len(ids) == 2
    assert byte_level.decode(ids[:1]) == "\ufffd"
    assert byte_level.decode(ids[1:] + ids) == "\ufffdö"


def test_an_id_without_a_token_adds_nothing(byte_level: Tokenizer) -> None:
    assert byte_level.token_bytes(10**6) == b""


def test_a_lone_surrogate_is_refused(byte_level: Tokenizer) -> None:
    with pytest.raises(TextError, match="surrogate"):
        byte_level.encode("a\ud800", add_special=False, parse_special=False)


@pytest.mark.parametrize("text", ["", "{", "{}", '{"version": "1.0", "model": {"type": "Magic"}}'])
def test_what_is_no_tokenizer_is_refused(text: str) -> None:
    with pytest.raises(TextError, match="cannot be read"):
        Tokenizer(text)


def test_ends_that_are_no_tokens_are_passed_over(byte_level: Tokenizer) -> None:
    whole = byte_level._whole.to_str()
    tokenizer = Tokenizer(whole, bos=None, ends=[2, None, "</s>", "<nope>", 10**6, -1, [1], "ab"])
    assert tokenizer.bos_token_id is None
    assert tokenizer.eos_token_ids == (2, 1)
