"""Who shares blocks with whom, for everything that a key is made of.

A tiny model lies on disk in several variants, each loaded and asked as the server does it: its fingerprint,
tenants, salts, adapters and parts of prompts are the real ones. The cache of the engine that ran the one
request of a pair stands in for a pool in which the other one looks for its blocks, too. A pair of two
variants has two roots, and so no hash in common: every hash is chained to its root.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from ratoon.device.ops.reference import ReferenceOps
from ratoon.engine.config import EngineConfig
from ratoon.engine.core import EngineCore
from ratoon.engine.prompt_parts import Media, join_parts, read_part
from ratoon.identity.fingerprint import ModelFingerprint
from ratoon.request.finish import Usage
from ratoon.request.input_rows import InputRows, input_rows
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams
from ratoon.sched.delta import RequestDelta
from ratoon.server.http.limits import TenantLimits
from ratoon.server.served_model import ServedModel, load_served_model
from ratoon.server.tenants import KeyRing, SaltDeriver, read_key_file, request_salt
from ratoon.spec.cache_groups import cache_groups
from tests.support.tiny_model import HIDDEN_SIZE, write_tiny_adapter, write_tiny_model

BLOCK = 4
NUM_TOKENS = 21
"""Five full blocks and one token, so that all full blocks can be hit."""

PROMPT = [3 + place % 7 for place in range(NUM_TOKENS)]
ROWS = (
    np.random.default_rng(1)
    .standard_normal((NUM_TOKENS - 1, HIDDEN_SIZE))
    .astype(np.float16)
    .astype(np.float32)
)
GREEDY = SamplingParams(max_tokens=2, temperature=0, ignore_eos=True)

KEY_FILE = """
[tenants.alice]
keys = ["{alice}"]
[tenants.bob]
keys = ["{bob}"]
[tenants.carol]
keys = ["{carol}"]
shared_group = "alice"
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Side:
    """One request of a pair: to which model, of which parts, for whom, and with what else."""

    variant: str = "plain"
    parts: tuple[Any, ...] = (PROMPT,)
    tenant: str = "alice"
    salt: str | None = None
    adapter: str | None = None
    params: SamplingParams = GREEDY
    priority: int = 0


