"""`Answering`: the response to a task, from a place at the gate to the last byte.

In order: a place at the gate, the strands (prompts are encoded on a thread), the engine, parts as they
come, usage; at the end one record for log and metrics. What goes wrong before the first byte is raised and
becomes an error response; later it becomes an event. If the client goes away, all of it is cancelled.
"""

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ratoon.errors import EngineError
from ratoon.server.account import Account
from ratoon.server.answer_format import Envelope
from ratoon.server.answers import Answers
from ratoon.server.api_error import to_api_error
from ratoon.server.record import Outcome
from ratoon.server.served_model import ServedModel
from ratoon.server.service import Service
from ratoon.server.strands import Strand, make_strands
from ratoon.server.tasks import Task
from ratoon.server.tenants import Tenant
from ratoon.server.until_disconnected import until_disconnected
from ratoon.server.writers import StreamWriter, WholeWriter, Writer


class Answering(Response):
    """Runs one task for one tenant. Made when the body has been checked; does its work when it is sent."""

    def __init__(self, service: Service, tenant: Tenant, task: Task, headers: Mapping[str, str]) -> None:
        super().__init__()  # only for what FastAPI looks at
        self._arrived_s = time.perf_counter()
        self._service = service
        self._tenant = tenant
        self._task = task
        self._n = task.body.n or 1
        self._num_answers = task.num_prompts * self._n
        self._id = f"{task.id_prefix}-{uuid.uuid4().hex}"
        self._extra_headers = {**headers, "x-request-id": self._id}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, for as long as the client is there."""
        await until_disconnected(receive, self._answer(send))

    async def _answer(self, send: Send) -> None:
        service, limits = self._service, self._tenant.limits
        model = service.model
        writer = self._writer(model, send)
        try:
            async with service.deadline(limits.request_deadline_s) as deadline:
                with service.gate.admit(self._tenant.name, limits.max_concurrent_requests, self._num_answers):
                    strands = await asyncio.to_thread(make_strands, model, self._tenant, self._task)
                    await self._run(model, strands, writer, deadline)
        except Exception as error:
            if not writer.has_begun:
                raise
            await writer.fail(to_api_error(error))

    async def _run(
        self, model: ServedModel, strands: Sequence[Strand], writer: Writer, deadline: asyncio.Timeout
    ) -> None:
        account = Account(strands, n=self._n, arrived_s=self._arrived_s)
        answers = Answers(model.engine, self._service.courier, strands, self._service.metrics, account)
        outcome = None
        try:
            async with answers:
                async for parts in answers.parts():
                    await writer.write(parts)
                usage = account.usage()
                if self._task.body.include_cache_report:
                    await answers.settled()
                    usage["ratoon"] = account.cache_report()
                await writer.finish(usage)
            outcome = account.finished_outcome()
        except EngineError:
            outcome = Outcome.FAILED
            raise
        finally:
            if answers.were_submitted:
                outcome = outcome or (Outcome.DEADLINE if deadline.expired() else Outcome.CANCELLED)
                self._note_finished(model, strands, account, outcome)

    def _note_finished(
        self, model: ServedModel, strands: Sequence[Strand], account: Account, outcome: Outcome
    ) -> None:
        prompt = None
        if self._service.settings.log_prompts:
            prompt = "\n".join(strand.prompt_text(model.tokenizer) for strand in strands[:: self._n])
        self._service.note_finished(
            account.record(
                outcome,
                request_id=self._id,
                tenant=self._tenant.name,
                endpoint=self._task.endpoint,
                prompt=prompt,
            )
        )

    def _writer(self, model: ServedModel, send: Send) -> Writer:
        body = self._task.body
        form = self._task.form(
            Envelope(
                answer_id=self._id,
                model=body.model or model.name,
                fingerprint=model.fingerprint(self._task.adapter),
                token_bytes=lambda token_id: model.tokenizer.token_bytes(token_id, skip_special=False),
                stream_usage=body.sends_usage(),
                num_top=self._task.num_top,
                shows_token_ids=body.return_token_ids,
            )
        )
        if body.stream:
            return StreamWriter(send, self._extra_headers, form, sends_usage=body.sends_usage())
        return WholeWriter(send, self._extra_headers, form, num_answers=self._num_answers)
