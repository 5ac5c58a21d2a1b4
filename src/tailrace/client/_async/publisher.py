"""A publisher: sends messages in order, batched into requests, and has each stored once.

One request is under way at a time. It carries the publisher's name and a number, so that a request whose response was lost is
sent again under the same number and stored once. Messages that arrive in the meantime go into the next request.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

import msgspec

from tailrace.client._async.batch_sender import AsyncBatchSender
from tailrace.client._async.concurrency import AsyncOutcome, pause
from tailrace.client._async.transport import AsyncCloseable, AsyncTransport
from tailrace.client.config import PublisherConfig
from tailrace.client.publish_buffer import PendingMessages, PublishBuffer, encode_message, encode_publish, to_outgoing_message
from tailrace.client.retry import Attempts, is_transient
from tailrace.client.values import GivenHeaders, OutgoingMessage, PublishResult
from tailrace.model.errors import OverloadedError, TailraceError

_MAX_KEPT_FAILURES = 100


class _PublishResponse(msgspec.Struct):
    """`api.messages.PublishResponse`, decoded straight into what the SDK returns."""

    records: list[PublishResult]


_PUBLISH_RESPONSE = msgspec.json.Decoder(_PublishResponse)


class AsyncDelivery:
    """The outcome of messages that were sent without waiting."""

    __slots__ = ("_outcome", "error", "was_asked")

    def __init__(self) -> None:
        self._outcome: AsyncOutcome[list[PublishResult]] = AsyncOutcome()
        self.error: Exception | None = None
        self.was_asked = False

    async def results(self) -> list[PublishResult]:
        """Return where the messages are stored, once they are durable. Raises if they could not be published."""
        self.was_asked = True
        return await self._outcome.get()

    async def result(self) -> PublishResult:
        """Return where the only message is stored."""
        return (await self.results())[0]

    def succeed(self, results: list[PublishResult]) -> None:
        self._outcome.set_value(results)

    def fail(self, error: Exception) -> None:
        self.error = error
        self._outcome.set_error(error)


class AsyncPublisher(AsyncCloseable):
    """Publishes messages to any topics.

    Example:
        async with AsyncClient("http://127.0.0.1:8080") as client:
            async with client.publisher() as publisher:
                result = await publisher.publish("orders", {"id": 1}, key="c1", headers={"trace": "7"})
                print(result.partition_id, result.offset)
                for number in range(1000):
                    await publisher.send("orders", {"id": number})
                await publisher.flush()
    """

    def __init__(self, url: str, config: PublisherConfig | None = None) -> None:
        self.config = config or PublisherConfig()
        self._transport = AsyncTransport(url, self.config)
        self._wait_seconds = self.config.api_timeout.total_seconds()
        self._name = uuid4().hex
        self._number = 0
        self._buffer: PublishBuffer[AsyncDelivery] = PublishBuffer(self.config)
        self._sender: AsyncBatchSender[PendingMessages[AsyncDelivery]] = AsyncBatchSender(
            self._buffer, self._send_batch, "publisher"
        )
        self._failures: deque[AsyncDelivery] = deque(maxlen=_MAX_KEPT_FAILURES)
        self._is_closed = False

    async def publish(
        self,
        topic: str,
        value: Any,
        *,
        key: str | bytes | None = None,
        headers: GivenHeaders = (),
        message_id: str | None = None,
        partition_id: int | None = None,
        timestamp_ms: int | None = None,
    ) -> PublishResult:
        """Publish a message, wait until it is durable, and return where it is stored: partition, offset, cursor.

        Bytes are stored as they are, everything else as JSON; `None` is a tombstone. An error whose `outcome` is `unknown`
        means that the message may be stored all the same.
        """
        message = OutgoingMessage(topic, value, key, headers, message_id, partition_id, timestamp_ms)
        delivery = await self._send([encode_message(message)], is_awaited=True)
        return await delivery.result()

    async def publish_batch(self, messages: Iterable[OutgoingMessage | tuple[str, Any]]) -> list[PublishResult]:
        """Publish messages to any number of topics and return where each is stored. All become visible together, or none does.

        A message is an `OutgoingMessage` or just its topic and value.
        """
        encoded = [encode_message(to_outgoing_message(message)) for message in messages]
        if not encoded:
            return []
        delivery = await self._send(encoded, is_awaited=True)
        return await delivery.results()

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        key: str | bytes | None = None,
        headers: GivenHeaders = (),
        message_id: str | None = None,
        partition_id: int | None = None,
        timestamp_ms: int | None = None,
    ) -> AsyncDelivery:
        """Publish without waiting for the outcome, which the delivery has. Waits only while the buffer is full.

        `flush` and `close` raise failures that nobody asked a delivery for, so none goes unseen.
        """
        message = OutgoingMessage(topic, value, key, headers, message_id, partition_id, timestamp_ms)
        return await self._send([encode_message(message)])

    async def flush(self) -> None:
        """Wait until everything that was sent has its outcome. Raises the first failure that was not raised yet."""
        await self._sender.flush()
        failures = [delivery.error for delivery in self._failures if delivery.error is not None and not delivery.was_asked]
        self._failures.clear()
        if failures:
            raise failures[0]

    async def close(self) -> None:
        """Send what is left, wait for its outcome, and release everything."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._sender.close()
            await self.flush()
        finally:
            await self._transport.close()

    async def _send(self, messages: list[msgspec.Raw], *, is_awaited: bool = False) -> AsyncDelivery:
        delivery = AsyncDelivery()
        pending = PendingMessages(messages, sum(map(len, messages)), delivery)
        if not await self._sender.put(pending, self._wait_seconds, is_awaited=is_awaited):
            raise OverloadedError(
                f"{self._buffer.records} messages wait to be sent, as many as buffer_records and buffer_bytes allow, and there"
                f" was no room for more within {self.config.api_timeout}; nothing was sent"
            )
        return delivery

    async def _send_batch(self, batch: list[PendingMessages[AsyncDelivery]]) -> None:
        try:
            results = await self._request(batch)
        except TailraceError as error:
            if len(batch) > 1 and error.outcome == "failed" and not is_transient(error):
                # One of them is at fault, so each is sent alone.
                for pending in batch:
                    await self._send_batch([pending])
                return
            self._fail(batch, error)
        except Exception as error:  # noqa: BLE001  the top of the worker: callers get it as the outcome
            self._fail(batch, error)
        else:
            first = 0
            for pending in batch:
                pending.outcome.succeed(results[first : first + len(pending.messages)])
                first += len(pending.messages)

    def _fail(self, batch: list[PendingMessages[AsyncDelivery]], error: Exception) -> None:
        for pending in batch:
            pending.outcome.fail(error)
            self._failures.append(pending.outcome)

    async def _request(self, batch: list[PendingMessages[AsyncDelivery]]) -> list[PublishResult]:
        """Send one request, under the same number each time, until its outcome is known or `api_timeout` has passed."""
        self._number += 1
        body = encode_publish(self._name, self._number, batch)
        attempts = Attempts(self.config)
        while True:
            try:
                response = await self._transport.send_once("POST", "/api/topics/publish", body)
            except TailraceError as error:
                seconds = attempts.pause_after(error)
                if seconds is None:
                    raise attempts.final_error(error) from error
            else:
                return _PUBLISH_RESPONSE.decode(response).records
            await pause(seconds)
