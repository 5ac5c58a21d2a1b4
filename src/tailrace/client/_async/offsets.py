"""The partitions that a consumer reads, its position in each, and what it commits for its group.

Commits by interval run in the background, apart from the heartbeats: a commit that hangs does not cost the membership.
"""

import logging
from collections.abc import Callable
from urllib.parse import quote
from uuid import UUID

from tailrace.api.groups import BeginBody, BeginResponse, CommitOffsetsBody, OffsetToCommit
from tailrace.client._async.concurrency import AsyncLock, AsyncSignal, AsyncWorker
from tailrace.client._async.membership import AsyncMembership
from tailrace.client._async.transport import AsyncTransport
from tailrace.client.config import AutoOffsetReset, ConsumerConfig, CorruptBatches
from tailrace.client.partition import AssignedPartition
from tailrace.client.retry import is_transient
from tailrace.client.values import CommitResult, PositionReset
from tailrace.model.errors import TailraceError, UnknownTopicIdError
from tailrace.model.fetch import StartEdge
from tailrace.model.group import NO_GENERATION, NO_MEMBER

_log = logging.getLogger("tailrace.client")


class AsyncGroupOffsets:
    def __init__(
        self,
        transport: AsyncTransport,
        config: ConsumerConfig,
        membership: AsyncMembership | None,
        on_reset: Callable[[PositionReset], None] | None = None,
    ) -> None:
        """`membership` is `None` for a consumer with a fixed partition, which commits without being a member."""
        self._on_reset = on_reset
        self._transport = transport
        self._config = config
        self._path = f"/api/groups/{quote(config.group_id, safe='')}"
        self._membership = membership
        self._has_begun = False
        self._was_recreated = False
        """The topic was deleted and created again, so the positions belong to a topic that no longer exists."""
        self._commit_lock = AsyncLock()
        self.topic = config.topic
        self.topic_uuid: UUID | None = None
        self.topic_uuid_text: str | None = None
        """The UUID as records carry it."""
        self.assigned: dict[int, AssignedPartition] = {}

    @property
    def needs_join(self) -> bool:
        if self._was_recreated:
            return True
        return not self._has_begun if self._membership is None else self._membership.needs_join

    async def join(self) -> None:
        """Have partitions assigned and find out where to continue in each."""
        old = self.assigned
        if self._was_recreated:
            self.assigned = {}
        kept: dict[int, AssignedPartition] = {}
        if self._membership is None:
            numbers = [self._config.partition_id or 0]
        else:
            before = (self._membership.member_id, self._membership.generation + 1)
            numbers = await self._membership.join()
            # If this generation follows the last one, nobody else had the partitions in between. Otherwise continue at the
            # last commit.
            if (self._membership.member_id, self._membership.generation) == before:
                kept = {number: self.assigned[number] for number in numbers if number in self.assigned}
        new = [number for number in numbers if number not in kept]
        try:
            uuid_before = self.topic_uuid
            begun = await self._begin(new) if new else {}
            if kept and self.topic_uuid != uuid_before:
                kept = {}
                begun = await self._begin(numbers)
        except TailraceError as error:
            self._handle_refusal(error)
            raise
        self.assigned = {number: kept.get(number) or begun[number] for number in numbers}
        self._has_begun = True
        self._was_recreated = False
        if uuid_before not in (None, self.topic_uuid):
            self._report_reset(old)

    def handle_recreated(self, error: UnknownTopicIdError) -> None:
        """Begin anew at the next join, because the topic was created again; or raise, if that is the policy."""
        self._was_recreated = True
        if self._config.auto_offset_reset == AutoOffsetReset.NONE:
            raise error

    async def commit(self, retry_seconds: float | None = None) -> list[CommitResult]:
        """Commit everything that is processed, in all partitions or in none. Retries for `retry_seconds` or `api_timeout`."""
        async with self._commit_lock:
            ahead = [
                (partition, partition.progress.safe_offset)
                for partition in self.assigned.values()
                if partition.progress.is_ahead
            ]
            if not ahead or self._was_recreated:
                return []
            member_id, generation = self._identity
            offsets = [OffsetToCommit(self.topic, partition.number, safe, self.topic_uuid) for partition, safe in ahead]
            body = CommitOffsetsBody(offsets, member_id, generation)
            try:
                await self._transport.ask(f"{self._path}/commit", body, type(None), retry_seconds=retry_seconds)
            except UnknownTopicIdError as error:
                # Nothing is left to commit. The next poll begins anew and reports it.
                self.handle_recreated(error)
                return []
            except TailraceError as error:
                self._handle_refusal(error, generation)
                raise
            for partition, safe in ahead:
                partition.progress.note_commit(safe)
            group_id = self._config.group_id
            return [CommitResult(self.topic, group_id, partition.number, safe - 1) for partition, safe in ahead]

    async def commit_before_join(self) -> None:
        """Commit a last time before the partitions may go to others. If that fails, they read some records again."""
        try:
            await self.commit()
        except TailraceError as error:
            _log.warning(
                "group %s rebalances and did not take the last commit of this consumer, so some records are delivered again:"
                " %s",
                self._config.group_id,
                error,
            )

    @property
    def _identity(self) -> tuple[str, int]:
        """The member id and the generation."""
        membership = self._membership
        return (NO_MEMBER, NO_GENERATION) if membership is None else (membership.member_id, membership.generation)

    async def _begin(self, numbers: list[int]) -> dict[int, AssignedPartition]:
        member_id, generation = self._identity
        body = BeginBody(self._config.topic, numbers, _start(self._config.auto_offset_reset), member_id, generation)
        begun = await self._transport.ask(f"{self._path}/begin", body, BeginResponse)
        self.topic, self.topic_uuid = begun.topic_name, begun.topic_uuid
        self.topic_uuid_text = str(begun.topic_uuid)
        skips_corrupt = self._config.corrupt_batches is CorruptBatches.SKIP
        return {
            position.partition_id: AssignedPartition(
                self.topic, position.partition_id, position.offset, self.topic_uuid_text, skips_corrupt=skips_corrupt
            )
            for position in begun.positions
        }

    def _report_reset(self, old: dict[int, AssignedPartition]) -> None:
        for number, partition in self.assigned.items():
            before = old[number].position if number in old else None
            _log.warning(
                "topic %s was deleted and created again: group %s continues at offset %d of partition %d, and was at %s of the"
                " deleted topic",
                self.topic,
                self._config.group_id,
                partition.position,
                number,
                "no offset" if before is None else f"offset {before}",
            )
            if self._on_reset is not None:
                self._on_reset(PositionReset(self.topic, number, before, partition.position))

    def _handle_refusal(self, error: TailraceError, generation: int | None = None) -> None:
        if self._membership is not None:
            self._membership.handle_refusal(self._membership.generation if generation is None else generation, error)


