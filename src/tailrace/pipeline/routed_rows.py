"""What a task does with routed changes: payloads, keys and headers become record batches, staged step by step.

The meaning is that of `wire/routing.py`, done for many changes at once. A step is everything up to a mark; what was made of it
and the mark are one chunk, in which each topic's records are in the order of the changes. What can't become a record of its
topic becomes a dead letter in the same chunk.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.ids import Cursor
from tailrace.model.pipeline import MarkMove
from tailrace.model.record import MESSAGE_ID_HEADER
from tailrace.model.route import Payload
from tailrace.pipeline.connection import ServerConnection
from tailrace.pipeline.dead_letters import NOT_EVALUATED, TOO_LARGE, DeadLetters, Letter, lost_event
from tailrace.pipeline.staging import RecordRows, RowEncoder, Stager
from tailrace.wire.codecs import Codec
from tailrace.wire.routing import ChangeEvent, payload_of
from tailrace.wire.staged import StagedBatch

STAGED_SCHEMA = "stage STRING, parts INT, records BIGINT, changes BIGINT, dead_letters BIGINT"
_STAGED_ARROW = pa.schema(
    {"stage": pa.string(), "parts": pa.int32(), "records": pa.int64(), "changes": pa.int64(), "dead_letters": pa.int64()}
)


class RouteTarget(NamedTuple):
    """What a task must know of a route."""

    id: int
    topic: str
    table: str
    payload: Payload


def stage_routed(
    targets: Sequence[RouteTarget], server: str, pipeline: str, patience_seconds: float
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`: takes the rows of `plan.routed`, gives one row that says what was staged."""

    def stage(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ServerConnection(server, patience_seconds) as connection:
            name = f"{pipeline[:40]}-{uuid4().hex}"
            stager = Stager(connection, pipeline, name)
            steps = RoutedSteps(RowEncoder(connection, Codec.NONE, 0), DeadLetters(connection), targets)
            for moves, batches, records in steps.of(rows):
                stager.add(batches, records, moves)
            staged = stager.finish()
        columns = [[staged.stage], [staged.parts], [staged.records], [steps.changes], [steps.dead_letters]]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, kind) for column, kind in zip(columns, _STAGED_ARROW.types, strict=True)], schema=_STAGED_ARROW
        )

    return stage


class Step(NamedTuple):
    moves: Sequence[MarkMove]
    batches: Sequence[StagedBatch]
    records: int


