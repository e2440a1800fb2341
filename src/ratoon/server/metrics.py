"""Prometheus metrics: every name, its help, and where its number comes from.

Counters and gauges of the engine are read when they are scraped; what belongs to a finished request is
added once, when its record is written, from the same numbers that its response reported. With
`vllm_model` set, the metrics that vLLM has too are repeated under vLLM's names, for dashboards and
routers that look for those.
"""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ratoon.server.request_log import Outcome, RequestRecord
from ratoon.server.snapshot import EngineSnapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

REQUEST_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)
"""Seconds. On a CPU a warm first token takes tens of milliseconds, a long cold prefill many seconds."""

TOKEN_BUCKETS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2, 5)
"""Seconds between output tokens, from a small model alone to a large one in a full batch."""

ENGINE_COUNTERS = {
    "prefix_cache_queries": (
        "num_query_tokens",
        "Prompt tokens looked up in the prefix cache, once per answer.",
    ),
    "prefix_cache_hits": ("num_hit_tokens", "Prompt tokens found in the prefix cache."),
    "preempted_prefix_cache_queries": (
        "num_preempted_query_tokens",
        "Tokens looked up again after preemption.",
    ),
    "preempted_prefix_cache_hits": ("num_preempted_hit_tokens", "Tokens found again after preemption."),
    "stored_blocks": ("num_stored_blocks", "Blocks that entered the index."),
    "evicted_blocks": ("num_evicted_blocks", "Blocks that lost their key to be handed out again."),
    "hash_collisions": ("num_collisions", "Blocks found under a key whose tokens were others."),
    "retained_blocks": ("num_retained_blocks", "Blocks that a hint marked to leave after unmarked ones."),
    "retained_hit_blocks": ("num_retained_hit_blocks", "Those of them that were hit while idle."),
    "cache_resets": ("num_resets", "Times the cache was emptied on request."),
    "preemptions": ("num_preemptions", "Times a running answer gave its blocks back to wait again."),
    "steps": ("num_steps", "Steps, failed ones included."),
    "failed_steps": ("num_failed_steps", "Steps that failed, together with their requests."),
    "saved_block_reads": (
        "num_saved_block_reads",
        "Block reads spared in steps, because answers with blocks in common read them once.",
    ),
    "spec_decode_proposals": ("num_proposals", "Rows of drafts verified, one per answer and step."),
    "spec_decode_draft_tokens": ("num_drafts", "Drafts verified."),
    "spec_decode_accepted_tokens": ("num_accepted_drafts", "Those of them that were accepted."),
    "spec_decode_failures": ("num_draft_failures", "Times that guessing drafts failed."),
}

ENGINE_GAUGES = {
    "num_requests_running": ("num_running", "Answers being computed."),
    "num_requests_waiting": ("num_waiting", "Answers that wait for their first or next turn."),
    "commit_lag_tokens": (
        "num_uncommitted_tokens",
        "Tokens computed and not committed yet, over all running answers.",
    ),
    "spec_decode_paused_steps": (
        "num_paused_steps",
        "Steps to go without drafts, after guessing failed, until it is tried again.",
    ),
}

VLLM_NAMES = {
    "ratoon_prefix_cache_queries": ["vllm:prefix_cache_queries"],
    "ratoon_prefix_cache_hits": ["vllm:prefix_cache_hits"],
    "ratoon_prompt_tokens": ["vllm:prompt_tokens"],
    "ratoon_generation_tokens": ["vllm:generation_tokens"],
    "ratoon_preemptions": ["vllm:num_preemptions"],
    "ratoon_spec_decode_proposals": ["vllm:spec_decode_num_drafts"],
    "ratoon_spec_decode_draft_tokens": ["vllm:spec_decode_num_draft_tokens"],
    "ratoon_spec_decode_accepted_tokens": ["vllm:spec_decode_num_accepted_tokens"],
    "ratoon_spec_decode_accepted_tokens_per_position": ["vllm:spec_decode_num_accepted_tokens_per_pos"],
    "ratoon_num_requests_running": ["vllm:num_requests_running"],
    "ratoon_num_requests_waiting": ["vllm:num_requests_waiting"],
    "ratoon_kv_cache_usage_ratio": ["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"],
    "ratoon_time_to_first_token_seconds": ["vllm:time_to_first_token_seconds"],
    "ratoon_inter_token_latency_seconds": [
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
    ],
    "ratoon_time_per_output_token_seconds": ["vllm:request_time_per_output_token_seconds"],
    "ratoon_e2e_request_latency_seconds": ["vllm:e2e_request_latency_seconds"],
    "ratoon_request_queue_time_seconds": ["vllm:request_queue_time_seconds"],
    "ratoon_requests": ["vllm:request_success"],
    "ratoon_cache_config_info": ["vllm:cache_config_info"],
}
"""vLLM's current names, and the older ones where they differ.

Its `perc` gauges are ratios from 0 to 1, as ours.
"""

VLLM_LABELS = {"outcome": "finished_reason", "num_blocks": "num_gpu_blocks"}


