"""Prefix cache counters of a server, read from its Prometheus text.

The counters are cumulative, so what happened between two moments is a difference. Names are Ratoon's and vLLM's.
"""

import re
from dataclasses import dataclass

from ratoon.errors import LabError

_DIALECTS = (
    ("ratoon_prefix_cache_queries_total", "ratoon_prefix_cache_hits_total"),
    ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"),
    ("vllm:gpu_prefix_cache_queries_total", "vllm:gpu_prefix_cache_hits_total"),  # vLLM before 0.10
)
"""Counter names: tokens asked for, tokens found."""

_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?$", re.ASCII)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class CacheCounters:
    """Tokens looked up in the prefix cache and tokens found there, since the server started or between two reads."""

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


def parse_counters(text: str) -> CacheCounters | None:
    """Return the cache counters in a metrics page, summed over their labels; None where it has none."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        if sample := _SAMPLE.match(line):
            name = sample["name"]
            values[name] = values.get(name, 0.0) + float(sample["value"])
    for queries, hits in _DIALECTS:
        if queries in values and hits in values:
            return CacheCounters(int(values[queries]), int(values[hits]))
    return None


def parse_cache_config(text: str) -> dict[str, str]:
    """Return the labels of vLLM's `vllm:cache_config_info`, which tell block size and count; empty where absent."""
    for line in text.splitlines():
        sample = _SAMPLE.match(line)
        if sample and sample["name"] == "vllm:cache_config_info":
            return dict(_LABEL.findall(sample["labels"] or ""))
    return {}
