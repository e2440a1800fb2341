"""The application: every endpoint, the check of keys before them, and one shape for all errors."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

import ratoon
from ratoon.errors import RatoonError
from ratoon.server.http.auth import AuthMiddleware
from ratoon.server.http.errors import ApiError, ErrorBody, to_api_error
from ratoon.server.http.operator_routes import adapter_routes, cache_routes, probe_routes
from ratoon.server.openai.routes import openai_routes
from ratoon.server.service import Service

ERROR_RESPONSE: dict[str, Any] = {"model": ErrorBody, "description": "What went wrong."}


def create_app(service: Service) -> FastAPI:
    """Return the application; it starts and stops the service with itself."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    app = FastAPI(
        title="Ratoon",
        version=ratoon.__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses={"4XX": ERROR_RESPONSE, "5XX": ERROR_RESPONSE},
    )
    for error in (ApiError, RatoonError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(error, _answer_error)
    app.include_router(openai_routes(service))
    app.include_router(cache_routes(service))
    app.include_router(adapter_routes(service))
    app.include_router(probe_routes(service))
    app.add_middleware(
        AuthMiddleware,
        keys=service.keys,
        max_body_bytes=service.settings.limits.max_body_bytes,
        observe_http_error=service.metrics.observe_http_error,
    )
    return app


async def _answer_error(request: Request, error: Exception) -> Response:
    return to_api_error(error).response()
