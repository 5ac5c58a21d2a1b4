"""Changes that take turns."""

import asyncio

import pytest

from tailrace.broker.turns import Turns
from tests.support.aio import on_loop, turns


@on_loop
async def test_changes_are_made_one_after_another_in_their_order() -> None:
    taken = Turns()
    log: list[str] = []

    async def change(name: str) -> str:
        log.append(f"{name} begins")
        await turns()
        log.append(f"{name} ends")
        return name

    assert await asyncio.gather(*(taken.run(change(name)) for name in "abc")) == ["a", "b", "c"]
    assert log == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]


@on_loop
async def test_a_change_is_made_to_its_end_though_its_caller_is_cancelled() -> None:
    taken = Turns()
    go_on = asyncio.Event()
    log: list[str] = []

    async def slow() -> None:
        await go_on.wait()
        log.append("slow")

    async def next_one() -> None:
        log.append("next")

    first = asyncio.ensure_future(taken.run(slow()))
    await turns()
    second = asyncio.ensure_future(taken.run(next_one()))
    await turns()
    first.cancel()
    await turns()
    assert log == []
    go_on.set()
    await second
    assert log == ["slow", "next"]
    with pytest.raises(asyncio.CancelledError):
        await first


@on_loop
async def test_an_error_goes_to_its_caller_and_the_next_change_is_made() -> None:
    taken = Turns()

    async def fail() -> None:
        raise ValueError("no")

    async def succeed() -> int:
        return 1

    with pytest.raises(ValueError, match="no"):
        await taken.run(fail())
    assert await taken.run(succeed()) == 1
