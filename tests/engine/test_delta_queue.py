import threading

from ratoon.engine.delta_queue import DeltaQueue
from ratoon.request.finish import FinishReason
from ratoon.sched.delta import RequestDelta

LAST = FinishReason.LENGTH


def test_deltas_are_kept_until_a_request_ends() -> None:
    queue = DeltaQueue(())
    deltas = [RequestDelta(1, (5,)), RequestDelta(2, (6,)), RequestDelta(1, (7,), finish_reason=LAST)]
    reader = threading.Thread(target=lambda: taken.extend(queue.take()))
    taken: list[RequestDelta] = []
    reader.start()
    for delta in deltas:
        assert not taken
        queue.put(delta)
    reader.join()
    assert taken == deltas


def test_an_urgent_delta_brings_along_what_came_before() -> None:
    queue = DeltaQueue({2})
    deltas = [RequestDelta(1, (5,)), RequestDelta(2, (6,)), RequestDelta(2, (7,)), RequestDelta(1, (8,))]
    for delta in deltas:
        queue.put(delta)
    assert queue.take() == deltas[:2]
    assert queue.take() == deltas[2:3]
    queue.put(RequestDelta(1, finish_reason=LAST))
    assert queue.take() == [deltas[3], RequestDelta(1, finish_reason=LAST)]
