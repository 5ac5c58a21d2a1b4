"""What a task does with routed changes: they become record batches, which are staged at the server step by step.

The records of a step and the move of its mark are one chunk. In it the records about a row are in the order of its changes
(`layers.py`), and so are the records of each partition. A change that can't become a record of its topic becomes a dead letter
in the same chunk: a record of `<topic>.dead_letters` with the cause, the route and the change. Nothing is made for a topic that
was deleted, even if another one has its name now.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from tailrace.api.topics import CreateTopicBody
from tailrace.model.errors import UnknownTopicError
from tailrace.model.ids import TopicId
from tailrace.model.pipeline import MarkMove
from tailrace.model.queue import dead_letter_topic
from tailrace.model.topic import Topic, TopicOptions
from tailrace.pipeline.connection import ServerAddress, ServerConnection
from tailrace.pipeline.errors import is_topic_gone
from tailrace.pipeline.plan import FAILED, MATCHED
from tailrace.pipeline.routed_records import MatchColumns, Places, RouteMatches, RouteResults, RouteTarget
from tailrace.pipeline.staging import LayeredBatch, RecordEncoder, RecordRows, Stager, TopicShape, over_batch, over_limits
from tailrace.pipeline.steps import STEP_BATCHES, STEP_BYTES, STEP_ROWS, EvaluatedStep, StepMerger, evaluated_steps
from tailrace.wire.compression import Compression
from tailrace.wire.route_dead_letters import (
    MAX_LETTER_BYTES,
    NOT_EVALUATED,
    TOO_LARGE,
    RouterDeadLetter,
    failed_event,
)
from tailrace.wire.staged_chunks import StagedBatch

STAGED_SCHEMA = (
    StructType()
    .add("stage", StringType())
    .add("parts", IntegerType())
    .add("records", LongType())
    .add("changes", LongType())
    .add("dead_letters", LongType())
)
"""Not as DDL text, which Spark would parse again for each batch."""
_STAGED_ARROW = pa.schema(
    {"stage": pa.string(), "parts": pa.int32(), "records": pa.int64(), "changes": pa.int64(), "dead_letters": pa.int64()}
)


def stage_routed(
    targets: Sequence[RouteTarget], server: ServerAddress, pipeline: str, retry_seconds: float
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for `mapInArrow`, from the rows of a `RoutingPlan` to one row that describes what was staged."""

    def stage(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ServerConnection(server, retry_seconds) as connection:
            name = f"{pipeline[:40]}-{uuid4().hex}"
            stager = Stager(connection, pipeline, name)
            steps = RoutedSteps(RecordEncoder(connection, Compression.NONE, 0), RouterDeadLetters(connection), targets)
            for move, batches, records in steps.route(rows):
                stager.add(batches, records, [move])
            staged = stager.finish()
        columns = [[staged.stage], [staged.parts], [staged.records], [steps.changes], [steps.dead_letters]]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, kind) for column, kind in zip(columns, _STAGED_ARROW.types, strict=True)], schema=_STAGED_ARROW
        )

    return stage


class RoutedStep(NamedTuple):
    """The record batches of a step, or of several that were merged."""

    move: MarkMove
    batches: Sequence[StagedBatch]
    records: int


