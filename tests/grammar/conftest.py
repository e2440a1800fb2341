"""A compiler for the real model's tokenizer, and what it takes to follow an answer by hand."""

from pathlib import Path

import pytest

from ratoon.checkpoint.checkpoint import Checkpoint
from ratoon.checkpoint.formats import open_checkpoint
from ratoon.grammar.compiler import GrammarCompiler
from ratoon.text.load import load_tokenizer
from ratoon.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def checkpoint(smollm2_path: Path) -> Checkpoint:
    return open_checkpoint(smollm2_path)


@pytest.fixture(scope="session")
def tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    return load_tokenizer(checkpoint)


@pytest.fixture(scope="session")
def compiler(checkpoint: Checkpoint, tokenizer: Tokenizer) -> GrammarCompiler:
    return GrammarCompiler(checkpoint.tokenizer_json, tokenizer.vocab_size, tokenizer.eos_token_ids)
