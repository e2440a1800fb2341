"""OpenAI's endpoints, and vLLM's `/tokenize` and `/detokenize`. They need a key if there are any."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from ratoon.engine.adapters import LoadedAdapter
from ratoon.errors import UnknownAdapterError
from ratoon.identity.extra_keys import NO_EXTRAS
from ratoon.server.answering import Answering
from ratoon.server.api_error import ApiError
from ratoon.server.chat_body import ChatBody
from ratoon.server.completion_body import CompletionBody
from ratoon.server.service import Service
from ratoon.server.tasks import Task, chat_task, completion_task, encode_conversation
from ratoon.server.tokenize_body import DetokenizeBody, TokenizeBody, TokenizeChatBody

MAX_NAMED_FIELDS = 8


def openai_routes(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter()
    started = int(time.time())

    def answering(request: Request, task: Task) -> Answering:
        task = replace(task, adapter=adapter_named(task.body.model))
        headers = unknown_field_warning(task.body.unknown_fields())
        return Answering(service, request.state.tenant, task, headers)

    def adapter_named(name: str | None) -> LoadedAdapter | None:
        """Return the adapter that a `model` field names, None for the model itself."""
        if name is None or name == service.name:
            return None
        try:
            return service.model.adapters.get(name)
        except UnknownAdapterError as error:
            names = ", ".join(map(repr, (service.name, *service.model.adapters.by_name)))
            raise ApiError(
                404, f"There is no model {name!r}; there is {names}.", code="model_not_found", param="model"
            ) from error

    def model_card(name: str) -> dict[str, object]:
        return {
            "id": name,
            "object": "model",
            "created": started,
            "owned_by": "ratoon",
            "max_model_len": service.model.max_model_len,
            "parent": None if name == service.name else service.name,
        }

    @router.post("/v1/completions")
    async def completions(request: Request, body: CompletionBody) -> Response:
        """Continue text or token ids."""
        return answering(request, completion_task(body))

    @router.post("/v1/chat/completions")
    async def chat_completions(request: Request, body: ChatBody) -> Response:
        """Answer messages."""
        return answering(request, chat_task(body))

    @router.get("/v1/models")
    async def models() -> dict[str, object]:
        """List the served model and its adapters."""
        names = [service.name, *service.model.adapters.by_name]
        return {"object": "list", "data": [model_card(name) for name in names]}

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, object]:
        """Describe the served model or an adapter."""
        adapter_named(name)
        return model_card(name)

    @router.post("/tokenize")
    async def tokenize(body: TokenizeBody | TokenizeChatBody) -> Response:
        """Return the token ids of a text or a conversation."""
        adapter_named(body.model)
        model = service.model
        if isinstance(body, TokenizeBody):
            tokens = await asyncio.to_thread(
                model.tokenizer.encode, body.prompt, add_special=body.add_special_tokens, parse_special=True
            )
        else:
            tokens = await asyncio.to_thread(encode_conversation, model, body)
        return JSONResponse(
            {"count": len(tokens), "max_model_len": model.max_model_len, "tokens": tokens},
            headers=unknown_field_warning(body.unknown_fields()),
        )

    @router.post("/detokenize")
    async def detokenize(body: DetokenizeBody) -> Response:
        """Return the text of token ids."""
        adapter_named(body.model)
        model = service.model
        model.make_chain(body.tokens, NO_EXTRAS)  # refuses what is no token
        text = await asyncio.to_thread(model.tokenizer.decode, body.tokens, skip_special=False)
        return JSONResponse({"prompt": text}, headers=unknown_field_warning(body.unknown_fields()))

    return router


def unknown_field_warning(names: Sequence[str]) -> dict[str, str]:
    """Return the header that names the fields which were ignored; none where there are none."""
    if not names:
        return {}
    shown = ", ".join(names[:MAX_NAMED_FIELDS]) + (", ..." if len(names) > MAX_NAMED_FIELDS else "")
    text = json.dumps(f"ignored unknown fields: {shown}")[:1000]
    return {"Warning": f"299 ratoon {text}"}
