"""vLLM's cache manager at one long prompt: computed the first time, found the second time."""

import time
from itertools import count

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request


class CacheCycle:
    """A manager whose pool has room for two prompts, so that from the third on blocks must be evicted."""

    def __init__(self, num_tokens: int, block_size: int) -> None:
        hash_function = get_hash_fn_by_name("sha256")  # vLLM's default
        init_none_hash(hash_function)
        self._hasher = get_request_block_hasher(block_size, hash_function)
        self._block_size = block_size
        spec = FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=1, dtype=torch.float32)
        config = KVCacheConfig(
            num_blocks=2 * (num_tokens // block_size) + 1,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        )
        self._manager = KVCacheManager(
            config, max_model_len=2 * num_tokens, scheduler_block_size=block_size, hash_block_size=block_size
        )
        self._ids = count()

    def run(self, tokens: list[int]) -> dict[str, float]:
        """Return the seconds of each operation. `tokens` were not seen before."""
        cold = self._admit(tokens, "miss")
        warm = self._admit([*tokens[:-1], tokens[-1] ^ 1], "hit")
        return cold | warm

    def _admit(self, tokens: list[int], kind: str) -> dict[str, float]:
        manager, num_tokens = self._manager, len(tokens)
        params = SamplingParams(max_tokens=1)
        begun = time.perf_counter()
        request = Request(str(next(self._ids)), tokens, params, None, block_hasher=self._hasher)
        hashed = time.perf_counter()
        blocks, num_cached, _ = manager.get_computed_blocks(request)
        matched = time.perf_counter()
        assert num_cached == (num_tokens - self._block_size if kind == "hit" else 0)
        assert manager.allocate_slots(request, num_tokens - num_cached, num_cached, blocks) is not None
        allocated = time.perf_counter()
        request.num_computed_tokens = num_tokens
        manager.free(request)
        freed = time.perf_counter()
        return {
            f"{kind}: hash": hashed - begun,
            f"{kind}: match": matched - hashed,
            f"{kind}: allocate": allocated - matched,
            f"{kind}: free": freed - allocated,
        }
