"""A consumer's membership in its group: joining, heartbeats, leaving.

The protocol is Kafka's classic one, so Kafka clients may be members of the same group. The leader of the group assigns the
partitions by range. `needs_join` says that the group rebalances; the consumer then joins at its next poll.
"""

import logging
import time
from collections.abc import Callable, Mapping
from urllib.parse import quote

import msgspec

from tailrace.api.groups import (
    GroupMember,
    HeartbeatBody,
    JoinBody,
    JoinResponse,
    LeaveBody,
    MemberAssignment,
    OfferedProtocol,
    SyncBody,
    SyncResponse,
)
from tailrace.client._async.concurrency import AsyncSignal, AsyncWorker
from tailrace.client._async.transport import AsyncTransport
from tailrace.client.config import ConsumerConfig
from tailrace.client.partition import RANGE, assign_ranges
from tailrace.client.retry import is_transient
from tailrace.model.backoff import Backoff
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


class _AssignedTopic(msgspec.Struct):
    """What an assignment depends on."""

    name: str
    uuid: str
    partitions: int


class AsyncMembership:
    def __init__(self, transport: AsyncTransport, config: ConsumerConfig) -> None:
        self._transport = transport
        self._config = config
        self._path = f"/api/groups/{quote(config.group_id, safe='')}"
        self._topic = config.topic
        self._assigned_topics: Mapping[str, _AssignedTopic] = {}
        """For the leader: the topics whose partitions it has assigned."""
        self.member_id = NO_MEMBER
        self.generation = NO_GENERATION
        self.needs_join = True
        self._is_joining = False

    async def join(self) -> list[int]:
        """Join the next generation and return the partitions that are assigned to this member."""
        topic = await self._describe(self._config.topic)
        self._topic = topic.name
        self._is_joining = True
        try:
            assigned = await self._join_until_synced()
        finally:
            self._is_joining = False
        existing = [number for number in assigned if number < topic.partitions]
        if len(existing) < len(assigned):
            # The topic was created again with fewer; the leader's next heartbeat finds out and has the group rebalance.
            _log.warning(
                "topic %s has %d partitions now, and this consumer was assigned %s", self._topic, topic.partitions, assigned
            )
        return existing

    async def heartbeat(self, max_seconds: float) -> bool:
        """Tell the group that this member is alive, and learn whether it must join again. Returns whether there was a response.

        It goes on until the member has joined again, because the next poll may be long in coming. Raises no transient errors.
        """
        generation = self.generation
        if self._is_joining or self.member_id == NO_MEMBER or generation == NO_GENERATION:
            return True
        try:
            body = msgspec.json.encode(HeartbeatBody(self.member_id, generation))
            await self._transport.send_once("POST", f"{self._path}/heartbeat", body, max_seconds=max_seconds)
            has_changed = bool(self._assigned_topics) and not self.needs_join and await self._has_changed(max_seconds)
        except TailraceError as error:
            if is_transient(error):
                return False
            self.handle_refusal(generation, error)
            if generation == self.generation and not self.needs_join:
                raise
        else:
            if has_changed and generation == self.generation:
                self.needs_join = True
        return True

    def handle_refusal(self, generation: int, error: TailraceError) -> None:
        """Join again if the group has refused a request of the newest generation."""
        if generation != self.generation:
            return
        if isinstance(error, UnknownMemberError):
            self.member_id = NO_MEMBER
        if isinstance(error, UnknownMemberError | IllegalGenerationError | RebalanceInProgressError):
            self.needs_join = True

    async def leave(self) -> None:
        """Leave the group, so that the others need not wait for the end of the session."""
        if self.member_id == NO_MEMBER:
            return
        try:
            await self._transport.send_once("POST", f"{self._path}/leave", msgspec.json.encode(LeaveBody(self.member_id)))
        except TailraceError as error:
            # The group removes the member when its session ends.
            _log.info("member %s could not leave group %s: %s", self.member_id, self._config.group_id, error)
        self.member_id = NO_MEMBER
        self.needs_join = True

    @property
    def _rebalance_seconds(self) -> float:
        return self._config.max_poll_interval.total_seconds()

    async def _join_until_synced(self) -> list[int]:
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
                _log.info("group %s rebalances while member %s joins: %s", self._config.group_id, self.member_id, error)
            else:
                self.needs_join = False
                return partitions

    async def _join_once(self) -> list[int]:
        config = self._config
        join = JoinBody(
            protocols=[OfferedProtocol(RANGE, encode_subscription([self._topic]))],
            member_id=self.member_id,
            client_id=config.client_id,
            session_timeout_ms=round(config.session_timeout.total_seconds() * 1000),
            rebalance_timeout_ms=round(self._rebalance_seconds * 1000),
        )
        joined = await self._transport.ask(f"{self._path}/join", join, JoinResponse, wait_seconds=self._rebalance_seconds)
        self.member_id = joined.member_id
        self.generation = joined.generation
        self._assigned_topics = {}
        is_leader = joined.leader == joined.member_id
        assignments = await self._assign(joined.members) if is_leader else []
        sync = SyncBody(self.member_id, self.generation, assignments)
        synced = await self._transport.ask(f"{self._path}/sync", sync, SyncResponse, wait_seconds=self._rebalance_seconds)
        return decode_assignment(synced.assignment).get(self._topic, [])

    async def _assign(self, members: list[GroupMember]) -> list[MemberAssignment]:
        subscriptions = {member.member_id: decode_subscription(member.metadata) for member in members}
        found: dict[str, _AssignedTopic] = {}
        for name in sorted({name for names in subscriptions.values() for name in names}):
            try:
                found[name] = await self._describe(name)
            except UnknownTopicError:
                _log.warning("a member of group %s subscribes to topic %s, which does not exist", self._config.group_id, name)
        self._assigned_topics = found
        shares = assign_ranges(subscriptions, {name: topic.partitions for name, topic in found.items()})
        return [MemberAssignment(member_id, encode_assignment(share)) for member_id, share in shares.items()]

    async def _has_changed(self, max_seconds: float) -> bool:
        """Return whether the topic has other partitions than were assigned: it has grown, or was created again."""
        response = await self._transport.send_once("GET", _path_of(self._topic), max_seconds=max_seconds)
        return msgspec.json.decode(response, type=_AssignedTopic) != self._assigned_topics.get(self._topic)

    async def _describe(self, topic: str) -> _AssignedTopic:
        return await self._transport.get(_path_of(topic), _AssignedTopic)


