"""`AuthMiddleware`: what is checked before a body is read: the key, and the length of the body.

An ASGI middleware. It leaves the caller's `Tenant` in `scope["state"]["tenant"]`, stops reading a body that
grows too long, and counts the error statuses of all responses.
"""

from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ratoon.server.http.errors import ApiError
from ratoon.server.tenants import KeyRing

OPEN_PATHS = frozenset({"/health", "/ready", "/version", "/metrics", "/openapi.json"})
"""Paths for probes and scrapers, which carry no key."""

TENANT_PATHS = frozenset({"/cache/explain"})
"""Paths below an admin's that are a tenant's."""

ADMIN_PREFIXES = ("/cache/", "/v1/load_lora_adapter", "/v1/unload_lora_adapter")
MAX_LENGTH_DIGITS = 18


class AuthMiddleware:
    """Wraps the application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: KeyRing,
        max_body_bytes: int,
        observe_http_error: Callable[[int], None],
        error_response: Callable[[str, BaseException], Response],
    ) -> None:
        self._app = app
        self._keys = keys
        self._max_body_bytes = max_body_bytes
        self._observe_http_error = observe_http_error
        self._error_response = error_response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what may not pass, pass on the rest."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def counted_send(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                self._observe_http_error(message["status"])
            await send(message)

        try:
            self._check(scope)
        except (ApiError, HTTPException) as error:
            await self._error_response(scope["path"], error)(scope, receive, counted_send)
            return
        await self._app(scope, self._limited(receive), counted_send)

    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        key = _key(headers)
        if scope["path"].startswith(ADMIN_PREFIXES) and scope["path"] not in TENANT_PATHS:
            if key is None:
                raise _unauthenticated("the admin key")
            if not self._keys.is_admin(key):
                raise ApiError(403, "This endpoint needs the admin key.", code="admin_key_required")
        elif scope["path"] not in OPEN_PATHS:
            tenant = self._keys.tenant_of(key)
            if tenant is None:
                raise _unauthenticated("a valid API key")
            scope.setdefault("state", {})["tenant"] = tenant
        length = headers.get(b"content-length", b"0")
        if len(length) > MAX_LENGTH_DIGITS or (length.isdigit() and int(length) > self._max_body_bytes):
            raise self._too_long()

    def _limited(self, receive: Receive) -> Receive:
        """Count the bytes of a body whose length was not announced."""
        num_bytes = 0

        async def limited_receive() -> Message:
            nonlocal num_bytes
            message = await receive()
            num_bytes += len(message.get("body", b""))
            if num_bytes > self._max_body_bytes:
                raise self._too_long()
            return message

        return limited_receive

    def _too_long(self) -> HTTPException:
        message = f"The body is longer than {self._max_body_bytes} bytes, which is the limit."
        return HTTPException(
            413, message, headers={"Connection": "close"}
        )  # the rest of the body is not read


def _unauthenticated(what: str) -> ApiError:
    message = f"Send {what} as `Authorization: Bearer KEY`."
    return ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def _key(headers: dict[bytes, bytes]) -> bytes | None:
    """Return the key that a request carries, as a bearer or as Anthropic's clients send it."""
    scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key")