@dataclass(frozen=True, kw_only=True)
class Variant:
    """The model in another shape, or in another engine."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    flipped_bit: bool = False
    patches: Mapping[str, Any] = field(default_factory=dict)
    """What is written in other code, or in another future of this code."""


def _ropes(full: float, sliding: float) -> dict[str, Any]:
    thetas = {"full_attention": full, "sliding_attention": sliding}
    return {
        "rope_parameters": {kind: {"rope_theta": t, "rope_type": "default"} for kind, t in thetas.items()}
    }


VARIANTS = {
    "plain": Variant(),
    "block size": Variant(settings={"block_size": 2 * BLOCK}),
    "KV dtype": Variant(settings={"kv_cache_dtype": "f32"}),
    "RoPE of full attention": Variant(config=_ropes(5001.0, 50.0)),
    "RoPE of sliding windows": Variant(config=_ropes(5000.0, 51.0)),
    "window": Variant(config={"sliding_window": 10}),
    "attention scale": Variant(config={"query_pre_attn_scalar": 12}),
    "KV layout": Variant(
        patches={"ratoon.engine.open_model.cache_groups": lambda spec: cache_groups(spec)[::-1]}
    ),
    "weight digest": Variant(flipped_bit=True),
    "weight epoch": Variant(
        patches={"ratoon.engine.build.ModelFingerprint": partial(ModelFingerprint, weight_epoch=1)}
    ),
    "kernel numerics version": Variant(patches={f"{ReferenceOps.__module__}.ReferenceOps.numerics": "next"}),
    "kernels": Variant(settings={"ops": "native"}),
}


def _changed(place: int) -> Side:
    prompt = PROMPT.copy()
    prompt[place] += 1
    return Side(parts=(prompt,))


def _nudged() -> Any:
    rows = ROWS.copy()
    rows[-1, -1] = np.nextafter(rows[-1, -1], np.float32(9))
    return rows


def _rows(*parts: Any) -> Side:
    """Rows, and beside them no token but the placeholder: so the tokens of all these prompts are equal."""
    return Side(parts=parts)


def _stored(dtype: str) -> InputRows:
    return input_rows(dtype, ROWS.shape, ROWS.astype(np.float16).tobytes(), width=ROWS.shape[1])


APART: dict[str, tuple[Side, Side]] = {
    "salt": (Side(salt="a"), Side(salt="b")),
    "salt or none": (Side(salt="a"), Side()),
    "tenant": (Side(tenant="alice"), Side(tenant="bob")),
    "tenant or group of its name": (Side(tenant="alice"), Side(tenant="carol")),
    "tenant, with one salt": (Side(tenant="alice", salt="a"), Side(tenant="bob", salt="a")),
    "adapter content": (Side(adapter="poet"), Side(adapter="other")),
    "adapter scale": (Side(adapter="poet"), Side(adapter="loud")),
    "adapter or none": (Side(adapter="poet"), Side()),
    "media digest": (_rows(Media(b"cat", ROWS), [0]), _rows(Media(b"dog", ROWS), [0])),
    "media offset": (_rows(Media(b"cat", ROWS), [0]), _rows([0], Media(b"cat", ROWS))),
    "media or tokens": (_rows(Media(b"cat", ROWS), [0]), _rows([0] * NUM_TOKENS)),
    "embedding value": (_rows(ROWS, [0]), _rows(_nudged(), [0])),
    "embedding dtype": (_rows(ROWS, [0]), _rows(ROWS.astype(np.float16), [0])),
    "embedding dtype of equal bytes": (_rows(_stored("F16"), [0]), _rows(_stored("BF16"), [0])),
    "embedding offset": (_rows(ROWS, [0]), _rows([0], ROWS)),
    "embeddings swapped": (_rows(ROWS[:10], ROWS[10:], [0]), _rows(ROWS[10:], ROWS[:10], [0])),
    "embeddings cut": (_rows(ROWS[:3], ROWS[3:], [0]), _rows(ROWS, [0])),
    **{name: (Side(), Side(variant=name)) for name in VARIANTS if name != "plain"},
}

TOGETHER: dict[str, tuple[Side, Side]] = {
    "request id": (Side(), Side()),
    "adapter name": (Side(adapter="poet"), Side(adapter="poet's other name")),
    "priority": (Side(), Side(priority=5)),
    "output length": (Side(), Side(params=SamplingParams(max_tokens=7, temperature=0, ignore_eos=True))),
    "sampling parameters": (
        Side(),
        Side(
            params=SamplingParams(
                max_tokens=2,
                temperature=1.3,
                top_p=0.9,
                top_k=7,
                min_p=0.01,
                repetition_penalty=1.2,
                presence_penalty=0.3,
                frequency_penalty=0.3,
                logit_bias={4: 2.0},
                min_tokens=1,
                stop=("b",),
                stop_token_ids=(9,),
                logprobs=2,
            )
        ),
    ),
    "everything at once, but equal": (
        Side(adapter="poet", salt="a", parts=(ROWS[:9], PROMPT)),
        Side(adapter="poet", salt="a", parts=(ROWS[:9].copy(), PROMPT)),
    ),
}


class World:
    """The variants, each loaded when it is first asked."""

    def __init__(self, folder: Path, write_adapter: Callable[..., Path]) -> None:
        self._folder = folder
        self._served: dict[str, ServedModel] = {}
        self._adapters = _write_adapters(folder, write_adapter)
        self.keys = _write_keys(folder)

    def served(self, variant: str) -> ServedModel:
        if variant not in self._served:
            self._served[variant] = self._load(variant)
        return self._served[variant]

    def request(self, side: Side) -> Request:
        """Make a request as the server makes it."""
        served = self.served(side.variant)
        tenant = self.keys.tenant_of(side.tenant.encode())
        assert tenant is not None
        parts = [
            part if isinstance(part, InputRows) else read_part(part, served.hidden_size)
            for part in side.parts
        ]
        [request] = served.requests.make(
            join_parts(parts, served.tokenizer),
            replace(side.params, seed=1),
            salt=request_salt(tenant.scope, side.salt),
            priority=side.priority,
            adapter=None if side.adapter is None else served.adapters.get(side.adapter),
        )
        return request

    def close(self) -> None:
        for served in self._served.values():
            served.engine.close()

    def _load(self, name: str) -> ServedModel:
        variant = VARIANTS[name]
        folder = write_tiny_model(self._folder / name, **variant.config)
        if variant.flipped_bit:
            weights = bytearray((folder / "model.safetensors").read_bytes())
            weights[-2] ^= 1
            (folder / "model.safetensors").write_bytes(weights)
        settings: dict[str, Any] = {
            "ops": "reference",
            "threads": 1,
            "block_size": BLOCK,
            "kv_cache_bytes": 1 << 20,
            **variant.settings,
        }
        with pytest.MonkeyPatch.context() as patch:
            for target, value in variant.patches.items():
                patch.setattr(target, value)
            return load_served_model(str(folder), "tiny", EngineConfig(**settings), self._adapters)


def _write_adapters(folder: Path, write_adapter: Callable[..., Path]) -> dict[str, Path]:
    return {
        "poet": write_tiny_adapter(folder / "poet", write_adapter, 1),
        "poet's other name": write_tiny_adapter(folder / "copy", write_adapter, 1),
        "loud": write_tiny_adapter(folder / "loud", write_adapter, 1, lora_alpha=5),
        "other": write_tiny_adapter(folder / "other", write_adapter, 2),
    }


def _write_keys(folder: Path) -> KeyRing:
    file = folder / "keys.toml"
    digests = {name: f"sha256:{sha256(name.encode()).hexdigest()}" for name in ("alice", "bob", "carol")}
    file.write_text(KEY_FILE.format(**digests))
    return read_key_file(file, SaltDeriver(b"s" * 32), TenantLimits())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, write_adapter: Callable[..., Path]) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("world"), write_adapter)
    yield world
    world.close()


def run(served: ServedModel, *requests: Request) -> list[Usage]:
    """Submit requests together and return their usage when all have ended."""
    deltas: SimpleQueue[RequestDelta] = SimpleQueue()
    served.engine.submit_all(requests, deltas.put)
    usages: dict[int, Usage] = {}
    while len(usages) < len(requests):
        delta = deltas.get(timeout=60)
        assert delta.error is None
        if delta.finish_reason is not None and delta.usage is not None:
            usages[delta.request_id] = delta.usage
    return [usages[request.id] for request in requests]


def reset(served: ServedModel) -> None:
    served.engine.call(lambda core: core.reset_cache()).result()


def keys_of(served: ServedModel) -> set[bytes]:
    """Return every hash under which a block of some group can be found."""

    def keys(core: EngineCore) -> set[bytes]:
        indexes = core.scheduler.cache.pool.indexes
        return {block_hash for index in indexes for block_hash in index.first}

    return served.engine.call(keys).result()


def check_apart(world: World, one: Side, other: Side, num_shared: int = 0) -> None:
    """Of all blocks the first `num_shared` are shared, and no other, whoever comes first."""
    for first, second in ((one, other), (other, one)):
        served = world.served(first.variant)
        request, late = world.request(first), world.request(second)
        blocks, hashes = list(request.chain.block_hashes), list(late.chain.block_hashes)
        assert min(len(blocks), len(hashes)) > num_shared
        reset(served)
        [usage] = run(served, request)
        assert usage.cached_tokens == 0
        keys = keys_of(served)
        assert keys.issuperset(blocks), "what was computed can be found"
        assert [block_hash in keys for block_hash in hashes] == [i < num_shared for i in range(len(hashes))]
        if first.variant == second.variant:
            [usage] = run(served, late)
            assert usage.cached_tokens == num_shared * BLOCK
            reset(served)
            usages = run(served, world.request(first), world.request(second))
            assert [usage.cached_tokens for usage in usages] == [0, num_shared * BLOCK]


@pytest.mark.parametrize("difference", APART)
def test_requests_that_differ_in_one_thing_never_share_a_block(world: World, difference: str) -> None:
    check_apart(world, *APART[difference])


@pytest.mark.parametrize("place", range(NUM_TOKENS - 1))
def test_requests_that_differ_in_one_token_share_the_blocks_before_it(world: World, place: int) -> None:
    check_apart(world, Side(), _changed(place), num_shared=place // BLOCK)


@pytest.mark.parametrize("difference", TOGETHER)
def test_requests_that_differ_only_in_what_changes_no_kv_always_share(world: World, difference: str) -> None:
    one, other = TOGETHER[difference]
    served = world.served("plain")
    for first, second in ((one, other), (other, one)):
        requests = world.request(first), world.request(second)
        num_full = requests[0].num_prompt_tokens // BLOCK
        assert requests[0].id != requests[1].id
        assert requests[0].chain.block_hashes == requests[1].chain.block_hashes
        reset(served)
        [cold], [warm] = (run(served, request) for request in requests)
        assert (cold.cached_tokens, warm.cached_tokens) == (0, num_full * BLOCK)
        reset(served)
        usages = run(served, world.request(first), world.request(second))
        assert sorted(usage.cached_tokens for usage in usages) == [0, num_full * BLOCK]


def test_every_field_of_the_fingerprint_has_a_pair(world: World) -> None:
    """A field that is new needs a variant here."""
    roots = {name: world.served(name).root for name in VARIANTS}
    assert len(set(roots.values())) == len(VARIANTS)
    assert set(ModelFingerprint.__dataclass_fields__) == {
        "weights_digest",
        "attention",
        "rope",
        "kv_dtype",
        "kv_layout",
        "block_size",
        "kernels_version",
        "weight_epoch",
    }
