"""Records that were delivered too often, on their way to the dead letters: read from the log, then moved in one frame.

One task for each share that has such records. What can't be moved now (a full disk, as many topics as there may be) is
tried again after a pause, and not handed out meanwhile.
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

_AT_ONCE = 100
_BYTES_AT_ONCE = 4 * MIB


class Archiver:
    def __init__(
        self,
        committed: CommittedReader,
        topics: Topics,
        dead_letters: DeadLetterTopics,
        on_gone: Callable[[int], None],
        on_failed: Callable[[Share, list[Offset]], None],
    ) -> None:
        """`on_gone` counts records that were gone before they could be read."""
        self._committed = committed
        self._topics = topics
        self._dead_letters = dead_letters
        self._on_gone = on_gone
        self._on_failed = on_failed
        self._tasks: dict[Share, asyncio.Task[None]] = {}

    def bury(self, share: Share, offset: Offset, cause: str) -> "asyncio.Task[None]":
        """Done when the share has no such records any more. Failures are tried again and never raised."""
        record = share.state.get(offset)
        if record is not None:
            record.state = RecordState.ARCHIVING
            share.doomed[offset] = cause
        task = self._tasks.get(share)
        if task is None:
            task = self._tasks[share] = asyncio.get_running_loop().create_task(self._bury_all(share), name="tailrace-burial")
            task.add_done_callback(lambda _: self._tasks.pop(share, None))
        return task

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _bury_all(self, share: Share) -> None:
        while share.doomed and not share.is_gone:
            some = list(share.doomed)[:_AT_ONCE]
            try:
                await self._bury(share, some)
            except TailraceError as error:
                for offset in some:
                    share.doomed.pop(offset, None)
                self._on_failed(share, some)
                _log.warning(
                    "%d records of the group %s can't be put among the dead letters now: %s", len(some), share.group, error
                )

    async def _bury(self, share: Share, offsets: list[Offset]) -> None:
        live = self._topics.by_id(share.partition.topic_id)
        if live is None:
            raise UnknownTopicError("their topic was deleted")
        topic, number = live.topic.name, share.partition.number
        await self._dead_letters.make_room(topic)
        # What is read takes its room until it is written.
        with self._committed.answers.answer(max_bytes=_BYTES_AT_ONCE) as read:
            for offset in offsets:
                cause = share.doomed[offset]
                record = await self._read(live.topic, number, offset, read)
                if record is None and read.is_cut:
                    break
                kept = share.state.get(offset)
                if kept is not None and record is None:
                    share.state.drop([offset])
                    self._on_gone(1)
                elif kept is not None and record is not None:
                    kept.letter = dead_letter(record, topic, number, share.group, kept.deliveries, cause)
                    kept.state = RecordState.ARCHIVED
                del share.doomed[offset]
            await asyncio.shield(share.write())

    async def _read(self, topic: Topic, partition: int, offset: Offset, answer: ReadAnswer) -> Record | None:
        """`None` if retention was faster, or if there is no room for it."""
        try:
            read = await self._committed.read(topic.name, partition, offset, answer, topic_uuid=topic.uuid, max_records=1)
        except OffsetOutOfRangeError:
            return None
        found = read.records[0] if read.records else None
        return found if found is not None and found.offset == offset else None
