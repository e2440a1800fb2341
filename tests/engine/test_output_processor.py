"""An answer's text follows its deltas, and the processor knows when it is complete."""

from collections.abc import Sequence
from typing import cast

import pytest

from ratoon.engine.output_processor import OutputProcessor
from ratoon.errors import EngineError
from ratoon.request.finish import FinishReason, Timings, Usage
from ratoon.request.sampling_params import SamplingParams
from ratoon.sched.delta import RequestDelta
from ratoon.text.tokenizer import Tokenizer

EURO = "€".encode()


class Bytes:
    """A tokenizer in which every token is the byte of its number."""

    def token_bytes(self, token_id: int, *, skip_special: bool = True) -> bytes:
        return bytes([token_id])


def answer(**params: object) -> OutputProcessor:
    return OutputProcessor(cast(Tokenizer, Bytes()), SamplingParams(**params))  # type: ignore[arg-type]


def delta(tokens: Sequence[int], reason: FinishReason | None = None) -> RequestDelta:
    if reason is None:
        return RequestDelta(1, tuple(tokens))
    return RequestDelta(
        1, tuple(tokens), finish_reason=reason, usage=Usage(3, 0, len(tokens)), timings=Timings(0.0, 1.0)
    )


def texts(reader: OutputProcessor, *deltas: RequestDelta) -> list[str]:
    return [reader.take(each).text for each in deltas]


def test_text_comes_as_it_is_known() -> None:
    reader = answer()
    assert texts(reader, delta(b"ab"), delta(b"c", FinishReason.LENGTH)) == ["ab", "c"]
    assert reader.text == "abc"
    assert reader.finish_reason == "length"


def test_half_a_character_waits_for_its_other_half() -> None:
    assert texts(answer(), delta(EURO[:2]), delta(EURO[2:])) == ["", "€"]


def test_half_a_character_at_the_end_becomes_a_replacement() -> None:
    assert texts(answer(), delta(EURO[:2], FinishReason.LENGTH)) == ["\ufffd"]


def test_a_stop_string_is_held_back_and_completes_the_answer() -> None:
    reader = answer(stop="END")
    assert texts(reader, delta(b"a EN"), delta(b"Dxyz")) == ["a ", ""]
    assert reader.hit_stop_string
    assert reader.token_ids == list(b"a END")
    assert reader.finish_reason is None, "the engine has not said so yet"


def test_what_comes_after_a_stop_string_is_passed_over() -> None:
    reader = answer(stop="b", logprobs=1)
    entry = ((98, -0.5),)
    first = RequestDelta(1, (97, 98, 99), logprobs=(entry, entry, entry))
    output = reader.take(first)
    assert (output.text, output.token_ids, output.logprobs) == ("a", [97, 98], [{98: -0.5}, {98: -0.5}])
    assert output.finish_reason is None, "the engine has not said so yet"
    last = reader.take(delta(b"d", FinishReason.CANCELLED))
    assert (last.text, last.token_ids, last.logprobs) == ("", [], None)
    assert (last.finish_reason, last.stop_reason) == ("stop", "b")
    assert (reader.finish_reason, reader.stop_reason) == (FinishReason.STOP, "b")
    assert len(reader.logprobs) == len(reader.token_ids) == 2


def test_a_stop_string_in_the_last_delta_counts() -> None:
    reader = answer(stop="b")
    assert texts(reader, delta(b"ab", FinishReason.LENGTH)) == ["a"]
    assert (reader.finish_reason, reader.stop_reason) == (FinishReason.STOP, "b")


def test_what_was_held_back_in_vain_comes_at_the_end() -> None:
    assert texts(answer(stop="END"), delta(b"aEN"), delta(b"", FinishReason.CANCELLED)) == ["a", "EN"]


def test_no_stop_string_ends_an_answer_within_min_tokens() -> None:
    reader = answer(stop="b", min_tokens=2)
    assert texts(reader, delta(b"abc"), delta(b"b")) == ["abc", ""]
    assert reader.hit_stop_string


def test_a_stop_string_that_ends_after_min_tokens_may_begin_before() -> None:
    reader = answer(stop="bcd", min_tokens=2)
    assert texts(reader, delta(b"a"), delta(b"b"), delta(b"c"), delta(b"d")) == ["a", "", "", ""]
    assert reader.hit_stop_string


@pytest.mark.parametrize(("include", "text"), [(False, "a"), (True, "ab")])
def test_a_stop_token_is_no_text_unless_asked_for(include: bool, text: str) -> None:
    reader = answer(stop_token_ids=[98], include_stop_str_in_output=include)
    reader.take(delta(b"ab", FinishReason.STOP))
    assert (reader.text, reader.token_ids, reader.stop_reason) == (text, [97, 98], 98)


def test_the_models_own_end_has_no_stop_reason() -> None:
    reader = answer()
    reader.take(delta([97, 0], FinishReason.STOP))
    assert (reader.text, reader.finish_reason, reader.stop_reason) == ("a", FinishReason.STOP, None)


def test_a_failed_step_raises_its_error() -> None:
    error = EngineError("A step failed.")
    with pytest.raises(EngineError) as raised:
        answer().take(RequestDelta(1, finish_reason=FinishReason.FAILED, error=error))
    assert raised.value is error
