"""When the regular expressions of subscriptions are matched."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.broker.groups.subscribed_topics import SubscribedTopics
from tailrace.broker.read_threads import ReadThreads
from tailrace.broker.regular_expressions import RegularExpressions
from tailrace.model.errors import InvalidRegularExpressionError
from tailrace.model.limits import DEFAULT_LIMITS
from tests.support.aio import on_loop
from tests.support.brokers import running_broker


class CountingThreads(ReadThreads):
    """Counts calls, and the most that ran at once."""

    def __init__(self) -> None:
        super().__init__(DEFAULT_LIMITS)
        self.calls = self.most_at_once = 0

    async def run(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        self.most_at_once = max(self.most_at_once, self.queued + 1)
        return await super().run(call, *args, **kwargs)


@on_loop
async def test_an_expression_is_matched_once_until_topics_change() -> None:
    async with running_broker() as broker:
        threads = CountingThreads()
        subscribed = SubscribedTopics(broker.topics, RegularExpressions(threads, DEFAULT_LIMITS))
        first = await broker.topics.create("orders.paid")
        for _ in range(2):
            assert await subscribed.match([r"orders\..*"]) == {r"orders\..*": {first.uuid}}
        assert threads.calls == 1
        second = await broker.topics.create("orders.sent")
        assert await subscribed.match([r"orders\..*", "o"]) == {r"orders\..*": {first.uuid, second.uuid}, "o": frozenset()}
        await broker.topics.delete("orders.paid")
        assert await subscribed.match([r"orders\..*"]) == {r"orders\..*": {second.uuid}}
        threads.close()


@on_loop
async def test_expressions_are_matched_one_after_another() -> None:
    async with running_broker() as broker:
        threads = CountingThreads()
        subscribed = SubscribedTopics(broker.topics, RegularExpressions(threads, DEFAULT_LIMITS))
        topic = await broker.topics.create("t")
        patterns = [f"t|u{number % 4}" for number in range(40)]
        found = await asyncio.gather(*(subscribed.match([pattern]) for pattern in patterns))
        assert found == [{pattern: {topic.uuid}} for pattern in patterns]
        assert (threads.calls, threads.most_at_once) == (4, 1)
        threads.close()


@on_loop
async def test_one_wrong_expression_does_not_harm_the_next() -> None:
    async with running_broker() as broker:
        threads = CountingThreads()
        subscribed = SubscribedTopics(broker.topics, RegularExpressions(threads, DEFAULT_LIMITS))
        topic = await broker.topics.create("t")
        with pytest.raises(InvalidRegularExpressionError, match="not valid"):
            await subscribed.match(["("])
        assert await subscribed.match(["t"]) == {"t": {topic.uuid}}
        threads.close()
