"""`/v1/responses`. It needs a key if there are any."""

import uuid
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from ratoon.server.generation.chat import ChatTurn
from ratoon.server.generation.request import GenerationRequest, Json
from ratoon.server.generation.response import GenerationResponse
from ratoon.server.generation.writers import to_json
from ratoon.server.http.warnings import unknown_field_warning, with_warnings
from ratoon.server.responses.body import ResponsesBody
from ratoon.server.responses.format import ResponsesFormat
from ratoon.server.responses.store import ResponseStore, StoredResponse
from ratoon.server.service import Service


def responses_routes(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/v1/responses")
    store = ResponseStore()

    @router.post("")
    async def create(request: Request, body: ResponsesBody) -> Response:
        """Answer an input, which may go on from an earlier response."""
        adapter = service.adapter_named(body.model)
        tenant = request.state.tenant
        history: list[dict[str, Any]] = []
        if body.previous_response_id is not None:
            history = [*store.get(tenant.name, body.previous_response_id).items]
        turn = ChatTurn(body.chat_request(history))
        response_id = f"resp_{uuid.uuid4().hex}"

        def keep(response: Json, output: list[Json]) -> None:
            if body.store is not False:
                items = [*history, *body.items, *output]
                num_bytes = len(to_json(response)) + len(to_json({"items": items}))
                store.put(tenant.name, response_id, StoredResponse(response, items, num_bytes))

        headers = with_warnings(unknown_field_warning(body.unknown_fields()), body.warnings())
        return GenerationResponse(
            service,
            tenant,
            GenerationRequest(
                endpoint="responses",
                num_prompts=1,
                encode=turn.encode,
                params=body.sampling_params(),
                adapter=adapter,
                stream=bool(body.stream),
            ),
            ResponsesFormat(
                turn,
                response_id=response_id,
                echoed=_echoed(body, body.model or service.model.name),
                keep=keep,
            ),
            response_id=response_id,
            headers=headers,
        )

    @router.get("/{response_id}")
    async def retrieve(request: Request, response_id: str) -> Json:
        """Return a response that was kept."""
        return store.get(request.state.tenant.name, response_id).body

    @router.delete("/{response_id}")
    async def delete(request: Request, response_id: str) -> Json:
        """Forget a response."""
        store.delete(request.state.tenant.name, response_id)
        return {"id": response_id, "object": "response", "deleted": True}

    return router


def _echoed(body: ResponsesBody, model: str) -> Json:
    """Return the fields that a response repeats."""
    text = (body.text.format if body.text else None) or {"type": "text"}
    return {
        "model": model,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "reasoning": {"effort": None, "summary": None},
        "store": body.store is not False,
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "text": {"format": text},
        "tool_choice": body.tool_choice or "auto",
        "tools": [tool for tool in body.tools or () if tool.get("type") == "function"],
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "truncation": "disabled",
    }
