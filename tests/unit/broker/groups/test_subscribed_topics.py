"""Regular expressions of subscriptions: their size with counted repetitions written out, and when they are matched."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.broker.groups.subscribed_topics import SubscribedTopics, expanded_size
from tailrace.broker.read_threads import ReadThreads
from tailrace.model.errors import InvalidRegularExpressionError
from tailrace.model.limits import DEFAULT_LIMITS, Limits
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


@pytest.mark.parametrize(
    ("pattern", "written_out"),
    [
        ("orders", "orders"),
        ("a{3}", "aaa"),
        ("ba{3}", "baaa"),
        ("a{2,}", "aa"),
        ("a{1,4}", "aaaa"),
        ("a{0}", "a"),
        ("(ab){3}", "(ab)(ab)(ab)"),
        ("(a{2}){3}", "(aa)(aa)(aa)"),
        ("[a-c]{2}x", "[a-c][a-c]x"),
        ("[]a]{2}", "[]a][]a]"),
        ("[^]a]{2}", "[^]a][^]a]"),
        ("[[:alpha:]]{2}", "[[:alpha:]][[:alpha:]]"),
        (r"[\]a]{2}", r"[\]a][\]a]"),
        (r"\d{2}", r"\d\d"),
        (r"\x{41}{2}", r"\x{41}\x{41}"),
        (r"\{2}", r"\{2}"),
        ("a{,2}", "a{,2}"),
        ("a*{2}", "a*a*"),
        ("(a{2", "(a{2"),
        ("a){2}", "a))"),
        ("", ""),
    ],
)
def test_counted_repetitions_are_written_out(pattern: str, written_out: str) -> None:
    assert expanded_size(pattern) == len(written_out)


@pytest.mark.parametrize("between", [r"\Q\E", "(?i)", "(?-s)", "*(?i)", "+?(?i)", "{2}(?i)"])
def test_a_count_reaches_the_group_before_what_matches_nothing(between: str) -> None:
    assert expanded_size(f"(?:abc){between}{{100}}") >= 100 * len("(?:abc)")


@on_loop
async def test_an_expression_is_matched_once_until_topics_change() -> None:
    async with running_broker() as broker:
        threads = CountingThreads()
        subscribed = SubscribedTopics(broker.topics, threads, DEFAULT_LIMITS)
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
        subscribed = SubscribedTopics(broker.topics, threads, DEFAULT_LIMITS)
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
        subscribed = SubscribedTopics(broker.topics, threads, DEFAULT_LIMITS)
        topic = await broker.topics.create("t")
        with pytest.raises(InvalidRegularExpressionError, match="not valid"):
            await subscribed.match(["("])
        assert await subscribed.match(["t"]) == {"t": {topic.uuid}}
        threads.close()


@on_loop
async def test_what_would_take_long_is_refused_with_the_limit() -> None:
    async with running_broker() as broker:
        subscribed = SubscribedTopics(broker.topics, CountingThreads(), Limits(topic_pattern_bytes=20))
        subscribed.check_pattern("(ab){3}")
        for pattern in ("a" * 21, "(?:(?:a?b?){500}){2}", "(ab){6}"):
            with pytest.raises(InvalidRegularExpressionError, match="topic_pattern_bytes allows \\(20\\)"):
                subscribed.check_pattern(pattern)
        with pytest.raises(InvalidRegularExpressionError, match="Unicode"):
            subscribed.check_pattern("é")
        with pytest.raises(InvalidRegularExpressionError, match="Unicode"):
            subscribed.check_pattern(r"\\\pL")
