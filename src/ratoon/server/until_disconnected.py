"""Work for a client for as long as the client is there."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from starlette.types import Receive


async def until_disconnected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Do the work; cancel it as soon as the client goes away, and return when it has cleaned up.

    The request's body must have been read. What the work raises is raised here.
    """
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.wait((working, watching))
    with suppress(asyncio.CancelledError):
        working.result()  # if cancelled too: the task lets go of the error, and so of what its frames hold


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
