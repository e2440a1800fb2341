"""Fixtures for every room: where the real model lies."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """Return the pulled SmolLM2 file; `make test` pulls it before it runs the suite."""
    from ratoon.checkpoint.catalog import model_path

    return model_path("smollm2")
