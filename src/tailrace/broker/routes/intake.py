"""The intake of the real-time mode: decisions of Spark's query become records of topics, exactly once.

Spark's Kafka sink delivers at least once, and keeps order within one partition only. So the query writes one decision for each
change (`wire/route_decisions.py`), in order, and here the records are made of it: the change is in the log. They and the moves
of the marks are one frame. A decision below the mark of its table is a repetition and is dropped; one beyond it, of another
lease or made without a route that was added before the change is refused, and the router starts its query again from the marks.
The marks are those of the micro-batch mode, so both can follow each other at any position.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Committer
from tailrace.broker.pipelines.pipelines import Pipelines
from tailrace.broker.pipelines.staged_chunks import PublishChunks, read_mark
from tailrace.broker.publishing.context import PublishContext
from tailrace.broker.routes.routes import Routes
from tailrace.broker.subscriptions.subscriptions import Subscription, Subscriptions
from tailrace.broker.topics.registry import LiveTopic
from tailrace.broker.topics.topics import Topics
from tailrace.model.commit import Buffer
from tailrace.model.errors import InvalidRecordsError, PipelineConflictError, TopicExistsError
from tailrace.model.ids import Cursor, PartitionId, RouteId, TopicId
from tailrace.model.limits import KIB, MIB
from tailrace.model.names import TopicPattern, parse_pattern
from tailrace.model.pipeline import NO_MARK, ROUTER, MarkMove, StagedPublish, change_source
from tailrace.model.queue import dead_letter_topic
from tailrace.model.record import Record
from tailrace.model.route import Route
from tailrace.model.table import CHANGES_PREFIX
from tailrace.model.topic import TopicOptions
from tailrace.wire.batch import check_batch
from tailrace.wire.partitioner import partition_for_key
from tailrace.wire.records import decode_batch, encode_batch
from tailrace.wire.route_dead_letters import (
    MAX_LETTER_BYTES,
    NOT_EVALUATED,
    RouterDeadLetter,
    failed_event,
    too_large,
)
from tailrace.wire.route_decisions import DECISIONS_TOPIC, QueryDecisions, RouteDecision, read_decisions
from tailrace.wire.routing import ChangeEvent, KeyValue, headers_of, partition_key, payload_of, read_change
from tailrace.wire.staged_chunks import StagedBatch, StagedChunk

_STEP_BYTES = 4 * MIB
_STEP_BATCHES = 1_000
"""Bounds of what is made of decisions before it is committed."""
_BATCH_BYTES = MIB - KIB
_MAX_BATCH_BYTES = MIB
"""As much as a Kafka client sends at once by default."""
_TURN_DECISIONS = 100
"""After so many decisions other requests get a turn on the event loop."""
_IDLE_SECONDS = 60.0
_READ_SECONDS = 5.0
"""How long to wait for a change to be readable that the query has read."""


class PythonOutcome(Protocol):
    """What Python finds for a change; see `sql.routes.evaluation`."""

    @property
    def matches(self) -> bool | None: ...
    @property
    def failed(self) -> bool: ...
    @property
    def key_values(self) -> Sequence[KeyValue]: ...


class RouteEvaluation(Protocol):
    """Evaluates in Python what Spark can't compute of a route."""

    decides_matches: bool
    """Whether a change that Spark has matched is to be evaluated too."""

    def whole(self, old: bytes | None, new: bytes | None) -> PythonOutcome: ...
    def rest(self, old: bytes | None, new: bytes | None) -> PythonOutcome: ...


EvaluationOf = Callable[[Route], RouteEvaluation | None]
"""Returns what Python evaluates of a route; `None` if Spark decides alone."""


class IntakeTotals(msgspec.Struct, frozen=True):
    """What was taken since the server was started."""

    changes: int = 0
    records: int = 0
    dead_letters: int = 0

    def plus(self, other: "IntakeTotals") -> "IntakeTotals":
        return IntakeTotals(self.changes + other.changes, self.records + other.records, self.dead_letters + other.dead_letters)


