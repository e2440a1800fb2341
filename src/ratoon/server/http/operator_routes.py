"""The operator's endpoints: probes and metrics without a key; cache and adapters with the admin key."""

import asyncio
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import StringConstraints
from starlette.responses import Response

import ratoon
from ratoon.engine.core import EngineCore
from ratoon.server.http.body import Body
from ratoon.server.http.errors import ApiError
from ratoon.server.metrics import CONTENT_TYPE
from ratoon.server.service import Service
from ratoon.server.snapshot import take_snapshot

MAX_PAGE = 1000
Text = Annotated[str, StringConstraints(min_length=1)]


def probe_routes(service: Service) -> APIRouter:
    """Return what probes and scrapers ask: is it alive, is it ready, which version, how is it doing."""
    router = APIRouter()

    @router.get("/health")
    async def health() -> dict[str, str]:
        """Answer while the process lives and its event loop turns."""
        return {"status": "alive"}

    @router.get("/ready")
    async def ready() -> dict[str, str]:
        """Answer 200 while requests are served, and 503 while they are not."""
        service.check_ready()
        num_steps = service.model.engine.num_paused_draft_steps
        if num_steps:
            paused = f"paused because guessing failed; tried again in {num_steps} steps"
            return {"status": "ready", "speculation": paused}
        return {"status": "ready"}

    @router.get("/version")
    async def version() -> dict[str, str]:
        """Return Ratoon's version."""
        return {"version": ratoon.__version__}

    @router.get("/metrics")
    async def metrics() -> Response:
        """Return the metrics as Prometheus reads them."""
        return Response(service.metrics.render(await service.snapshot()), media_type=CONTENT_TYPE)

    return router


def cache_routes(service: Service) -> APIRouter:
    """Return what an operator asks of the cache."""
    router = APIRouter(prefix="/cache")

    @router.get("/stats")
    async def stats() -> dict[str, object]:
        """Return the cache's counters since the start, and the pool's blocks by state."""
        return asdict(await service.ask_engine(take_snapshot))

    @router.post("/reset")
    async def reset() -> dict[str, object]:
        """Drop every key, and say how many blocks really lost theirs."""
        return asdict(await service.ask_engine(lambda core: core.reset_cache()))

    @router.get("/blocks")
    async def blocks(
        offset: Annotated[int, Query(ge=0)] = 0, limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100
    ) -> dict[str, object]:
        """List the pool's blocks in order of id: hashes and counts, no tokens and no text."""
        return await service.ask_engine(lambda core: _list_blocks(core, offset, limit))

    return router


def _list_blocks(core: EngineCore, offset: int, limit: int) -> dict[str, object]:
    pool = core.scheduler.cache.pool
    ids = range(1, pool.num_blocks)  # all but the null block
    return {
        "total": len(ids),
        "offset": offset,
        "blocks": [_describe_block(core, block_id) for block_id in ids[offset : offset + limit]],
    }


def _describe_block(core: EngineCore, block_id: int) -> dict[str, object]:
    pool = core.scheduler.cache.pool
    block_hash, ref_count = pool.block_hashes[block_id], pool.ref_counts[block_id]
    state = "active" if ref_count else "free" if block_hash is None else "idle"
    return {
        "id": block_id,
        "state": state,
        "ref_count": ref_count,
        "group": None if block_hash is None else pool.block_groups[block_id],
        "hash": None if block_hash is None else block_hash.hex(),
    }


class UnloadBody(Body):
    """The body of `/v1/unload_lora_adapter`."""

    lora_name: Text


class LoadBody(UnloadBody):
    """The body of `/v1/load_lora_adapter`; `lora_path` is a folder on the server's machine."""

    lora_path: Text


def adapter_routes(service: Service) -> APIRouter:
    """Return loading and unloading of LoRA adapters while the server runs, as in vLLM."""
    router = APIRouter(prefix="/v1")

    @router.post("/load_lora_adapter")
    async def load(body: LoadBody) -> dict[str, object]:
        """Let a name stand for the adapter in a folder, in place of what it may have stood for."""
        adapters = service.model.adapters
        if body.lora_name == service.name:
            message = f"{body.lora_name!r} is the model's own name."
            raise ApiError(400, message, code="invalid_value", param="lora_name")
        adapter = await asyncio.to_thread(adapters.load, body.lora_name, body.lora_path)
        return {"digest": adapter.digest.hex(), "num_bytes": adapter.num_bytes, **memory()}

    @router.post("/unload_lora_adapter")
    async def unload(body: UnloadBody) -> dict[str, object]:
        """Forget a name. Requests that have begun go on; the memory is freed after the last of them."""
        await asyncio.to_thread(service.model.adapters.unload, body.lora_name)  # may wait for a load
        return memory()

    def memory() -> dict[str, object]:
        adapters = service.model.adapters
        return {
            "adapters": list(adapters.by_name),
            "used_bytes": adapters.num_bytes,
            "budget_bytes": adapters.budget_bytes,
        }

    return router
