"""Families with every switch set to something that shows, against logits of another engine.

The models are tiny and random, in the very folders that the other engine wrote. Where RoPE is scaled, the
tokens go beyond the original context.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratoon.device.ops.protocol import Floats
from ratoon.device.ops.reference import ReferenceOps
from ratoon.spec.model_spec import ModelSpec

FOLDER = Path(__file__).parent / "tiny"
MODELS = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))
TOLERANCE = 5e-5
Change = Callable[[ModelSpec], ModelSpec]


def recorded(name: str) -> tuple[list[int], Floats]:
    """Return the tokens, and the logits after each."""
    found = json.loads((FOLDER / f"{name}.json").read_text())
    return found["tokens"], np.array(found["logits"], np.float32)


@pytest.fixture(scope="module")
def logits_of(tiny_logits: Callable[..., Floats]) -> Callable[..., Floats]:
    """Return a function of a model's name, ops, and a change of its spec."""
    return lambda name, ops, change=None: tiny_logits(FOLDER / name, ops, recorded(name)[0], change)


@pytest.mark.parametrize("name", MODELS)
def test_the_reference_ops_compute_what_was_recorded(name: str, logits_of: Callable[..., Floats]) -> None:
    np.testing.assert_allclose(logits_of(name, ReferenceOps()), recorded(name)[1], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", MODELS)
def test_the_native_ops_compute_what_was_recorded(name: str, logits_of: Callable[..., Floats]) -> None:
    native = pytest.importorskip("ratoon.device.ops.native", reason="the native ops are not built")
    np.testing.assert_allclose(
        logits_of(name, native.NativeOps(2)), recorded(name)[1], atol=TOLERANCE, rtol=0
    )


def changed_rope(spec: ModelSpec, **changes: Any) -> ModelSpec:
    layers = (replace(layer, rope=replace(layer.rope, **changes)) for layer in spec.layers)
    return replace(spec, layers=tuple(layers))


def changed_layers(spec: ModelSpec, **changes: Any) -> ModelSpec:
    return replace(spec, layers=tuple(replace(layer, **changes) for layer in spec.layers))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("gemma2", lambda spec: replace(spec, attention_softcap=0.0)),
        ("gemma2", lambda spec: replace(spec, final_softcap=0.0)),
        ("gemma2", lambda spec: replace(spec, attention_scale=spec.head_dim**-0.5)),
        ("gemma2", lambda spec: replace(spec, post_norms=False)),
        ("gemma2", lambda spec: changed_layers(spec, window=9)),
        ("gemma2", lambda spec: changed_layers(spec, window=None)),
        ("gemma2", lambda spec: replace(spec, activation="silu")),
        ("gemma3", lambda spec: replace(spec, qk_norm=False)),
        ("gemma3", lambda spec: changed_layers(spec, rope=spec.layers[0].rope)),
        ("gemma3", lambda spec: replace(spec, attention_scale=spec.head_dim**-0.5)),
        ("gemma3-images", lambda spec: changed_rope(spec, factors=())),
        ("qwen3", lambda spec: replace(spec, qk_norm=False)),
        ("granite", lambda spec: replace(spec, embedding_scale=3.0)),
        ("granite", lambda spec: replace(spec, norm_eps=0.02)),
        ("granite", lambda spec: replace(spec, logits_scale=1.0)),
        ("granite", lambda spec: replace(spec, attention_scale=spec.head_dim**-0.5)),
        ("smollm3", lambda spec: changed_layers(spec, rope=spec.layers[0].rope)),
        ("phi3", lambda spec: changed_rope(spec, long_factors=())),
        ("phi3", lambda spec: changed_rope(spec, scale=1.0)),
        ("phi3", lambda spec: changed_layers(spec, window=None)),
        ("rope-linear", lambda spec: changed_rope(spec, factors=())),
        ("rope-dynamic", lambda spec: changed_rope(spec, dynamic_factor=0.0)),
        ("rope-yarn", lambda spec: changed_rope(spec, factors=())),
        ("rope-yarn", lambda spec: changed_rope(spec, scale=1.0)),
        ("rope-llama3", lambda spec: changed_rope(spec, factors=())),
    ],
)  # fmt: skip
def test_a_switch_set_wrongly_would_be_seen(
    name: str, change: Change, logits_of: Callable[..., Floats]
) -> None:
    wrong = logits_of(name, ReferenceOps(), change)
    assert np.abs(wrong - recorded(name)[1]).max() > 100 * TOLERANCE
