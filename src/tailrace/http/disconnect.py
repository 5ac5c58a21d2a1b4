"""Cancels work for a client that disconnects."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tailrace.http.login_watch import until_login_ends
from tailrace.http.problems import RequestRefusedError

T = TypeVar("T")
ASGIReceive = Callable[[], Awaitable[Mapping[str, Any]]]

_DISCONNECTS = frozenset(("http.disconnect", "websocket.disconnect"))
_WATCH_AFTER_SECONDS = 0.05


async def while_connected(receive: ASGIReceive, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work, or cancel it when the client disconnects or its login ends. The body must have been read
    before."""
    async with until_disconnect(receive, _WATCH_AFTER_SECONDS):
        with until_login_ends():
            return await work
    raise RequestRefusedError(499, "the client has disconnected")


@asynccontextmanager
async def until_disconnect(receive: Any, watch_after_seconds: float = 0.0) -> AsyncIterator[None]:
    """Leave the block when the client disconnects. What it sends meanwhile is dropped.

    With `watch_after_seconds` most work is done before anything watches for the disconnect.
    """
    task = asyncio.current_task()
    watcher: asyncio.Task[None] | None = None
    is_disconnected = False

    async def watch() -> None:
        nonlocal is_disconnected
        while (await receive())["type"] not in _DISCONNECTS:
            pass
        is_disconnected = True
        if task is not None:
            task.cancel()

    def start_watching() -> None:
        nonlocal watcher
        watcher = asyncio.ensure_future(watch())

    timer = asyncio.get_running_loop().call_later(watch_after_seconds, start_watching)
    try:
        yield
    except asyncio.CancelledError:
        if not is_disconnected:
            raise
        if task is not None:
            task.uncancel()
    finally:
        timer.cancel()
        if watcher is not None:
            watcher.cancel()
