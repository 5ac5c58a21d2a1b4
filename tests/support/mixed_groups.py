"""A group with members of both protocols on a broker that can be killed, and clients that obey."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from struct import pack
from typing import Any
from uuid import UUID

from tailrace.broker.broker import Broker
from tailrace.model.consumer_group import ConsumerHeartbeat
from tailrace.model.errors import (
    FencedInstanceError,
    IllegalGenerationError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    TailraceError,
    UnknownMemberError,
)
from tailrace.model.group import Joined, MemberIdentity
from tailrace.wire.consumer_protocol import decode_assignment, decode_member_subscription, encode_assignment
from tests.support.aio import turns
from tests.support.brokers import NEVER, GatedStore
from tests.support.clocks import ManualClock
from tests.support.groups import joining, syncing

GROUP = "g"
TOPIC = "t"
SESSION_MS = 10_000
REBALANCE_MS = 20_000


class GroupServer:
    """A broker with one topic. When it is killed, some of the commits in flight are durable, and nobody gets an answer."""

    def __init__(self, partitions: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.store = GatedStore(self.clock)
        self.partitions = partitions
        self._tasks: set[asyncio.Task[None]] = set()
        self._start()
        self.uuid: UUID = self.loop.run_until_complete(self.broker.topics.create(TOPIC, partitions)).uuid

    def go(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run a client's request as far as it comes without the clock."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.turn()
        return task

    def turn(self) -> None:
        self.loop.run_until_complete(turns())

    def advance(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
        self.broker.groups.run_due()
        self.broker.consumer_groups.run_due()
        self.turn()

    def kill(self, settled: int = 0) -> None:
        self.store.settle(settled)
        self.store.in_flight.clear()
        ends = {partition: self.store.bounds(partition).end for partition in self.store.partitions()}
        self.store._gated.reset(ends, self.store.end_cursor())
        for task in self._tasks:
            task.cancel()
        self.turn()
        self._stop()
        self.store.open_gate()
        self._start()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self.turn()
        self._stop()
        self.loop.close()

    def _start(self) -> None:
        self.broker = Broker(self.store, self.clock, settings=NEVER)
        self.loop.run_until_complete(self.broker.start())

    def _stop(self) -> None:
        async def stop() -> None:
            await self.broker.jobs.close()
            self.broker.groups.close()
            self.broker.consumer_groups.close()
            self.broker.threads.close()

        self.loop.run_until_complete(stop())


class MixedClient:
    """A client with one request at a time. What it reads ends only when it learns that it has to."""

    def __init__(self, server: GroupServer, member_id: str = "", instance: str | None = None) -> None:
        self.server = server
        self.member_id = member_id
        self.instance = instance
        self.reading: set[int] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_waiting(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def identity(self) -> MemberIdentity:
        raise NotImplementedError

    def step(self) -> None:
        """Send what is to be sent next, unless an answer is awaited."""
        if not self.is_waiting:
            self._task = self.server.go(self._request())

    def lose_answer(self) -> None:
        if self._task is not None and self.is_waiting:
            self._task.cancel()
            self.server.turn()

    def give_up(self) -> None:
        """Stop to read what is not assigned any more."""
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    async def _request(self) -> None:
        raise NotImplementedError


class ConsumerClient(MixedClient):
    """A client of the consumer protocol."""

    def __init__(self, server: GroupServer, member_id: str, instance: str | None = None) -> None:
        super().__init__(server, member_id, instance)
        self.epoch = 0
        self._assigned: set[int] = set()
        self._is_complete = True
        """Whether the next heartbeat says all that it can."""

    @property
    def identity(self) -> MemberIdentity:
        return MemberIdentity(self.member_id, self.epoch, self.instance)

    def give_up(self) -> None:
        if self.reading != self._assigned and not self.is_waiting:
            self.reading = set(self._assigned)
            self._is_complete = True

    def leave(self) -> None:
        self.lose_answer()
        if self.epoch > 0:
            self.server.go(self._leave())

    async def _request(self) -> None:
        is_complete, self._is_complete = self._is_complete, True
        uuid = self.server.uuid
        owned = {uuid: frozenset(self.reading)} if self.reading else {}
        said: dict[str, Any] = {"rebalance_timeout_ms": REBALANCE_MS, "topic_names": (TOPIC,), "owned": owned}
        request = ConsumerHeartbeat(
            GROUP, self.member_id, self.epoch, "new", "/192.0.2.1", self.instance, **said if is_complete else {}
        )
        try:
            result = await self.server.broker.consumer_groups.heartbeat(request)
        except TailraceError:
            self.epoch, self.reading, self._assigned = 0, set(), set()
            return
        assert result.epoch >= self.epoch, "a member's epoch went back"
        self.epoch = result.epoch
        # One that could not be sure whether it was heard says everything again.
        self._is_complete = False
        if result.assigned is not None and (assigned := set(result.assigned.get(uuid, ()))) != self._assigned:
            self._assigned = assigned
            self.reading |= assigned
            self._is_complete = True

    async def _leave(self) -> None:
        with suppress(TailraceError):
            await self.server.broker.consumer_groups.heartbeat(
                ConsumerHeartbeat(GROUP, self.member_id, -1, "new", "/192.0.2.1", self.instance)
            )


class ClassicClient(MixedClient):
    """A client of the classic protocol, with an eager or a cooperative assignor."""

    def __init__(self, server: GroupServer, *, is_cooperative: bool, instance: str | None = None) -> None:
        super().__init__(server, "", instance)
        self._is_cooperative = is_cooperative
        self._protocol = "cooperative-sticky" if is_cooperative else "range"
        self._joined: Joined | None = None
        self._is_synced = False
        self._assigned: set[int] = set()

    @property
    def identity(self) -> MemberIdentity:
        return MemberIdentity(self.member_id, -1 if self._joined is None else self._joined.generation, self.instance)

    def give_up(self) -> None:
        if self._is_synced and not self.is_waiting and self.reading != self._assigned:
            self.reading = set(self._assigned)
            # A cooperative member joins again with what is left.
            self._is_synced = False
            self._joined = None

    def leave(self) -> None:
        self.lose_answer()
        if self.member_id:
            with suppress(TailraceError):
                self.server.broker.groups.leave(GROUP, [(self.member_id, self.instance)])
            self.server.turn()

    async def _request(self) -> None:
        groups = self.server.broker.groups
        try:
            if self._joined is None:
                await self._join()
            elif not self._is_synced:
                await self._sync(self._joined)
            elif self.reading == self._assigned or not self._is_cooperative:
                groups.heartbeat(GROUP, self.identity)
            else:
                # It gives partitions up and will join again. Meanwhile it lives.
                with suppress(RebalanceInProgressError):
                    groups.heartbeat(GROUP, self.identity)
        except MemberIdRequiredError as required:
            self.member_id = required.member_id
        except (RebalanceInProgressError, IllegalGenerationError, UnknownMemberError, FencedInstanceError) as error:
            self._joined, self._is_synced = None, False
            if not self._is_cooperative or not isinstance(error, RebalanceInProgressError):
                self.reading = set()
            if isinstance(error, UnknownMemberError | FencedInstanceError):
                self.member_id = ""
        except TailraceError:
            # The server could not store it.
            return

    async def _join(self) -> None:
        if not self._is_cooperative:
            self.reading = set()
        metadata = subscription_of(self.reading)
        request = joining(
            self.member_id,
            instance=self.instance,
            protocols=((self._protocol, metadata),),
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            asks_for_id_first=True,
        )
        joined = await self.server.broker.groups.join(request)
        self.member_id = joined.member_id
        self._joined = joined

    async def _sync(self, joined: Joined) -> None:
        shares: Mapping[str, bytes] = {}
        if joined.leader == joined.member_id:
            claims = {member_id: decode_member_subscription(said).owned.get(TOPIC, ()) for member_id, _, said in joined.members}
            assigned = assign(claims, self.server.partitions, is_cooperative=self._is_cooperative)
            shares = {member_id: encode_assignment({TOPIC: sorted(own)}) for member_id, own in assigned.items()}
        synced = await self.server.broker.groups.sync(syncing(joined, group=GROUP, instance=self.instance, **shares))
        self._assigned = set(decode_assignment(synced.assignment).get(TOPIC, ()))
        self.reading = self.reading | self._assigned if self._is_cooperative else set(self._assigned)
        self._is_synced = True


def subscription_of(owned: Iterable[int], version: int = 1) -> bytes:
    """Return the metadata of a member that subscribes to the topic and owns these partitions of it."""
    name = pack(">h", len(TOPIC)) + TOPIC.encode()
    numbers = sorted(owned)
    claims = pack(">i", 1) + name + pack(f">i{len(numbers)}i", len(numbers), *numbers) if numbers else pack(">i", 0)
    return pack(">hi", version, 1) + name + pack(">i", -1) + (claims if version else b"")


def assign(claims: Mapping[str, Iterable[int]], partitions: int, *, is_cooperative: bool) -> dict[str, set[int]]:
    """Assign as a leader does: a cooperative one lets nobody have what another has to give up first."""
    share = -(-partitions // len(claims))
    assigned: dict[str, set[int]] = {member_id: set() for member_id in claims}
    blocked: set[int] = set()
    if is_cooperative:
        for member_id, owned in claims.items():
            assigned[member_id] = set(sorted(set(owned) - blocked)[:share])
            blocked |= set(owned)
    load = Counter({member_id: len(own) for member_id, own in assigned.items()})
    for number in sorted(set(range(partitions)) - blocked):
        member_id = min(claims, key=load.__getitem__)
        assigned[member_id].add(number)
        load[member_id] += 1
    return assigned
