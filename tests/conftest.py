"""Fixtures for every room: where the real model lies. Also: no test of Hypothesis is timed."""

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
