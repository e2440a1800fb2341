"""`Target`: a server under measurement and what it tells about itself. `Servers`: where targets come from."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, Self

from ratoon.errors import LabError
from ratoon.lab.client import Client
from ratoon.lab.metrics_page import CacheCounters, MetricsPage
from ratoon.lab.prefix_model import PrefixModel, WholePrompt
from ratoon.lab.token_source import FALLBACK_IDS, WORDS


@dataclass(frozen=True, slots=True)
class ServerSetup:
    """What an experiment asks of a server before it measures."""

    caching: bool = True
    pool_tokens: int | None = None
    """Size of the KV pool in tokens; None: the server's default."""
    tenants: bool = False
    """Whether two tenants are needed."""


class Servers(Protocol):
    """Where an experiment gets its servers."""

    def start(self, setup: ServerSetup) -> AbstractContextManager["Target"]:
        """Give a server that fits the setup; leaving the context ends it.

        Raises `LabError` where there is none.
        """
        ...

    def describe(self) -> dict[str, str]:
        """Return what a report says about server and model; part of it must be equal to compare runs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server that is ready."""

    client: Client
    block_size: int
    pool_tokens: int | None
    """Size of its KV pool, None where it does not tell."""
    whole_prompt: WholePrompt
    vocabulary: Sequence[int]
    can_tokenize: bool
    tenant_keys: tuple[str, str] | None = None
    """API keys of two tenants, where there are two."""

    @classmethod
    def probe(
        cls,
        client: Client,
        *,
        block_size: int,
        tenant_keys: tuple[str, str] | None = None,
    ) -> Self:
        """Ask a server for its model's name, block size, pool size and tokenizer, as far as it tells."""
        client.model = client.model or _first_model(client)
        metrics = _metrics(client)
        block_size = metrics.block_size() or block_size
        num_blocks = metrics.num_blocks()
        words = _tokenize(client, {"prompt": WORDS, "add_special_tokens": False})
        return cls(
            client=client,
            block_size=block_size,
            pool_tokens=None if num_blocks is None else num_blocks * block_size,
            whole_prompt="last block" if metrics.is_vllm else "last token",
            vocabulary=words or FALLBACK_IDS,
            can_tokenize=words is not None,
            tenant_keys=tenant_keys,
        )

    def counters(self) -> CacheCounters | None:
        """Read the cumulative cache counters, None where the server has none."""
        return _metrics(self.client).counters()

    def prefix_model(self) -> PrefixModel:
        """Return an empty model of this server's ideal cache."""
        return PrefixModel(self.block_size, self.whole_prompt)

    def token_ids(self, prompt: str | Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the ids of a text or of chat messages, as this server would run them."""
        body = (
            {"prompt": prompt}
            if isinstance(prompt, str)
            else {"messages": prompt, "add_generation_prompt": True}
        )
        ids = _tokenize(self.client, body)
        if ids is None:
            raise LabError(
                f"{self.client.url} cannot tokenize, so what its cache should hit cannot be worked out.",
                hint="Replay a trace of hash ids instead; it needs no tokenizer.",
            )
        return ids


class RemoteServers:
    """A server that somebody else runs, by URL: taken as it is, never restarted."""

    def __init__(
        self, url: str, *, model: str = "", api_key: str | None = None, second_api_key: str | None = None,
        block_size: int = 16,
    ) -> None:  # fmt: skip
        self._client = Client(url, model, api_key)
        self._keys = (api_key, second_api_key) if api_key and second_api_key else None
        self._block_size = block_size

    @contextmanager
    def start(self, setup: ServerSetup) -> Iterator[Target]:
        """Probe it. Raises `LabError` for a setup that only a server of one's own can have."""
        if not setup.caching:
            raise LabError("A server given by URL cannot be restarted with caching off.")
        if setup.tenants and self._keys is None:
            raise LabError("Two tenants need two keys: --api-key and --second-api-key.")
        yield Target.probe(self._client, block_size=self._block_size, tenant_keys=self._keys)

    def describe(self) -> dict[str, str]:
        """Return model name and what `/version` says."""
        with self.start(ServerSetup()) as target:
            facts = {
                "model": target.client.model,
                "server": self._client.url,
                "block size": str(target.block_size),
            }
            facts["counters"] = "read from /metrics" if target.counters() else "none found at /metrics"
        try:
            facts["server version"] = str(self._client.json("/version").get("version"))
        except (LabError, AttributeError):
            facts["server version"] = "not told"
        return facts


def _first_model(client: Client) -> str:
    try:
        return str(client.json("/v1/models")["data"][0]["id"])
    except (KeyError, IndexError, TypeError) as error:
        raise LabError(f"{client.url} lists no model.", hint="Name it with --model.") from error


def _metrics(client: Client) -> MetricsPage:
    try:
        return MetricsPage(client.text("/metrics"))
    except LabError:
        return MetricsPage("")


def _tokenize(client: Client, body: dict[str, Any]) -> list[int] | None:
    try:
        return [int(token) for token in client.json("/tokenize", {"model": client.model} | body)["tokens"]]
    except (LabError, KeyError, TypeError, ValueError):
        return None
