from contextlib import ExitStack

import pytest

from ratoon.errors import InvalidParameterError
from ratoon.server.http.errors import ApiError
from ratoon.server.http.limits import AdmissionControl, ServerLimits, TenantLimits


def admission(limits: ServerLimits, num_running: int = 0) -> AdmissionControl:
    return AdmissionControl(limits, num_running=lambda: num_running)


FREE = None


def refusal(control: AdmissionControl, tenant: str, own: int | None, num_answers: int = 1) -> ApiError:
    with pytest.raises(ApiError) as caught, control.admit(tenant, own, num_answers):
        pass
    return caught.value


def test_places_are_given_back_when_a_request_ends_however_it_ends() -> None:
    counted = admission(ServerLimits())

    def fail_inside() -> None:
        with counted.admit("a", FREE, 3):
            assert counted.num_in_flight == 3
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    assert counted.num_in_flight == 0


def test_a_tenant_at_its_limit_is_asked_to_wait_and_others_are_not() -> None:
    counted = admission(ServerLimits())
    with counted.admit("a", 2, 2):
        error = refusal(counted, "a", 2)
        assert (error.status, error.headers) == (429, {"Retry-After": "2"})
        with counted.admit("b", FREE, 1):
            assert counted.num_in_flight == 3
    with counted.admit("a", 2, 1):
        pass


def test_all_tenants_together_have_a_limit() -> None:
    counted = admission(ServerLimits(max_concurrent_requests=3))
    with ExitStack() as stack:
        for tenant in "abc":
            stack.enter_context(counted.admit(tenant, FREE, 1))
        assert refusal(counted, "d", FREE).status == 429


def test_a_full_queue_turns_away() -> None:
    counted = admission(ServerLimits(max_queued_requests=5), num_running=4)
    with counted.admit("a", FREE, 9):
        assert refusal(counted, "a", FREE).status == 429
    with counted.admit("a", FREE, 8), counted.admit("a", FREE, 1):
        pass


def test_what_can_never_pass_is_a_400() -> None:
    assert refusal(admission(ServerLimits(max_concurrent_requests=3)), "a", FREE, 4).status == 400
    assert refusal(admission(ServerLimits()), "a", 2, 3).status == 400


def test_retry_after_grows_with_the_queue_and_the_time_a_request_takes() -> None:
    seconds = []
    for num_answers, e2e_s in [(12, 1.0), (12, 10.0), (24, 10.0), (24, 1000.0)]:
        full = admission(ServerLimits(max_concurrent_requests=num_answers), num_running=4)
        for _ in range(200):
            full.note_finished(e2e_s)
        with full.admit("a", FREE, num_answers):
            seconds.append(int(refusal(full, "a", FREE).headers["Retry-After"]))
    assert seconds == [3, 30, 60, 60]


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "3", None])
def test_a_server_limit_is_a_whole_number_above_zero(value: object) -> None:
    with pytest.raises(InvalidParameterError, match="max_body_bytes must be a number above zero"):
        ServerLimits(max_body_bytes=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -1.0, float("inf"), float("nan"), None])
def test_a_deadline_is_a_finite_number_above_zero(value: float | None) -> None:
    with pytest.raises(InvalidParameterError, match="request_deadline_s"):
        TenantLimits(request_deadline_s=value)  # type: ignore[arg-type]
