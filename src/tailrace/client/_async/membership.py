"""A consumer's place in its group: joining, getting a share of the partitions, staying in, leaving.

The protocol is Kafka's classic one, so clients of Kafka may be members of the same group. Whoever leads the group shares out
the partitions by range. When the group shares out anew, `needs_join` says so, and the consumer joins at its next poll.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from tailrace.client._async.transport import AsyncTransport
from tailrace.client.config import ConsumerConfig
from tailrace.client.partition import RANGE, assign_ranges
from tailrace.client.retry import is_transient
from tailrace.model.errors import (
    IllegalGenerationError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    TailraceError,
    UnknownMemberError,
    UnknownTopicError,
)
from tailrace.model.group import NO_GENERATION, NO_MEMBER
from tailrace.wire.consumer_protocol import decode_assignment, decode_subscription, encode_assignment, encode_subscription

_log = logging.getLogger("tailrace.client")


class _Member(msgspec.Struct):
    member_id: str
    metadata: bytes


class _Joined(msgspec.Struct):
    member_id: str
    generation: int
    leader: str
    members: list[_Member]


class _Synced(msgspec.Struct):
    assignment: bytes


class _Topic(msgspec.Struct):
    name: str
    uuid: str
    partitions: int


class AsyncMembership:
    def __init__(self, connection: AsyncTransport, config: ConsumerConfig) -> None:
        self._connection = connection
        self._config = config
        self._path = f"/api/groups/{quote(config.group_id, safe='')}"
        self._topic = config.topic
        self._shared_out: Mapping[str, _Topic] = {}
        """As the leader: the topics whose partitions were shared out."""
        self.member_id = NO_MEMBER
        self.generation = NO_GENERATION
        self.needs_join = True
        self._is_joining = False

    @property
    def identity(self) -> dict[str, Any]:
        """Who speaks, for commits."""
        return {"member_id": self.member_id, "generation": self.generation}

    async def join(self) -> list[int]:
        """Be part of the next generation. The partitions that this member gets."""
        topic = await self._look_at(self._config.topic)
        self._topic = topic.name
        self._is_joining = True
        try:
            numbers = await self._join_until_in()
        finally:
            self._is_joining = False
        there = [number for number in numbers if number < topic.partitions]
        if len(there) < len(numbers):
            # It was made again with fewer; the leader of the group finds out and shares out anew.
            _log.warning("topic %s has %d partitions now, and this consumer got %s", self._topic, topic.partitions, numbers)
        return there

    async def heartbeat(self, patience: float) -> bool:
        """Say that this member is still there, and find out whether it must join again. Until it does it goes on saying so:
        it may have long to work before its next poll.

        Whether there was an answer within `patience` seconds. Raises nothing that goes away.
        """
        identity = self.identity
        generation = identity["generation"]
        if self._is_joining or self.member_id == NO_MEMBER or generation == NO_GENERATION:
            return True
        try:
            body = msgspec.json.encode(identity)
            await self._connection.send_once("POST", f"{self._path}/heartbeat", body, max_seconds=patience)
            has_changed = bool(self._shared_out) and not self.needs_join and await self._has_changed(patience)
        except TailraceError as error:
            if is_transient(error):
                return False
            self.spoke(generation, error)
            if generation == self.generation and not self.needs_join:
                raise
        else:
            if has_changed and generation == self.generation:
                self.needs_join = True
        return True

    def spoke(self, generation: int, error: TailraceError) -> None:
        """The group refused something that was said for a generation. If that is the newest one, join again."""
        if generation != self.generation:
            return
        if isinstance(error, UnknownMemberError):
            self.member_id = NO_MEMBER
        if isinstance(error, UnknownMemberError | IllegalGenerationError | RebalanceInProgressError):
            self.needs_join = True

    async def leave(self) -> None:
        """Go, so that the others need not wait for the end of the session."""
        if self.member_id == NO_MEMBER:
            return
        body = msgspec.json.encode({"member_id": self.member_id})
        try:
            await self._connection.send_once("POST", f"{self._path}/leave", body)
        except TailraceError as error:
            # The group finds out by itself when the session ends.
            _log.info("member %s could not say that it leaves group %s: %s", self.member_id, self._config.group_id, error)
        self.member_id = NO_MEMBER
        self.needs_join = True

    @property
    def _rebalance_seconds(self) -> float:
        return self._config.max_poll_interval.total_seconds()

    async def _join_until_in(self) -> list[int]:
        deadline = time.monotonic() + self._config.api_timeout.total_seconds() + self._rebalance_seconds
        while True:
            self.generation = NO_GENERATION
            self.needs_join = True
            try:
                partitions = await self._join_once()
            except MemberIdRequiredError as error:
                self.member_id = error.member_id
            except UnknownMemberError:
                self.member_id = NO_MEMBER
            except (RebalanceInProgressError, IllegalGenerationError) as error:
                if time.monotonic() > deadline:
                    raise
                _log.info("group %s shares out anew while %s joins: %s", self._config.group_id, self.member_id, error)
            else:
                self.needs_join = False
                return partitions

    async def _join_once(self) -> list[int]:
        config = self._config
        question = {
            "member_id": self.member_id,
            "client_id": config.client_id,
            "session_timeout_ms": round(config.session_timeout.total_seconds() * 1000),
            "rebalance_timeout_ms": round(self._rebalance_seconds * 1000),
            "protocols": [{"name": RANGE, "metadata": encode_subscription([self._topic])}],
        }
        joined = await self._connection.ask(f"{self._path}/join", question, _Joined, wait_seconds=self._rebalance_seconds)
        self.member_id = joined.member_id
        self.generation = joined.generation
        self._shared_out = {}
        leads = joined.leader == joined.member_id
        shares = await self._share_out(joined.members) if leads else {}
        assignments = [{"member_id": member, "assignment": encode_assignment(share)} for member, share in shares.items()]
        question = {**self.identity, "assignments": assignments}
        synced = await self._connection.ask(f"{self._path}/sync", question, _Synced, wait_seconds=self._rebalance_seconds)
        return decode_assignment(synced.assignment).get(self._topic, [])

    async def _share_out(self, members: list[_Member]) -> dict[str, dict[str, list[int]]]:
        subscriptions = {member.member_id: decode_subscription(member.metadata) for member in members}
        found: dict[str, _Topic] = {}
        for topic in sorted({topic for topics in subscriptions.values() for topic in topics}):
            try:
                found[topic] = await self._look_at(topic)
            except UnknownTopicError:
                _log.warning("group %s has a member that wants topic %s, which is not there", self._config.group_id, topic)
        self._shared_out = found
        return assign_ranges(subscriptions, {name: topic.partitions for name, topic in found.items()})

    async def _has_changed(self, patience: float) -> bool:
        """Whether the topic has other partitions than were shared out: it has grown, or was made again."""
        answer = await self._connection.send_once("GET", _path_of(self._topic), None, max_seconds=patience)
        return msgspec.json.decode(answer, type=_Topic) != self._shared_out.get(self._topic)

    async def _look_at(self, topic: str) -> _Topic:
        return await self._connection.get(_path_of(topic), _Topic)


def _path_of(topic: str) -> str:
    return f"/api/topics/{quote(topic, safe='')}"
