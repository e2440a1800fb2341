"""OpenAI's endpoints, and vLLM's `/tokenize` and `/detokenize`. They need a key if there are any."""

import asyncio
import time
import uuid
from collections.abc import Callable
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from ratoon.server.generation.explain_prompt import explain_prompt
from ratoon.server.generation.request import GenerationRequest
from ratoon.server.generation.response import GenerationResponse
from ratoon.server.http.body import Body
from ratoon.server.http.errors import ApiError
from ratoon.server.http.warnings import unknown_field_warning
from ratoon.server.openai.body import GenerationBody
from ratoon.server.openai.chat import ChatBody, ChatFormat, Conversation
from ratoon.server.openai.completions import CompletionBody, CompletionFormat
from ratoon.server.openai.format import Envelope, OpenAIFormat
from ratoon.server.service import Service


class TokenizeBody(Body):
    """The body of `/tokenize` for a text."""

    model: str | None = None
    prompt: str
    add_special_tokens: bool = True


class TokenizeChatBody(Conversation):
    """The body of `/tokenize` for a conversation, as `/v1/chat/completions` takes it."""

    model: str | None = None


class DetokenizeBody(Body):
    """The body of `/detokenize`."""

    model: str | None = None
    tokens: list[int]


def openai_routes(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter()
    started = int(time.time())

    def respond(
        http_request: Request,
        body: GenerationBody,
        request: GenerationRequest,
        make_format: Callable[[Envelope], OpenAIFormat],
        *,
        id_prefix: str,
        num_top: int = 0,
    ) -> Response:
        model = service.model
        response_id = f"{id_prefix}-{uuid.uuid4().hex}"
        envelope = Envelope(
            response_id=response_id,
            model=body.model or model.name,
            fingerprint=model.fingerprint(request.adapter),
            token_bytes=partial(model.tokenizer.token_bytes, skip_special=False),
            stream_usage=body.sends_usage(),
            num_top=num_top,
            show_token_ids=body.return_token_ids,
        )
        return GenerationResponse(
            service,
            http_request.state.tenant,
            request,
            make_format(envelope),
            response_id=response_id,
            headers=unknown_field_warning(body.unknown_fields()),
        )

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
        generation = body.request(service.adapter_named(body.model))
        return respond(request, body, generation, CompletionFormat, id_prefix="cmpl")

    @router.post("/v1/chat/completions")
    async def chat_completions(request: Request, body: ChatBody) -> Response:
        """Answer messages."""
        turn = body.turn()
        generation = body.request(service.adapter_named(body.model), turn)
        make_format = partial(ChatFormat, turn=turn)
        num_top = body.top_logprobs or 0
        return respond(request, body, generation, make_format, id_prefix="chatcmpl", num_top=num_top)

    @router.post("/cache/explain")
    async def explain(request: Request, body: ChatBody | CompletionBody) -> dict[str, object]:
        """Explain what the first prompt of a body would find in the cache, without running it."""
        generation = body.request(service.adapter_named(body.model))
        return await explain_prompt(service, request.state.tenant, generation)

    @router.get("/v1/models")
    async def models() -> dict[str, object]:
        """List the served model and its adapters."""
        names = [service.name, *service.model.adapters.by_name]
        return {"object": "list", "data": [model_card(name) for name in names]}

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, object]:
        """Describe the served model or an adapter."""
        service.adapter_named(name)
        return model_card(name)

    @router.post("/tokenize")
    async def tokenize(body: TokenizeBody | TokenizeChatBody) -> Response:
        """Return the token ids of a text or a conversation."""
        service.adapter_named(body.model)
        model = service.model
        if isinstance(body, TokenizeBody):
            tokens = await asyncio.to_thread(
                model.tokenizer.encode, body.prompt, add_special=body.add_special_tokens, parse_special=True
            )
        else:
            tokens = await asyncio.to_thread(body.encode, model)
        return JSONResponse(
            {"count": len(tokens), "max_model_len": model.max_model_len, "tokens": tokens},
            headers=unknown_field_warning(body.unknown_fields()),
        )

    @router.post("/detokenize")
    async def detokenize(body: DetokenizeBody) -> Response:
        """Return the text of token ids."""
        service.adapter_named(body.model)
        model = service.model
        if not all(0 <= token < model.vocab_size for token in body.tokens):
            message = f"A token id is outside the model's vocabulary of {model.vocab_size}."
            raise ApiError(400, message, code="invalid_value", param="tokens")
        text = await asyncio.to_thread(model.tokenizer.decode, body.tokens, skip_special=False)
        return JSONResponse({"prompt": text}, headers=unknown_field_warning(body.unknown_fields()))

    return router
