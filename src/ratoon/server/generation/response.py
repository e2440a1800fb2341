"""`GenerationResponse`: the response to a generation request, from admission to the last byte.

In order: admission, the choices (prompts are encoded on a thread), the engine, outputs as they come, usage;
at the end one record for log and metrics. What goes wrong before the first byte is raised and becomes an
error response; later it becomes an event. If the client goes away, all of it is cancelled.
"""

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ratoon.errors import EngineError, GrammarError
from ratoon.server.generation.choices import Choice, make_choices, prompt_texts
from ratoon.server.generation.explanation import described
from ratoon.server.generation.request import GenerationRequest, ResponseFormat
from ratoon.server.generation.running_choices import RunningChoices
from ratoon.server.generation.usage import CacheReport, RequestUsage
from ratoon.server.generation.writers import EventStreamWriter, JsonWriter, ResponseWriter
from ratoon.server.http.errors import to_api_error
from ratoon.server.http.warnings import with_warnings
from ratoon.server.request_log import Outcome, RequestRecord
from ratoon.server.served_model import ServedModel
from ratoon.server.service import Service
from ratoon.server.tenants import Tenant


class GenerationResponse(Response):
    """Answers one request of one tenant. Made when the body has been checked; works when it is sent.

    `response_id` is what the dialect calls the response; `headers` go with it.
    """

    def __init__(
        self,
        service: Service,
        tenant: Tenant,
        request: GenerationRequest,
        form: ResponseFormat,
        *,
        response_id: str,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__()  # only for what FastAPI looks at
        self._arrived_s = time.perf_counter()
        self._service = service
        self._tenant = tenant
        self._request = request
        self._form = form
        self._response_id = response_id
        self._extra_headers = {**headers, "x-request-id": response_id}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, for as long as the client is there."""
        await until_disconnected(receive, self._answer(send))

    async def _answer(self, send: Send) -> None:
        service, limits, request = self._service, self._tenant.limits, self._request
        model = service.model
        writer = self._writer(send)
        try:
            async with service.deadline(limits.request_deadline_s) as deadline:
                with service.admission.admit(
                    self._tenant.name, limits.max_concurrent_requests, request.num_choices
                ):
                    choices = await asyncio.to_thread(make_choices, model, self._tenant, request)
                    warnings = choices[0].prompt.warnings
                    self._extra_headers |= with_warnings(self._extra_headers, warnings)
                    await self._run(model, choices, writer, deadline)
        except Exception as error:
            if not writer.has_begun:
                raise
            await writer.fail(to_api_error(error))

    async def _run(
        self,
        model: ServedModel,
        choices: Sequence[Choice],
        writer: ResponseWriter,
        deadline: asyncio.Timeout,
    ) -> None:
        n = self._request.params.n
        usage = RequestUsage([choice.usage for choice in choices], n=n, arrived_s=self._arrived_s)
        running = RunningChoices(
            model.engine, self._service.dispatcher, choices, self._service.metrics, usage
        )
        outcome = None
        try:
            async with running:
                async for outputs in running.outputs():
                    await writer.write(outputs, usage)
                total = usage.so_far()
                if self._request.report_cache:
                    await running.ended_by_engine()
                    total = replace(total, report=self._report(model, choices[0], usage))
                await writer.finish(total)
            outcome = Outcome.LENGTH if any(choice.was_cut for choice in choices) else Outcome.STOP
        except (EngineError, GrammarError):
            outcome = Outcome.FAILED
            raise
        finally:
            if running.were_submitted:
                outcome = outcome or (Outcome.DEADLINE if deadline.expired() else Outcome.CANCELLED)
                self._note_finished(model, choices, usage, outcome)

    def _report(self, model: ServedModel, first: Choice, usage: RequestUsage) -> CacheReport:
        report = usage.cache_report()
        if not self._request.explain_cache:
            return report
        pieces = self._request.read_pieces()
        return replace(report, explain=described(model, first.prompt.tokens.ids, usage.explanation, pieces))

    def _note_finished(
        self, model: ServedModel, choices: Sequence[Choice], usage: RequestUsage, outcome: Outcome
    ) -> None:
        prompt = None
        if self._service.settings.log_prompts:
            decode = partial(model.tokenizer.decode, skip_special=False)
            prompt = prompt_texts(choices, self._request.params.n, decode)
        total = usage.so_far()
        self._service.note_finished(
            RequestRecord(
                request_id=self._response_id,
                tenant=self._tenant.name,
                endpoint=self._request.endpoint,
                outcome=outcome,
                num_answers=len(choices),
                prompt_tokens=total.prompt_tokens,
                cached_tokens=total.cached_tokens,
                output_tokens=total.completion_tokens,
                queue_s=usage.queue_s,
                ttft_s=usage.ttft_s,
                e2e_s=time.perf_counter() - self._arrived_s,
                prompt=prompt,
            )
        )

    def _writer(self, send: Send) -> ResponseWriter:
        kind = EventStreamWriter if self._request.stream else JsonWriter
        return kind(send, self._extra_headers, self._form)


async def until_disconnected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Do the work; cancel it as soon as the client goes away, and return when it has cleaned up.

    The request's body must have been read. What the work raises is raised here, and is not kept in the task:
    error, frames, their timeout and the task would hold one another, and with them prompts and adapters,
    until the garbage collector comes.
    """
    errors: list[Exception] = []
    working = asyncio.create_task(_note_error(work, errors))
    watching = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.wait((working, watching))
    if errors:
        raise errors.pop()


async def _note_error(work: Coroutine[Any, Any, None], errors: list[Exception]) -> None:
    try:
        await work
    except asyncio.CancelledError:
        pass  # the client has gone
    except Exception as error:
        errors.append(error)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
