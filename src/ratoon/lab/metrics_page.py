"""Prefix cache counters of a server, read from its Prometheus text.

The counters are cumulative, so what happened between two moments is a difference. Names are Ratoon's and
vLLM's.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ratoon.errors import LabError

_DIALECTS = (
    ("ratoon_prefix_cache_queries_total", "ratoon_prefix_cache_hits_total"),
    ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"),
    ("vllm:gpu_prefix_cache_queries_total", "vllm:gpu_prefix_cache_hits_total"),  # vLLM before 0.10
)
"""Counter names: tokens asked for, tokens found."""

_SAMPLE = re.compile(
    r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?$", re.ASCII
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class CacheCounters:
    """Tokens looked up in the prefix cache and found there, since the start or between two reads."""

    queries: int
    hits: int

    def since(self, earlier: "CacheCounters") -> "CacheCounters":
        """Return what happened since an earlier read. Raises `LabError` where a counter went backwards."""
        if self.queries < earlier.queries or self.hits < earlier.hits:
            raise LabError(
                "The server's cache counters went backwards between two reads.",
                hint="It was restarted, or a router sent the reads to different servers; measure one server.",
            )
        return CacheCounters(self.queries - earlier.queries, self.hits - earlier.hits)


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """What the lab reads on a metrics page; an empty page tells nothing."""

    text: str

    def counters(self) -> CacheCounters | None:
        """Return the cache counters, summed over their labels; None where there are none."""
        sums: dict[str, float] = {}
        for name, _, value in self._samples():
            sums[name] = sums.get(name, 0.0) + value
        for queries, hits in _DIALECTS:
            if queries in sums and hits in sums:
                return CacheCounters(int(sums[queries]), int(sums[hits]))
        return None

    @property
    def is_vllm(self) -> bool:
        """Whether it is vLLM's own, and not another server's with vLLM's names beside its own."""
        names = {name for name, _, _ in self._samples()}
        return any(name.startswith("vllm:") for name in names) and not any(
            name.startswith("ratoon_") for name in names
        )

    def block_size(self) -> int | None:
        """Return the tokens per block, where the server tells."""
        return self._cache_config("block_size")

    def num_blocks(self) -> int | None:
        """Return the blocks of the pool, where the server tells."""
        states = [value for name, _, value in self._samples() if name == "ratoon_kv_cache_blocks"]
        return int(sum(states)) if states else self._cache_config("num_gpu_blocks")

    def _cache_config(self, label: str) -> int | None:
        for name, labels, _ in self._samples():
            value = labels.get(label, "")
            if name == "vllm:cache_config_info" and value.isdigit():
                return int(value)
        return None

    def _samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        for line in self.text.splitlines():
            if sample := _SAMPLE.match(line):
                yield sample["name"], dict(_LABEL.findall(sample["labels"] or "")), float(sample["value"])
