"""`ApiError`: what a client did wrong, or what went wrong for it, in the shape that OpenAI's clients read.

Every error leaves the server as `{"error": {"message", "type", "param", "code"}}`, in a response body or,
once a stream has begun, in an event. Everything else that is raised is turned into an `ApiError` here, so
that one table decides the statuses.
"""

import json
from collections.abc import Mapping

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ratoon.errors import (
    AdapterBudgetError,
    ChatTemplateError,
    CheckpointError,
    EmptyPromptError,
    EngineError,
    GrammarError,
    InvalidParameterError,
    PoolTooSmallError,
    PromptTooLongError,
    RatoonError,
    RequestError,
    TextError,
    UnknownAdapterError,
)


class ErrorDetails(BaseModel):
    """OpenAI's four fields: a sentence, a kind, the field at fault, and a word for programs."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """The body of every response with a status of 400 or more; here for `/openapi.json`."""

    error: ErrorDetails


class ApiError(Exception):
    """An HTTP status with OpenAI's four fields.

    `param` names the field at fault, `code` is for programs. `headers` go with the response.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = dict(headers or {})

    def body(self) -> dict[str, object]:
        """Return the object that is sent."""
        return {
            "error": {
                "message": self.message,
                "type": TYPES.get(
                    self.status, "server_error" if self.status >= 500 else "invalid_request_error"
                ),
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self, body: Mapping[str, object] | None = None) -> Response:
        """Return the whole response, with a body of another dialect if one is given.

        ASCII only: a message may quote half a surrogate pair that the client sent.
        """
        text = json.dumps(self.body() if body is None else body, separators=(",", ":"))
        return Response(text, self.status, self.headers, media_type="application/json")


TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""OpenAI's `type` of the statuses that have one of their own."""

CODES = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}
"""`code` of what is refused before a handler sees it."""

STATUSES: Mapping[type[RatoonError], tuple[int, str]] = {
    PromptTooLongError: (400, "context_length_exceeded"),
    PoolTooSmallError: (400, "context_length_exceeded"),
    EmptyPromptError: (400, "empty_prompt"),
    GrammarError: (400, "invalid_grammar"),
    RequestError: (400, "invalid_request"),
    InvalidParameterError: (400, "invalid_value"),
    ChatTemplateError: (400, "invalid_messages"),
    TextError: (400, "invalid_text"),
    UnknownAdapterError: (404, "model_not_found"),
    CheckpointError: (400, "invalid_adapter"),
    AdapterBudgetError: (409, "adapter_budget_exceeded"),
    EngineError: (500, "engine_error"),
}
"""Status and code of each error of ours; the first class that fits decides."""


def to_api_error(error: BaseException) -> ApiError:
    """Return the error as a client is told it. An unforeseen one is a 500 that gives nothing away."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RequestValidationError):
        return _validation_error(error)
    if isinstance(error, HTTPException):
        message = f"{str(error.detail).rstrip('.')}."
        return ApiError(error.status_code, message, code=CODES.get(error.status_code), headers=error.headers)
    for kind, (status, code) in STATUSES.items():
        if isinstance(error, kind):
            message = f"{error.message} {error.hint}" if error.hint else error.message
            return ApiError(status, message, code=code)
    return ApiError(500, "The server failed on this request.", code="internal_error")


def _validation_error(error: RequestValidationError) -> ApiError:
    """Return the first problem as a sentence that names the field."""
    problem = error.errors()[0]
    if problem["type"] == "json_invalid":
        return ApiError(400, f"The body is not JSON: {problem['ctx']['error']}.", code="invalid_json")
    path = ".".join(str(part) for part in problem["loc"] if part != "body")
    message = str(problem["msg"]).removeprefix("Value error, ").rstrip(".")
    if not path and problem["type"] != "value_error":
        return ApiError(
            400, f"The body must be a JSON object sent as application/json: {message}.", code="invalid_json"
        )
    return ApiError(
        400, f"{path}: {message}." if path else f"{message}.", code="invalid_value", param=path or None
    )
