"""A thread for every core keeps to its own; fewer go where the system puts them."""

import os
from threading import Thread

import pytest

from ratoon.engine.cores import keep_to_first_core, usable_cores

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")


def cores_of_a_thread(num_threads: int) -> set[int]:
    found: list[set[int]] = []

    def run() -> None:
        keep_to_first_core(num_threads)
        found.append(os.sched_getaffinity(0))

    thread = Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def test_with_a_thread_for_every_core_the_first_keeps_to_the_first_core() -> None:
    assert cores_of_a_thread(usable_cores()) == {min(os.sched_getaffinity(0))}


def test_with_more_threads_than_cores_the_system_chooses() -> None:
    assert cores_of_a_thread(usable_cores() + 1) == os.sched_getaffinity(0)


def test_only_the_calling_thread_is_kept() -> None:
    before = os.sched_getaffinity(0)
    cores_of_a_thread(usable_cores())
    assert os.sched_getaffinity(0) == before