class RoutedSteps:
    def __init__(self, encoder: RowEncoder, letters: DeadLetters, targets: Sequence[RouteTarget]) -> None:
        self._encoder = encoder
        self._letters = letters
        self._targets = {target.id: target for target in targets}
        self.changes = 0
        """Source rows of the steps so far."""
        self.dead_letters = 0

    def of(self, rows: Iterator[pa.RecordBatch]) -> Iterator[Step]:
        """A step for each mark."""
        waiting: list[pa.RecordBatch] = []
        for batch in rows:
            begin = 0
            for place in np.flatnonzero(batch.column("mark_to").is_valid().to_numpy(zero_copy_only=False)).tolist():
                waiting.append(batch.slice(begin, place - begin))
                yield self._step(waiting, batch.slice(place, 1).to_pylist()[0])
                waiting, begin = [], place + 1
            waiting.append(batch.slice(begin))

    def _step(self, waiting: list[pa.RecordBatch], mark: Mapping[str, object]) -> Step:
        move = MarkMove(str(mark["source"]), int(str(mark["mark_from"])), int(str(mark["mark_to"])))
        self.changes += move.after - (move.before or 0)
        rows = pa.Table.from_batches(waiting).combine_chunks()
        if not rows.num_rows:
            return Step([move], [], 0)
        (hits,) = rows.to_batches()
        batches: list[StagedBatch] = []
        failed = np.flatnonzero(hits.column("failed").to_numpy(zero_copy_only=False))
        lost = dict.fromkeys(failed.tolist(), NOT_EVALUATED)
        for topic, members in self._by_topic(hits).items():
            rows = self._records(topic, _picked(hits, members))
            fits = self._encoder.fitting(topic, rows)
            if not fits.all():
                lost.update(dict.fromkeys(members[~fits].tolist(), TOO_LARGE))
                rows = rows.filtered(pa.array(fits))
            batches += self._encoder.batches(rows)
        if lost:
            batches += self._dead(hits, dict(sorted(lost.items())))
        return Step([move], batches, hits.num_rows)

    def _by_topic(self, hits: pa.RecordBatch) -> dict[str, npt.NDArray[np.int64]]:
        """The hits that can become records, as their places."""
        routes = hits.column("route").to_numpy()
        matched = ~hits.column("failed").to_numpy(zero_copy_only=False)
        names: dict[str, int] = {}
        chosen = np.empty(len(routes), np.int64)
        for route in np.unique(routes).tolist():
            chosen[routes == route] = names.setdefault(self._targets[route].topic, len(names))
        return {topic: members for topic, at in names.items() if len(members := np.flatnonzero(matched & (chosen == at)))}

    def _records(self, topic: str, hits: pa.RecordBatch) -> RecordRows:
        values, modes = self._payloads(hits)
        keys = pc.coalesce(hits.column("record_key").cast(pa.binary()), hits.column("key"))
        return RecordRows(
            pa.repeat(topic, hits.num_rows), values, keys, hits.column("committed_ms"), self._headers(hits, modes)
        )

    def _dead(self, hits: pa.RecordBatch, causes: Mapping[int, str]) -> Iterator[StagedBatch]:
        """Letters about these hits, in their order."""
        lost = _picked(hits, np.fromiter(causes, np.int64))
        letters = [
            Letter(cause, route, self._targets[route].topic, self._targets[route].table, lost_event(change))
            for cause, route, change in zip(causes.values(), lost.column("route").to_pylist(), _events(lost), strict=True)
        ]
        self.dead_letters += len(letters)
        topics = [self._letters.topic_for(letter.topic) for letter in letters]
        modes = pa.repeat("full", len(letters))
        yield from self._encoder.batches(
            RecordRows(
                pa.array(topics),
                pa.array([self._letters.write(letter) for letter in letters], pa.binary()),
                lost.column("key"),
                lost.column("committed_ms"),
                self._headers(lost, modes),
            )
        )

    def _payloads(self, hits: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """Payloads and how each was made."""
        routes = hits.column("route")
        found, modes = None, None
        for mode in sorted({self._targets[route].payload for route in pc.unique(routes).to_pylist()}):
            made = self._payload(mode, hits)
            if found is None:
                found, modes = made, pa.repeat(mode, hits.num_rows)
                continue
            members = pa.array([route for route, target in self._targets.items() if target.payload == mode], pa.int32())
            is_of_mode = pc.is_in(routes, members)
            found, modes = pc.if_else(is_of_mode, made, found), pc.if_else(is_of_mode, mode, modes)
        return found, modes

    def _payload(self, mode: Payload, hits: pa.RecordBatch) -> pa.Array:
        if mode == "key":
            return hits.column("key")
        if mode == "full":
            return pc.coalesce(hits.column("new_json"), hits.column("old_json"))
        return pa.array([payload_of(change, "diff") for change in _events(hits)], pa.binary())

    def _headers(self, hits: pa.RecordBatch, modes: pa.Array) -> pa.Array:
        routes = hits.column("route")
        cursors = hits.column("cursor").cast(pa.string())
        columns = {
            "source_table": self._tables(routes),
            "op": hits.column("op"),
            "timestamp": hits.column("committed_ms").cast(pa.string()),
            "payload_mode": modes,
            MESSAGE_ID_HEADER: pc.binary_join_element_wise(cursors, routes.cast(pa.string()), "-"),
            "cursor": cursors,
        }
        return _header_lists(columns, hits.num_rows)

    def _tables(self, routes: pa.Array) -> pa.Array:
        """The table of each hit."""
        known = pc.unique(routes)
        names = [self._targets[route].table for route in known.to_pylist()]
        if len(set(names)) == 1:
            return pa.repeat(names[0], len(routes))
        return pa.array(names).take(pc.index_in(routes, known))


def _picked(hits: pa.RecordBatch, members: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """All of them in most steps; then nothing is copied."""
    return hits if len(members) == hits.num_rows else hits.take(pa.array(members))


def _header_lists(columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """A list of all these headers for each row."""
    count = len(columns)
    values = pa.concat_arrays([column.cast(pa.binary()) for column in columns.values()])
    # From one column after another to one row after another.
    order = (np.arange(count) * rows)[None, :] + np.arange(rows)[:, None]
    names = pa.array(list(columns)).take(pa.array(np.tile(np.arange(count), rows)))
    pairs = pa.StructArray.from_arrays([names, values.take(pa.array(order.ravel()))], ["name", "value"])
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * count), pairs)


def _events(hits: pa.RecordBatch) -> Iterator[ChangeEvent]:
    names = ("op", "key", "old_json", "new_json", "committed_ms", "cursor")
    for op, key, old, new, at, cursor in zip(*(hits.column(name).to_pylist() for name in names), strict=True):
        yield ChangeEvent(op, key, old, new, at, Cursor(cursor))
