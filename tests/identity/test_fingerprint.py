"""Roots are equal for equal fingerprints, in every process, and different for everything else."""

import subprocess
import sys
from dataclasses import replace

import pytest

from ratoon.identity.fingerprint import ModelFingerprint

FINGERPRINT = ModelFingerprint(
    weights_digest=b"\x01" * 32,
    attention=(("num_heads", 9), ("window", None), ("scale", 0.125)),
    rope=(("base", 100000.0), ("dim", 64)),
    kv_dtype="f16",
    kv_layout="block-major",
    block_size=16,
    kernels_version="native-1",
)

OTHERS = [
    replace(FINGERPRINT, weights_digest=b"\x02" * 32),
    replace(FINGERPRINT, attention=(("num_heads", 9), ("window", 512), ("scale", 0.125))),
    replace(FINGERPRINT, attention=(("num_heads", 9), ("window", None), ("scale", 0.25))),
    replace(FINGERPRINT, rope=(("base", 10000.0), ("dim", 64))),
    replace(FINGERPRINT, kv_dtype="f32"),
    replace(FINGERPRINT, kv_layout="layer-major"),
    replace(FINGERPRINT, block_size=32),
    replace(FINGERPRINT, kernels_version="native-2"),
    replace(FINGERPRINT, weight_epoch=1),
]


def test_the_root_is_pinned() -> None:
    assert FINGERPRINT.root().hex() == "d6d86ba4cfa93142063ed05a3c962782711e61ea9ff8b9d42e00e0692b8a3ded"


def test_equal_fingerprints_have_equal_roots() -> None:
    assert replace(FINGERPRINT).root() == FINGERPRINT.root()


@pytest.mark.parametrize("other", OTHERS)
def test_a_change_of_any_setting_changes_the_root(other: ModelFingerprint) -> None:
    assert other.root() != FINGERPRINT.root()


def test_no_two_of_the_changed_settings_share_a_root() -> None:
    assert len({other.root() for other in OTHERS}) == len(OTHERS)


def test_another_process_finds_the_same_root() -> None:
    code = f"from ratoon.identity.fingerprint import ModelFingerprint\nprint({FINGERPRINT!r}.root().hex())"
    environment = {"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "12345"}
    printed = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert printed.stdout.strip() == FINGERPRINT.root().hex()
