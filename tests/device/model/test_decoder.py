"""What the decoder promises beyond the right numbers: the bits do not depend on how the work was cut."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ratoon.device.model.decoder import Decoder
from ratoon.device.ops.protocol import Floats, StepInputs

LoneStep = Callable[..., StepInputs]
TOKENS = np.random.default_rng(2).integers(0, 61, 50).astype(np.int32)
BLOCK = 16


@pytest.fixture
def decoder(tiny_llama: Path, open_decoder: Callable[..., tuple[Decoder, int]]) -> Decoder:
    """Return a decoder over an empty pool."""
    return open_decoder(tiny_llama)[0]


@pytest.fixture
def whole(decoder: Decoder, lone_step: LoneStep) -> Floats:
    """Return the logits of `TOKENS`, computed at once."""
    return decoder.logits(decoder(TOKENS, lone_step(1, 0, 50), np.arange(50)))[0]


def _inputs(*spans: tuple[int, int, list[int]]) -> StepInputs:
    """Place (first, last, block table) sequences in one step."""
    positions = np.concatenate([np.arange(first, last, dtype=np.int32) for first, last, _ in spans])
    lengths = [last - first for first, last, _ in spans]
    tables = np.array([table for _, _, table in spans], np.int32)
    owners = np.repeat(np.arange(len(spans)), lengths)
    slots = tables[owners, positions // BLOCK].astype(np.int64) * BLOCK + positions % BLOCK
    return StepInputs(positions, np.cumsum([0, *lengths]).astype(np.int32), (tables,), (slots,))


def test_chunks_give_the_bits_of_the_whole(decoder: Decoder, whole: Floats, lone_step: LoneStep) -> None:
    for first, last in ((0, 1), (1, 18), (18, 49), (49, 50)):
        hidden = decoder(TOKENS[first:last], lone_step(1, first, last), np.arange(last - first))
        assert decoder.logits(hidden)[0].tobytes() == whole[first:last].tobytes()


def test_only_the_rows_asked_for_come_back(decoder: Decoder, whole: Floats, lone_step: LoneStep) -> None:
    hidden = decoder(TOKENS, lone_step(1, 0, 50), np.array([49, 7, 7]))
    assert decoder.logits(hidden)[0].tobytes() == whole[[49, 7, 7]].tobytes()
    assert decoder(TOKENS, lone_step(1, 0, 50), np.array([], np.intp)).shape == (0, 32)


def test_rows_that_nobody_asks_for_are_read_later(
    decoder: Decoder, whole: Floats, lone_step: LoneStep
) -> None:
    decoder(TOKENS[:20], lone_step(1, 0, 20), np.array([], np.intp))
    decoder(TOKENS[20:40], lone_step(1, 20, 40), np.array([3]))
    hidden = decoder(TOKENS[40:], lone_step(1, 40, 50), np.arange(10))
    assert decoder.logits(hidden)[0].tobytes() == whole[40:].tobytes()


def test_a_sequence_may_read_blocks_that_the_same_step_writes(decoder: Decoder, whole: Floats) -> None:
    """The second sequence begins at position 32 with the first one's two full blocks in its table."""
    inputs = _inputs((0, 40, [3, 4, 5, 0]), (32, 50, [3, 4, 6, 7]))
    hidden = decoder(np.concatenate([TOKENS[:40], TOKENS[32:]]), inputs, np.arange(58))
    assert decoder.logits(hidden[40:])[0].tobytes() == whole[32:].tobytes()
    assert decoder.logits(hidden[:40])[0].tobytes() == whole[:40].tobytes()


def test_company_does_not_change_bits(decoder: Decoder, whole: Floats) -> None:
    other = TOKENS[::-1]
    inputs = _inputs((0, 9, [8, 0, 0, 0]), (0, 50, [1, 2, 3, 4]), (0, 33, [9, 10, 11, 0]))
    hidden = decoder(np.concatenate([other[:9], TOKENS, other[:33]]), inputs, np.arange(9, 59))
    assert decoder.logits(hidden)[0].tobytes() == whole.tobytes()


def test_given_rows_stand_for_their_tokens(decoder: Decoder, whole: Floats, lone_step: LoneStep) -> None:
    table = decoder._embedding(TOKENS)
    hidden = decoder(
        np.where(np.isin(np.arange(50), [0, 30, 31, 32]), 0, TOKENS).astype(np.int32),
        lone_step(1, 0, 50),
        np.arange(50),
        [(0, table[:1]), (30, table[30:33])],
    )
    assert decoder.logits(hidden)[0].tobytes() == whole.tobytes()


def test_given_rows_are_not_scaled(
    tiny_llama: Path, open_decoder: Callable[..., tuple[Decoder, int]], lone_step: LoneStep
) -> None:
    scaled, _ = open_decoder(tiny_llama, change=lambda spec: replace(spec, embedding_scale=3.0))
    plain, _ = open_decoder(tiny_llama)
    rows = plain._embedding(TOKENS) * np.float32(3)
    whole = scaled(TOKENS, lone_step(1, 0, 50), np.arange(50))
    given = scaled(np.zeros_like(TOKENS), lone_step(1, 0, 50), np.arange(50), [(0, rows)])
    assert given.tobytes() == whole.tobytes()


def test_other_rows_change_what_comes_after_them(
    decoder: Decoder, whole: Floats, lone_step: LoneStep
) -> None:
    table = decoder._embedding(TOKENS)
    other = decoder(TOKENS, lone_step(1, 0, 50), np.arange(50), [(30, table[30:31] + 1)])
    assert decoder.logits(other)[0][:30].tobytes() == whole[:30].tobytes()
    assert decoder.logits(other)[0][30:].tobytes() != whole[30:].tobytes()
