import threading

from ratoon.engine.mailbox import Mailbox
from ratoon.request.finish import FinishReason
from ratoon.sched.delta import RequestDelta

LAST = FinishReason.LENGTH


def test_deltas_are_kept_until_a_request_ends() -> None:
    mailbox = Mailbox(())
    deltas = [RequestDelta(1, (5,)), RequestDelta(2, (6,)), RequestDelta(1, (7,), finish_reason=LAST)]
    reader = threading.Thread(target=lambda: taken.extend(mailbox.take()))
    taken: list[RequestDelta] = []
    reader.start()
    for delta in deltas:
        assert not taken
        mailbox.put(delta)
    reader.join()
    assert taken == deltas


def test_an_urgent_delta_brings_along_what_came_before() -> None:
    mailbox = Mailbox({2})
    deltas = [RequestDelta(1, (5,)), RequestDelta(2, (6,)), RequestDelta(2, (7,)), RequestDelta(1, (8,))]
    for delta in deltas:
        mailbox.put(delta)
    assert mailbox.take() == deltas[:2]
    assert mailbox.take() == deltas[2:3]
    mailbox.put(RequestDelta(1, finish_reason=LAST))
    assert mailbox.take() == [deltas[3], RequestDelta(1, finish_reason=LAST)]
