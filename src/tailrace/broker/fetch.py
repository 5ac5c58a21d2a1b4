"""Reading, with patience: a fetch that finds too little waits until a commit brings enough, or until its time is up.

A waiter is a future, counted down by the commits that touch its partitions; nothing polls. Whatever happens to a partition
besides (its topic deleted, its start moved) wakes its waiters as well, and they find out by reading again.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from tailrace.broker.live_topic import LiveTopic
from tailrace.broker.reader import ReadAt, Reader
from tailrace.broker.topics import Topics
from tailrace.broker.transactions.aborted import AbortedTransactions
from tailrace.broker.transactions.committed import committed_batches
from tailrace.broker.transactions.stable import StableOffsets
from tailrace.model.changes import Bounds, Buffer, Fetched
from tailrace.model.consume import PartitionOffset
from tailrace.model.errors import (
    CorruptBatchError,
    InvalidRequestError,
    LimitExceededError,
    OverloadedError,
    StoreClosedError,
    TailraceError,
)
from tailrace.model.fetch import (
    NO_BOUNDS,
    CommittedBatches,
    Isolation,
    PartitionBatches,
    PartitionFetch,
    PartitionRecords,
)
from tailrace.model.ids import Cursor, Offset, Partition
from tailrace.model.limits import KIB, MIB, Limits
from tailrace.model.record import Record
from tailrace.store.contract import Store
from tailrace.wire.batch import read_header
from tailrace.wire.records import decode_batch

_DECODED_INLINE_BYTES = 64 * KIB
_READ_BYTES = MIB
_RECORDS_AT_A_STRETCH = 1_000
"""Records decoded before others get their turn."""
_SHARES = 8
"""How many such parts a read of many partitions may have in all."""


class Fetcher:
    def __init__(
        self,
        store: Store,
        reader: Reader,
        topics: Topics,
        stable: StableOffsets,
        aborted: AbortedTransactions,
        limits: Limits,
    ) -> None:
        self._store = store
        self._reader = reader
        self._topics = topics
        self._stable = stable
        self._aborted = aborted
        self._limits = limits
        self._waiting: dict[Partition, set[_Waiter]] = {}
        self._closed = False
        self.waiters = 0

    async def fetch(
        self,
        wanted: Sequence[PartitionFetch],
        *,
        min_bytes: int = 1,
        max_bytes: int | None = None,
        max_wait_ms: int = 0,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> list[PartitionBatches]:
        """What there is to read, once it is `min_bytes` or `max_wait_ms` have passed. An error of a partition is told at once.

        Of the first partition that has records at least one batch is returned, however large; the others share what is left
        of `max_bytes`, and have nothing if their next batch is larger than what was asked of them, as in Kafka. So a client can
        take one large batch apart while the next is on its way.
        """
        targets = [self._target(request) for request in wanted]
        answers = await self._fetch(targets, min_bytes, max_bytes, max_wait_ms, isolation, oversize_alone=True)
        for target, answer in zip(targets, answers, strict=True):
            if answer.batches and isinstance(target, _Target):
                _count_batches(target.live, answer.batches)
        return answers

    async def committed(
        self, topic: str, partition: int, offset: Offset, *, max_bytes: int | None = None, max_wait_ms: int = 0
    ) -> CommittedBatches:
        """Batches from the one that holds `offset` on, without those of transactions that are open or were aborted."""
        live = self._topics.get(topic)
        budget = _READ_BYTES if max_bytes is None else max_bytes
        target = _Target(PartitionFetch(topic, partition, offset, budget), live, live.partition(partition))
        (answer,) = await self._fetch([target], 1, budget, max_wait_ms, Isolation.READ_COMMITTED)
        committed = _committed(answer, offset)
        if committed.batches:
            _count_batches(live, committed.batches)
        return committed

    async def committed_many(
        self, topic: str, starts: Sequence[PartitionOffset], *, max_bytes: int | None = None, max_wait_ms: int = 0
    ) -> dict[int, CommittedBatches]:
        """The same for several partitions of a topic, by their numbers. Of the bytes each gets an equal share."""
        live = self._topics.get(topic)
        budget = min(self._limits.fetch_bytes, _READ_BYTES if max_bytes is None else max_bytes)
        targets = [
            _Target(PartitionFetch(topic, number, offset, budget // len(starts)), live, live.partition(number))
            for number, offset in starts
        ]
        answers = await self._fetch(targets, 1, budget, max_wait_ms, Isolation.READ_COMMITTED)
        found = {number: _committed(answer, offset) for (number, offset), answer in zip(starts, answers, strict=True)}
        for committed in found.values():
            if committed.batches:
                _count_batches(live, committed.batches)
        return found

    async def await_growth(self, ends: Mapping[str, Sequence[int]], max_wait_ms: int) -> None:
        """Until a partition of one of these topics can be read beyond its offset here, or the time is up."""
        wanted = [PartitionFetch(topic, at, Offset(end), 1) for topic, each in ends.items() for at, end in enumerate(each)]
        await self._fetch([self._target(request) for request in wanted], 1, 1, max_wait_ms, Isolation.READ_COMMITTED)

    async def read(
        self,
        topic: str,
        partition: int,
        offset: Offset,
        *,
        max_records: int,
        max_bytes: int | None = None,
        max_wait_ms: int = 0,
    ) -> PartitionRecords:
        """Decoded records from `offset` on, without those of transactions that are open or were aborted."""
        read = await self.read_many(
            topic,
            [PartitionOffset(partition, offset)],
            max_records=max_records,
            max_bytes=_READ_BYTES if max_bytes is None else max_bytes,
            max_wait_ms=max_wait_ms,
        )
        return read[partition]

    async def read_many(
        self,
        topic: str,
        starts: Sequence[PartitionOffset],
        *,
        max_records: int,
        max_bytes: int | None = None,
        max_wait_ms: int = 0,
    ) -> dict[int, PartitionRecords]:
        """The same for several partitions of a topic: from each up to `max_records`, and of the bytes an equal share."""
        limits = self._limits
        if not 0 < max_records <= limits.read_records:
            raise LimitExceededError(f"{max_records} records were asked for; read_records allows 1 to {limits.read_records}")
        live = self._topics.get(topic)
        budget = _READ_BYTES * min(len(starts), _SHARES) if max_bytes is None else max_bytes
        targets = [
            _Target(PartitionFetch(topic, number, offset, budget // len(starts)), live, live.partition(number))
            for number, offset in starts
        ]
        answers = await self._fetch(targets, 1, budget, max_wait_ms, Isolation.READ_COMMITTED)
        return {
            number: await self._decoded(live, answer, offset, max_records)
            for (number, offset), answer in zip(starts, answers, strict=True)
        }

    async def _decoded(self, live: LiveTopic, answer: PartitionBatches, offset: Offset, max_records: int) -> PartitionRecords:
        batches, cursors, next_offset, bounds = _committed(answer, offset)
        records: list[Record] = []
        held_up = 0
        for batch, cursor in zip(batches, cursors, strict=True):
            try:
                records += await self._decode(batch, cursor, offset, max_records - len(records))
            except InvalidRequestError as error:
                if records:
                    next_offset = Offset(records[-1].offset + 1)
                    break
                header = read_header(batch)
                last = header.base_offset + header.last_offset_delta
                raise CorruptBatchError(
                    f"offsets {header.base_offset} to {last} of {live.topic.name!r}, partition {answer.partition}, can't be"
                    f" decoded: {error}. Go on at {last + 1}"
                ) from error
            if len(records) == max_records:
                next_offset = Offset(records[-1].offset + 1)
                break
            if len(records) - held_up >= _RECORDS_AT_A_STRETCH:
                held_up = len(records)
                await asyncio.sleep(0)
        live.messages_out += len(records)
        live.bytes_out += sum(len(record.key or b"") + len(record.value or b"") for record in records)
        return PartitionRecords(records, next_offset, bounds, next_offset < answer.last_stable_offset)

    def arrived(self, partition: Partition, size: int) -> None:
        """So many bytes more can be read."""
        waiters = self._waiting.get(partition)
        if waiters is not None:
            is_held = self._stable.is_held(partition)
            for waiter in waiters:
                if is_held and waiter.isolation is Isolation.READ_COMMITTED:
                    continue
                waiter.missing_bytes -= size
                if waiter.missing_bytes <= 0:
                    waiter.wake()

    def stabilized(self, partition: Partition, size: int) -> None:
        """A transaction has ended, with a marker of so many bytes: readers of committed records may see more than that."""
        self.arrived(partition, size)
        for waiter in self._waiting.get(partition, ()):
            if waiter.isolation is Isolation.READ_COMMITTED:
                waiter.wake()

    def disturbed(self, partition: Partition) -> None:
        """Something else happened to the partition; whoever waits must look."""
        for waiter in self._waiting.get(partition, ()):
            waiter.wake()

    def close(self) -> None:
        self._closed = True
        for waiters in self._waiting.values():
            for waiter in waiters:
                waiter.wake()

    def _target(self, request: PartitionFetch) -> "_Target | PartitionBatches":
        try:
            live = self._topics.get(request.topic)
            return _Target(request, live, live.partition(request.partition))
        except TailraceError as error:
            return _refused(request, error)

    async def _fetch(
        self,
        targets: "Sequence[_Target | PartitionBatches]",
        min_bytes: int,
        max_bytes: int | None,
        max_wait_ms: int,
        isolation: Isolation,
        *,
        oversize_alone: bool = False,
    ) -> list[PartitionBatches]:
        if max_wait_ms < 0 or min_bytes < 0 or (max_bytes is not None and max_bytes < 0):
            raise InvalidRequestError(
                f"max_wait_ms {max_wait_ms}, min_bytes {min_bytes} and max_bytes {max_bytes} can't be below 0"
            )
        limits = self._limits
        budget = limits.fetch_bytes if max_bytes is None else min(max_bytes, limits.fetch_bytes)
        enough = min(min_bytes, budget)
        terms = _Terms(budget, isolation, oversize_alone)
        now = asyncio.get_running_loop().time
        deadline = now() + min(max_wait_ms, limits.fetch_wait_ms) / 1000
        while True:
            if self._closed:
                raise StoreClosedError("the broker is closing; read again after the restart")
            answers, found = await self._read_all(targets, terms)
            if found >= enough or now() >= deadline or any(answer.error is not None for answer in answers):
                return answers
            if found and any(map(partial(_has_left_out, isolation), targets, answers)):
                return answers
            seen = {
                target.partition: _Seen(answer.bounds, answer.last_stable_offset)
                for target, answer in zip(targets, answers, strict=True)
                if isinstance(target, _Target)
            }
            await self._wait(seen, enough - found, deadline, isolation)

    async def _read_all(
        self, targets: "Sequence[_Target | PartitionBatches]", terms: "_Terms"
    ) -> tuple[list[PartitionBatches], int]:
        answers = []
        found = 0
        ahead = await self._read_ahead(targets, terms) if len(targets) > 1 else {}
        for target in targets:
            if isinstance(target, PartitionBatches):
                answers.append(target)
                continue
            answer = await self._read_one(target, terms, found, ahead)
            found += sum(map(len, answer.batches))
            answers.append(answer)
        return answers, found

    async def _read_ahead(
        self, targets: "Sequence[_Target | PartitionBatches]", terms: "_Terms"
    ) -> Mapping[ReadAt, Fetched | None]:
        wanted = []
        for target in targets:
            if isinstance(target, _Target):
                with suppress(TailraceError):
                    if not terms.isolation or target.request.offset < self._look(target.partition).last_stable_offset:
                        wanted.append(terms.read_at(target))
        try:
            return await self._reader.fetch_ahead(wanted, terms.budget, until_oversize=terms.oversize_alone)
        except OverloadedError:
            return {}  # told for each partition, if it is still so

    async def _read_one(
        self, target: "_Target", terms: "_Terms", found: int, ahead: Mapping[ReadAt, Fetched | None]
    ) -> PartitionBatches:
        topic, number, offset, max_bytes = target.request
        partition, isolation = target.partition, terms.isolation
        left = terms.budget - found
        read_at = terms.read_at(target)
        try:
            fetched = ahead.get(read_at)
            is_too_late = bool(found) and (left <= 0 or (fetched is None and read_at in ahead))
            if isolation or is_too_late:
                bounds, stable = self._look(partition)
                if is_too_late or stable <= offset <= bounds.end:
                    return PartitionBatches(topic, number, (), bounds, None, stable)
            if fetched is None:
                fetched = await self._reader.fetch(partition, offset, max(0, min(max_bytes, left)))
            batches, bounds, cursors = fetched
            # After the reading: what lies below this offset was decided before, and the index of the aborted ones knows it.
            stable = self._stable.of(partition, bounds)
            if isolation and stable < bounds.end:
                batches = [batch for batch in batches if read_header(batch).base_offset < stable]
            if found and sum(map(len, batches)) > (min(left, max_bytes) if terms.oversize_alone else left):
                batches = ()
            aborted = self._aborted.between(partition, offset, _end_of(batches[-1])) if isolation and batches else ()
        except TailraceError as error:
            return _refused(target.request, error)
        return PartitionBatches(topic, number, batches, bounds, None, stable, aborted, cursors[: len(batches)])

    async def _wait(self, seen: "Mapping[Partition, _Seen]", missing_bytes: int, deadline: float, isolation: Isolation) -> None:
        """Until there may be so many bytes more, until something else happens to the partitions, or until the deadline."""
        if self.waiters >= self._limits.fetch_waiters:
            raise OverloadedError(
                f"{self.waiters} fetches wait already, as many as fetch_waiters allows; try again after a pause"
            )
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop.create_future(), missing_bytes, isolation)
        timer = loop.call_at(deadline, waiter.wake)
        self.waiters += 1
        for partition in seen:
            self._waiting.setdefault(partition, set()).add(waiter)
        try:
            if self._has_moved(seen):
                await asyncio.sleep(0)
            else:
                await waiter.future
        finally:
            timer.cancel()
            self.waiters -= 1
            for partition in seen:
                waiters = self._waiting[partition]
                waiters.discard(waiter)
                if not waiters:
                    del self._waiting[partition]

    def _has_moved(self, seen: "Mapping[Partition, _Seen]") -> bool:
        """Whether something was committed after the reading, which has woken nobody."""
        try:
            return any(self._look(partition) != before for partition, before in seen.items())
        except TailraceError:
            return True

    def _look(self, partition: Partition) -> "_Seen":
        bounds = self._store.bounds(partition)
        return _Seen(bounds, self._stable.of(partition, bounds))

    async def _decode(self, batch: Buffer, cursor: Cursor, offset: Offset, most: int) -> list[Record]:
        header = read_header(batch)
        first = max(0, offset - header.base_offset)
        if len(batch) <= _DECODED_INLINE_BYTES and not header.codec:
            return decode_batch(batch, self._limits, first=first, most=most, cursor=cursor)
        return await self._reader.in_thread(decode_batch, batch, self._limits, first=first, most=most, cursor=cursor)


class _Target(NamedTuple):
    """A partition to read. It holds on to the topic's id, so that a new topic of the same name is not taken for it."""

    request: PartitionFetch
    live: LiveTopic
    partition: Partition


