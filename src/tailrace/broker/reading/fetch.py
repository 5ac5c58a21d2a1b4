"""Fetches whole batches as they are stored. A fetch that finds too little waits for more, until its deadline.

Readers that want records, or only committed ones, use `committed_reader.py`. A waiting fetch is a future that is counted down
by the commits to its partitions (`WaitingFetches`); nothing polls.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from tailrace.broker.isolation import AbortedTransactions, StableOffsets
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.broker.reading.reader import ReadAt, Reader
from tailrace.broker.reading.unchecked import UncheckedBatches
from tailrace.broker.security.principals import current_principal
from tailrace.broker.topics.patterns import PatternTopic
from tailrace.broker.topics.registry import LiveTopic
from tailrace.broker.topics.topics import Topics
from tailrace.model.commit import Buffer, FetchedBatches, OffsetBounds
from tailrace.model.errors import InvalidRequestError, OverloadedError, StoreClosedError, TailraceError, UnknownTopicIdError
from tailrace.model.fetch import NO_BOUNDS, Isolation, PartitionBatches, PartitionFetch
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import MIB, Limits
from tailrace.model.security import SERVER, Principal
from tailrace.store.contract import Store
from tailrace.wire.batch import read_header

_UNBROKEN_BYTES = 4 * MIB
"""Bytes that are read at once before the event loop gets a turn: about a millisecond."""


class Fetcher:
    """Fetches batches of several partitions at once, as Kafka's fetch requests do."""

    def __init__(
        self,
        store: Store,
        reader: Reader,
        topics: Topics,
        stable: StableOffsets,
        aborted: AbortedTransactions,
        waiting: "WaitingFetches",
        unchecked: UncheckedBatches,
        limits: Limits,
    ) -> None:
        self._unchecked = unchecked
        self._store = store
        self._reader = reader
        self._topics = topics
        self._permissions = topics.permissions
        self._stable = stable
        self._aborted = aborted
        self._waiting = waiting
        self._limits = limits
        self._closed = False
        self.patterns: PatternReading | None = None
        """Reads patterns as topics."""

    async def fetch(
        self,
        wanted: Sequence[PartitionFetch],
        *,
        min_bytes: int = 1,
        max_bytes: int | None = None,
        max_wait_ms: int = 0,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        answer: ReadAnswer | None = None,
    ) -> list[PartitionBatches]:
        """Return batches of each partition, once there are `min_bytes`, one has an error, or `max_wait_ms` have passed.

        Of the first partition that has records at least one batch is returned, however large; the others share what is left of
        `max_bytes`, and return nothing if their next batch is larger than their own limit, as in Kafka.

        `answer` reserves memory for batches that were read from disk or expanded; those that readers share in memory need none.
        Raises `OverloadedError` if no memory is available in time. The principal of the request needs `consume` on the topics,
        also as long as it waits.
        """
        reader = current_principal()
        targets = [self._target(request, reader) for request in wanted]
        while True:
            answers = await self._fetch(targets, min_bytes, max_bytes, max_wait_ms, isolation, reader, oversize_alone=True)
            own_bytes = 0 if answer is None else self._own_bytes(targets, answers)
            if answer is None or not own_bytes:
                break
            if answer.try_reserve(own_bytes):
                answer.keep(own_bytes)
                break
            # No batches are kept while it waits for memory; they are read again.
            del answers
            await answer.reserve(own_bytes)
        for target, found in zip(targets, answers, strict=True):
            if isinstance(target, _FetchTarget):
                if found.batches:
                    target.live.count_out(found.batches)
            elif isinstance(target, PatternFetch):
                target.count_out()
        return answers

    async def fetch_committed(
        self, wanted: Sequence[PartitionFetch], max_bytes: int, max_wait_ms: int, reader: Principal = SERVER
    ) -> list[PartitionBatches]:
        """Return the batches that a reader of committed records has to filter. They are not counted as bytes out.

        The reader needs `consume` on the topics; the server may read all.
        """
        targets = [self._target(request, reader) for request in wanted]
        return await self._fetch(targets, 1, max_bytes, max_wait_ms, Isolation.READ_COMMITTED, reader)

    async def await_growth(self, ends: Mapping[str, Sequence[int]], max_wait_ms: int) -> None:
        """Wait until a partition of one of these topics can be read beyond its offset given here, or until the time is up."""
        wanted = [PartitionFetch(topic, at, Offset(end), 1) for topic, each in ends.items() for at, end in enumerate(each)]
        await self.fetch_committed(wanted, 1, max_wait_ms)

    def close(self) -> None:
        """Fail the fetches that wait, and all later ones."""
        self._closed = True
        self._waiting.wake_all()

    def _own_bytes(self, targets: "Sequence[_Target]", answers: Sequence[PartitionBatches]) -> int:
        """Return the bytes of the batches that are not shared with other readers."""
        return sum(target.own_bytes for target in targets if isinstance(target, PatternFetch)) + sum(
            sum(map(len, answer.batches))
            for target, answer in zip(targets, answers, strict=True)
            if answer.batches
            and isinstance(target, _FetchTarget)
            and not self._reader.is_shared(target.partition, target.request.offset)
        )

    def _target(self, request: PartitionFetch, reader: Principal) -> "_Target":
        try:
            if self._permissions.is_on and not self._topics.allows(reader, "consume", request.topic):
                raise self._permissions.refusal(reader, "consume", "topic", request.topic)
            live = self._topics.find(request.topic)
            if live is None:
                pattern = self._topics.patterns.find(request.topic)
                if pattern is not None and self.patterns is not None:
                    return self.patterns.fetch_of(pattern, request, reader)
                live = self._topics.get(request.topic)
            return _FetchTarget(request, live, live.partition(request.partition))
        except TailraceError as error:
            return rejected(request, error)

    async def _fetch(
        self,
        targets: "Sequence[_Target]",
        min_bytes: int,
        max_bytes: int | None,
        max_wait_ms: int,
        isolation: Isolation,
        reader: Principal,
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
            if found and any(map(partial(_has_left_out, terms), targets, answers)):
                return answers
            seen = {
                target.partition: _Seen(answer.bounds, answer.last_stable_offset)
                for target, answer in zip(targets, answers, strict=True)
                if isinstance(target, _FetchTarget)
            }
            patterns = [target for target in targets if isinstance(target, PatternFetch)]
            if self._has_moved(seen) or any(pattern.has_moved for pattern in patterns):
                await asyncio.sleep(0)
            else:
                places = {*seen, *(pattern.place for pattern in patterns)} if patterns else seen
                await self._waiting.wait(places, enough - found, deadline, isolation)
            if self._permissions.is_on:
                targets = [self._still_allowed(target, reader) for target in targets]

    def _still_allowed(self, target: "_Target", reader: Principal) -> "_Target":
        """Return the target, or its rejection if its reader may not consume the topic any more."""
        if not isinstance(target, _FetchTarget) or self._topics.allows(reader, "consume", target.request.topic):
            return target
        return rejected(target.request, self._permissions.refusal(reader, "consume", "topic", target.request.topic))

    async def _read_all(self, targets: "Sequence[_Target]", terms: "_Terms") -> tuple[list[PartitionBatches], int]:
        answers = []
        found = unbroken = 0
        ahead: Mapping[ReadAt, FetchedBatches | None] | None = None
        for place, target in enumerate(targets):
            if isinstance(target, PartitionBatches):
                answers.append(target)
                continue
            if isinstance(target, _FetchTarget):
                answer = self._read_at_once(target, terms, found)
                if answer is None:
                    if ahead is None:
                        ahead = await self._read_ahead(targets[place:], terms, terms.budget - found)
                    answer = await self._read_one(target, terms, found, ahead)
                    unbroken = 0
            else:
                answer = await target.read(terms.budget - found, is_first=not found)
            size = sum(map(len, answer.batches))
            found += size
            unbroken += size
            if unbroken >= _UNBROKEN_BYTES:
                unbroken = 0
                await asyncio.sleep(0)
            answers.append(answer)
        return answers, found

    def _read_at_once(self, target: "_FetchTarget", terms: "_Terms", found: int) -> PartitionBatches | None:
        """Return what `_read_one` would, for readers of all records, if nothing has to be waited for and nothing is wrong."""
        (topic, number, offset, max_bytes), live, partition = target
        if terms.isolation or live.is_reserved:
            return None
        left = terms.budget - found
        try:
            if found and left <= 0:
                bounds, stable = self._look(partition)
                return PartitionBatches(topic, number, (), bounds, None, stable)
            fetched = self._reader.fetch_at_once(partition, offset, max(0, min(max_bytes, left)), at_least_one=not found)
        except TailraceError:
            return None
        if fetched is None:
            return None
        batches, bounds, cursors = fetched
        if batches and cursors[0] < self._unchecked.end:
            return None
        if found and sum(map(len, batches)) > (min(left, max_bytes) if terms.oversize_alone else left):
            batches, cursors = (), ()
        return PartitionBatches(topic, number, batches, bounds, None, self._stable.of(partition, bounds), (), cursors)

    async def _read_ahead(
        self, targets: "Sequence[_Target]", terms: "_Terms", max_bytes: int
    ) -> Mapping[ReadAt, FetchedBatches | None]:
        if len(targets) == 1:
            return {}
        wanted = []
        for target in targets:
            if isinstance(target, _FetchTarget):
                with suppress(TailraceError):
                    offset = target.request.offset
                    if not terms.isolation_of(target) or offset < self._look(target.partition).last_stable_offset:
                        wanted.append(terms.read_at(target))
        try:
            return await self._reader.fetch_ahead(wanted, max_bytes, until_oversize=terms.oversize_alone)
        except OverloadedError:
            return {}  # raised again for each partition that still has to be read

    async def _read_one(
        self, target: "_FetchTarget", terms: "_Terms", found: int, ahead: Mapping[ReadAt, FetchedBatches | None]
    ) -> PartitionBatches:
        topic, number, offset, max_bytes = target.request
        partition, isolation = target.partition, terms.isolation_of(target)
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
            # Taken after the read: transactions below this offset ended before, so the index of aborted ones knows them.
            stable = self._stable.of(partition, bounds)
            if isolation and stable < bounds.end:
                batches = [batch for batch in batches if read_header(batch).base_offset < stable]
            if terms.oversize_alone:
                batches = await self._unchecked.readable(topic, partition, batches, cursors)
            if found and sum(map(len, batches)) > (min(left, max_bytes) if terms.oversize_alone else left):
                batches = ()
            aborted = self._aborted.between(partition, offset, _end_of(batches[-1])) if isolation and batches else ()
        except TailraceError as error:
            return rejected(target.request, self._named(error, target.live))
        return PartitionBatches(topic, number, batches, bounds, None, stable, aborted, cursors[: len(batches)])

    def _named(self, error: TailraceError, live: LiveTopic) -> TailraceError:
        """Return the error, or `UnknownTopicIdError` if the topic was deleted while the fetch waited."""
        topic = live.topic
        if self._topics.by_id(topic.id) is None:
            return UnknownTopicIdError(f"topic {topic.name!r} ({topic.uuid}) was deleted while it was read")
        return error

    def _has_moved(self, seen: "Mapping[PartitionId, _Seen]") -> bool:
        """Return whether something was committed after the read, when no waiter was registered yet."""
        try:
            return any(self._look(partition) != before for partition, before in seen.items())
        except TailraceError:
            return True

    def _look(self, partition: PartitionId) -> "_Seen":
        bounds = self._store.bounds(partition)
        return _Seen(bounds, self._stable.of(partition, bounds))


class _FetchTarget(NamedTuple):
    """A partition to read. It holds the topic's id, so that a new topic of the same name is not mistaken for it."""

    request: PartitionFetch
    live: LiveTopic
    partition: PartitionId


class PatternFetch:
    """A read of one partition of a pattern, which is part of a fetch. `PatternReading` has the subclass."""

    place: PartitionId
    """What a waiting fetch is registered under. It is no partition of the store."""
    own_bytes: int = 0
    """Bytes of the last answer that are not shared with other readers."""

    async def read(self, budget: int, *, is_first: bool) -> PartitionBatches:
        """Return batches: up to `budget` bytes, but at least one batch if it is the first partition with records."""
        raise NotImplementedError

    @property
    def has_moved(self) -> bool:
        """Whether there may be more to read than at the last read."""
        raise NotImplementedError

    def count_out(self) -> None:
        """Count what was read last as sent."""
        raise NotImplementedError


class PatternReading(Protocol):
    def fetch_of(self, pattern: PatternTopic, request: PartitionFetch, reader: Principal) -> PatternFetch:
        """Return a read of those topics of the pattern that the reader may consume. Raises `UnknownPartitionError`."""


_Target = _FetchTarget | PatternFetch | PartitionBatches
"""What to read, or the answer if it was rejected."""


class _Terms(NamedTuple):
    """Terms of a fetch for all its partitions."""

    budget: int
    """Bytes for all of them together."""
    isolation: Isolation
    oversize_alone: bool
    """Whether a batch that is larger than its partition's limit may only come first."""

    def read_at(self, target: _FetchTarget) -> ReadAt:
        _, _, offset, max_bytes = target.request
        return ReadAt(target.partition, offset, min(max_bytes, self.budget))

    def isolation_of(self, target: _FetchTarget) -> Isolation:
        """Return how a partition is read. Changes of tables are shown to nobody before their transaction is whole."""
        return Isolation.READ_COMMITTED if target.live.is_reserved else self.isolation


class _Seen(NamedTuple):
    """The bounds of a partition when it was read."""

    bounds: OffsetBounds
    last_stable_offset: Offset


def _has_left_out(terms: "_Terms", target: "_Target", answer: PartitionBatches) -> bool:
    """Return whether records did not fit into the answer: then the fetch does not wait for more."""
    if not isinstance(target, _FetchTarget) or answer.batches:
        return False
    end = answer.last_stable_offset if terms.isolation_of(target) else answer.bounds.end
    return target.request.offset < end


def _end_of(batch: Buffer) -> Offset:
    return Offset(read_header(batch).end_offset)


def rejected(request: PartitionFetch, error: TailraceError) -> PartitionBatches:
    return PartitionBatches(request.topic, request.partition, (), NO_BOUNDS, error)


class WaitingFetches:
    """Fetches that wait, each until its deadline.

    Other changes of a partition (its topic deleted, its start moved) wake its waiters too, and they find out by reading again.
    """

    def __init__(self, stable: StableOffsets, limits: Limits) -> None:
        self._stable = stable
        self._limits = limits
        self._waiting: dict[PartitionId, set[_Waiter]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    async def wait(
        self, partitions: Collection[PartitionId], missing_bytes: int, deadline: float, isolation: Isolation
    ) -> None:
        """Wait until there may be `missing_bytes` more, until the partitions change in another way, or until the deadline."""
        if self._count >= self._limits.fetch_waiters:
            raise OverloadedError(
                f"{self._count} fetches wait already, as many as fetch_waiters allows; try again after a pause"
            )
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop.create_future(), missing_bytes, isolation)
        timer = loop.call_at(deadline, waiter.wake)
        self._count += 1
        for partition in partitions:
            self._waiting.setdefault(partition, set()).add(waiter)
        try:
            await waiter.future
        finally:
            timer.cancel()
            self._count -= 1
            for partition in partitions:
                waiters = self._waiting[partition]
                waiters.discard(waiter)
                if not waiters:
                    del self._waiting[partition]

    def arrived(self, partition: PartitionId, size: int) -> None:
        """Count new bytes of a partition, and wake the waiters that have enough."""
        waiters = self._waiting.get(partition)
        if waiters is not None:
            is_held = self._stable.is_held(partition)
            for waiter in waiters:
                if is_held and waiter.isolation is Isolation.READ_COMMITTED:
                    continue
                waiter.missing_bytes -= size
                if waiter.missing_bytes <= 0:
                    waiter.wake()

    def stabilized(self, partition: PartitionId, size: int) -> None:
        """Wake readers of committed records after the end of a transaction, whose marker has `size` bytes."""
        self.arrived(partition, size)
        for waiter in self._waiting.get(partition, ()):
            if waiter.isolation is Isolation.READ_COMMITTED:
                waiter.wake()

    def disturbed(self, partition: PartitionId) -> None:
        """Wake all waiters of a partition that changed in another way."""
        for waiter in self._waiting.get(partition, ()):
            waiter.wake()

    def wake_all(self) -> None:
        """Wake all waiters."""
        for waiters in self._waiting.values():
            for waiter in waiters:
                waiter.wake()


class _Waiter:
    __slots__ = ("future", "isolation", "missing_bytes")

    def __init__(self, future: "asyncio.Future[None]", missing_bytes: int, isolation: Isolation) -> None:
        self.future = future
        self.missing_bytes = missing_bytes
        self.isolation = isolation

    def wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)
