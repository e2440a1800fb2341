"""Endpoints of OpenAI's and vLLM's that no model here can serve: 404 with a sentence that says so."""

from fastapi import APIRouter

from ratoon.server.http.errors import ApiError

PATHS = ("/v1/embeddings", "/v1/rerank", "/rerank", "/v1/score", "/score")


def missing_routes() -> APIRouter:
    """Return the routes."""
    router = APIRouter()

    async def missing() -> None:
        """Refuse: there are no models for this yet."""
        raise ApiError(
            404, "No model for embeddings or ranking can be served yet; this server generates text.",
            code="not_implemented",
        )  # fmt: skip

    for path in PATHS:
        router.add_api_route(path, missing, methods=["POST"])
    return router
