"""What probes and scrapers ask, without a key: is it alive, is it ready, which version, how is it doing."""

from fastapi import APIRouter
from starlette.responses import Response

import ratoon
from ratoon.server.metrics import CONTENT_TYPE
from ratoon.server.service import Service


def probe_routes(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter()

    @router.get("/health")
    async def health() -> dict[str, str]:
        """Answer while the process lives and its event loop turns."""
        return {"status": "alive"}

    @router.get("/ready")
    async def ready() -> dict[str, str]:
        """Answer 200 while requests are served, and 503 while they are not."""
        service.check_ready()
        num_steps = service.model.core.draft_stats.num_paused_steps
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