class _Terms(NamedTuple):
    """What holds for all partitions of a fetch."""

    budget: int
    """Bytes for all of them together."""
    isolation: Isolation
    oversize_alone: bool
    """Whether a batch that is larger than what was asked of its partition has to come before all others."""

    def read_at(self, target: _Target) -> ReadAt:
        _, _, offset, max_bytes = target.request
        return ReadAt(target.partition, offset, min(max_bytes, self.budget))


class _Seen(NamedTuple):
    """How a partition was when it was read."""

    bounds: Bounds
    last_stable_offset: Offset


class _Waiter:
    __slots__ = ("future", "isolation", "missing_bytes")

    def __init__(self, future: "asyncio.Future[None]", missing_bytes: int, isolation: Isolation) -> None:
        self.future = future
        self.missing_bytes = missing_bytes
        self.isolation = isolation

    def wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


def _count_batches(live: LiveTopic, batches: Sequence[Buffer]) -> None:
    first = read_header(batches[0])
    last = read_header(batches[-1])
    live.messages_out += last.base_offset + last.records - first.base_offset
    live.bytes_out += sum(map(len, batches))


def _has_left_out(isolation: Isolation, target: _Target | PartitionBatches, answer: PartitionBatches) -> bool:
    """Whether there is something to read that did not fit into the answer: then there is nothing to wait for."""
    end = answer.last_stable_offset if isolation else answer.bounds.end
    return isinstance(target, _Target) and not answer.batches and target.request.offset < end


def _committed(answer: PartitionBatches, offset: Offset) -> CommittedBatches:
    if answer.error is not None:
        raise answer.error
    next_offset = Offset(max(offset, _end_of(answer.batches[-1]))) if answer.batches else offset
    cursor_of = {id(batch): cursor for batch, cursor in zip(answer.batches, answer.cursors, strict=True)}
    batches = list(committed_batches(answer.batches, answer.aborted))
    return CommittedBatches(batches, [cursor_of[id(batch)] for batch in batches], next_offset, answer.bounds)


def _end_of(batch: Buffer) -> Offset:
    header = read_header(batch)
    return Offset(header.base_offset + header.records)


def _refused(request: PartitionFetch, error: TailraceError) -> PartitionBatches:
    return PartitionBatches(request.topic, request.partition, (), NO_BOUNDS, error)
