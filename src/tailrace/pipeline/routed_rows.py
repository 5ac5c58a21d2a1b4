"""What a task does with routed changes: they become record batches, staged step by step.

What was made of a step and the move of its mark are one chunk, in which each topic's records are in the order of the changes.
What can't become a record of its topic becomes a dead letter in the same chunk.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from tailrace.model.pipeline import MarkMove
from tailrace.pipeline.address import ServerAddress
from tailrace.pipeline.change_rows import STEP_BYTES, STEP_ROWS
from tailrace.pipeline.connection import ServerConnection
from tailrace.pipeline.dead_letters import NOT_EVALUATED, TOO_LARGE, DeadLetters, Letter, lost_event
from tailrace.pipeline.judged_steps import GatheredSteps, JudgedStep
from tailrace.pipeline.plan_columns import FAILED, TAKEN
from tailrace.pipeline.routed_records import HitColumns, Hits, RouteTarget, Verdicts
from tailrace.pipeline.staging import RecordRows, RowEncoder, Stager
from tailrace.wire.codecs import Codec
from tailrace.wire.staged import StagedBatch

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
            steps = RoutedSteps(RowEncoder(connection, Codec.NONE, 0), DeadLetters(connection), targets)
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
        encoder: RowEncoder,
        letters: DeadLetters,
        targets: Sequence[RouteTarget],
        *,
        most_bytes: int = STEP_BYTES,
        most_rows: int = STEP_ROWS,
    ) -> None:
        self._gathered = GatheredSteps(sorted({target.verdict.word for target in targets}), most_bytes, most_rows)
        self._encoder = encoder
        self._letters = letters
        self._targets = {target.id: target for target in targets}
        self._topics: dict[str, list[RouteTarget]] = {}
        for target in sorted(targets):
            self._topics.setdefault(target.topic, []).append(target)
        self.changes = 0
        """Source rows of the steps so far."""
        self.dead_letters = 0

    def of(self, rows: Iterator[pa.RecordBatch]) -> Iterator[RoutedStep]:
        """Of the rows of a `RoutingPlan`."""
        return map(self._routed, self._gathered.of(rows))

    def _routed(self, step: JudgedStep) -> RoutedStep:
        move, changes, said = step
        self.changes += move.after - (move.before or 0)
        verdicts = Verdicts(said)
        batches: list[StagedBatch] = []
        records = 0
        lost: list[_Lost] = []
        for topic, targets in self._topics.items():
            lost += _lost(verdicts.hits(targets, FAILED), NOT_EVALUATED)
            taken = verdicts.hits(targets, TAKEN)
            if not len(taken.places):
                continue
            rows = HitColumns(taken, changes, self._targets).records(topic, verdicts)
            fits = self._encoder.fitting(topic, rows)
            if not fits.all():
                lost += _lost(taken.where(~fits), TOO_LARGE)
                rows = rows.filtered(pa.array(fits))
            batches += self._encoder.batches(rows)
            records += len(rows.topics)
        if lost:
            batches += self._encoder.batches(self._dead(sorted(lost), changes))
        return RoutedStep(move, batches, records + len(lost))

    def _dead(self, lost: Sequence["_Lost"], changes: pa.RecordBatch) -> RecordRows:
        """Letters about these, in their order."""
        hits = Hits(np.array([each.place for each in lost]), np.array([each.route for each in lost]))
        columns = HitColumns(hits, changes, self._targets)
        targets = [self._targets[each.route] for each in lost]
        letters = [
            Letter(each.cause, each.route, target.topic, target.table, lost_event(change))
            for each, target, change in zip(lost, targets, columns.events(), strict=True)
        ]
        self.dead_letters += len(letters)
        return RecordRows(
            pa.array([self._letters.topic_for(letter.topic) for letter in letters]),
            pa.array([self._letters.write(letter) for letter in letters], pa.binary()),
            columns.change("key"),
            columns.change("committed_ms"),
            columns.headers(pa.repeat("full", len(letters))),
        )


class _Lost(NamedTuple):
    """A change that a route can't be followed for."""

    place: int
    route: int
    cause: str


def _lost(hits: Hits, cause: str) -> Iterator[_Lost]:
    for place, route in zip(hits.places.tolist(), hits.routes.tolist(), strict=True):
        yield _Lost(place, route, cause)
