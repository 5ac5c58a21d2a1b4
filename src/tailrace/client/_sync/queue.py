# Generated from _async/queue.py by tools/generate_sync.py; change that file, then run it.

"""A consumer of a queue: each event goes to one consumer of the group, which says what became of it.

An event is with the consumer for `visibility_timeout`. If it says nothing until then, or dies, another one gets the event.
"""

import logging
import time
from collections import deque
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from urllib.parse import quote
from uuid import uuid4

from tailrace.client._sync.closing import Closing
from tailrace.client._sync.connection import Connection
from tailrace.client._sync.keeper import Keeper
from tailrace.client._sync.settler import Settler
from tailrace.client.config import QueueConfig
from tailrace.client.properties import seconds_of
from tailrace.client.queue_messages import ACK, UNSEEN, Word, extend, milliseconds, nack, read_received, receive_question
from tailrace.client.receipts import MOST_AT_ONCE
from tailrace.client.values import QueueEvent
from tailrace.model.errors import ClientClosedError, InvalidRequestError, TailraceError

_log = logging.getLogger("tailrace.client")

_LONGEST_WAIT = 5.0
"""Seconds of one receive."""


class QueueSubscription(Closing):
    """Takes events of all topics that match a pattern, shared with the other consumers of the group.

    Example:
        with Client("http://127.0.0.1:8080") as client:
            with client.subscriber().subscribe_queue("orders.>", "mailers") as queue:
                for event in queue:
                    print(event.topic_name, event.value, event.deliveries)
                    queue.ack(event)
                    break
    """

    def __init__(self, url: str, config: QueueConfig) -> None:
        self.config = config
        self._path = f"/api/queues/{quote(config.group_id, safe='')}/receive"
        self._name = uuid4().hex
        self._attempts = count(1)
        self._connection = Connection(url, config)
        self._settler = Settler(self._connection, config)
        self._keeper = Keeper(self._settler, config) if config.auto_extend else None
        self._ahead: deque[QueueEvent] = deque()
        """Events for iteration that nobody has seen yet."""
        self._ahead_until = 0.0
        self._is_closed = False

    def __iter__(self) -> Iterator[QueueEvent]:
        """Events one by one, for ever. Each must be acknowledged, or it comes again."""
        while not self._is_closed:
            if not self._ahead:
                self._ahead.extend(self.poll())
                self._ahead_until = time.monotonic() + self.config.visibility_timeout.total_seconds()
            elif self._keeper is None and time.monotonic() > self._ahead_until:
                # Others may have them by now.
                self._ahead.clear()
            if self._ahead:
                yield self._ahead.popleft()

    def poll(
        self,
        timeout: float | timedelta | None = None,
        max_records: int | None = None,
    ) -> list[QueueEvent]:
        """The next events for this consumer, at most `max_poll_records`; none if none comes within the time (`poll_timeout`).

        `timeout` is in seconds. Transient errors are tried again for `api_timeout`, then raised; so is an error of an
        `ack_async`.
        """
        self._check_open()
        most = self.config.max_poll_records if max_records is None else max_records
        deadline = time.monotonic() + seconds_of(timeout, self.config.poll_timeout)
        while True:
            self._settler.raise_failure()
            wait = max(0.0, min(deadline - time.monotonic(), _LONGEST_WAIT))
            question = receive_question(self.config, f"{self._name}-{next(self._attempts)}", most, milliseconds(wait))
            repeated = {**question, "is_repeated": True}
            answer = self._connection.send("POST", self._path, question, repeated=repeated, wait_seconds=wait)
            events = read_received(answer)
            if self._keeper is not None:
                self._keeper.keep(*(event.receipt for event in events))
            if events or time.monotonic() >= deadline:
                return events

    def ack(self, *events: QueueEvent) -> None:
        """These events are done. Returns when that is durable.

        Raises `LateReceiptError` if the time was up before, so that others may have them; `error.refused` says which. With
        several events the others are done nevertheless. An error whose `outcome` is `unknown` means that they may be done.
        """
        self._say(ACK, events)

    def ack_async(self, *events: QueueEvent) -> None:
        """The same without waiting; what comes together goes in one request.

        An error is raised by the next poll, flush or close.
        """
        self._let_go(events)
        for first in range(0, len(events), MOST_AT_ONCE):
            self._settler.say_soon(ACK, [event.receipt for event in events[first : first + MOST_AT_ONCE]])

    def nack(self, *events: QueueEvent, delay: float | timedelta = 0.0, reason: str = "") -> None:
        """Hand these events out again, after `delay` seconds.

        After `max_deliveries` they go to the dead letters instead, with the reason.
        """
        self._say(nack(milliseconds(seconds_of(delay, timedelta(0), "delay")), reason), events)

    def extend(self, *events: QueueEvent, timeout: float | timedelta | None = None) -> None:
        """Keep these events for `timeout` seconds from now on, or for `visibility_timeout`."""
        word = extend(milliseconds(seconds_of(timeout, self.config.visibility_timeout)))
        for first in range(0, len(events), MOST_AT_ONCE):
            self._settler.say(word, [event.receipt for event in events[first : first + MOST_AT_ONCE]])

    def flush(self) -> None:
        """Wait until every `ack_async` has its outcome. Raises the first failure that nobody has been told of."""
        self._settler.flush()
        self._settler.raise_failure()

    def close(self) -> None:
        """Send what is left, give back what was not looked at, and let go of everything."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._keeper is not None:
                self._keeper.close()
            if self._ahead:
                self._give_back_unseen()
            self._settler.close()
            self._settler.raise_failure()
        finally:
            self._connection.close()

    def _say(self, word: Word, events: tuple[QueueEvent, ...]) -> None:
        if not events:
            raise InvalidRequestError("no event was given; give those that a poll returned")
        self._let_go(events)
        failure: TailraceError | None = None
        for first in range(0, len(events), MOST_AT_ONCE):
            try:
                self._settler.say(word, [event.receipt for event in events[first : first + MOST_AT_ONCE]])
            except TailraceError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _give_back_unseen(self) -> None:
        receipts = [event.receipt for event in self._ahead]
        self._ahead.clear()
        try:
            self._settler.say(UNSEEN, receipts)
        except TailraceError as error:
            # They come back by themselves.
            _log.info("events of group %s that were not looked at could not be given back: %s", self.config.group_id, error)

    def _let_go(self, events: tuple[QueueEvent, ...]) -> None:
        if self._keeper is not None:
            self._keeper.let_go(*(event.receipt for event in events))

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError(f"the subscription of group {self.config.group_id!r} is closed")
