"""Where changes go that a route can't be followed for: `<topic>.dead_letters`, with the cause, the route and the change itself.

The topic is made when there is something to put into it.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple
from uuid import uuid4

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from tailrace.model.errors import InvalidTopicNameError, UnknownTopicError
from tailrace.model.ids import TopicId
from tailrace.model.limits import DEFAULT_LIMITS, KIB, MIB
from tailrace.model.names import check_topic_name
from tailrace.model.pipeline import MarkMove
from tailrace.pipeline.connection import ServerAddress, ServerConnection
from tailrace.pipeline.errors import is_topic_gone
from tailrace.pipeline.plan import FAILED, MATCHED
from tailrace.pipeline.routed_records import MatchColumns, Places, RouteMatches, RouteResults, RouteTarget
from tailrace.pipeline.staging import LayeredBatch, RecordEncoder, RecordRows, Stager, TopicShape, over_batch, over_limits
from tailrace.pipeline.steps import STEP_BATCHES, STEP_BYTES, STEP_ROWS, EvaluatedStep, StepMerger
from tailrace.wire.compression import Compression
from tailrace.wire.routing import ChangeEvent
from tailrace.wire.staged_chunks import StagedBatch

DEAD_LETTER_SUFFIX = ".dead_letters"
FALLBACK_TOPIC = "dead_letters"
"""For topics whose name is too long to have something put behind it."""

NOT_EVALUATED = "the route can't be evaluated for this change: a value does not fit its type, or a division by zero"
TOO_LARGE = "the message would be larger than its topic takes"

_MOST_BYTES = 8 * MIB
"""A change with both its rows, and what is said about it."""


class RouterDeadLetter(msgspec.Struct, frozen=True):
    cause: str
    route: int
    topic: str
    source_table: str
    event: "FailedEvent | None"
    """Left out where it does not fit into the topic. It is still among the table's changes, at the cursor in the headers."""


class FailedEvent(msgspec.Struct, frozen=True):
    op: str
    key: msgspec.Raw
    old: msgspec.Raw
    new: msgspec.Raw
    ts: int
    cursor: int


class RouterDeadLetters:
    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._most: dict[str, int] = {}
        """By topic of dead letters, the bytes that it takes."""

    def topic_for(self, topic: str) -> str:
        """The topic for what can't go to this one. It is there afterwards."""
        name = dead_letter_topic(topic)
        if name not in self._most:
            self._most[name] = self._made(name)
        return name

    def write(self, letter: RouterDeadLetter) -> bytes:
        whole = msgspec.json.encode(letter)
        if len(whole) < self._most[self.topic_for(letter.topic)] - KIB:
            return whole
        return msgspec.json.encode(msgspec.structs.replace(letter, event=None))

    def _made(self, name: str) -> int:
        try:
            return self._connection.offsets([name]).max_batch_bytes[name]
        except UnknownTopicError as error:
            if not is_topic_gone(error):
                raise
        settings = {"max_message_bytes": _MOST_BYTES}
        self._connection.ask("POST", "/api/topics", {"name": name, "partitions": 1, "settings": settings})
        return _MOST_BYTES


def dead_letter_topic(topic: str) -> str:
    try:
        check_topic_name(topic + DEAD_LETTER_SUFFIX, DEFAULT_LIMITS)
    except InvalidTopicNameError:
        return FALLBACK_TOPIC
    return topic + DEAD_LETTER_SUFFIX


def failed_event(change: ChangeEvent) -> FailedEvent:
    null = b"null"
    return FailedEvent(
        change.op,
        msgspec.Raw(change.key),
        msgspec.Raw(change.old or null),
        msgspec.Raw(change.new or null),
        change.timestamp,
        change.cursor,
    )


