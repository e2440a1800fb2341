"""llama.cpp through llama-cpp-python's low-level interface, with all sequences of a step in one call.

The prompts' common prefix is computed once and shared between sequences by `llama_memory_seq_cp`, and kept
for the next call: more than its server does for requests that arrive together, so the comparison is never
unfair to it.
"""

import ctypes
import time
from os.path import commonprefix
from pathlib import Path

import llama_cpp as ll
import numpy as np

CONTEXT = 24 * 1024
BATCH = 2048
SLOTS = 17  # sequence 0 keeps the cached prefix


class LlamaCpp:
    """One model and one context with a unified KV cache."""

    def __init__(self, model: Path, threads: int) -> None:
        ll.llama_backend_init()
        self._model = ll.llama_model_load_from_file(str(model).encode(), ll.llama_model_default_params())
        params = ll.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = CONTEXT, BATCH, 512, SLOTS
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = True
        params.no_perf = True
        self._context = ll.llama_init_from_model(self._model, params)
        self._memory = ll.llama_get_memory(self._context)
        self._num_vocab = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(self._model))
        self._batch = ll.llama_batch_init(BATCH, 0, 1)
        self._cached: list[int] = []
        self.description = f"llama-cpp-python {ll.__version__}, {model.name}"

    def run(self, prompts: list[list[int]], max_tokens: int) -> list[list[float]]:
        """See `worker.Peer`."""
        for sequence in range(1, SLOTS):
            ll.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        shared = commonprefix([*prompts, [*min(prompts, key=len)[:-1]]])  # noqa: RUF071  # ids, not paths
        keep = len(commonprefix([self._cached, shared]))  # noqa: RUF071
        ll.llama_memory_seq_rm(self._memory, 0, keep, -1)
        self._decode([(0, pos, shared[pos], False) for pos in range(keep, len(shared))])
        self._cached = shared

        for sequence in range(1, len(prompts) + 1):
            ll.llama_memory_seq_cp(self._memory, 0, sequence, 0, len(shared))
        rest = [
            (sequence, pos, prompt[pos], pos == len(prompt) - 1)
            for sequence, prompt in enumerate(prompts, 1)
            for pos in range(len(shared), len(prompt))
        ]
        times: list[list[float]] = [[] for _ in prompts]
        tokens = self._decode(rest)
        for step in range(max_tokens):
            now = time.perf_counter()
            for of_prompt in times:
                of_prompt.append(now)
            if step < max_tokens - 1:
                tokens = self._decode(
                    [(s, len(prompts[s - 1]) + step, token, True) for s, token in sorted(tokens.items())]
                )
        return times

    def _decode(self, rows: list[tuple[int, int, int, bool]]) -> dict[int, int]:
        """Compute (sequence, position, token, wants logits) rows; return the best next token per sequence."""
        best = {}
        for start in range(0, len(rows), BATCH):
            part = rows[start : start + BATCH]
            batch = self._batch
            batch.n_tokens = len(part)
            for i, (sequence, pos, token, wanted) in enumerate(part):
                batch.token[i], batch.pos[i] = token, pos
                batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, sequence, wanted
            if ll.llama_decode(self._context, batch) != 0:
                raise RuntimeError("llama_decode failed")
            ll.llama_synchronize(self._context)
            for i, (sequence, _, _, wanted) in enumerate(part):
                if wanted:
                    row = ll.llama_get_logits_ith(self._context, i)
                    address = ctypes.cast(row, ctypes.POINTER(ctypes.c_float))
                    best[sequence] = int(np.ctypeslib.as_array(address, (self._num_vocab,)).argmax())
        return best


def load(model: Path, threads: int) -> LlamaCpp:
    """See `worker`."""
    return LlamaCpp(model, threads)
