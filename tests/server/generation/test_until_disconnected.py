"""Work for a client ends when the client leaves, and leaves nothing behind."""

import asyncio
import gc
import weakref
from contextlib import suppress

import pytest
from starlette.types import Message

from ratoon.server.generation.response import until_disconnected


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


@pytest.mark.parametrize("fails", [True, False])
def test_what_the_work_held_is_free_without_the_garbage_collector(fails: bool) -> None:
    held: list[weakref.ref[Adapter]] = []

    async def work() -> None:
        adapter = Adapter()
        held.append(weakref.ref(adapter))
        # The timeout knows the task; the task must not know an error, whose frames know the timeout.
        async with asyncio.timeout(60) as timeout:
            if fails:
                raise ValueError("no")
            await asyncio.Future()
        assert not timeout.expired()

    async def serve() -> None:
        with suppress(ValueError):
            await until_disconnected(nobody_leaves if fails else client_leaves, work())

    gc.disable()
    try:
        asyncio.run(serve())
        assert [adapter() for adapter in held] == [None]
    finally:
        gc.enable()
