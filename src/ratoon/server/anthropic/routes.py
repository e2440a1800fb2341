"""Anthropic's endpoints. They need a key if there are any, as `x-api-key` or as a bearer."""

import asyncio
import uuid
from collections.abc import Sequence

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from ratoon.server.anthropic.body import CountBody, MessagesBody
from ratoon.server.anthropic.format import MessagesFormat
from ratoon.server.generation.chat import ChatTurn, encode_conversation
from ratoon.server.generation.request import GenerationRequest
from ratoon.server.generation.response import GenerationResponse
from ratoon.server.http.warnings import unknown_field_warning, with_warnings
from ratoon.server.service import Service

ANTHROPIC_PREFIX = "/v1/messages"
CLAUDE = "claude-"
"""Names of models that stand for the served one, unless the settings say otherwise."""


def anthropic_routes(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix=ANTHROPIC_PREFIX)
    settings = service.settings

    def model_named(name: str) -> str | None:
        """Return the name as our own endpoints know it."""
        return None if settings.map_claude_models and name.startswith(CLAUDE) else name

    @router.post("")
    async def messages(request: Request, body: MessagesBody) -> Response:
        """Answer a conversation."""
        adapter = service.adapter_named(model_named(body.model))
        chat = body.chat_request(drop_billing_header=settings.drop_billing_header)
        turn = ChatTurn(chat)
        response_id = f"msg_{uuid.uuid4().hex}"
        block_size = service.model.block_size
        return GenerationResponse(
            service,
            request.state.tenant,
            GenerationRequest(
                endpoint="messages",
                num_prompts=1,
                encode=turn.encode,
                params=body.sampling_params(),
                adapter=adapter,
                stream=body.stream,
            ),
            MessagesFormat(turn, response_id=response_id, model=body.model, block_size=block_size),
            response_id=response_id,
            headers={"request-id": response_id, **_headers(body.unknown_fields(), body.warnings())},
        )

    @router.post("/count_tokens")
    async def count_tokens(body: CountBody) -> Response:
        """Return how many tokens a conversation has."""
        service.adapter_named(model_named(body.model))
        chat = body.chat_request(drop_billing_header=settings.drop_billing_header)
        ids = await asyncio.to_thread(encode_conversation, service.model, chat)
        headers = _headers(body.unknown_fields(), body.warnings())
        return JSONResponse({"input_tokens": len(ids)}, headers=headers)

    return router


def _headers(unknown: Sequence[str], warnings: Sequence[str]) -> dict[str, str]:
    return with_warnings(unknown_field_warning(unknown), warnings)
