"""Fixtures for every room: where the real models lie. Also: no test of Hypothesis is timed."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Read when NumPy is first imported. Two BLAS threads on two busy cores wait for each other most of the time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """Return the pulled SmolLM2 file; `make test` pulls it before it runs the suite."""
    from ratoon.checkpoint.catalog import model_path

    return model_path("smollm2")


@pytest.fixture(scope="session")
def gemma_path() -> Path:
    """Return the pulled Gemma 3 file, which `make test` pulls too; without it the test is skipped.

    Not everybody who runs a part of the suite has agreed to Gemma's terms of use.
    """
    from ratoon.checkpoint.catalog import CATALOG, model_path, pulled_folder

    if not pulled_folder("gemma3-270m").is_dir():
        pytest.skip(f"Gemma is not here; `ratoon pull gemma3-270m` under {CATALOG['gemma3-270m'].terms}")
    return model_path("gemma3-270m")
