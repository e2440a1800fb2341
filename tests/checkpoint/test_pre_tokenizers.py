import pytest
from tokenizers import Regex, pre_tokenizers

from ratoon.checkpoint.pre_tokenizers import PRE_TOKENIZERS

TEXT = "I'LL pay 12345€!\r\n\n  now, don't \tHelloWorld é½"
WORDS = {
    "default": "I|'|LL| pay| |123|45|€|!|\r\n\n | now|,| don|'|t| |\t|HelloWorld| é|½",
    "gpt-2": "I|'|LL| pay| 12345|€!|\r\n\n | now|,| don|'t| |\t|HelloWorld| é|½",
    "smollm": "I|'|LL| pay| |1|2|3|4|5|€!|\r\n\n | now|,| don|'t| |\t|HelloWorld| é|½",
    "llama-bpe": "I|'LL| pay| |123|45|€!\r\n\n| | now|,| don|'t| |\tHelloWorld| é|½",
    "qwen2": "I|'LL| pay| |1|2|3|4|5|€!\r\n\n| | now|,| don|'t| |\tHelloWorld| é|½",
    "tekken": "I|'LL| pay| |1|2|3|4|5|€!\r\n\n| | now|,| don|'t| |\tHello|World| é|½",
}


@pytest.mark.parametrize("name", WORDS)
def test_each_family_cuts_a_text_into_its_words(name: str) -> None:
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in PRE_TOKENIZERS[name].patterns]
    words = [word for word, _ in pre_tokenizers.Sequence(splits).pre_tokenize_str(TEXT)]
    assert words == WORDS[name].split("|")


def test_every_other_name_is_another_name_for_one_of_these() -> None:
    assert all(any(cut == PRE_TOKENIZERS[name] for name in WORDS) for cut in PRE_TOKENIZERS.values())
