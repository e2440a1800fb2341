"""`ResponseStore`: responses that later ones may go on from, in memory, each tenant's by itself."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ratoon.server.generation.request import Json
from ratoon.server.http.errors import ApiError

MAX_RESPONSES = 1000
MAX_BYTES = 64 << 20
"""What is kept of all tenants' responses together; the oldest go first."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response, and all items of its conversation, its own included."""

    body: Json
    items: Sequence[dict[str, Any]]
    num_bytes: int


class ResponseStore:
    """Used from the event loop only."""

    def __init__(self) -> None:
        self._responses: OrderedDict[tuple[str, str], StoredResponse] = OrderedDict()
        self._num_bytes = 0

    def put(self, tenant: str, response_id: str, response: StoredResponse) -> None:
        """Keep a response, and forget the oldest where there is no room."""
        self._responses[tenant, response_id] = response
        self._num_bytes += response.num_bytes
        while len(self._responses) > MAX_RESPONSES or self._num_bytes > MAX_BYTES:
            _, forgotten = self._responses.popitem(last=False)
            self._num_bytes -= forgotten.num_bytes

    def get(self, tenant: str, response_id: str) -> StoredResponse:
        """Return a tenant's response. Raises `ApiError` 404 where there is none, or no longer."""
        try:
            return self._responses[tenant, response_id]
        except KeyError:
            raise _unknown(response_id) from None

    def delete(self, tenant: str, response_id: str) -> None:
        """Forget a response. Raises as `get` does."""
        response = self.get(tenant, response_id)
        del self._responses[tenant, response_id]
        self._num_bytes -= response.num_bytes


def _unknown(response_id: str) -> ApiError:
    return ApiError(
        404,
        f"There is no response {response_id!r}; responses are kept in memory, and the oldest are forgotten.",
        code="response_not_found",
        param="previous_response_id",
    )
