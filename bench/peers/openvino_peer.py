"""OpenVINO GenAI: its continuous-batching pipeline with prefix caching, reading a GGUF file."""

import time
from pathlib import Path

import numpy as np
import openvino as ov
import openvino_genai as genai


class OpenVino:
    """One continuous-batching pipeline."""

    def __init__(self, model: Path, threads: int) -> None:
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = 2
        scheduler.enable_prefix_caching = True
        scheduler.max_num_batched_tokens = 2048
        scheduler.max_num_seqs = 16
        properties = {"INFERENCE_NUM_THREADS": threads}
        self._pipeline = genai.ContinuousBatchingPipeline(model, scheduler, "CPU", properties)
        self._next_id = 0
        self.description = f"openvino-genai {genai.__version__}, {model.name}"

    def run(self, prompts: list[list[int]], max_tokens: int) -> list[list[float]]:
        """See `worker.Peer`."""
        config = genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = max_tokens
        config.ignore_eos = True
        config.do_sample = False
        handles = []
        for prompt in prompts:
            ids = ov.Tensor(np.array([prompt], np.int64))
            handles.append(self._pipeline.add_request(self._next_id, ids, config))
            self._next_id += 1
        times: list[list[float]] = [[] for _ in prompts]
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            now = time.perf_counter()
            for handle, of_prompt in zip(handles, times, strict=True):
                while handle.can_read():
                    for output in handle.read().values():
                        of_prompt += [now] * len(output.generated_ids)
        return times


def load(model: Path, threads: int) -> OpenVino:
    """See `worker`."""
    return OpenVino(model, threads)
