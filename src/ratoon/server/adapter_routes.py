"""Loading and unloading LoRA adapters while the server runs, as in vLLM. These need the admin key."""

import asyncio
from typing import Annotated

from fastapi import APIRouter
from pydantic import StringConstraints

from ratoon.server.api_error import ApiError
from ratoon.server.body import Body
from ratoon.server.service import Service

Text = Annotated[str, StringConstraints(min_length=1)]


class UnloadBody(Body):
    """The body of `/v1/unload_lora_adapter`."""

    lora_name: Text


class LoadBody(UnloadBody):
    """The body of `/v1/load_lora_adapter`; `lora_path` is a folder on the server's machine."""

    lora_path: Text


def adapter_routes(service: Service) -> APIRouter:
    """Return the routes."""
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
        """Forget a name. Requests that have begun go on, and the memory is freed after the last of them."""
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
