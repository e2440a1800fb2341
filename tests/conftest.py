"""Fixtures for every room: where the real models lie, LoRA adapters. Also: no test of Hypothesis is timed."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Read when NumPy is first imported. Two BLAS threads on two busy cores wait for each other most of the time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """Return the pulled SmolLM2 file; `make test` pulls it before it runs the suite."""
    from ratoon.checkpoint.model_catalog import model_path

    return model_path("smollm2")


@pytest.fixture(scope="session")
def gemma_path() -> Path:
    """Return the pulled Gemma 3 file, which `make test` pulls too; without it the test is skipped.

    Not everybody who runs a part of the suite has agreed to Gemma's terms of use.
    """
    from ratoon.checkpoint.model_catalog import CATALOG, model_path, pulled_folder

    if not pulled_folder("gemma3-270m").is_dir():
        pytest.skip(f"Gemma is not here; `ratoon pull gemma3-270m` under {CATALOG['gemma3-270m'].terms}")
    return model_path("gemma3-270m")


WriteAdapter = Callable[..., Path]


@pytest.fixture(scope="session")
def write_adapter() -> WriteAdapter:
    """Return a writer of adapters as PEFT saves them: of a folder, a and b by module, and settings."""

    def write(folder: Path, pairs: Mapping[str, tuple[Any, Any]], **settings: object) -> Path:
        tensors = {
            f"base_model.model.{module}.lora_{half}.weight": array
            for module, pair in pairs.items()
            for half, array in zip("AB", pair, strict=True)
        }
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        body = b""
        for name in sorted(tensors):
            data = tensors[name].tobytes()
            dtype = {"float32": "F32", "float16": "F16"}[str(tensors[name].dtype)]
            offsets = [len(body), len(body) + len(data)]
            header[name] = {"dtype": dtype, "shape": tensors[name].shape, "data_offsets": offsets}
            body += data
        head = json.dumps(header).encode()
        rank = next(iter(pairs.values()))[0].shape[0]
        config = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": "somebody/something",
            "r": rank,
            "lora_alpha": 2 * rank,
            "lora_dropout": 0.0,
            "bias": "none",
            "fan_in_fan_out": False,
            "inference_mode": True,
            "use_rslora": False,
            "use_dora": False,
            "modules_to_save": None,
            "rank_pattern": {},
            "alpha_pattern": {},
            "target_modules": sorted({module.rpartition(".")[2] for module in pairs}),
        }
        folder.mkdir(exist_ok=True)
        (folder / "adapter_config.json").write_text(json.dumps(config | settings))
        (folder / "adapter_model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + body)
        return folder

    return write


@pytest.fixture(scope="session")
def smollm2_adapters(
    tmp_path_factory: pytest.TempPathFactory, write_adapter: WriteAdapter
) -> dict[str, Path]:
    """Return the folders of the adapters behind `golden/smollm2/adapters.json`, made again by its recipe."""
    import numpy as np

    recipes = json.loads((Path(__file__).parent / "golden/smollm2/adapters.json").read_text())
    shapes = {"self_attn.q_proj": (576, 576), "self_attn.v_proj": (192, 576), "mlp.down_proj": (576, 1536)}
    folders = {}
    for name, recipe in recipes.items():
        rng, rank = np.random.default_rng(recipe["seed"]), recipe["r"]
        dtype = {"F16": np.float16, "F32": np.float32}[recipe["dtype"]]
        pairs = {}
        for layer in range(30):
            for module, (outputs, inputs) in shapes.items():
                a = rng.standard_normal((rank, inputs)) / np.sqrt(inputs)
                b = rng.standard_normal((outputs, rank)) * recipe["b_std"]
                pairs[f"model.layers.{layer}.{module}"] = a.astype(dtype), b.astype(dtype)
        folder = tmp_path_factory.mktemp("adapters") / name
        folders[name] = write_adapter(folder, pairs, lora_alpha=recipe["lora_alpha"])
    return folders
