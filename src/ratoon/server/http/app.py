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
from ratoon.server.anthropic.errors import error_body as anthropic_error_body
from ratoon.server.anthropic.routes import ANTHROPIC_PREFIX, anthropic_routes
from ratoon.server.http.auth import AuthMiddleware
from ratoon.server.http.errors import ApiError, ErrorBody, to_api_error
from ratoon.server.http.missing_routes import missing_routes
from ratoon.server.http.operator_routes import adapter_routes, cache_routes, probe_routes
from ratoon.server.openai.routes import openai_routes
from ratoon.server.responses.routes import responses_routes
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
    app.include_router(anthropic_routes(service))
    app.include_router(responses_routes(service))
    app.include_router(missing_routes())
    app.include_router(cache_routes(service))
    app.include_router(adapter_routes(service))
    app.include_router(probe_routes(service))
    app.add_middleware(
        AuthMiddleware,
        keys=service.keys,
        max_body_bytes=service.settings.limits.max_body_bytes,
        observe_http_error=service.metrics.observe_http_error,
        error_response=error_response,
    )
    return app


def error_response(path: str, error: BaseException) -> Response:
    """Return an error in the shape that the clients of a path read."""
    found = to_api_error(error)
    return found.response(anthropic_error_body(found) if path.startswith(ANTHROPIC_PREFIX) else None)


async def _answer_error(request: Request, error: Exception) -> Response:
    return error_response(request.url.path, error)
