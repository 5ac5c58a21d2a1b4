"""Archiving: records that were delivered too often are read from the log and moved to the dead letters in one frame.

Each share with such records has one task. Records that can't be moved now (a full disk, the limit of topics) become available
again after a pause, when the move is tried again instead of a delivery.
"""

import asyncio
import logging
from collections.abc import Callable

from tailrace.broker.queues.dead_letters import DeadLetterTopics, dead_letter
from tailrace.broker.queues.share import Share
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.broker.reading.committed_reader import CommittedReader
from tailrace.broker.topics.topics import Topics
from tailrace.model.errors import OffsetOutOfRangeError, TailraceError, UnknownTopicError
from tailrace.model.ids import Offset
from tailrace.model.limits import MIB
from tailrace.model.queue import RecordState
from tailrace.model.record import Record
from tailrace.model.topic import Topic

_log = logging.getLogger(__name__)

_BATCH_RECORDS = 100
_BATCH_BYTES = 4 * MIB


class Archiver:
    def __init__(
        self,
        committed: CommittedReader,
        topics: Topics,
        dead_letters: DeadLetterTopics,
        on_missed: Callable[[int], None],
        on_failed: Callable[[Share, list[Offset]], None],
    ) -> None:
        """`on_missed` counts records that retention deleted before they could be read."""
        self._committed = committed
        self._topics = topics
        self._dead_letters = dead_letters
        self._on_missed = on_missed
        self._on_failed = on_failed
        self._tasks: dict[Share, asyncio.Task[None]] = {}

    def archive(self, share: Share, offset: Offset, cause: str) -> "asyncio.Task[None]":
        """Return a task that is done when the share has no records to archive. It never raises; failures are tried again."""
        record = share.state.get(offset)
        if record is not None:
            record.state = RecordState.ARCHIVING
            share.pending_dead_letters[offset] = cause
        task = self._tasks.get(share)
        if task is None:
            loop = asyncio.get_running_loop()
            task = self._tasks[share] = loop.create_task(self._archive_all(share), name="tailrace-archive")
            task.add_done_callback(lambda _: self._tasks.pop(share, None))
        return task

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _archive_all(self, share: Share) -> None:
        while share.pending_dead_letters and not share.is_gone:
            batch = list(share.pending_dead_letters)[:_BATCH_RECORDS]
            try:
                await self._archive(share, batch)
            except TailraceError as error:
                for offset in batch:
                    share.pending_dead_letters.pop(offset, None)
                self._on_failed(share, batch)
                _log.warning(
                    "%d records of the group %s can't be moved to the dead letters now: %s", len(batch), share.group, error
                )

    async def _archive(self, share: Share, offsets: list[Offset]) -> None:
        live = self._topics.by_id(share.partition.topic_id)
        if live is None:
            raise UnknownTopicError("their topic was deleted")
        topic, number = live.topic.name, share.partition.number
        await self._dead_letters.create_for(topic)
        # The records take their room in memory until they are written.
        with self._committed.answers.answer(max_bytes=_BATCH_BYTES) as read:
            for offset in offsets:
                cause = share.pending_dead_letters[offset]
                record = await self._read(live.topic, number, offset, read)
                if record is None and read.is_cut:
                    break
                kept = share.state.get(offset)
                if kept is not None and record is None:
                    share.state.drop([offset])
                    self._on_missed(1)
                elif kept is not None and record is not None:
                    kept.letter = dead_letter(record, topic, number, share.group, kept.deliveries, cause)
                    kept.state = RecordState.ARCHIVED
                del share.pending_dead_letters[offset]
            await asyncio.shield(share.write())

    async def _read(self, topic: Topic, partition: int, offset: Offset, answer: ReadAnswer) -> Record | None:
        """Return the record, or `None` if retention deleted it or if there is no memory for it."""
        try:
            read = await self._committed.read(topic.name, partition, offset, answer, topic_uuid=topic.uuid, max_records=1)
        except OffsetOutOfRangeError:
            return None
        found = read.records[0] if read.records else None
        return found if found is not None and found.offset == offset else None
