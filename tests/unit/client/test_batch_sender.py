"""Items are sent in order, one request at a time, by the worker or by a caller that waits."""

import threading
from collections.abc import Callable

import pytest
from msgspec import Raw

from tailrace.client import ClientClosedError
from tailrace.client._sync.batch_sender import BatchSender
from tailrace.client.config import PublisherConfig
from tailrace.client.publish_buffer import PendingMessages, PublishBuffer
from tests.support.patience import PATIENCE_SECONDS


class Delivered:
    """What was delivered and by which thread, with something to do before the next delivery counts as done."""

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self.seen: list[tuple[list[str], threading.Thread]] = []
        self._before = before

    def __call__(self, batch: "list[PendingMessages[str]]") -> None:
        self.seen.append(([pending.outcome for pending in batch], threading.current_thread()))
        before, self._before = self._before, lambda: None
        before()

    @property
    def names(self) -> list[str]:
        return [name for names, _ in self.seen for name in names]


def pending(name: str) -> "PendingMessages[str]":
    return PendingMessages([Raw(b"{}")], 2, name)


def sender_of(delivered: Delivered, linger_ms: int = 0) -> "BatchSender[PendingMessages[str]]":
    return BatchSender(PublishBuffer(PublisherConfig.from_properties({"linger": linger_ms})), delivered, "test")


def test_who_waits_for_an_item_delivers_it_itself() -> None:
    delivered = Delivered()
    sender = sender_of(delivered)
    assert sender.put(pending("a"), PATIENCE_SECONDS, is_awaited=True)
    sender.close()
    assert delivered.seen == [(["a"], threading.current_thread())]


@pytest.mark.parametrize(("linger_ms", "is_awaited"), [(0, False), (1, True)])
def test_the_worker_delivers_what_nobody_waits_for_and_what_is_to_linger(linger_ms: int, is_awaited: bool) -> None:
    delivered = Delivered()
    sender = sender_of(delivered, linger_ms)
    sender.put(pending("a"), PATIENCE_SECONDS, is_awaited=is_awaited)
    sender.close()
    assert delivered.names == ["a"]
    assert delivered.seen[0][1] is not threading.current_thread()


def test_what_comes_during_a_delivery_follows_it_in_order() -> None:
    def put_more() -> None:
        for name in "bcd":
            sender.put(pending(name), PATIENCE_SECONDS, is_awaited=True)

    delivered = Delivered(put_more)
    sender = sender_of(delivered)
    sender.put(pending("a"), PATIENCE_SECONDS, is_awaited=True)
    sender.flush()
    assert [names for names, _ in delivered.seen] == [["a"], ["b", "c", "d"]]
    sender.put(pending("e"), PATIENCE_SECONDS, is_awaited=True)
    sender.close()
    assert delivered.names == list("abcde")


def test_a_delivery_that_is_interrupted_holds_up_nothing() -> None:
    def interrupt() -> None:
        sender.put(pending("b"), PATIENCE_SECONDS)
        raise KeyboardInterrupt

    delivered = Delivered(interrupt)
    sender = sender_of(delivered)
    with pytest.raises(KeyboardInterrupt):
        sender.put(pending("a"), PATIENCE_SECONDS, is_awaited=True)
    sender.close()
    assert delivered.names == ["a", "b"]


def test_many_threads_that_wait_are_served_one_delivery_at_a_time() -> None:
    delivering = threading.Lock()

    def deliver(batch: "list[PendingMessages[str]]") -> None:
        assert delivering.acquire(blocking=False), "two deliveries at a time"
        names.extend(pending.outcome for pending in batch)
        delivering.release()

    names: list[str] = []
    sender: BatchSender[PendingMessages[str]] = BatchSender(PublishBuffer(PublisherConfig()), deliver, "test")

    def put_many(thread: int) -> None:
        for number in range(200):
            sender.put(pending(f"{thread}.{number}"), PATIENCE_SECONDS, is_awaited=number % 2 == 0)

    threads = [threading.Thread(target=put_many, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sender.close()
    assert len(names) == 800
    for number in range(4):
        assert [name for name in names if name.startswith(f"{number}.")] == [f"{number}.{nth}" for nth in range(200)]
    with pytest.raises(ClientClosedError):
        sender.put(pending("late"), PATIENCE_SECONDS)
