"""A consumer of a queue: each event goes to one consumer of the group, which says what became of it.

An event is with the consumer for `visibility_timeout`. If it says nothing until then, or dies, another one gets the event.
"""

import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import count
from urllib.parse import quote
from uuid import uuid4

from tailrace.client._async.ack_sender import AsyncAckSender
from tailrace.client._async.concurrency import AsyncSignal, AsyncWorker
from tailrace.client._async.transport import AsyncCloseable, AsyncTransport
from tailrace.client.ack_buffer import (
    ACK,
    MAX_RECEIPTS,
    RETURN_UNSEEN,
    ReceiptCommand,
    decode_received,
    extend_command,
    milliseconds,
    nack_command,
    receive_request,
)
from tailrace.client.config import QueueConfig, to_seconds
from tailrace.client.values import QueueEvent
from tailrace.model.errors import ClientClosedError, InvalidRequestError, TailraceError

_log = logging.getLogger("tailrace.client")

_LONGEST_WAIT = 5.0
"""Seconds of one receive."""


class AsyncQueueSubscription(AsyncCloseable):
    """Takes events of all topics that match a pattern, shared with the other consumers of the group.

    Example:
        async with AsyncClient("http://127.0.0.1:8080") as client:
            async with client.subscriber().subscribe_queue("orders.>", "mailers") as queue:
                async for event in queue:
                    print(event.topic_name, event.value, event.deliveries)
                    await queue.ack(event)
                    break
    """

    def __init__(self, url: str, config: QueueConfig) -> None:
        self.config = config
        self._path = f"/api/queues/{quote(config.group_id, safe='')}/receive"
        self._name = uuid4().hex
        self._attempts = count(1)
        self._connection = AsyncTransport(url, config)
        self._settler = AsyncAckSender(self._connection, config)
        self._keeper = AsyncLeaseExtender(self._settler, config) if config.auto_extend else None
        self._ahead: deque[QueueEvent] = deque()
        """Events for iteration that nobody has seen yet."""
        self._ahead_until = 0.0
        self._is_closed = False

    async def __aiter__(self) -> AsyncIterator[QueueEvent]:
        """Events one by one, for ever. Each must be acknowledged, or it comes again."""
        while not self._is_closed:
            if not self._ahead:
                self._ahead.extend(await self.poll())
                self._ahead_until = time.monotonic() + self.config.visibility_timeout.total_seconds()
            elif self._keeper is None and time.monotonic() > self._ahead_until:
                # Others may have them by now.
                self._ahead.clear()
            if self._ahead:
                yield self._ahead.popleft()

    async def poll(
        self,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109
        max_records: int | None = None,
    ) -> list[QueueEvent]:
        """The next events for this consumer, at most `max_poll_records`; none if none comes within the time (`poll_timeout`).

        `timeout` is in seconds. Transient errors are tried again for `api_timeout`, then raised; so is an error of an
        `ack_async`.
        """
        self._check_open()
        most = self.config.max_poll_records if max_records is None else max_records
        deadline = time.monotonic() + to_seconds(timeout, self.config.poll_timeout)
        while True:
            self._settler.raise_failure()
            wait = max(0.0, min(deadline - time.monotonic(), _LONGEST_WAIT))
            question = receive_request(self.config, f"{self._name}-{next(self._attempts)}", most, milliseconds(wait))
            repeated = {**question, "is_repeated": True}
            answer = await self._connection.send("POST", self._path, question, repeated=repeated, wait_seconds=wait)
            events = decode_received(answer)
            if self._keeper is not None:
                self._keeper.keep(*(event.receipt for event in events))
            if events or time.monotonic() >= deadline:
                return events

    async def ack(self, *events: QueueEvent) -> None:
        """These events are done. Returns when that is durable.

        Raises `LateReceiptError` if the time was up before, so that others may have them; `error.refused` says which. With
        several events the others are done nevertheless. An error whose `outcome` is `unknown` means that they may be done.
        """
        await self._say(ACK, events)

    async def ack_async(self, *events: QueueEvent) -> None:
        """The same without waiting; what comes together goes in one request.

        An error is raised by the next poll, flush or close.
        """
        self._let_go(events)
        for first in range(0, len(events), MAX_RECEIPTS):
            await self._settler.say_soon(ACK, [event.receipt for event in events[first : first + MAX_RECEIPTS]])

    async def nack(self, *events: QueueEvent, delay: float | timedelta = 0.0, reason: str = "") -> None:
        """Hand these events out again, after `delay` seconds.

        After `max_deliveries` they go to the dead letters instead, with the reason.
        """
        await self._say(nack_command(milliseconds(to_seconds(delay, timedelta(0), "delay")), reason), events)

    async def extend(self, *events: QueueEvent, timeout: float | timedelta | None = None) -> None:  # noqa: ASYNC109
        """Keep these events for `timeout` seconds from now on, or for `visibility_timeout`."""
        word = extend_command(milliseconds(to_seconds(timeout, self.config.visibility_timeout)))
        for first in range(0, len(events), MAX_RECEIPTS):
            await self._settler.say(word, [event.receipt for event in events[first : first + MAX_RECEIPTS]])

    async def flush(self) -> None:
        """Wait until every `ack_async` has its outcome. Raises the first failure that nobody has been told of."""
        await self._settler.flush()
        self._settler.raise_failure()

    async def close(self) -> None:
        """Send what is left, give back what was not looked at, and let go of everything."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._keeper is not None:
                await self._keeper.close()
            if self._ahead:
                await self._give_back_unseen()
            await self._settler.close()
            self._settler.raise_failure()
        finally:
            await self._connection.close()

    async def _say(self, word: ReceiptCommand, events: tuple[QueueEvent, ...]) -> None:
        if not events:
            raise InvalidRequestError("no event was given; give those that a poll returned")
        self._let_go(events)
        failure: TailraceError | None = None
        for first in range(0, len(events), MAX_RECEIPTS):
            try:
                await self._settler.say(word, [event.receipt for event in events[first : first + MAX_RECEIPTS]])
            except TailraceError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    async def _give_back_unseen(self) -> None:
        receipts = [event.receipt for event in self._ahead]
        self._ahead.clear()
        try:
            await self._settler.say(RETURN_UNSEEN, receipts)
        except TailraceError as error:
            # They come back by themselves.
            _log.info("events of group %s that were not looked at could not be given back: %s", self.config.group_id, error)

    def _let_go(self, events: tuple[QueueEvent, ...]) -> None:
        if self._keeper is not None:
            self._keeper.let_go(*(event.receipt for event in events))

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError(f"the subscription of group {self.config.group_id!r} is closed")


_EXTENSIONS_PER_TIMEOUT = 3
"""How often more time is asked for before it is up, so that one or two lost requests do no harm."""


class AsyncLeaseExtender:
    def __init__(self, settler: AsyncAckSender, config: QueueConfig) -> None:
        self._settler = settler
        self._config = config
        self._worker = AsyncWorker(self._work, f"tailrace queue {config.group_id} keeper")
        self._ending = AsyncSignal()
        self._is_ending = False
        self._kept: dict[str, float] = {}
        """By receipt: when it was received."""

    def keep(self, *receipts: str) -> None:
        now = time.monotonic()
        self._kept.update((receipt, now) for receipt in receipts)
        self._worker.start()

    def let_go(self, *receipts: str) -> None:
        for receipt in receipts:
            self._kept.pop(receipt, None)

    async def close(self) -> None:
        self._is_ending = True
        self._ending.set()
        await self._worker.join()

    async def _work(self) -> None:
        interval = self._config.visibility_timeout.total_seconds() / _EXTENSIONS_PER_TIMEOUT
        while not self._is_ending:
            if not await self._ending.wait(interval):
                await self._extend()

    async def _extend(self) -> None:
        longest = self._config.max_poll_interval.total_seconds()
        now = time.monotonic()
        kept = list(self._kept.items())
        stuck = [receipt for receipt, since in kept if now - since > longest]
        if stuck:
            _log.warning(
                "a consumer of group %s has %d records for longer than max_poll_interval (%s); others may have them",
                self._config.group_id,
                len(stuck),
                self._config.max_poll_interval,
            )
            self.let_go(*stuck)
        receipts = [receipt for receipt, since in kept if now - since <= longest]
        word = extend_command(milliseconds(self._config.visibility_timeout.total_seconds()))
        for first in range(0, len(receipts), MAX_RECEIPTS):
            try:
                await self._settler.say(word, receipts[first : first + MAX_RECEIPTS])
            except TailraceError as error:
                # What is late is late: its ack will be refused, and that is told then. Other errors may go away.
                _log.info("some records of group %s could not be kept: %s", self._config.group_id, error)
