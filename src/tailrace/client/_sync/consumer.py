# Generated from _async/consumer.py by tools/generate_sync.py; change that file, then run it.

"""A consumer of one topic, as Kafka's users know it: poll, process, mark, commit.

What was marked as processed is committed, and nothing else: after a crash everything that was not comes again. Consumers of
one group share the partitions of the topic; when one goes, the others take over its share from where it has committed.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from tailrace.client._sync.background import AutoCommit
from tailrace.client._sync.offsets import GroupOffsets
from tailrace.client._sync.transport import Closeable, Transport
from tailrace.client.config import ConsumerConfig, to_seconds
from tailrace.client.partition import AssignedPartition
from tailrace.client.values import CommitResult, ConsumerRecord, PositionReset
from tailrace.model.errors import ClientClosedError, InvalidRequestError, TailraceError, UnknownTopicIdError
from tailrace.wire.batch_stream import decode_fetched

_LONGEST_WAIT = 1.0
"""Seconds of one fetch; after it a consumer looks whether its group shares out anew."""


class TopicConsumer(Closeable):
    """Reads a topic for a group.

    Example:
        with Client("http://127.0.0.1:8080") as client:
            with client.consumer(topic="orders", group_id="billing") as consumer:
                for record in consumer.poll(timeout=5):
                    print(record.offset, record.value)
                    consumer.mark_processed(record)
                consumer.commit()
    """

    def __init__(
        self,
        url: str,
        config: ConsumerConfig | Mapping[str, Any],
        on_reset: Callable[[PositionReset], None] | None = None,
    ) -> None:
        """`config` may be properties as `ConsumerConfig.from_properties` takes them.

        `on_reset` is called by polls, once for each partition, when the topic was deleted and made again and the consumer
        reads the new one from where `auto_offset_reset` says. It is logged as a warning in any case.
        """
        self.config = config if isinstance(config, ConsumerConfig) else ConsumerConfig.from_properties(config)
        self._connection = Transport(url, self.config)
        self._offsets = GroupOffsets(self._connection, self.config, on_reset)
        self._attendant = AutoCommit(self._offsets, self.config)
        self._turn = 0
        self._is_closed = False

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records one by one, for ever. Each counts as processed when the next one is asked for."""
        while not self._is_closed:
            for record in self.poll():
                yield record
                self.mark_processed(record)

    def poll(self, timeout: float | timedelta | None = None) -> list[ConsumerRecord]:
        """The next records, at most `max_poll_records`; none if there are none within the time (`poll_timeout`).

        `timeout` is in seconds. A poll that must join, because the group shares out anew, lasts until the other members have
        polled as well or are given up. Transient errors are tried again for `api_timeout`, then raised; so is an error that
        happened beside, in a commit by interval or by `commit_async`. A batch that can't be decoded is raised when everything
        before it was returned, unless `corrupt_batches` is `skip`; `seek` goes on behind it. When the topic was deleted and
        made again, the consumer goes to where `auto_offset_reset` says in the new one, and tells so (`on_reset`); with `none`
        it raises instead.
        """
        self._check_open()
        self._attendant.polled()
        deadline = time.monotonic() + to_seconds(timeout, self.config.poll_timeout)
        while True:
            self._attendant.raise_failure()
            self._settle()
            records = self._hand_out()
            left = deadline - time.monotonic()
            if records or left < 0:
                break
            failure = self._failure()
            self._fetch(min(left, _LONGEST_WAIT) if failure is None else 0)
            if failure is not None:
                records = self._hand_out()
                if not records:
                    raise failure.afresh()
                break
        self._attendant.polled()
        return records

    def commit(self) -> list[CommitResult]:
        """Commit what was marked as processed, and wait until that is durable. What was committed, by partition.

        Raises if this consumer may no longer speak for the group: its partitions belong to others then, who begin where the
        last commit was.
        """
        self._check_open()
        return self._offsets.commit()

    def commit_async(self) -> None:
        """The same without waiting. An error is raised by the next poll, commit or close."""
        self._check_open()
        self._attendant.ask_for_commit()

    def mark_processed(self, record: ConsumerRecord) -> None:
        """The record is done, and what lies below it as well once all of it is marked. Of partitions that this consumer has
        no longer it is ignored: whoever has them now gets the record again. So are records of a topic that was made again.
        """
        owned = self._offsets.owned.get(record.partition_id)
        if owned is not None and record.topic_uuid in (None, self._offsets.topic_uuid):
            owned.progress.mark(record.offset)

    def seek(self, offset: int, partition_id: int | None = None) -> None:
        """Go on reading from an offset. Marks stay as they are, so what was skipped and not marked holds up commits.

        The partition may be left out where the consumer has one only.
        """
        self._check_open()
        if offset < 0:
            raise InvalidRequestError(f"offset {offset} can't be sought; offsets begin at 0")
        self._settle()
        self._find(partition_id).seek(offset)

    def position(self, partition_id: int | None = None) -> int:
        """The offset of the next record that a poll returns."""
        self._check_open()
        self._settle()
        return self._find(partition_id).position

    def assignment(self) -> list[int]:
        """The partitions that this consumer reads."""
        self._check_open()
        self._settle()
        return sorted(self._offsets.owned)

    def pause(self, *partition_ids: int) -> None:
        """Return no records of these partitions, or of any, until they are resumed. The consumer stays a member."""
        for owned in self._chosen(partition_ids):
            owned.is_paused = True

    def resume(self, *partition_ids: int) -> None:
        for owned in self._chosen(partition_ids):
            owned.is_paused = False

    def close(self) -> None:
        """Commit what is processed (with `enable_auto_commit`), leave the group, and let go of everything."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._attendant.end_commits()
            if self.config.enable_auto_commit or self._attendant.owes_commit:
                self._offsets.commit()
            self._attendant.raise_failure()
        finally:
            self._attendant.close()
            self._offsets.leave()
            self._connection.close()

    def _settle(self) -> None:
        """Be a member with a share, if the group has shared out anew."""
        if self._offsets.needs_join:
            if self.config.enable_auto_commit and self._offsets.owned:
                self._offsets.commit_before_join()
            self._offsets.join()
        self._attendant.start()

    def _hand_out(self) -> list[ConsumerRecord]:
        """From each partition in turn, so that none waits for ever."""
        ready = [owned for owned in self._offsets.owned.values() if not owned.is_paused and not owned.is_empty]
        if not ready:
            return []
        self._turn += 1
        records: list[ConsumerRecord] = []
        for place in range(len(ready)):
            owned = ready[(self._turn + place) % len(ready)]
            records += owned.hand_out(self.config.max_poll_records - len(records))
            if len(records) == self.config.max_poll_records:
                break
        return records

    def _failure(self) -> TailraceError | None:
        """A batch that can't be decoded, where everything before it was handed out."""
        return next((owned.failure for owned in self._wanted() if owned.failure is not None), None)

    def _wanted(self) -> list[AssignedPartition]:
        return [owned for owned in self._offsets.owned.values() if not owned.is_paused and owned.is_empty]

    def _fetch(self, wait_seconds: float) -> None:
        wanted = [owned for owned in self._wanted() if owned.failure is None]
        if not wanted:
            self._attendant.wait(wait_seconds)
            return
        self._turn += 1
        first = self._turn % len(wanted)
        asked = {owned.number: owned.fetch_offset for owned in (*wanted[first:], *wanted[:first])}
        question = {
            "topic": self._offsets.topic,
            "topic_uuid": self._offsets.topic_uuid,
            "positions": [{"partition_id": number, "offset": offset} for number, offset in asked.items()],
            "max_bytes": self.config.fetch_max_bytes,
            "timeout_ms": round(wait_seconds * 1000),
        }
        try:
            answer = self._connection.send("POST", "/api/topics/fetch", question, wait_seconds=wait_seconds)
        except UnknownTopicIdError as error:
            self._offsets.recreated(error)
            return
        for part in decode_fetched(answer):
            number = part.head.partition_id
            owned_now = self._offsets.owned.get(number)
            if owned_now is not None:
                owned_now.take_in(part, asked[number])

    def _find(self, partition_id: int | None) -> AssignedPartition:
        owned = self._offsets.owned
        if partition_id is None and len(owned) == 1:
            return next(iter(owned.values()))
        if partition_id is None or partition_id not in owned:
            raise InvalidRequestError(
                f"partition {partition_id} is not one that this consumer reads; it reads {sorted(owned)}. Name one of them"
            )
        return owned[partition_id]

    def _chosen(self, partition_ids: tuple[int, ...]) -> Iterable[AssignedPartition]:
        return [self._find(number) for number in partition_ids] if partition_ids else self._offsets.owned.values()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError(f"the consumer of {self.config.topic!r} is closed")
