"""What an operator asks of the cache. These need the admin key."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from ratoon.engine.core import EngineCore
from ratoon.server.service import Service
from ratoon.server.snapshot import take_snapshot

MAX_PAGE = 1000


def admin_routes(service: Service) -> APIRouter:
    """Return the routes."""
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