class AsyncHeartbeat:
    """Sends the heartbeats of a member in the background, so that nothing slow holds them up.

    A heartbeat may take half of what is left of the session, so that one that hangs leaves time for another. `on_error` gets
    every error that is not transient.
    """

    def __init__(self, membership: AsyncMembership, config: ConsumerConfig, on_error: Callable[[Exception], None]) -> None:
        self._membership = membership
        self._config = config
        self._on_error = on_error
        self._interval = config.heartbeat_interval.total_seconds()
        self._max_seconds = (config.session_timeout.total_seconds() - self._interval) / 2
        self._worker = AsyncWorker(self._run, f"tailrace heartbeats {config.group_id}")
        self._closing = AsyncSignal()
        self._polled_at = time.monotonic()

    def start(self) -> None:
        self._worker.start()

    def note_poll(self) -> None:
        """Note that the consumer is not stuck."""
        self._polled_at = time.monotonic()

    async def close(self) -> None:
        self._closing.set()
        await self._worker.join()

    async def _run(self) -> None:
        backoff = Backoff(self._config.retry_backoff.total_seconds(), self._config.retry_backoff_max.total_seconds())
        seconds = self._interval
        while not await self._closing.wait(seconds):
            if await self._send():
                backoff.reset()
                seconds = self._interval
            else:
                seconds = min(self._interval, backoff.next_pause())

    async def _send(self) -> bool:
        """Return False if there was no response."""
        if time.monotonic() - self._polled_at > self._config.max_poll_interval.total_seconds():
            _log.warning(
                "a consumer of group %s has not polled for longer than max_poll_interval (%s); it gives up its partitions",
                self._config.group_id,
                self._config.max_poll_interval,
            )
            return True
        try:
            return await self._membership.heartbeat(self._max_seconds)
        except Exception as error:  # noqa: BLE001  the top of the worker: the consumer's next poll raises it
            self._on_error(error)
            return True


def _path_of(topic: str) -> str:
    return f"/api/topics/{quote(topic, safe='')}"
