from ratoon.identity.hash_chain import HashChain
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams
from ratoon.sched.queue import WaitingQueue


def request(arrival: int, priority: int = 0) -> Request:
    made = Request(arrival, HashChain(bytes(32), 4, tokens=[1]), SamplingParams(), 7, priority=priority)
    made.arrival = arrival
    return made


def drain(queue: WaitingQueue) -> list[int]:
    order = []
    while len(queue):
        order.append(queue.head().id)
        queue.remove(queue.head())
    return order


def test_equal_priorities_are_served_in_order_of_arrival() -> None:
    queue = WaitingQueue()
    for arrival in (2, 0, 1):
        queue.push(request(arrival))
    assert drain(queue) == [0, 1, 2]


def test_a_lower_priority_number_comes_first() -> None:
    queue = WaitingQueue()
    for arrival, priority in enumerate((1, 0, -5, 0)):
        queue.push(request(arrival, priority))
    assert drain(queue) == [2, 1, 3, 0]


def test_a_request_that_comes_back_stands_before_all_that_came_after_it() -> None:
    queue = WaitingQueue()
    requests = [request(arrival) for arrival in range(4)]
    for waiting in requests:
        queue.push(waiting)
    queue.remove(requests[0])
    queue.remove(requests[1])
    queue.push(requests[1])
    assert drain(queue) == [1, 2, 3]


def test_a_request_can_leave_from_anywhere() -> None:
    queue = WaitingQueue()
    requests = [request(arrival) for arrival in range(5)]
    for waiting in requests:
        queue.push(waiting)
    queue.remove(requests[3])
    assert drain(queue) == [0, 1, 2, 4]
