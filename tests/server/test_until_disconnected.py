"""Work for a client ends when the client leaves, and leaves nothing behind."""

import asyncio
import gc
import weakref

import pytest
from starlette.types import Message

from ratoon.server.until_disconnected import until_disconnected


class Adapter:
    """Something that work holds and whose memory counts."""


async def nobody_leaves() -> Message:
    return await asyncio.Future()


async def client_leaves() -> Message:
    return {"type": "http.disconnect"}


def test_what_the_work_raises_is_raised() -> None:
    async def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(until_disconnected(nobody_leaves, work()))


def test_what_cancelled_work_held_is_free_without_the_garbage_collector() -> None:
    held: list[weakref.ref[Adapter]] = []

    async def work() -> None:
        adapter = Adapter()
        held.append(weakref.ref(adapter))
        # The timeout knows the task, the task its error, the error this frame, and the frame the timeout.
        async with asyncio.timeout(60) as timeout:
            await asyncio.Future()
        assert not timeout.expired()

    gc.disable()
    try:
        asyncio.run(until_disconnected(client_leaves, work()))
        assert [adapter() for adapter in held] == [None]
    finally:
        gc.enable()
