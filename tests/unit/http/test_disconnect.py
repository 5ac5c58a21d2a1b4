"""Work for a client is cancelled when it disconnects."""

import asyncio

import pytest
from litestar import Request
from litestar.types import HTTPDisconnectEvent

from tailrace.http.disconnect import while_connected
from tailrace.http.problems import RequestRefusedError
from tests.support.aio import on_loop, turns


def request_of(gone: asyncio.Event) -> Request:  # type: ignore[type-arg]
    async def receive() -> HTTPDisconnectEvent:
        await gone.wait()
        return {"type": "http.disconnect"}

    return Request({"type": "http", "headers": [], "state": {}}, receive=receive)  # type: ignore[arg-type]


@on_loop
async def test_work_is_cancelled_when_the_client_disconnects() -> None:
    gone = asyncio.Event()
    was_cancelled = False

    async def work() -> None:
        nonlocal was_cancelled
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled = True
            raise

    working = asyncio.ensure_future(while_connected(request_of(gone).receive, work()))
    await turns(3)
    gone.set()
    with pytest.raises(RequestRefusedError, match="the client has disconnected"):
        await working
    assert was_cancelled


@on_loop
async def test_the_result_of_the_work_is_returned() -> None:
    async def work() -> int:
        return 7

    async def failing() -> int:
        raise KeyError("mine")

    request = request_of(asyncio.Event())
    assert await while_connected(request.receive, work()) == 7
    with pytest.raises(KeyError, match="mine"):
        await while_connected(request.receive, failing())