class AsyncAutoCommit:
    """Commits in the background: by interval, and when a commit is requested. `on_error` gets what retrying does not solve."""

    def __init__(self, offsets: AsyncGroupOffsets, config: ConsumerConfig, on_error: Callable[[Exception], None]) -> None:
        self._offsets = offsets
        self._config = config
        self._on_error = on_error
        self._interval = config.auto_commit_interval.total_seconds()
        self._worker = AsyncWorker(self._run, f"tailrace commits {config.group_id}")
        self._wake = AsyncSignal()
        self._is_closing = False
        self.is_requested = False
        """A commit was requested and is not made yet."""

    def start(self) -> None:
        self._worker.start()

    def request(self) -> None:
        self.is_requested = True
        self._wake.set()

    async def close(self) -> None:
        self._is_closing = True
        self._wake.set()
        await self._worker.join()

    async def _run(self) -> None:
        while not self._is_closing:
            is_timed = self._config.enable_auto_commit or self.is_requested
            is_due = not await self._wake.wait(self._interval if is_timed else None)
            self._wake.clear()
            requested, self.is_requested = self.is_requested, False
            if requested or is_due:
                await self._commit(requested)

    async def _commit(self, requested: bool) -> None:
        try:
            # No longer than the interval: the next commit includes this one.
            await self._offsets.commit(self._interval)
        except TailraceError as error:
            # A commit by interval is made up for by the next one, or after the next join.
            if is_transient(error) or (self._offsets.needs_join and not requested):
                self.is_requested = requested or self.is_requested
                _log.warning("a commit of group %s failed and will be retried: %s", self._config.group_id, error)
            else:
                self._on_error(error)
        except Exception as error:  # noqa: BLE001  the top of the worker: the consumer's next poll raises it
            self._on_error(error)


def _start(policy: AutoOffsetReset | int) -> StartEdge | int | None:
    """Return where to start without a committed offset. `None` makes that an error."""
    if isinstance(policy, AutoOffsetReset):
        return None if policy is AutoOffsetReset.NONE else StartEdge(policy)
    return policy
