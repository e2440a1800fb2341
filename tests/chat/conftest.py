"""A compiler for the real model's tokenizer."""

from pathlib import Path

import pytest

from ratoon.checkpoint.formats import open_checkpoint
from ratoon.grammar.compiler import GrammarCompiler
from ratoon.text.load import load_tokenizer
from ratoon.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def tokenizer(smollm2_path: Path) -> Tokenizer:
    return load_tokenizer(open_checkpoint(smollm2_path))


@pytest.fixture(scope="session")
def compiler(smollm2_path: Path, tokenizer: Tokenizer) -> GrammarCompiler:
    json = open_checkpoint(smollm2_path).tokenizer_json
    return GrammarCompiler(json, tokenizer.vocab_size, tokenizer.eos_token_ids)
