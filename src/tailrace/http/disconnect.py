"""Work for a client that may go away: then it is cancelled instead of being done for nobody."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tailrace.http.problems import RequestRefusedError

T = TypeVar("T")
ASGIReceive = Callable[[], Awaitable[Mapping[str, Any]]]

_GONE = frozenset(("http.disconnect", "websocket.disconnect"))
_LOOK_AFTER_SECONDS = 0.05


async def while_connected(receive: ASGIReceive, work: Coroutine[Any, Any, T]) -> T:
    """The outcome of the work, cancelled when the client goes away. The body must have been read before."""
    async with until_disconnect(receive, _LOOK_AFTER_SECONDS):
        return await work
    raise RequestRefusedError(499, "the client has gone")


@asynccontextmanager
async def until_disconnect(receive: Any, look_after_seconds: float = 0.0) -> AsyncIterator[None]:
    """Leave the block when the client has gone. What it sends meanwhile is thrown away; there is nothing to be said.

    Most work is done before it is worth the while to look.
    """
    inside = asyncio.current_task()
    watching: asyncio.Task[None] | None = None
    has_gone = False

    async def watch() -> None:
        nonlocal has_gone
        while (await receive())["type"] not in _GONE:
            pass
        has_gone = True
        if inside is not None:
            inside.cancel()

    def begin() -> None:
        nonlocal watching
        watching = asyncio.ensure_future(watch())

    timer = asyncio.get_running_loop().call_later(look_after_seconds, begin)
    try:
        yield
    except asyncio.CancelledError:
        if not has_gone:
            raise
        if inside is not None:
            inside.uncancel()
    finally:
        timer.cancel()
        if watching is not None:
            watching.cancel()
