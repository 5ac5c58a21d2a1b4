"""Cut-overs: topics that a shadow copies to a Kafka stop to take records here, so that the copy can be completed.

A cut-over begins with a **fence**, in one commit: from its decision on, whatever would append records to such a topic is
refused with a retriable error, and producers wait. Transactions that are open may still end, and large writes that were
decided on are still finished; the command that cuts over waits for both. Then it ends the cut-over in another commit, with
which topics refuse records for good or take them again to be copied on, or it gives the cut-over up. A command that dies
gives it up too: the fence ends when it was silent for too long.

What the fence does is in `LiveTopic.fence`, which all ways of appending look at. Changes of tables are not fenced: they are
copied on.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer
from tailrace.broker.deadlines import Deadlines
from tailrace.broker.routes.routes import Routes
from tailrace.broker.shadows.shadows import Shadows
from tailrace.broker.topics.registry import LiveTopic
from tailrace.broker.topics.topics import Topics
from tailrace.broker.transactions.state import NO_RECORDS, read_open
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes
from tailrace.model.errors import (
    CutOverTopicError,
    FencedTopicError,
    InvalidRequestError,
    RoutedError,
    ShadowPhaseError,
    TailraceError,
    UnknownShadowError,
)
from tailrace.model.ids import PartitionId, ShadowId
from tailrace.model.limits import Limits
from tailrace.model.queue import dead_letter_topic
from tailrace.model.shadow import Fence, LocalProducers, Shadow
from tailrace.store.contract import Store

_AGAIN_SECONDS = 5
"""After so long another attempt is made to end a fence, if the disk was full."""

_log = logging.getLogger(__name__)


class CutOvers:
    """Used on the event loop."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        topics: Topics,
        routes: Routes,
        shadows: Shadows,
        open_writes: Callable[[], int],
        clock: Clock,
        limits: Limits,
    ) -> None:
        """`open_writes` returns how many large writes were decided on and are not finished."""
        self._store = store
        self._committer = committer
        self._topics = topics
        self._routes = routes
        self._shadows = shadows
        self._open_writes = open_writes
        self._clock = clock
        self._limits = limits
        topics.fence_of = self.fence_of
        shadows.on_changed = self.apply
        self._beginning: dict[ShadowId, Shadow] = {}
        """Definitions with fences that are decided and not durable yet."""
        self._deadlines: Deadlines[ShadowId] = Deadlines(clock, self._call_later, self._due)
        self._latest_ends: dict[ShadowId, int] = {}
        """When fences end even if their commands are not silent, in milliseconds of the monotonic clock."""
        self._giving_up: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Watch the fences that were there before the restart. Their commands have time to be heard of again."""
        for shadow in self._shadows:
            self._set_deadline(shadow)

    async def end_overdue(self) -> None:
        """End the fences whose commands are silent or too slow, and return when that is done. Timers do it by themselves."""
        self._deadlines.run_due()
        await asyncio.gather(*self._giving_up)

    async def close(self) -> None:
        self._deadlines.close()
        for task in self._giving_up:
            task.cancel()
        await asyncio.gather(*self._giving_up, return_exceptions=True)

    def apply(self) -> None:
        """Fence topics, or take their fences away, as the phases of all shadows say."""
        for live in self._topics:
            live.fence = self.fence_of(live)

    def fence_of(self, live: LiveTopic) -> TailraceError | None:
        """Return what is raised for records that would be appended to the topic, or `None` if it takes them."""
        if live.is_reserved:
            return None
        for known in self._shadows:
            shadow = self._beginning.get(known.id, known)
            if (shadow.phase == "fenced" or shadow.refuses) and self._shadows.topics_of(known).includes(live.topic.name):
                return _refusal(shadow, live.topic.name)
        return None

    def check_producers(self, shadow: Shadow, producers: LocalProducers) -> None:
        """Raise if records that are produced here can't be treated like this after a cut-over."""
        if producers == "forward" or shadow.direction == "from":
            return
        included = self._shadows.topics_of(shadow)
        routed: dict[str, set[str]] = {}
        for route in self._routes:
            for topic in (route.topic_name, dead_letter_topic(route.topic_name)):
                if included.includes(topic):
                    routed.setdefault(topic, set()).add(route.table_name)
        if routed:
            topic, tables = min(routed.items())
            raise RoutedError(
                f"routes from {', '.join(map(repr, sorted(tables)))} lead to topic {topic!r}, and could not go on if its"
                " records were refused. Use --producers forward, so that they are copied on, or drop the routes"
            )

    def check_can_fence(self, shadow: Shadow, producers: LocalProducers) -> None:
        """Raise what `fence` would raise."""
        if shadow.direction == "from":
            raise InvalidRequestError(f"shadow {shadow.name!r} copies from Kafka, whose topics can't be fenced from here")
        self._check_can_begin(shadow)
        self.check_producers(shadow, producers)

    async def fence(self, shadow: Shadow, owner: str, producers: LocalProducers) -> Shadow:
        """Fence the topics that the shadow copies. No record is appended to them from now on."""
        altered = shadow

        def decide() -> Changes:
            nonlocal altered
            now = self._shadows.latest(shadow)
            self.check_can_fence(now, producers)
            fence = Fence(number=now.fences + 1, owner=owner, since_ms=self._clock.now_ms())
            altered = msgspec.structs.replace(now, phase="fenced", fence=fence, fences=fence.number, note=None)
            self._beginning[shadow.id] = altered
            self.apply()
            return _put(altered)

        def settled() -> None:
            self._beginning.pop(shadow.id, None)

        def failed() -> None:
            settled()
            self.apply()

        return await self._change(decide, lambda: altered, settled, failed)

    def renew(self, shadow: Shadow, number: int) -> Shadow:
        """Keep a fence. Raises if it has ended."""
        self._check_fence(shadow, number)
        self._set_deadline(shadow)
        return shadow

    def partitions(self, shadow: Shadow) -> Iterator[tuple[LiveTopic, PartitionId]]:
        """Iterate over the partitions that the shadow fences."""
        return ((live, partition) for live in self._fenced_by(shadow) for partition in live.partitions)

    def open_transactions(self, shadow: Shadow) -> int:
        """Return how many transactions have records in partitions that the shadow fences, and have not ended."""
        producers = set()
        for live in self._fenced_by(shadow):
            for key, value in self._store.range(keys.open_transactions_of_topic(live.topic.id)):
                if read_open(value).first_offset != NO_RECORDS:
                    producers.add(keys.read_open_transaction_key(key)[1])
        return len(producers)

    def open_writes(self) -> int:
        """Return how many large writes may still be published in spite of a fence."""
        return self._open_writes()

    def seconds_left(self, shadow: Shadow) -> int:
        """Return how long the fence of a shadow can be renewed."""
        end_ms = self._latest_ends.get(shadow.id)
        return self._limits.shadow_fence_seconds if end_ms is None else max(0, end_ms - self._monotonic_ms()) // 1000

    async def finish(self, shadow: Shadow, producers: LocalProducers, number: int | None) -> Shadow:
        """End a cut-over: from now on the topics are those of the target."""
        altered = shadow

        def decide() -> Changes:
            nonlocal altered
            now = altered = self._shadows.latest(shadow)
            if now.phase == "cut over" and (number or 0) == (now.fences if now.direction == "to" else 0):
                if now.producers != producers:
                    raise ShadowPhaseError(f"shadow {now.name!r} is cut over already, and its producers are {now.producers!r}")
                return Changes()
            if now.direction == "to":
                self._check_fence(now, number)
            else:
                self._check_can_begin(now)
            self.check_producers(now, producers)
            altered = msgspec.structs.replace(now, phase="cut over", producers=producers, fence=None, note=None)
            return _put(altered)

        return await self._change(decide, lambda: altered)

    async def give_up(self, shadow: Shadow, number: int | None, note: str | None) -> Shadow:
        """End a fence without a cut-over: topics take records again. Nothing changes if it has ended already."""
        altered = shadow

        def decide() -> Changes:
            nonlocal altered
            now = altered = self._shadows.latest(shadow)
            if now.phase != "fenced" or (number is not None and now.fences != number):
                if now.phase == "cut over" and number in (None, now.fences):
                    raise ShadowPhaseError(
                        f"shadow {now.name!r} is cut over; roll it back with: tailrace shadow roll-back {now.name}"
                    )
                return Changes()
            altered = msgspec.structs.replace(now, phase="copying", fence=None, note=note)
            return _put(altered)

        return await self._change(decide, lambda: altered)

    async def roll_back(self, shadow: Shadow, note: str | None) -> Shadow:
        """Take a cut-over back: topics take records here again, and are copied as before."""
        altered = shadow

        def decide() -> Changes:
            nonlocal altered
            now = altered = self._shadows.latest(shadow)
            if now.phase == "fenced":
                raise ShadowPhaseError(f"a cut-over of shadow {now.name!r} is under way, by {_owner(now)}; give that up first")
            if now.phase == "copying":
                return Changes()
            altered = msgspec.structs.replace(now, phase="copying", note=note)
            return _put(altered)

        return await self._change(decide, lambda: altered)

    async def _change(
        self,
        decide: Callable[[], Changes],
        altered: Callable[[], Shadow],
        on_settled: Callable[[], None] = lambda: None,
        on_failed: Callable[[], None] = lambda: None,
    ) -> Shadow:
        def changes() -> Changes | None:
            decided = decide()
            return decided if decided.puts else None

        def settled(_: object) -> Shadow:
            on_settled()
            shadow = self._shadows.enter(altered())
            self._set_deadline(shadow)
            return shadow

        return await self._committer.submit(Change(changes, settled, on_failed))

    def _fenced_by(self, shadow: Shadow) -> Iterator[LiveTopic]:
        """Iterate over the topics that a fence of the shadow concerns."""
        included = self._shadows.topics_of(shadow)
        return (live for live in self._topics if not live.is_reserved and included.includes(live.topic.name))

    def _check_can_begin(self, shadow: Shadow) -> None:
        if shadow.phase == "fenced":
            raise ShadowPhaseError(f"another cut-over of shadow {shadow.name!r} is under way, by {_owner(shadow)}")
        if shadow.phase == "cut over":
            raise ShadowPhaseError(f"shadow {shadow.name!r} is cut over already")

    def _check_fence(self, shadow: Shadow, number: int | None) -> None:
        if shadow.fence is None or shadow.fence.number != number:
            why = f": {shadow.note}" if shadow.note is not None and shadow.fences == number else ""
            raise ShadowPhaseError(f"the fence of this cut-over of shadow {shadow.name!r} has ended{why}. Cut over again")

    def _set_deadline(self, shadow: Shadow) -> None:
        if shadow.fence is None:
            self._latest_ends.pop(shadow.id, None)
            self._deadlines.set(shadow.id, None)
            return
        now_ms = self._monotonic_ms()
        passed_ms = max(0, self._clock.now_ms() - shadow.fence.since_ms)
        latest_ms = self._latest_ends.setdefault(shadow.id, now_ms + 1000 * self._limits.shadow_fence_seconds - passed_ms)
        self._deadlines.set(shadow.id, min(latest_ms, now_ms + 1000 * self._limits.shadow_fence_silence_seconds))

    def _monotonic_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)

    def _due(self, shadow_id: ShadowId) -> None:
        shadow = next((one for one in self._shadows if one.id == shadow_id), None)
        if shadow is not None and shadow.fence is not None:
            task = self._committer.loop.create_task(self._end_fence(shadow, shadow.fence))
            self._giving_up.add(task)
            task.add_done_callback(self._giving_up.discard)

    def _call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._committer.loop.call_later(seconds, callback)

    async def _end_fence(self, shadow: Shadow, fence: Fence) -> None:
        is_silent = self._monotonic_ms() < self._latest_ends.get(shadow.id, 0)
        seconds = self._limits.shadow_fence_silence_seconds if is_silent else self._limits.shadow_fence_seconds
        why = f"the command was not heard of for {seconds} s" if is_silent else f"it was not done within {seconds} s"
        note = f"the cut-over by {fence.owner} was given up: {why}. Topics take records again"
        try:
            await self.give_up(shadow, fence.number, note)
        except UnknownShadowError:
            return
        except TailraceError as error:
            _log.warning("the fence of shadow %r can't be ended now: %s", shadow.name, error)
            self._deadlines.set(shadow.id, self._monotonic_ms() + 1000 * _AGAIN_SECONDS)
        else:
            _log.warning("shadow %r: %s", shadow.name, note)


def _put(shadow: Shadow) -> Changes:
    return Changes(puts=((keys.shadow_key(shadow.id), msgspec.msgpack.encode(shadow)),))


def _owner(shadow: Shadow) -> str:
    return "another command" if shadow.fence is None else shadow.fence.owner


def _refusal(shadow: Shadow, topic: str) -> TailraceError:
    if shadow.phase == "fenced":
        return FencedTopicError(
            f"topic {topic!r} takes no records while it is cut over to the Kafka at {shadow.bootstrap}; nothing was stored, try"
            " again after a pause"
        )
    return CutOverTopicError(
        f"topic {topic!r} was cut over to the Kafka at {shadow.bootstrap} and takes no records here any more; send them there"
    )
