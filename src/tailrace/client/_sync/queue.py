# Generated from _async/queue.py by tools/generate_sync.py; change that file, then run it.

"""A consumer of a queue: each event goes to one consumer of the group, which acknowledges it.

The consumer has an event for `visibility_timeout`. If it does not acknowledge the event by then, or dies, another one gets it.
"""

import logging
import time
from collections import deque
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from urllib.parse import quote
from uuid import uuid4

import msgspec

from tailrace.client._sync.ack_sender import AckSender
from tailrace.client._sync.concurrency import Signal, Worker
from tailrace.client._sync.transport import Closeable, Transport
from tailrace.client.ack_buffer import (
    ACK,
    MAX_RECEIPTS,
    RETURN_UNSEEN,
    ReceiptCommand,
    decode_received,
    extend_command,
    nack_command,
    receive_body,
    to_milliseconds,
)
from tailrace.client.config import QueueConfig, to_seconds
from tailrace.client.values import QueueEvent
from tailrace.model.errors import ClientClosedError, InvalidRequestError, TailraceError

_log = logging.getLogger("tailrace.client")

_LONGEST_WAIT = 5.0
"""Seconds of one receive."""
_EXTENSIONS_PER_TIMEOUT = 3
"""How often a lease is extended before it ends, so that one or two lost requests do no harm."""


class QueueSubscription(Closeable):
    """Receives events of all topics that match a pattern, shared with the other consumers of the group.

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
        self._transport = Transport(url, config)
        self._ack_sender = AckSender(self._transport, config)
        self._lease_extender = LeaseExtender(self._ack_sender, config) if config.auto_extend else None
        self._prefetched: deque[QueueEvent] = deque()
        """Events for iteration that were not yielded yet."""
        self._prefetched_until = 0.0
        self._is_closed = False

    def __iter__(self) -> Iterator[QueueEvent]:
        """Yield events one by one, without end. Each must be acknowledged, or it is delivered again."""
        while not self._is_closed:
            if not self._prefetched:
                self._prefetched.extend(self.poll())
                self._prefetched_until = time.monotonic() + self.config.visibility_timeout.total_seconds()
            elif self._lease_extender is None and time.monotonic() > self._prefetched_until:
                # Other consumers may have them by now.
                self._prefetched.clear()
            if self._prefetched:
                yield self._prefetched.popleft()

    def poll(
        self,
        timeout: float | timedelta | None = None,
        max_records: int | None = None,
    ) -> list[QueueEvent]:
        """Return the next events, at most `max_poll_records`; none if none arrive within the time (`poll_timeout`).

        `timeout` is in seconds. Transient errors are retried for `api_timeout`, then raised; so is an error of an `ack_async`.
        """
        self._check_open()
        limit = self.config.max_poll_records if max_records is None else max_records
        deadline = time.monotonic() + to_seconds(timeout, self.config.poll_timeout)
        while True:
            self._ack_sender.raise_failure()
            wait = max(0.0, min(deadline - time.monotonic(), _LONGEST_WAIT))
            body = receive_body(self.config, f"{self._name}-{next(self._attempts)}", limit, to_milliseconds(wait))
            repeated = msgspec.structs.replace(body, is_repeated=True)
            response = self._transport.send("POST", self._path, body, repeated=repeated, wait_seconds=wait)
            events = decode_received(response)
            if self._lease_extender is not None:
                self._lease_extender.add(*(event.receipt for event in events))
            if events or time.monotonic() >= deadline:
                return events

    def ack(self, *events: QueueEvent) -> None:
        """Acknowledge events as done. Returns when that is durable.

        Raises `LateReceiptError` if the time was up before, so that others may have them; `error.refused` says which. With
        several events the others are acknowledged all the same. An error whose `outcome` is `unknown` means that they may be.
        """
        self._send(ACK, events)

    def ack_async(self, *events: QueueEvent) -> None:
        """Acknowledge without waiting, batched into requests. The next poll, flush or close raises an error of it."""
        self._stop_extending(events)
        for first in range(0, len(events), MAX_RECEIPTS):
            self._ack_sender.send_later(ACK, [event.receipt for event in events[first : first + MAX_RECEIPTS]])

    def nack(self, *events: QueueEvent, delay: float | timedelta = 0.0, reason: str = "") -> None:
        """Have events delivered again, after `delay` seconds.

        After `max_deliveries` they go to the dead letters instead, with the reason.
        """
        self._send(nack_command(to_milliseconds(to_seconds(delay, timedelta(0), "delay")), reason), events)

    def extend(self, *events: QueueEvent, timeout: float | timedelta | None = None) -> None:
        """Keep events for `timeout` seconds from now on, or for `visibility_timeout`."""
        command = extend_command(to_milliseconds(to_seconds(timeout, self.config.visibility_timeout)))
        for first in range(0, len(events), MAX_RECEIPTS):
            self._ack_sender.send(command, [event.receipt for event in events[first : first + MAX_RECEIPTS]])

    def flush(self) -> None:
        """Wait until every `ack_async` has its outcome. Raises the first failure that was not raised yet."""
        self._ack_sender.flush()
        self._ack_sender.raise_failure()

    def close(self) -> None:
        """Send what is left, return events that were not yielded, and release everything."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._lease_extender is not None:
                self._lease_extender.close()
            if self._prefetched:
                self._return_unseen()
            self._ack_sender.close()
            self._ack_sender.raise_failure()
        finally:
            self._transport.close()

    def _send(self, command: ReceiptCommand, events: tuple[QueueEvent, ...]) -> None:
        if not events:
            raise InvalidRequestError("no event was given; pass events that a poll returned")
        self._stop_extending(events)
        failure: TailraceError | None = None
        for first in range(0, len(events), MAX_RECEIPTS):
            try:
                self._ack_sender.send(command, [event.receipt for event in events[first : first + MAX_RECEIPTS]])
            except TailraceError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _return_unseen(self) -> None:
        receipts = [event.receipt for event in self._prefetched]
        self._prefetched.clear()
        try:
            self._ack_sender.send(RETURN_UNSEEN, receipts)
        except TailraceError as error:
            # They return by themselves when their time is up.
            _log.info("events of group %s that were not yielded could not be returned: %s", self.config.group_id, error)

    def _stop_extending(self, events: tuple[QueueEvent, ...]) -> None:
        if self._lease_extender is not None:
            self._lease_extender.discard(*(event.receipt for event in events))

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError(f"the subscription of group {self.config.group_id!r} is closed")