class Metrics:
    """All metrics of one server, in a registry of their own."""

    def __init__(self, *, vllm_model: str | None = None) -> None:
        self._registry = CollectorRegistry()
        self._engine = _EngineCollector()
        self._registry.register(self._engine)
        self._requests = self._counter("requests", "Requests by how they ended.", ("outcome",))
        self._http_errors = self._counter(
            "http_errors", "Responses with a status of 400 or more.", ("status",)
        )
        self._prompt_tokens = self._counter("prompt_tokens", "Prompt tokens of finished requests.")
        self._cached_tokens = self._counter("cached_prompt_tokens", "Those of them that were cached.")
        self._output_tokens = self._counter("generation_tokens", "Output tokens of finished requests.")
        self._ttft = self._histogram("time_to_first_token", "From a request's arrival to its first token.")
        self._e2e = self._histogram("e2e_request_latency", "From a request's arrival to its end.")
        self._queue = self._histogram("request_queue_time", "From a request's arrival to its first step.")
        self._itl = self._histogram(
            "inter_token_latency", "Between output tokens of one answer.", TOKEN_BUCKETS
        )
        self._tpot = self._histogram(
            "time_per_output_token",
            "Mean time per output token after the first, once per request.",
            TOKEN_BUCKETS,
        )
        for outcome in Outcome:
            self._requests.labels(outcome)
        self._vllm = None if vllm_model is None else _VllmNames(self._registry, vllm_model)

    def observe_itl(self, seconds: float) -> None:
        """Add the time between two tokens of one answer."""
        self._itl.observe(seconds)

    def observe_http_error(self, status: int) -> None:
        """Count a response with a status of 400 or more."""
        self._http_errors.labels(str(status)).inc()

    def observe_request(self, record: RequestRecord) -> None:
        """Add a finished request."""
        self._requests.labels(record.outcome).inc()
        self._prompt_tokens.inc(record.prompt_tokens)
        self._cached_tokens.inc(record.cached_tokens)
        self._output_tokens.inc(record.output_tokens)
        self._e2e.observe(record.e2e_s)
        for histogram, seconds in (
            (self._queue, record.queue_s),
            (self._ttft, record.ttft_s),
            (self._tpot, record.tpot_s),
        ):
            if seconds is not None:
                histogram.observe(seconds)

    def render(self, now: EngineSnapshot | None) -> bytes:
        """Return the text that a scrape gets; without a snapshot there is nothing about the engine in it."""
        self._engine.now = now
        text = generate_latest(self._registry)
        return text if self._vllm is None else text + generate_latest(self._vllm)

    def _counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"ratoon_{name}", text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...] = REQUEST_BUCKETS) -> Histogram:
        return Histogram(f"ratoon_{name}_seconds", text, buckets=buckets, registry=self._registry)


class _EngineCollector(Collector):
    """Exports the snapshot that it was given last."""

    def __init__(self) -> None:
        self.now: EngineSnapshot | None = None

    def collect(self) -> Iterable[Metric]:
        now = self.now
        if now is None:
            return
        for name, (source, text) in ENGINE_COUNTERS.items():
            yield CounterMetricFamily(f"ratoon_{name}", text, getattr(now, source))
        for name, (source, text) in ENGINE_GAUGES.items():
            yield GaugeMetricFamily(f"ratoon_{name}", text, getattr(now, source))
        steps = CounterMetricFamily("ratoon_step_seconds", "Time spent in steps, by part.", labels=["part"])
        for part in ("draft", "plan", "execute", "apply"):
            steps.add_metric([part], getattr(now, f"{part}_s"))
        yield steps
        accepted = CounterMetricFamily(
            "ratoon_spec_decode_accepted_tokens_per_position",
            "Drafts that were accepted, by their place among those of a step.",
            labels=["position"],
        )
        for position, count in enumerate(now.num_accepted_by_position):
            accepted.add_metric([str(position)], count)
        yield accepted
        blocks = GaugeMetricFamily(
            "ratoon_kv_cache_blocks", "Blocks of the pool, by state.", labels=["state"]
        )
        for state in ("active", "idle", "free"):
            blocks.add_metric([state], getattr(now, f"num_{state}_blocks"))
        yield blocks
        total = now.num_active_blocks + now.num_idle_blocks + now.num_free_blocks
        config = GaugeMetricFamily(
            "ratoon_cache_config_info", "Always 1.", labels=["block_size", "num_blocks"]
        )
        config.add_metric([str(now.block_size), str(total)], 1)
        yield config
        yield GaugeMetricFamily(
            "ratoon_kv_cache_usage_ratio",
            "Share of the pool in use by answers, 0 to 1.",
            now.num_active_blocks / total,
        )


class _VllmNames(Collector):
    """The registry's metrics under vLLM's names, labelled as vLLM labels them."""

    def __init__(self, registry: CollectorRegistry, model: str) -> None:
        self._registry = registry
        self._labels = {"model_name": model, "engine": "0"}

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            for name in VLLM_NAMES.get(family.name, ()):
                renamed = Metric(name, family.documentation, family.type)
                for sample in family.samples:
                    own_labels = {
                        VLLM_LABELS.get(label, label): value for label, value in sample.labels.items()
                    }
                    labels = {**self._labels, **own_labels}
                    renamed.add_sample(sample.name.replace(family.name, name, 1), labels, sample.value)
                yield renamed
