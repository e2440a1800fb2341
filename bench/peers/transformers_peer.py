"""transformers in float32: one forward call per step, the last prompts' common prefix kept and shared.

Prompts of one call have equal lengths, which is all that this comparison needs.
"""

import copy
import time
from os.path import commonprefix
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, DynamicCache


class Transformers:
    """One model and one cached prefix."""

    def __init__(self, model: Path, threads: int) -> None:
        torch.set_num_threads(threads)
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        self._cached: list[int] = []
        self._cache = DynamicCache(config=self._model.config)
        self.description = f"transformers {transformers.__version__}, {model.name} in float32"

    @torch.inference_mode()
    def run(self, prompts: list[list[int]], max_tokens: int) -> list[list[float]]:
        """See `worker.Peer`."""
        shared = commonprefix([*prompts, prompts[0][:-1]])  # noqa: RUF071  # ids, not paths
        keep = len(commonprefix([self._cached, shared]))  # noqa: RUF071
        if keep < len(self._cached):
            self._cache.crop(keep - len(self._cached))  # the number to remove, negative
        if keep < len(shared):
            self._forward(torch.tensor([shared[keep:]]), self._cache)
        self._cached = shared

        if shared:
            cache = copy.deepcopy(self._cache)
            cache.batch_repeat_interleave(len(prompts))
        else:  # an emptied cache remembers its batch size
            cache = DynamicCache(config=self._model.config)
        tokens = self._forward(torch.tensor([prompt[len(shared) :] for prompt in prompts]), cache)
        times = [time.perf_counter()]
        for _ in range(max_tokens - 1):
            tokens = self._forward(tokens, cache)
            times.append(time.perf_counter())
        return [times for _ in prompts]

    def _forward(self, ids: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
        """Return the best next token of each sequence, [sequences, 1]."""
        logits = self._model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
        return logits[:, -1].argmax(-1, keepdim=True)


def load(model: Path, threads: int) -> Transformers:
    """See `worker`."""
    return Transformers(model, threads)