class RoutedSteps:
    """Turns the steps of a task into record batches."""

    def __init__(
        self,
        encoder: RecordEncoder,
        letters: "RouterDeadLetters",
        targets: Sequence[RouteTarget],
        *,
        max_bytes: int = STEP_BYTES,
        max_rows: int = STEP_ROWS,
        max_batches: int = STEP_BATCHES,
    ) -> None:
        # Imported here, because Spark imports this module in many processes that route nothing, and the compiled loop is slow
        # to load.
        from tailrace.pipeline.layers import layers_of
        from tailrace.pipeline.python_conditions import PythonConditions

        self._layers_of = layers_of
        self._merger = StepMerger(sorted({target.bits.word for target in targets}), max_bytes, max_rows)
        self._conditions = PythonConditions(targets)
        self._max_batches = max_batches
        self._encoder = encoder
        self._letters = letters
        self._targets = {target.id: target for target in targets}
        self._topics: dict[TopicId, list[RouteTarget]] = {}
        for target in sorted(targets):
            self._topics.setdefault(target.topic_id, []).append(target)
        self.changes = 0
        """How many changes the steps so far had."""
        self.dead_letters = 0

    def route(self, rows: Iterator[pa.RecordBatch]) -> Iterator[RoutedStep]:
        """Yield the record batches of each step. `rows` come out of a `RoutingPlan`."""
        for step in self._merger.merged(map(self._conditions.decided, evaluated_steps(rows))):
            yield from self._routed(step)

    def _routed(self, step: EvaluatedStep) -> Iterator[RoutedStep]:
        """Yield the step, split if it would take more batches than the server should publish at once."""
        move, changes, _ = step
        results = RouteResults(step.results)
        parts = [part for targets in self._topics.values() for part in self._of_topic(targets, changes, results)]
        layers = self._layers_of(
            changes.column("key"),
            [part.places for part in parts],
            [part.partitions for part in parts],
            [part.topic.partitions for part in parts],
        )
        splits = min(changes.num_rows, -(-_batch_count(parts, layers) // self._max_batches))
        if splits > 1:
            for smaller in step.split(splits):
                yield from self._routed(smaller)
            return
        self.changes += move.after - (move.before or 0)
        self.dead_letters += sum(part.letters for part in parts)
        yield RoutedStep(move, list(self._batches(parts, layers)), sum(part.records.rows for part in parts))

    def _of_topic(
        self, targets: Sequence[RouteTarget], changes: pa.RecordBatch, results: RouteResults
    ) -> "Iterator[_TopicPart]":
        """Yield the records for the topic that these routes lead to, and dead letters for what can't become a record."""
        failed = _failed_changes(results.matches(targets, FAILED), NOT_EVALUATED)
        matched = results.matches(targets, MATCHED)
        topic = self._shape_of(targets[0]) if failed or len(matched.places) else None
        if topic is None:
            return
        if len(matched.places):
            rows = MatchColumns(matched, changes, self._targets).records(results)
            fits = np.ones(rows.rows, np.bool_)
            for over, cause in ((over_batch(topic, rows), TOO_LARGE), *over_limits(topic, rows)):
                if (fits & over).any():
                    failed += _failed_changes(matched.where(fits & over), cause)
                    fits &= ~over
            if not fits.all():
                rows = rows.filtered(pa.array(fits))
            if rows.rows:
                yield self._part(topic, rows, matched.places[fits], topic.id)
        if failed:
            letters = self._encoder.shape_of(self._letters.topic_for(topic.name))
            failed.sort()
            places = np.array([each.place for each in failed])
            yield self._part(letters, self._dead_letters(failed, changes), places, topic.id)._replace(letters=len(failed))

    def _shape_of(self, target: RouteTarget) -> TopicShape | None:
        """Return the topic that a route leads to; `None` if it was deleted."""
        try:
            shape = self._encoder.shape_of(target.topic)
        except UnknownTopicError as error:
            if is_topic_gone(error):
                return None
            raise
        return shape if shape.id == target.topic_id else None

    def _part(self, topic: TopicShape, rows: RecordRows, places: Places, needs: TopicId) -> "_TopicPart":
        return _TopicPart(topic, rows, places, self._encoder.partitions_of(topic, rows), needs)

    def _batches(self, parts: "Sequence[_TopicPart]", layers: Sequence[Places] | None) -> Iterator[StagedBatch]:
        """Return the batches of all parts, in the order of their layers."""
        batches: list[LayeredBatch] = []
        for number, part in enumerate(parts):
            of_part = None if layers is None else layers[number]
            batches += self._encoder.encoded(part.topic, part.records, part.partitions, of_part, needs=part.needs)
        if layers is not None:
            batches.sort(key=itemgetter(0))
        return (each.staged for each in batches)

    def _dead_letters(self, failed: Sequence["_FailedChange"], changes: pa.RecordBatch) -> RecordRows:
        matches = RouteMatches(np.array([each.place for each in failed]), np.array([each.route for each in failed]))
        columns = MatchColumns(matches, changes, self._targets)
        targets = [self._targets[each.route] for each in failed]
        letters = [
            RouterDeadLetter(each.cause, each.route, target.topic, target.table, failed_event(change))
            for each, target, change in zip(failed, targets, columns.events(), strict=True)
        ]
        return RecordRows(
            pa.array([self._letters.encode(letter) for letter in letters], pa.binary()),
            columns.change("key"),
            columns.change("committed_ms"),
            columns.headers(pa.repeat("full", len(letters))),
        )


class _TopicPart(NamedTuple):
    """The records of a step for one topic."""

    topic: TopicShape
    records: RecordRows
    places: Places
    """The index of each record's change in the step."""
    partitions: npt.NDArray[np.int32]
    """The partition of each record."""
    needs: TopicId
    """The topic that the routes lead to. If it is deleted, its dead letters are left out too."""
    letters: int = 0
    """How many of the records are dead letters."""


def _batch_count(parts: Sequence[_TopicPart], layers: Sequence[Places] | None) -> int:
    """Count the batches that there will be if none is split for its size."""
    if layers is None:
        return sum(len(np.unique(part.partitions)) for part in parts)
    return sum(
        len(np.unique(of_part * part.topic.partitions + part.partitions)) for part, of_part in zip(parts, layers, strict=True)
    )


class _FailedChange(NamedTuple):
    """A change that can't become a record of its topic."""

    place: int
    route: int
    cause: str


def _failed_changes(matches: RouteMatches, cause: str) -> list[_FailedChange]:
    pairs = zip(matches.places.tolist(), matches.routes.tolist(), strict=True)
    return [_FailedChange(place, route, cause) for place, route in pairs]


class RouterDeadLetters:
    """The topics of dead letters, each created when its first letter is written."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._max_bytes: dict[str, int] = {}
        """By topic of dead letters, how large a batch may be."""

    def topic_for(self, topic: str) -> str:
        """Return the topic for the dead letters of a topic; it is created if necessary."""
        name = dead_letter_topic(topic)
        if name not in self._max_bytes:
            self._max_bytes[name] = self._find_or_create(name)
        return name

    def encode(self, letter: RouterDeadLetter) -> bytes:
        return letter.encoded(self._max_bytes[self.topic_for(letter.topic)])

    def _find_or_create(self, name: str) -> int:
        try:
            return self._connection.offsets([name]).max_batch_bytes[name]
        except UnknownTopicError as error:
            if not is_topic_gone(error):
                raise
        settings = TopicOptions(max_message_bytes=MAX_LETTER_BYTES)
        self._connection.ask("/api/topics", CreateTopicBody(name, settings=settings), Topic)
        return MAX_LETTER_BYTES
