"""A publisher: messages go out in the order in which they were given, gathered to requests, each stored once.

One request is on its way at a time. It has the publisher's name and a number, so one whose answer was lost is sent again
under the same number, and the server stores it once. What comes meanwhile gathers to the next request.
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

_REMEMBERED_FAILURES = 100


class _Answer(msgspec.Struct):
    records: list[PublishResult]


_ANSWERS = msgspec.json.Decoder(_Answer)


class AsyncDelivery:
    """Messages that were sent and not waited for."""

    __slots__ = ("_outcome", "error", "was_asked")

    def __init__(self) -> None:
        self._outcome: AsyncOutcome[list[PublishResult]] = AsyncOutcome()
        self.error: Exception | None = None
        self.was_asked = False

    async def results(self) -> list[PublishResult]:
        """Where the messages are, once that is durable. Raises if they could not be published."""
        self.was_asked = True
        return await self._outcome.get()

    async def result(self) -> PublishResult:
        """The same for a single message."""
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
        self._patience = self.config.api_timeout.total_seconds()
        self._connection = AsyncTransport(url, self.config)
        self._name = uuid4().hex
        self._number = 0
        self._outbox: PublishBuffer[AsyncDelivery] = PublishBuffer(self.config)
        self._courier: AsyncBatchSender[PendingMessages[AsyncDelivery]] = AsyncBatchSender(
            self._outbox, self._deliver, "publisher"
        )
        self._failed: deque[AsyncDelivery] = deque(maxlen=_REMEMBERED_FAILURES)
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
        """Publish a message and wait until it is durable. Where it is: partition, offset, cursor.

        Bytes are stored as they are, everything else as JSON; `None` is a tombstone. An error whose `outcome` is `unknown`
        means that the message may be stored nevertheless.
        """
        message = OutgoingMessage(topic, value, key, headers, message_id, partition_id, timestamp_ms)
        delivery = await self._send([encode_message(message)], is_awaited=True)
        return await delivery.result()

    async def publish_batch(self, messages: Iterable[OutgoingMessage | tuple[str, Any]]) -> list[PublishResult]:
        """Publish messages to any number of topics: all become visible together, or none does. Where each of them is.

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
        """Publish without waiting for the outcome, which the delivery knows. Waits only while the buffer is full.

        What nobody asks a delivery for is raised by `flush` and `close`, so no failure goes unseen.
        """
        message = OutgoingMessage(topic, value, key, headers, message_id, partition_id, timestamp_ms)
        return await self._send([encode_message(message)])

    async def flush(self) -> None:
        """Wait until everything that was sent has its outcome. Raises the first failure that nobody has been told of."""
        await self._courier.flush()
        failures = [delivery.error for delivery in self._failed if delivery.error is not None and not delivery.was_asked]
        self._failed.clear()
        if failures:
            raise failures[0]

    async def close(self) -> None:
        """Send what is left, wait for its outcome, and let go of everything."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._courier.close()
            await self.flush()
        finally:
            await self._connection.close()

    async def _send(self, messages: list[bytes], *, is_awaited: bool = False) -> AsyncDelivery:
        delivery = AsyncDelivery()
        parcel = PendingMessages(messages, sum(map(len, messages)), delivery)
        if not await self._courier.put(parcel, self._patience, is_awaited=is_awaited):
            raise OverloadedError(
                f"{self._outbox.records} messages wait to be sent, as many as buffer_records and buffer_bytes allow, and"
                f" there was no room for {self.config.api_timeout}; nothing was taken"
            )
        return delivery

    async def _deliver(self, parcels: list[PendingMessages[AsyncDelivery]]) -> None:
        try:
            results = await self._request(parcels)
        except TailraceError as error:
            if len(parcels) > 1 and error.outcome == "failed" and not is_transient(error):
                # One of them is at fault; the others need not suffer for it.
                for parcel in parcels:
                    await self._deliver([parcel])
                return
            self._fail(parcels, error)
        except Exception as error:  # noqa: BLE001  the top of the worker: whoever waits for these messages is told
            self._fail(parcels, error)
        else:
            first = 0
            for parcel in parcels:
                parcel.outcome.succeed(results[first : first + len(parcel.messages)])
                first += len(parcel.messages)

    def _fail(self, parcels: list[PendingMessages[AsyncDelivery]], error: Exception) -> None:
        for parcel in parcels:
            parcel.outcome.fail(error)
            self._failed.append(parcel.outcome)

    async def _request(self, parcels: list[PendingMessages[AsyncDelivery]]) -> list[PublishResult]:
        """One request, sent again under the same number until its outcome is known or `api_timeout` has passed."""
        self._number += 1
        body = encode_publish(self._name, self._number, parcels)
        attempts = Attempts(self.config)
        while True:
            try:
                answer = await self._connection.send_once("POST", "/api/topics/publish", body)
            except TailraceError as error:
                seconds = attempts.pause_after(error)
                if seconds is None:
                    raise attempts.final_error(error) from error
            else:
                return _ANSWERS.decode(answer).records
            await pause(seconds)
