"""A consumer of one topic, as users of Kafka know it: poll, process, mark, commit.

Only what was marked as processed is committed: after a crash everything else is delivered again. The consumers of a group share
the partitions of the topic; when one leaves, the others take over its partitions at its last commit.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

from tailrace.api.consume import FetchBody, StartPosition
from tailrace.client._async.concurrency import AsyncSignal
from tailrace.client._async.membership import AsyncHeartbeat, AsyncMembership
from tailrace.client._async.offsets import AsyncAutoCommit, AsyncGroupOffsets
from tailrace.client._async.transport import AsyncCloseable, AsyncTransport
from tailrace.client.config import ConsumerConfig, to_seconds
from tailrace.client.partition import AssignedPartition
from tailrace.client.values import CommitResult, ConsumerRecord, PositionReset
from tailrace.model.errors import ClientClosedError, InvalidRequestError, TailraceError, UnknownTopicIdError
from tailrace.wire.batch_stream import decode_fetched

_LONGEST_WAIT = 1.0
"""Seconds of one fetch, after which the consumer looks whether its group rebalances."""


class AsyncTopicConsumer(AsyncCloseable):
    """Reads a topic for a group.

    Example:
        async with AsyncClient("http://127.0.0.1:8080") as client:
            async with client.consumer(topic="orders", group_id="billing") as consumer:
                for record in await consumer.poll(timeout=5):
                    print(record.offset, record.value)
                    consumer.mark_processed(record)
                await consumer.commit()
    """

    def __init__(
        self,
        url: str,
        config: ConsumerConfig | Mapping[str, Any],
        on_reset: Callable[[PositionReset], None] | None = None,
    ) -> None:
        """`config` may be properties as `ConsumerConfig.from_properties` takes them.

        Polls call `on_reset` once for each partition when the topic was deleted and created again and the consumer reads the
        new one from where `auto_offset_reset` says. A warning is logged in any case.
        """
        self.config = config if isinstance(config, ConsumerConfig) else ConsumerConfig.from_properties(config)
        self._transport = AsyncTransport(url, self.config)
        self._membership = None if self.config.partition_id is not None else AsyncMembership(self._transport, self.config)
        self._offsets = AsyncGroupOffsets(self._transport, self.config, self._membership, on_reset)
        self._heartbeat = (
            None if self._membership is None else AsyncHeartbeat(self._membership, self.config, self._keep_failure)
        )
        self._auto_commit = AsyncAutoCommit(self._offsets, self.config, self._keep_failure)
        self._failure: Exception | None = None
        """An error of the heartbeats or the commits in the background. The next poll, commit or close raises it."""
        self._turn = 0
        self._closing = AsyncSignal()
        self._is_closed = False

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Yield records one by one, without end. Each counts as processed when the next one is asked for."""
        while not self._is_closed:
            for record in await self.poll():
                yield record
                self.mark_processed(record)

    async def poll(self, timeout: float | timedelta | None = None) -> list[ConsumerRecord]:  # noqa: ASYNC109
        """Return the next records, at most `max_poll_records`; none if none arrive within the time (`poll_timeout`).

        `timeout` is in seconds. A poll that must join, because the group rebalances, lasts until the other members have polled
        as well or are given up. Transient errors are retried for `api_timeout`, then raised; so is an error of a background
        commit, by interval or by `commit_async`. A batch that can't be decoded is raised when everything before it was
        returned, unless `corrupt_batches` is `skip`; `seek` continues behind it. When the topic was deleted and created again,
        the consumer continues in the new one where `auto_offset_reset` says and calls `on_reset`; with `none` it raises.
        """
        self._check_open()
        self._note_poll()
        deadline = time.monotonic() + to_seconds(timeout, self.config.poll_timeout)
        while True:
            self._raise_failure()
            await self._ensure_joined()
            records = self._take_fetched()
            left = deadline - time.monotonic()
            if records or left < 0:
                break
            unreadable = self._unreadable()
            await self._fetch(min(left, _LONGEST_WAIT) if unreadable is None else 0)
            if unreadable is not None:
                records = self._take_fetched()
                if not records:
                    raise unreadable.afresh()
                break
        self._note_poll()
        return records

    async def commit(self) -> list[CommitResult]:
        """Commit what was marked as processed and wait until that is durable. Returns what was committed, by partition.

        Raises if this consumer may no longer commit for the group: its partitions then belong to others, who begin at the last
        commit.
        """
        self._check_open()
        return await self._offsets.commit()

    async def commit_async(self) -> None:
        """Commit without waiting. The next poll, commit or close raises an error of it."""
        self._check_open()
        self._auto_commit.request()

    def mark_processed(self, record: ConsumerRecord) -> None:
        """Mark a record as processed. It can be committed once everything below it is marked as well.

        Ignored for partitions that are no longer assigned to this consumer, whose new owner reads the record again, and for
        records of a topic that was created again since.
        """
        partition = self._offsets.assigned.get(record.partition_id)
        if partition is not None and record.topic_uuid in (None, self._offsets.topic_uuid_text):
            partition.progress.mark(record.offset)

    async def seek(self, offset: int, partition_id: int | None = None) -> None:
        """Continue reading at an offset. Marks stay as they are, so records that are skipped without a mark hold up commits.

        The partition may be left out if the consumer has only one.
        """
        self._check_open()
        if offset < 0:
            raise InvalidRequestError(f"can't seek to offset {offset}; offsets begin at 0")
        await self._ensure_joined()
        self._find(partition_id).seek(offset)

    async def position(self, partition_id: int | None = None) -> int:
        """Return the offset of the next record that a poll returns."""
        self._check_open()
        await self._ensure_joined()
        return self._find(partition_id).position

    async def assignment(self) -> list[int]:
        """Return the partitions that this consumer reads."""
        self._check_open()
        await self._ensure_joined()
        return sorted(self._offsets.assigned)

    def pause(self, *partition_ids: int) -> None:
        """Return no records of these partitions, or of any, until they are resumed. The consumer stays a member."""
        for partition in self._chosen(partition_ids):
            partition.is_paused = True

    def resume(self, *partition_ids: int) -> None:
        for partition in self._chosen(partition_ids):
            partition.is_paused = False

    async def close(self) -> None:
        """Commit what is processed (with `enable_auto_commit`), leave the group, and release everything."""
        if self._is_closed:
            return
        self._is_closed = True
        self._closing.set()
        try:
            # Heartbeats continue until the last commit is made, because only a member may make it.
            await self._auto_commit.close()
            if self.config.enable_auto_commit or self._auto_commit.is_requested:
                await self._offsets.commit()
            self._raise_failure()
        finally:
            await self._auto_commit.close()
            if self._heartbeat is not None:
                await self._heartbeat.close()
            if self._membership is not None:
                await self._membership.leave()
            await self._transport.close()

    async def _ensure_joined(self) -> None:
        """Join if the group rebalances, and start what runs in the background."""
        if self._offsets.needs_join:
            if self.config.enable_auto_commit and self._offsets.assigned:
                await self._offsets.commit_before_join()
            await self._offsets.join()
        self._auto_commit.start()
        if self._heartbeat is not None:
            self._heartbeat.start()

    def _take_fetched(self) -> list[ConsumerRecord]:
        """Take fetched records from each partition in turn, so that every partition is served."""
        ready = [
            partition for partition in self._offsets.assigned.values() if not partition.is_paused and not partition.is_empty
        ]
        if not ready:
            return []
        self._turn += 1
        records: list[ConsumerRecord] = []
        for place in range(len(ready)):
            partition = ready[(self._turn + place) % len(ready)]
            records += partition.take_records(self.config.max_poll_records - len(records))
            if len(records) == self.config.max_poll_records:
                break
        return records

    def _unreadable(self) -> TailraceError | None:
        """Return the error of a batch that can't be decoded, if everything before it was returned."""
        return next((partition.failure for partition in self._empty_partitions() if partition.failure is not None), None)

    def _empty_partitions(self) -> list[AssignedPartition]:
        return [partition for partition in self._offsets.assigned.values() if not partition.is_paused and partition.is_empty]

    async def _fetch(self, wait_seconds: float) -> None:
        wanted = [partition for partition in self._empty_partitions() if partition.failure is None]
        if not wanted:
            await self._closing.wait(wait_seconds)
            return
        self._turn += 1
        first = self._turn % len(wanted)
        requested = {partition.number: partition.fetch_offset for partition in (*wanted[first:], *wanted[:first])}
        body = FetchBody(
            self._offsets.topic,
            [StartPosition(number, offset) for number, offset in requested.items()],
            self.config.fetch_max_bytes,
            round(wait_seconds * 1000),
            self._offsets.topic_uuid,
        )
        try:
            response = await self._transport.send("POST", "/api/topics/fetch", body, wait_seconds=wait_seconds)
        except UnknownTopicIdError as error:
            self._offsets.handle_recreated(error)
            return
        for part in decode_fetched(response):
            number = part.head.partition_id
            partition = self._offsets.assigned.get(number)
            if partition is not None:
                partition.add_fetched(part, requested[number])

    def _find(self, partition_id: int | None) -> AssignedPartition:
        assigned = self._offsets.assigned
        if partition_id is None and len(assigned) == 1:
            return next(iter(assigned.values()))
        if partition_id is None or partition_id not in assigned:
            raise InvalidRequestError(
                f"partition {partition_id} is not assigned to this consumer, which reads {sorted(assigned)}; name one of these"
            )
        return assigned[partition_id]

    def _chosen(self, partition_ids: tuple[int, ...]) -> Iterable[AssignedPartition]:
        return [self._find(number) for number in partition_ids] if partition_ids else self._offsets.assigned.values()

    def _note_poll(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.note_poll()

    def _keep_failure(self, error: Exception) -> None:
        self._failure = error

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError(f"the consumer of {self.config.topic!r} is closed")
