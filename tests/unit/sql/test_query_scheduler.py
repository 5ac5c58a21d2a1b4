"""Two lanes for queries: who runs, who is interrupted, and who waits for whom."""

import asyncio
from contextlib import suppress

import pytest

from tailrace.model.errors import OverloadedError, QueryLimitError
from tailrace.model.limits import Limits
from tailrace.sql.query_scheduler import QueryScheduler, QuerySlot
from tests.support.aio import on_loop


class Asked:
    """A query that runs until it is told to end, or to make room."""

    def __init__(self) -> None:
        self.begun = 0
        self.has_begun = asyncio.Event()
        self.end = asyncio.Event()
        self._room = asyncio.Event()

    async def run(self, slot: QuerySlot) -> int:
        self.begun += 1
        self.has_begun.set()
        self._room.clear()
        slot.begin(self._room.set)
        waits = [asyncio.ensure_future(event.wait()) for event in (self.end, self._room)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if not self.end.is_set():
            raise QueryLimitError("made room")
        return self.begun


async def short(slot: QuerySlot) -> str:
    slot.begin(lambda: None)
    return "short"


@on_loop
async def test_short_queries_do_not_wait_for_long_ones() -> None:
    lanes = QueryScheduler(Limits(query_threads=1))
    long = [Asked() for _ in range(5)]
    tasks = [asyncio.ensure_future(lanes.run(each.run)) for each in long]
    assert [await asyncio.wait_for(lanes.run(short), 20) for _ in range(3)] == ["short"] * 3
    assert not any(task.done() for task in tasks)
    for each in long:
        each.end.set()
    assert sorted(await asyncio.gather(*tasks)) == [1, 2, 2, 2, 2], "the first changed lanes, the others began again"


@on_loop
async def test_a_query_goes_on_while_nobody_waits() -> None:
    lanes = QueryScheduler(Limits(query_threads=1))
    alone = Asked()
    task = asyncio.ensure_future(lanes.run(alone.run))
    done, _ = await asyncio.wait([task], timeout=0.2)
    assert not done
    alone.end.set()
    assert await task == 1


@on_loop
async def test_a_query_that_fails_by_itself_is_not_begun_again() -> None:
    lanes = QueryScheduler(Limits(query_threads=1))

    async def fail(slot: QuerySlot) -> None:
        slot.begin(lambda: None)
        raise QueryLimitError("its own fault")

    with pytest.raises(QueryLimitError, match="its own fault"):
        await lanes.run(fail)
    assert await lanes.run(short) == "short"


@on_loop
async def test_those_who_stop_waiting_leave_their_slots_to_others() -> None:
    lanes = QueryScheduler(Limits(query_threads=1, queued_queries=3))
    long = [Asked() for _ in range(3)]
    tasks = [asyncio.ensure_future(lanes.run(each.run)) for each in long]
    await asyncio.wait_for(long[2].has_begun.wait(), 20)
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert await asyncio.wait_for(lanes.run(short), 20) == "short"
    last = Asked()
    last.end.set()
    assert await asyncio.wait_for(lanes.run(last.run), 20) == 1


@on_loop
async def test_as_many_wait_as_the_limit_allows() -> None:
    lanes = QueryScheduler(Limits(query_threads=1, queued_queries=1))
    long = [Asked(), Asked()]
    tasks = [asyncio.ensure_future(lanes.run(each.run)) for each in long]
    await asyncio.sleep(0)
    with pytest.raises(OverloadedError, match="queued_queries"):
        await lanes.run(short)
    for each in long:
        each.end.set()
    await asyncio.gather(*tasks)
