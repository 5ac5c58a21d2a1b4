"""Runs tests that are coroutines, each on an event loop of its own."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import ParamSpec

P = ParamSpec("P")

TEST_SECONDS = 200


def on_loop(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def within_time() -> None:
            async with asyncio.timeout(TEST_SECONDS):
                await test(*args, **kwargs)

        asyncio.run(within_time())

    return run


async def until(condition: Callable[[], bool]) -> None:
    """Let others run until the condition holds."""
    while not condition():  # noqa: ASYNC110  conditions here are states of the code under test, which has no event for them
        await asyncio.sleep(0)


async def turns(count: int = 10) -> None:
    """Let everything that is ready run."""
    for _ in range(count):
        await asyncio.sleep(0)
