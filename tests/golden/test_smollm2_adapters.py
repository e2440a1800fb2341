"""LoRA adapters on both ops against recorded numbers of PEFT; marks as for the model without them."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratoon.checkpoint.adapter_folder import read_adapter
from ratoon.checkpoint.formats import open_checkpoint
from ratoon.device.model.adapter import adapter_weights
from ratoon.device.model.decoder import Decoder
from ratoon.device.ops.protocol import Floats, Ops
from ratoon.device.ops.reference import ReferenceOps
from ratoon.spec.model_reader import read_model_spec

native = pytest.importorskip("ratoon.device.ops.native", reason="the native ops are not built")

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "smollm2/adapters.json").read_text())
CASES = [(name, case) for name, recorded in RECORDED.items() for case in recorded["prompts"]]
Forced = Callable[[dict[str, Any], str], Floats]
LoadSmollm2 = Callable[[Ops, str], Decoder]


def forced(
    ops: Ops, decoder: Decoder, run: Callable[..., Floats], model: Path, adapters: dict[str, Path]
) -> Forced:
    """Return a function: the logits that follow a prompt and each token of its continuation."""
    spec = read_model_spec(open_checkpoint(model))
    loaded = {name: ops.adapter(adapter_weights(read_adapter(path), spec)) for name, path in adapters.items()}

    def logits(case: dict[str, Any], name: str) -> Floats:
        prompt, tokens = case["prompt"], case["tokens"]
        return run(decoder, prompt + tokens[:-1], len(prompt) - 1, adapter=loaded[name])

    return logits


@pytest.fixture(scope="module")
def reference(
    load_smollm2: LoadSmollm2,
    forced_logits: Callable[..., Floats],
    smollm2_path: Path,
    smollm2_adapters: dict[str, Path],
) -> Forced:
    ops = ReferenceOps()
    return forced(ops, load_smollm2(ops, "f32"), forced_logits, smollm2_path, smollm2_adapters)


@pytest.fixture(scope="module")
def quick(
    load_smollm2: LoadSmollm2,
    forced_logits: Callable[..., Floats],
    smollm2_path: Path,
    smollm2_adapters: dict[str, Path],
) -> Forced:
    ops = native.NativeOps(2)
    return forced(ops, load_smollm2(ops, "int16"), forced_logits, smollm2_path, smollm2_adapters)


@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{name}-{case['name']}" for name, case in CASES])
def test_the_reference_gives_the_recorded_logits_and_tokens(
    reference: Forced, name: str, case: dict[str, Any]
) -> None:
    logits = reference(case, name)
    after_prompt = logits[0].astype(np.float64)
    best = [token for token, _, _ in case["top"]]
    np.testing.assert_allclose(after_prompt[best], [logit for _, logit, _ in case["top"]], atol=2e-3, rtol=0)
    log_sum = after_prompt.max() + np.log(np.exp(after_prompt - after_prompt.max()).sum())
    summary = [log_sum, after_prompt.mean(), after_prompt.std()]
    np.testing.assert_allclose(summary, [case["logsumexp"], case["mean"], case["std"]], atol=2e-3, rtol=0)
    chosen = logits[np.arange(len(case["tokens"])), case["tokens"]]
    np.testing.assert_allclose(chosen, case["logits"], atol=2e-3, rtol=0)
    clear = np.array(case["gaps"]) > 4e-3
    assert logits.argmax(axis=1)[clear].tolist() == np.array(case["tokens"])[clear].tolist()


def _divergence(logits: Floats, top: list[list[float]]) -> float:
    """Kullback-Leibler divergence from the recorded distribution, in ten tokens and one bin for the rest."""
    recorded = [math.exp(logprob) for _, _, logprob in top]
    shifted = logits.astype(np.float64) - logits.max()
    weights = np.exp(shifted)
    found = (weights / weights.sum())[[int(token) for token, _, _ in top]].tolist()
    pairs = zip([*recorded, 1 - sum(recorded)], [*found, 1 - sum(found)], strict=True)
    return sum(p * math.log(p / q) for p, q in pairs)


def test_the_native_ops_are_as_near_as_eight_bit_activations_allow(quick: Forced) -> None:
    agrees: list[bool] = []
    missed = [0.0]
    for name, case in CASES:
        logits = quick(case, name)
        assert _divergence(logits[0], case["top"]) <= 0.02
        right = (logits.argmax(axis=1) == case["tokens"]).tolist()
        agrees += right
        missed += [gap for gap, is_right in zip(case["gaps"], right, strict=True) if not is_right]
    assert max(missed) <= 1.0
    assert sum(agrees) / len(agrees) >= 0.95
