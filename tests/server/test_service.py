import asyncio
from typing import Any

import pytest

from ratoon.server.http.errors import ApiError
from ratoon.server.http.limits import TenantLimits
from ratoon.server.service import Service


def run_past_its_deadline(service: Service, seconds: float, *, drain: bool = False) -> ApiError:
    async def wait_too_long() -> None:
        async with service.deadline(seconds):
            if drain:
                service.drain()
            await asyncio.Event().wait()

    with pytest.raises(ApiError) as caught:
        asyncio.run(wait_too_long())
    return caught.value


def test_what_takes_longer_than_its_deadline_is_a_504(start_server: Any) -> None:
    error = run_past_its_deadline(start_server().service, 0.0)
    assert (error.status, error.message) == (504, "The request took longer than 0 s.")


def test_draining_shortens_the_deadlines_of_what_runs(start_server: Any) -> None:
    error = run_past_its_deadline(start_server(drain_timeout_s=0.0).service, 10_000.0, drain=True)
    assert (error.status, error.message) == (504, "The server is stopping.")


def test_draining_lengthens_no_deadline(start_server: Any) -> None:
    error = run_past_its_deadline(start_server(drain_timeout_s=10_000.0).service, 0.0, drain=True)
    assert error.status == 504


def test_a_request_has_the_time_that_its_tenant_is_given(start_server: Any) -> None:
    server = start_server(tenant_limits=TenantLimits(request_deadline_s=10_000.0))
    server.runner.hold()
    with server.sent("/v1/completions", {"prompt": "x"}):
        server.runner.wait_for_steps(1)
        (deadline,) = server.service.deadlines
        remaining = deadline.when() - server.service.dispatcher.loop.time()
    server.runner.allow(None)
    assert 9_000 < remaining <= 10_000


def test_a_broken_engine_is_not_ready(start_server: Any) -> None:
    server = start_server()
    server.engine.close()
    assert server.get("/ready").status == 503
    assert server.post("/v1/completions", {"prompt": "x"}).status == 500
    assert server.get("/metrics").status == 200
