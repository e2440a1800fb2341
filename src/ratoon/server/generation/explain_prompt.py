"""What a prompt or a conversation would find in the cache now, and why no more."""

import asyncio

from ratoon.engine.core import EngineCore
from ratoon.request.explanation import Explanation
from ratoon.server.generation.explanation import described
from ratoon.server.generation.request import GenerationRequest, Json
from ratoon.server.service import Service
from ratoon.server.tenants import Tenant, request_salt


async def explain_prompt(service: Service, tenant: Tenant, request: GenerationRequest) -> Json:
    """Explain the first prompt of a request; nothing is run, and nothing is kept of it."""
    model = service.model
    prompt = (await asyncio.to_thread(request.encode, model))[0]
    [first, *_] = await asyncio.to_thread(
        model.requests.make,
        prompt.tokens,
        request.params,
        salt=request_salt(tenant.scope, request.cache_salt),
        adapter=request.adapter,
        tenant=tenant.name,
    )

    def ask(core: EngineCore) -> Explanation | None:
        core.check(first)
        return None if core.explainer is None else core.explainer.explain_prompt(first.chain, tenant.name)

    explanation = await service.ask_engine(ask)
    return await asyncio.to_thread(described, model, prompt.tokens.ids, explanation, request.read_pieces())