class RouteIntake:
    """Takes the decisions of one query at a time, in order."""

    def __init__(
        self,
        committer: Committer,
        context: PublishContext,
        routes: Routes,
        pipelines: Pipelines,
        subscriptions: Subscriptions,
        with_labels: Callable[[Route], Route],
    ) -> None:
        self._committer = committer
        self._context = context
        self._routes = routes
        self._pipelines = pipelines
        self._with_labels = with_labels
        self._changes = _RoutedChanges(subscriptions, context.topics, parse_pattern(f"{CHANGES_PREFIX}>", context.limits))
        self._turn = asyncio.Lock()
        self._idle: asyncio.TimerHandle | None = None
        self._evaluations: dict[RouteId, tuple[Route, RouteEvaluation | None]] = {}
        self.evaluation_of: EvaluationOf = lambda _: None
        """Set by the server, because SQL is above the broker."""
        self.totals = IntakeTotals()

    async def open(self) -> None:
        """Create the topic that the query writes to."""
        self._pipelines.require(ROUTER)
        if self._context.topics.find(DECISIONS_TOPIC) is None:
            try:
                await self._context.topics.create_reserved(DECISIONS_TOPIC)
            except TopicExistsError:
                return

    @property
    def version(self) -> Cursor:
        """The cursor of the last change of routes."""
        return max((route.until or route.since for route in self._routes.history), default=Cursor(-1))

    async def take_batch(self, batch: Buffer) -> StagedPublish:
        """Call `take` for the decisions in a record batch that was produced, small enough for the event loop."""
        self._pipelines.require(ROUTER)
        header = check_batch(batch)
        if len(batch) > _MAX_BATCH_BYTES or header.codec:
            raise InvalidRecordsError(
                f"a batch for {DECISIONS_TOPIC!r} must not be compressed nor have more than {_MAX_BATCH_BYTES} bytes; this one"
                f" has {len(batch)}"
            )
        return await self.take(read_decisions(decode_batch(batch, self._context.limits)))

    async def take(self, given: QueryDecisions) -> StagedPublish:
        """Publish what the decisions say. Returns when it is durable."""
        submitted: list[asyncio.Future[StagedPublish]] = []
        if self._idle is not None:
            self._idle.cancel()
        async with self._turn:
            try:
                await self._take(given, submitted)
            except BaseException:
                # Whatever was decided before it takes effect, and the query starts again behind it.
                await asyncio.gather(*submitted, return_exceptions=True)
                raise
            finally:
                self._idle = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._rest)
        done = StagedPublish(0, 0, 0)
        for each in submitted:
            done = done.plus(await each)
            self._pipelines.mark_published(ROUTER)
        return done

    def close(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._changes.close()

    def _rest(self) -> None:
        """Stop to follow the changes while nobody decides on them."""
        if not self._turn.locked():
            self._changes.close()

    async def _take(self, given: QueryDecisions, submitted: "list[asyncio.Future[StagedPublish]]") -> None:
        self._pipelines.check_epoch(ROUTER, given.epoch)
        # Routes that were settled before the changes could be read are known from here on.
        self._committer.answer_settled()
        known_up_to = self._first_unknown(given.version)
        routes = {route.id: route for route in self._routes.history}
        step = _Step(self._context)
        for number, decision in enumerate(given.decisions, 1):
            if not number % _TURN_DECISIONS:
                await asyncio.sleep(0)
            if known_up_to is not None and decision.cursor > known_up_to:
                self._submit(step, given.epoch, submitted)
                raise PipelineConflictError(
                    f"routes were changed at cursor {known_up_to}, which the query did not know when it decided on the change"
                    f" at {decision.cursor}: start again from the marks"
                )
            found = await self._changes.at(Cursor(decision.cursor))
            if found is None or self._is_blocked(found) or not step.moves_over(found):
                continue
            await self._add(step, found, decision, routes)
            if step.is_full:
                self._submit(step, given.epoch, submitted)
                step = _Step(self._context)
        self._submit(step, given.epoch, submitted)

    def _is_blocked(self, found: "_FoundChange") -> bool:
        """Return whether the change waits until a broken route is mended. The router starts again from the marks then."""
        block = self._routes.block_of(found.partition.topic_id)
        return block is not None and found.record.offset >= block.offset

    def _first_unknown(self, version: int) -> Cursor | None:
        """Return the cursor of the first change of routes after this version."""
        history = self._routes.history
        ends = [route.until for route in history if route.until is not None]
        return min((at for at in (*(route.since for route in history), *ends) if at > version), default=None)

    def _submit(self, step: "_Step", epoch: int, submitted: "list[asyncio.Future[StagedPublish]]") -> None:
        chunk = step.chunk()
        if chunk.moves:
            self.totals = self.totals.plus(step.totals)
            check_lease = lambda: self._pipelines.check_epoch(ROUTER, epoch)  # noqa: E731
            submitted.append(self._committer.submit(PublishChunks(self._context, ROUTER, [chunk], check_lease=check_lease)))

    async def _add(self, step: "_Step", found: "_FoundChange", decision: RouteDecision, routes: dict[RouteId, Route]) -> None:
        """Add the records of one change."""
        if not decision.routes:
            return
        change = read_change(found.record)
        for number in sorted(decision.routes, key=abs):
            route = routes.get(RouteId(abs(number)))
            live = None if route is None else self._context.topics.by_id(route.topic)
            if route is None or live is None:
                continue
            made = self._record(route, change, decision, live, has_failed=number < 0)
            if isinstance(made, Record):
                step.add(found, live, made, live.topic.id)
            elif made is not None:
                letter = RouterDeadLetter(made, route.id, route.topic_name, route.table_name, failed_event(change))
                await self._add_letter(step, found, change, letter, route, live)

    def _record(
        self, route: Route, change: ChangeEvent, decision: RouteDecision, live: LiveTopic, *, has_failed: bool
    ) -> Record | str | None:
        """Return the record that a route makes of a change, the cause of a dead letter, or `None` if it does not match."""
        key = decision.keys.get(str(route.id))
        record_key = change.key if key is None else key.encode()
        evaluation = None if route.sql.python is None else self._evaluation(route)
        if evaluation is not None and (has_failed or evaluation.decides_matches):
            outcome = (evaluation.whole if has_failed else evaluation.rest)(change.old, change.new)
            has_failed = outcome.failed
            if not has_failed and not outcome.matches:
                return None
            if outcome.key_values:
                record_key = partition_key(outcome.key_values)
        if has_failed:
            return NOT_EVALUATED
        value = payload_of(change, route.payload)
        limits = self._context.limits
        cause = too_large(len(value), len(record_key), live.topic.settings.max_message_bytes or limits.batch_bytes, limits)
        if cause is not None:
            return cause
        return Record(record_key, value, headers_of(change, route.id, route.table_name, route.payload), change.timestamp)

    def _evaluation(self, route: Route) -> RouteEvaluation | None:
        labelled = self._with_labels(route)
        known = self._evaluations.get(route.id)
        if known is None or known[0] != labelled:
            known = self._evaluations[route.id] = labelled, self.evaluation_of(labelled)
        return known[1]

    async def _add_letter(
        self, step: "_Step", found: "_FoundChange", change: ChangeEvent, letter: RouterDeadLetter, route: Route, live: LiveTopic
    ) -> None:
        topics = self._context.topics
        name = dead_letter_topic(live.topic.name)
        if topics.find(name) is None:
            await topics.create(name, options=TopicOptions(max_message_bytes=MAX_LETTER_BYTES), by_server=True)
        dead = topics.get(name)
        most = dead.topic.settings.max_message_bytes or self._context.limits.batch_bytes
        headers = headers_of(change, route.id, route.table_name, "full")
        step.dead_letters += 1
        step.add(found, dead, Record(change.key, letter.encoded(most), headers, change.timestamp), live.topic.id)


class _FoundChange(NamedTuple):
    """A change in the log."""

    partition: PartitionId
    record: Record

    @property
    def row(self) -> tuple[PartitionId, bytes | None]:
        return self.partition, self.record.key


class _RoutedChanges:
    """Reads the changes of all tables in the order of the log, from where the last decision was."""

    def __init__(self, subscriptions: Subscriptions, topics: Topics, pattern: TopicPattern) -> None:
        self._subscriptions = subscriptions
        self._topics = topics
        self._pattern = pattern
        self._subscription: Subscription | None = None
        self._read: deque[tuple[str, Record]] = deque()
        self._next = Cursor(0)
        """Everything below it was returned or passed over."""

    async def at(self, cursor: Cursor) -> _FoundChange | None:
        """Return the change at this cursor; `None` if its table was dropped since."""
        if self._subscription is None or cursor < self._next:
            self.close()
            self._subscription = self._subscriptions.subscribe(self._pattern, cursor, by_server=True)
        # A decision whose commit has failed comes again, perhaps alone.
        self._next = Cursor(cursor + 1)
        while True:
            while self._read:
                name, record = self._read[0]
                if record.cursor > cursor:
                    return None
                self._read.popleft()
                if record.cursor == cursor:
                    live = self._topics.find(name)
                    return None if live is None else _FoundChange(live.partition(0), record)
            if self._subscription.position > cursor:
                return None
            for events in await self._subscription.read(_READ_SECONDS):
                self._read.extend((events.topic, record) for record in events.records)
            if not self._read and self._subscription.position <= cursor:
                raise PipelineConflictError(f"the change at cursor {cursor} can't be read: start again from the marks")

    def close(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
        self._subscription = None
        self._read.clear()


class _Step:
    """The records of some decisions and the moves of marks, which take effect together.

    By cursor, the messages about a row have the order of its changes: a record goes to the newest batch of its partition,
    unless that comes before a batch with an earlier message about the row; then it starts another batch.
    """

    def __init__(self, context: PublishContext) -> None:
        self._context = context
        self._marks: dict[PartitionId, tuple[int, int]] = {}
        """Where the mark of each table was, and where it is now."""
        self._batches: list[_OpenBatch] = []
        self._newest: dict[PartitionId, int] = {}
        self._rows: dict[tuple[PartitionId, bytes | None], int] = {}
        """The last batch with a message about each row."""
        self._size = 0
        self._records = 0
        self.dead_letters = 0

    @property
    def totals(self) -> IntakeTotals:
        changes = sum(after - before for before, after in self._marks.values())
        return IntakeTotals(changes, self._records, self.dead_letters)

    @property
    def is_full(self) -> bool:
        return self._size >= _STEP_BYTES or len(self._batches) >= _STEP_BATCHES

    def moves_over(self, found: _FoundChange) -> bool:
        """Move the mark of the table over this change. Return false if it is past it already, or nothing is routed from it."""
        partition, offset = found.partition, found.record.offset
        marks = self._marks.get(partition)
        if marks is None:
            source = change_source(partition.topic_id)
            at = read_mark(self._context.store.latest(keys.mark_key(ROUTER, source)))
            marks = (at, at)
        if marks[1] == NO_MARK or offset < marks[1]:
            return False
        if offset > marks[1]:
            live = self._context.topics.by_id(partition.topic_id)
            raise PipelineConflictError(
                f"{'a dropped table' if live is None else live.topic.name!r} is routed up to offset {marks[1]}, and the"
                f" decision is on offset {offset}: start again from the marks"
            )
        self._marks[partition] = (marks[0], offset + 1)
        return True

    def add(self, found: _FoundChange, live: LiveTopic, record: Record, needs: TopicId) -> None:
        """Add a record about the row of a change. It is left out if the topic that it needs is deleted."""
        partition = live.partition(partition_for_key(record.key or b"", live.topic.partitions))
        size = len(record.key or b"") + len(record.value or b"") + KIB
        most = min(_BATCH_BYTES, (live.topic.settings.max_message_bytes or self._context.limits.batch_bytes) - KIB)
        at = self._newest.get(partition, -1)
        if at < self._rows.get(found.row, -1) or at < 0 or self._batches[at].size + size > most:
            at = self._newest[partition] = len(self._batches)
            self._batches.append(_OpenBatch(live, partition, needs, []))
        self._rows[found.row] = at
        batch = self._batches[at]
        batch.records.append(record)
        batch.size += size
        self._size += size
        self._records += 1

    def chunk(self) -> StagedChunk:
        moves = [
            MarkMove(change_source(partition.topic_id), before, after) for partition, (before, after) in self._marks.items()
        ]
        return StagedChunk(moves, [batch.staged() for batch in self._batches])


class _OpenBatch:
    __slots__ = ("live", "needs", "partition", "records", "size")

    def __init__(self, live: LiveTopic, partition: PartitionId, needs: TopicId, records: list[Record]) -> None:
        self.live = live
        self.partition = partition
        self.needs = needs
        self.records = records
        self.size = 0

    def staged(self) -> StagedBatch:
        topic = self.live.topic
        oldest = min(record.timestamp for record in self.records)
        batch = encode_batch(self.records)
        return StagedBatch(topic.id, topic.name, self.partition.number, batch, self.needs, oldest)