STAGED_SCHEMA = (
    StructType()
    .add("stage", StringType())
    .add("parts", IntegerType())
    .add("records", LongType())
    .add("changes", LongType())
    .add("dead_letters", LongType())
)
"""Not as text, which Spark would parse again for each batch."""
_STAGED_ARROW = pa.schema(
    {"stage": pa.string(), "parts": pa.int32(), "records": pa.int64(), "changes": pa.int64(), "dead_letters": pa.int64()}
)


def stage_routed(
    targets: Sequence[RouteTarget], server: ServerAddress, pipeline: str, patience_seconds: float
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`: takes the rows of a `RoutingPlan`, gives one row that says what was staged."""

    def stage(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ServerConnection(server, patience_seconds) as connection:
            name = f"{pipeline[:40]}-{uuid4().hex}"
            stager = Stager(connection, pipeline, name)
            steps = RoutedSteps(RecordEncoder(connection, Compression.NONE, 0), RouterDeadLetters(connection), targets)
            for move, batches, records in steps.of(rows):
                stager.add(batches, records, [move])
            staged = stager.finish()
        columns = [[staged.stage], [staged.parts], [staged.records], [steps.changes], [steps.dead_letters]]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, kind) for column, kind in zip(columns, _STAGED_ARROW.types, strict=True)], schema=_STAGED_ARROW
        )

    return stage


class RoutedStep(NamedTuple):
    """What was made of a step, or of some that were gathered."""

    move: MarkMove
    batches: Sequence[StagedBatch]
    records: int


class RoutedSteps:
    def __init__(
        self,
        encoder: RecordEncoder,
        letters: RouterDeadLetters,
        targets: Sequence[RouteTarget],
        *,
        most_bytes: int = STEP_BYTES,
        most_rows: int = STEP_ROWS,
        most_batches: int = STEP_BATCHES,
    ) -> None:
        # Only here: Spark imports this module in many processes that lay nothing, and the compiled loop takes a while to load.
        from tailrace.pipeline.layers import layers_of

        self._layers_of = layers_of
        self._gathered = StepMerger(sorted({target.verdict.word for target in targets}), most_bytes, most_rows)
        self._most_batches = most_batches
        self._encoder = encoder
        self._letters = letters
        self._targets = {target.id: target for target in targets}
        self._topics: dict[TopicId, list[RouteTarget]] = {}
        for target in sorted(targets):
            self._topics.setdefault(target.topic_id, []).append(target)
        self.changes = 0
        """Source rows of the steps so far."""
        self.dead_letters = 0

    def of(self, rows: Iterator[pa.RecordBatch]) -> Iterator[RoutedStep]:
        """Of the rows of a `RoutingPlan`."""
        for step in self._gathered.of(rows):
            yield from self._routed(step)

    def _routed(self, step: EvaluatedStep) -> Iterator[RoutedStep]:
        """The step, or several that make as much of it, where it would take more batches than the server may be held up for."""
        move, changes, said = step
        verdicts = RouteResults(said)
        parts = [part for targets in self._topics.values() for part in self._of_topic(targets, changes, verdicts)]
        layers = self._layers_of(
            changes.column("key"),
            [part.places for part in parts],
            [part.partitions for part in parts],
            [part.topic.partitions for part in parts],
        )
        pieces = min(changes.num_rows, -(-_batch_count(parts, layers) // self._most_batches))
        if pieces > 1:
            for piece in step.split(pieces):
                yield from self._routed(piece)
            return
        self.changes += move.after - (move.before or 0)
        self.dead_letters += sum(part.letters for part in parts)
        yield RoutedStep(move, list(self._laid(parts, layers)), sum(part.records.rows for part in parts))

    def _of_topic(self, targets: Sequence[RouteTarget], changes: pa.RecordBatch, verdicts: RouteResults) -> "Iterator[_Part]":
        """Records for the topic that these routes lead to, and letters about what can't be one."""
        lost = _failed_changes(verdicts.hits(targets, FAILED), NOT_EVALUATED)
        taken = verdicts.hits(targets, MATCHED)
        topic = self._shape_of(targets[0]) if lost or len(taken.places) else None
        if topic is None:
            return
        if len(taken.places):
            rows = MatchColumns(taken, changes, self._targets).records(verdicts)
            fits = np.ones(rows.rows, np.bool_)
            for over, cause in ((over_batch(topic, rows), TOO_LARGE), *over_limits(topic, rows)):
                if (fits & over).any():
                    lost += _failed_changes(taken.where(fits & over), cause)
                    fits &= ~over
            if not fits.all():
                rows = rows.filtered(pa.array(fits))
            if rows.rows:
                yield self._part(topic, rows, taken.places[fits], topic.id)
        if lost:
            letters = self._encoder.shape_of(self._letters.topic_for(topic.name))
            lost.sort()
            places = np.array([each.place for each in lost])
            yield self._part(letters, self._dead(lost, changes), places, topic.id)._replace(letters=len(lost))

    def _shape_of(self, target: RouteTarget) -> TopicShape | None:
        """The topic that a route leads to; `None` where it is gone."""
        try:
            shape = self._encoder.shape_of(target.topic)
        except UnknownTopicError as error:
            if is_topic_gone(error):
                return None
            raise
        return shape if shape.id == target.topic_id else None

    def _part(self, topic: TopicShape, rows: RecordRows, places: Places, needs: TopicId) -> "_Part":
        return _Part(topic, rows, places, self._encoder.partitions_of(topic, rows), needs)

    def _laid(self, parts: "Sequence[_Part]", layers: Sequence[Places] | None) -> Iterator[StagedBatch]:
        """The batches of all parts, one layer behind the other."""
        laid: list[LayeredBatch] = []
        for number, part in enumerate(parts):
            of_part = None if layers is None else layers[number]
            laid += self._encoder.encoded(part.topic, part.records, part.partitions, of_part, needs=part.needs)
        if layers is not None:
            laid.sort(key=itemgetter(0))
        return (each.staged for each in laid)

    def _dead(self, lost: Sequence["_FailedChange"], changes: pa.RecordBatch) -> RecordRows:
        """Letters about these, in their order."""
        hits = RouteMatches(np.array([each.place for each in lost]), np.array([each.route for each in lost]))
        columns = MatchColumns(hits, changes, self._targets)
        targets = [self._targets[each.route] for each in lost]
        letters = [
            RouterDeadLetter(each.cause, each.route, target.topic, target.table, failed_event(change))
            for each, target, change in zip(lost, targets, columns.events(), strict=True)
        ]
        return RecordRows(
            pa.array([self._letters.write(letter) for letter in letters], pa.binary()),
            columns.change("key"),
            columns.change("committed_ms"),
            columns.headers(pa.repeat("full", len(letters))),
        )


class _Part(NamedTuple):
    """What a step gives one topic."""

    topic: TopicShape
    records: RecordRows
    places: Places
    """Of the changes in their step."""
    partitions: npt.NDArray[np.int32]
    """Where each record goes."""
    needs: TopicId
    """The topic that the routes lead to: without it nobody wants the letters either."""
    letters: int = 0
    """How many of the records are dead letters."""


def _batch_count(parts: Sequence[_Part], layers: Sequence[Places] | None) -> int:
    """How many batches there are, if none is cut for its size."""
    if layers is None:
        return sum(len(np.unique(part.partitions)) for part in parts)
    return sum(
        len(np.unique(of_part * part.topic.partitions + part.partitions)) for part, of_part in zip(parts, layers, strict=True)
    )


class _FailedChange(NamedTuple):
    """A change that a route can't be followed for."""

    place: int
    route: int
    cause: str


def _failed_changes(hits: RouteMatches, cause: str) -> list[_FailedChange]:
    return [_FailedChange(place, route, cause) for place, route in zip(hits.places.tolist(), hits.routes.tolist(), strict=True)]
