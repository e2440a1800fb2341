"""Announcements live until their step ends, one way or the other."""

from ratoon.cache.in_flight import InFlight


def find(in_flight: InFlight, *keys: bytes, group: int = 0) -> list[int]:
    found = [0] * len(keys)
    in_flight.complete(group, keys, found)
    return found


def test_an_announced_block_completes_what_is_found_in_its_group_only() -> None:
    in_flight = InFlight(2)
    in_flight.announce(1, 0, [7, 8], [b"a", b"b"], [b"A", b"B"])
    found = [3, 0, 0]
    in_flight.complete(0, [b"a", b"b", b"c"], found)
    assert found == [3, 8, 0]
    assert find(in_flight, b"a", group=1) == [0]


def test_of_equal_blocks_the_first_announced_is_found_until_its_request_is_settled() -> None:
    in_flight = InFlight(1)
    in_flight.announce(1, 0, [7], [b"a"], [b"A"])
    in_flight.announce(2, 0, [8], [b"a"], [b"A"])
    in_flight.settle(2)
    assert find(in_flight, b"a") == [7]
    in_flight.settle(1)
    assert find(in_flight, b"a") == [0]
    assert in_flight.block_tokens == {}


def test_a_failed_step_names_those_who_borrowed() -> None:
    in_flight = InFlight(1)
    in_flight.announce(1, 0, [7], [b"a"], [b"A"])
    in_flight.borrow(2, [3, 7])
    in_flight.borrow(3, [3])
    assert in_flight.abandon() == {2}
    assert find(in_flight, b"a") == [0]
    assert not in_flight.has_announced(1)
    assert in_flight.abandon() == set()
    assert in_flight.num_abandoned == 2


def test_who_borrowed_is_remembered_when_announcements_are_withdrawn() -> None:
    in_flight = InFlight(1)
    in_flight.announce(1, 0, [7], [b"a"], [b"A"])
    in_flight.borrow(2, [7])
    in_flight.withdraw_all()
    assert find(in_flight, b"a") == [0]
    assert in_flight.abandon() == {2}


def test_a_settled_borrower_depends_on_the_step_no_more() -> None:
    in_flight = InFlight(1)
    in_flight.announce(1, 0, [7], [b"a"], [b"A"])
    in_flight.borrow(2, [7])
    in_flight.settle(2)
    assert in_flight.abandon() == set()
