# Generated from _async/offsets.py by tools/generate_sync.py; change that file, then run it.

"""Which partitions a consumer has, where it stands in each, and what the group has committed."""

import logging
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec

from tailrace.client._sync.concurrency import Lock
from tailrace.client._sync.membership import Membership
from tailrace.client._sync.transport import Transport
from tailrace.client.config import AutoOffsetReset, ConsumerConfig, CorruptBatches
from tailrace.client.partition import AssignedPartition
from tailrace.client.values import CommitResult, PositionReset
from tailrace.model.errors import TailraceError, UnknownTopicIdError

_log = logging.getLogger("tailrace.client")


class _Position(msgspec.Struct):
    partition_id: int
    offset: int


class _Begun(msgspec.Struct):
    topic_name: str
    topic_uuid: str
    positions: list[_Position]


class GroupOffsets:
    def __init__(
        self, connection: Transport, config: ConsumerConfig, on_reset: Callable[[PositionReset], None] | None = None
    ) -> None:
        self._on_reset = on_reset
        self._connection = connection
        self._config = config
        self._path = f"/api/groups/{quote(config.group_id, safe='')}"
        self._membership = Membership(connection, config) if config.partition_id is None else None
        self._has_begun = False
        self._was_recreated = False
        """The topic was deleted and made again: what is known here belongs to the one that is gone."""
        self._committing = Lock()
        self.topic = config.topic
        self.topic_uuid: str | None = None
        self.owned: dict[int, AssignedPartition] = {}

    @property
    def needs_join(self) -> bool:
        if self._was_recreated:
            return True
        return not self._has_begun if self._membership is None else self._membership.needs_join

    def join(self) -> None:
        """Get a share of the partitions and find out where to go on in each."""
        old = self.owned
        if self._was_recreated:
            self.owned = {}
        kept: dict[int, AssignedPartition] = {}
        if self._membership is None:
            numbers = [self._config.partition_id or 0]
        else:
            before = self._membership.identity
            numbers = self._membership.join()
            # Nobody else had them in between if this generation follows the last; else begin where the last commit was.
            if self._membership.identity == {**before, "generation": before["generation"] + 1}:
                kept = {number: self.owned[number] for number in numbers if number in self.owned}
        new = [number for number in numbers if number not in kept]
        try:
            uuid_before = self.topic_uuid
            begun = self._begin(new) if new else {}
            if kept and self.topic_uuid != uuid_before:
                kept = {}
                begun = self._begin(numbers)
        except TailraceError as error:
            self._refused(error)
            raise
        self.owned = {number: kept.get(number) or begun[number] for number in numbers}
        self._has_begun = True
        self._was_recreated = False
        if uuid_before not in (None, self.topic_uuid):
            self._tell_reset(old)

    def recreated(self, error: UnknownTopicIdError) -> None:
        """The server says that the topic was made again. Begin anew at the next join, or raise if that is the policy."""
        self._was_recreated = True
        if self._config.auto_offset_reset == AutoOffsetReset.NONE:
            raise error

    def heartbeat(self, patience: float) -> bool:
        """Whether there was an answer within `patience` seconds."""
        return self._membership is None or self._membership.heartbeat(patience)

    def commit(self, patience: float | None = None) -> list[CommitResult]:
        """Commit everything that is processed, in all partitions or in none. Tried again for `patience` seconds."""
        with self._committing:
            ahead = [(owned, owned.progress.safe_offset) for owned in self.owned.values() if owned.progress.is_ahead]
            if not ahead or self._was_recreated:
                return []
            generation = self._generation
            topic = {"topic": self.topic, "topic_uuid": self.topic_uuid}
            offsets = [{**topic, "partition_id": owned.number, "offset": safe} for owned, safe in ahead]
            try:
                question = {**self._identity, "offsets": offsets}
                self._connection.ask(f"{self._path}/commit", question, type(None), retry_seconds=patience)
            except UnknownTopicIdError as error:
                # There is nothing to commit any more. The next poll begins anew and tells so.
                self.recreated(error)
                return []
            except TailraceError as error:
                self._refused(error, generation)
                raise
            for owned, safe in ahead:
                owned.progress.committed(safe)
            return [CommitResult(self.topic, self._config.group_id, owned.number, safe - 1) for owned, safe in ahead]

    def commit_before_join(self) -> None:
        """The last word before the partitions may go to others. If it is not taken, they come again, and that is told."""
        try:
            self.commit()
        except TailraceError as error:
            _log.warning(
                "group %s shares out anew and did not take the last commit of this consumer, so some records are delivered"
                " again: %s",
                self._config.group_id,
                error,
            )

    def leave(self) -> None:
        if self._membership is not None:
            self._membership.leave()

    @property
    def _identity(self) -> dict[str, Any]:
        return {} if self._membership is None else self._membership.identity

    @property
    def _generation(self) -> int:
        return -1 if self._membership is None else self._membership.generation

    def _begin(self, numbers: list[int]) -> dict[int, AssignedPartition]:
        question = {**self._identity, "topic": self._config.topic, "partitions": numbers}
        policy = self._config.auto_offset_reset
        question["start"] = None if policy == AutoOffsetReset.NONE else policy
        begun = self._connection.ask(f"{self._path}/begin", question, _Begun)
        self.topic, self.topic_uuid = begun.topic_name, begun.topic_uuid
        skips_corrupt = self._config.corrupt_batches is CorruptBatches.SKIP
        return {
            position.partition_id: AssignedPartition(
                self.topic, position.partition_id, position.offset, self.topic_uuid, skips_corrupt=skips_corrupt
            )
            for position in begun.positions
        }

    def _tell_reset(self, old: dict[int, AssignedPartition]) -> None:
        for number, owned in self.owned.items():
            before = old[number].position if number in old else None
            _log.warning(
                "topic %s was deleted and made again: group %s goes on at offset %d of partition %d, and was at %s of the one"
                " that is gone",
                self.topic,
                self._config.group_id,
                owned.position,
                number,
                "no offset" if before is None else f"offset {before}",
            )
            if self._on_reset is not None:
                self._on_reset(PositionReset(self.topic, number, before, owned.position))

    def _refused(self, error: TailraceError, generation: int | None = None) -> None:
        if self._membership is not None:
            self._membership.spoke(self._membership.generation if generation is None else generation, error)
