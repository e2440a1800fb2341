"""Work for a client for as long as the client is there."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Receive


async def until_disconnected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Do the work; cancel it as soon as the client goes away, and return when it has cleaned up.

    The request's body must have been read. What the work raises is raised here, and is not kept in the task:
    error, frames, their timeout and the task would hold one another, and with them prompts and adapters,
    until the garbage collector comes.
    """
    errors: list[Exception] = []
    working = asyncio.create_task(_note_error(work, errors))
    watching = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.wait((working, watching))
    if errors:
        raise errors.pop()


async def _note_error(work: Coroutine[Any, Any, None], errors: list[Exception]) -> None:
    try:
        await work
    except asyncio.CancelledError:
        pass  # the client has gone
    except Exception as error:
        errors.append(error)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
