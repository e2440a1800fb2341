"""Errors in the shape that Anthropic's clients read."""

from ratoon.server.generation.request import Json
from ratoon.server.http.errors import ApiError

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Anthropic's `type` of the statuses that have one of their own."""


def error_body(error: ApiError) -> Json:
    """Return the object that is sent."""
    kind = TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}
