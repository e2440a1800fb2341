"""A model on its way into the server: what is said of it at the start, and whose chat template it has."""

from pathlib import Path

import pytest

from ratoon.engine.build import load_model
from ratoon.engine.config import EngineConfig
from ratoon.errors import ChatTemplateError, TextError
from ratoon.server.served_model import describe, load_served_model

SMALL = EngineConfig(kv_cache_bytes=32 << 20)


def test_the_start_names_groups_and_the_least_prefix_that_is_reused(gemma_path: Path) -> None:
    _, groups, block_size, pool, _ = describe(load_model(gemma_path, SMALL))
    assert (
        groups == "groups      full attention in 3 layers; a window of 512 tokens in 15 layers, in 5 groups"
    )
    assert block_size == "block size  16 tokens; minimum reusable prefix 16 tokens"
    assert pool == "pool        32 MiB for 1792 tokens; longest request 6896"


def test_without_caching_no_prefix_is_reused(smollm2_path: Path) -> None:
    config = EngineConfig(kv_cache_bytes=8 << 20, enable_prefix_caching=False)
    _, groups, block_size, _, _ = describe(load_model(smollm2_path, config))
    assert groups == "groups      full attention in 30 layers"
    assert block_size == "block size  16 tokens; minimum reusable prefix none, caching is off"


def test_a_template_file_takes_the_place_of_the_models_own(smollm2_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "chat.jinja"
    file.write_text("{% for m in messages %}{{ m.role }} says {{ m.content }}{% endfor %}")
    model = load_served_model(str(smollm2_path), "it", SMALL, {}, file)
    model.engine.close()
    rendered = model.chat().template.render([{"role": "user", "content": "Hi"}])
    assert rendered == "user says Hi"


def test_a_template_that_cannot_be_used_stops_the_start(smollm2_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "chat.jinja"
    with pytest.raises(TextError, match="cannot be read: No such file"):
        load_served_model(str(smollm2_path), "it", SMALL, {}, file)
    file.write_text("{% for %}")
    with pytest.raises(ChatTemplateError, match="not valid Jinja"):
        load_served_model(str(smollm2_path), "it", SMALL, {}, file)