class LeaseExtender:
    """Extends the time of events that the consumer works on, before it is up."""

    def __init__(self, ack_sender: AckSender, config: QueueConfig) -> None:
        self._ack_sender = ack_sender
        self._config = config
        self._worker = Worker(self._run, f"tailrace queue {config.group_id} lease extender")
        self._closing = Signal()
        self._is_closing = False
        self._received_at: dict[str, float] = {}
        """When each receipt was received."""

    def add(self, *receipts: str) -> None:
        now = time.monotonic()
        self._received_at.update((receipt, now) for receipt in receipts)
        self._worker.start()

    def discard(self, *receipts: str) -> None:
        for receipt in receipts:
            self._received_at.pop(receipt, None)

    def close(self) -> None:
        self._is_closing = True
        self._closing.set()
        self._worker.join()

    def _run(self) -> None:
        interval = self._config.visibility_timeout.total_seconds() / _EXTENSIONS_PER_TIMEOUT
        while not self._is_closing:
            if not self._closing.wait(interval):
                self._extend()

    def _extend(self) -> None:
        longest = self._config.max_poll_interval.total_seconds()
        now = time.monotonic()
        received = list(self._received_at.items())
        stuck = [receipt for receipt, since in received if now - since > longest]
        if stuck:
            _log.warning(
                "a consumer of group %s has had %d events for longer than max_poll_interval (%s); others may get them",
                self._config.group_id,
                len(stuck),
                self._config.max_poll_interval,
            )
            self.discard(*stuck)
        receipts = [receipt for receipt, since in received if now - since <= longest]
        command = extend_command(to_milliseconds(self._config.visibility_timeout.total_seconds()))
        for first in range(0, len(receipts), MAX_RECEIPTS):
            try:
                self._ack_sender.send(command, receipts[first : first + MAX_RECEIPTS])
            except TailraceError as error:
                # A receipt that is late fails again when it is acknowledged, which raises then. Other errors may be transient.
                _log.info("the time of some events of group %s could not be extended: %s", self._config.group_id, error)
