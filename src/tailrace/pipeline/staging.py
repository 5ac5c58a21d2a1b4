"""Staging: a task's rows become record batches, batches become chunks, and chunks are sent to the server in parts.

The server keeps them until the driver has them published.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.api.pipelines import PublishStagesBody, PublishStagesResponse, StagesBody, WriteStagesBody
from tailrace.model.ids import TopicId
from tailrace.model.limits import KIB, MIB
from tailrace.model.pipeline import MarkMove
from tailrace.pipeline.connection import ServerConnection
from tailrace.pipeline.errors import OptionError
from tailrace.wire.fast_arrow_encoding import EncodeColumns, RecordColumns, load_encode_columns
from tailrace.wire.route_dead_letters import BATCH_OVERHEAD_BYTES, KEY_TOO_LARGE, VALUE_TOO_LARGE
from tailrace.wire.staged_chunks import StagedBatch, StagedChunk, encode_staged_chunk

_PART_BYTES = 8 * MIB
_CHUNK_BYTES = 4 * MIB
_BATCH_BYTES = MIB - KIB


class RecordRows(NamedTuple):
    """Rows on their way to topics, as columns of one length."""

    values: pa.Array
    keys: pa.Array
    timestamps: pa.Array
    """`int64`, milliseconds."""
    headers: pa.Array | None = None
    partitions: pa.Array | None = None
    """`int32`; null if the key decides."""

    @property
    def rows(self) -> int:
        return len(self.values)

    def filtered(self, mask: pa.Array) -> "RecordRows":
        return RecordRows(*(column if column is None else column.filter(mask) for column in self))

    def taken(self, members: pa.Array) -> "RecordRows":
        return RecordRows(*(column if column is None else column.take(members) for column in self))


class TopicShape(NamedTuple):
    """What a task has to know of a topic. Batches are staged for its id."""

    id: TopicId
    name: str
    partitions: int
    max_batch_bytes: int
    max_key_bytes: int
    max_value_bytes: int


class LayeredBatch(NamedTuple):
    """A batch, and its layer in the step."""

    layer: int
    staged: StagedBatch


class StagedTask(NamedTuple):
    """What a task has staged."""

    stage: str
    parts: int
    records: int


class RecordEncoder:
    """Encodes rows to batches. Create it in the task that uses it: loading the compiled loops takes a second."""

    def __init__(self, connection: ServerConnection, codec: int, turn: int) -> None:
        # Imported here, because Spark imports this module in many processes that encode nothing.
        from tailrace.wire.encoding_kernels import load_fast_partitioner

        self._connection = connection
        self._codec = codec
        self._turn = turn
        self._encode: EncodeColumns = load_encode_columns()
        self._partitions_of = load_fast_partitioner()
        self._shapes: dict[str, TopicShape] = {}

    def batches(self, topics: pa.Array, rows: RecordRows) -> Iterator[StagedBatch]:
        """Yield batches, in the order of the rows within each partition."""
        for topic in pc.unique(topics).to_pylist():
            if topic is None:
                raise OptionError("a row has no topic: fill the column topic, or give the option topic")
            shape = self.shape_of(topic)
            of_topic = rows if _is_constant(topics) else rows.filtered(pc.equal(topics, topic))
            for over, cause in over_limits(shape, of_topic):
                if over.any():
                    raise OptionError(f"a row for the topic {topic!r} is too large: {cause}")
            yield from (laid.staged for laid in self.encoded(shape, of_topic, self.partitions_of(shape, of_topic)))

    def shape_of(self, topic: str) -> TopicShape:
        shape = self._shapes.get(topic)
        if shape is None:
            ends = self._connection.offsets([topic])
            # The response has the topic's name, also if an alias was asked for.
            ((name, partitions),) = ends.offsets.items()
            shape = self._shapes[topic] = TopicShape(
                TopicId(ends.topic_ids[name]),
                name,
                len(partitions),
                ends.max_batch_bytes[name],
                ends.max_key_bytes,
                ends.max_value_bytes,
            )
        return shape

    def partitions_of(self, shape: TopicShape, rows: RecordRows) -> npt.NDArray[np.int32]:
        """Choose the partition of each row."""
        count = shape.partitions
        chosen = self._partitions_of(rows.keys, count)
        if (chosen < 0).any():
            # Rows without a key stay together in a batch, and each batch goes to the next partition, as in Kafka's clients.
            chosen[chosen < 0] = self._turn % count
            self._turn += 1
        if rows.partitions is not None:
            asked = rows.partitions.fill_null(-1).to_numpy(zero_copy_only=False)
            if (asked >= count).any() or (asked < -1).any():
                raise OptionError(f"a row asks for partition {int(asked.max())} of a topic that has {count}")
            chosen = np.where(asked >= 0, asked, chosen).astype(np.int32)
        return chosen

    def encoded(
        self,
        shape: TopicShape,
        rows: RecordRows,
        partitions: npt.NDArray[np.int32],
        layers: npt.NDArray[np.int64] | None = None,
        *,
        needs: TopicId | None = None,
    ) -> Iterator[LayeredBatch]:
        """Yield batches by layer and partition, in the order of the rows within each. Without `layers` there is one layer."""
        if not rows.rows:
            return
        places = partitions.astype(np.int64) if layers is None else layers * shape.partitions + partitions
        if not (places == places[0]).all():
            order = np.argsort(places, kind="stable")
            places, rows = places[order], rows.taken(pa.array(order))
        columns = RecordColumns(rows.timestamps, rows.values, rows.keys, rows.headers)
        most_bytes = min(_BATCH_BYTES, shape.max_batch_bytes - BATCH_OVERHEAD_BYTES)
        first = 0
        for encoded in self._encode(columns, codec=self._codec, most_bytes=most_bytes, runs=places):
            layer, partition = divmod(int(places[first]), shape.partitions)
            yield LayeredBatch(layer, StagedBatch(shape.id, shape.name, partition, encoded.batch, needs))
            first += encoded.records


def over_limits(shape: TopicShape, rows: RecordRows) -> Iterator[tuple[npt.NDArray[np.bool_], str]]:
    """Yield which rows are too large for any topic, and why."""
    yield _sizes(rows.values) > shape.max_value_bytes, f"{VALUE_TOO_LARGE} ({shape.max_value_bytes})"
    yield _sizes(rows.keys) > shape.max_key_bytes, f"{KEY_TOO_LARGE} ({shape.max_key_bytes})"


def over_batch(shape: TopicShape, rows: RecordRows) -> npt.NDArray[np.bool_]:
    """Return which rows are too large for a batch of the topic, even alone."""
    over: npt.NDArray[np.bool_] = _sizes(rows.values) + _sizes(rows.keys) > shape.max_batch_bytes - 2 * BATCH_OVERHEAD_BYTES
    return over


def _sizes(column: pa.Array) -> npt.NDArray[np.int64]:
    sizes: npt.NDArray[np.int64] = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


class Stager:
    """Sends chunks in parts, so that neither the task nor the server holds much in memory at a time."""

    def __init__(self, connection: ServerConnection, pipeline: str, stage: str) -> None:
        self._connection = connection
        self._pipeline = pipeline
        self._stage = stage
        self._parts = 0
        self._chunks: list[bytes] = []
        self._size = 0
        self._records = 0

    def add(self, batches: Sequence[StagedBatch], records: int, moves: Sequence[MarkMove] = ()) -> None:
        chunk = encode_staged_chunk(StagedChunk(moves, batches))
        if self._chunks and self._size + len(chunk) > _PART_BYTES:
            self._send()
        self._chunks.append(chunk)
        self._size += len(chunk)
        self._records += records

    def add_plain(self, batches: Iterable[StagedBatch], records: int) -> None:
        """Add batches that move no mark, in as many chunks as their size needs."""
        chunk: list[StagedBatch] = []
        size = 0
        for staged in batches:
            if chunk and size + len(staged.batch) > _CHUNK_BYTES:
                self.add(chunk, 0)
                chunk, size = [], 0
            chunk.append(staged)
            size += len(staged.batch)
        self.add(chunk, records)

    def finish(self) -> StagedTask:
        if self._chunks:
            self._send()
        return StagedTask(self._stage, self._parts, self._records)

    def _send(self) -> None:
        path = f"/api/pipelines/{self._pipeline}/stages/{self._stage}/{self._parts}"
        self._connection.send("PUT", path, b"".join(self._chunks))
        self._parts += 1
        self._chunks = []
        self._size = 0


def _is_constant(column: pa.Array) -> bool:
    return len(pc.unique(column)) == 1


def publish(connection: ServerConnection, pipeline: str, tasks: Sequence[StagedTask], epoch: int) -> None:
    """Publish what tasks of a pipeline have staged, and move the marks of their steps."""
    connection.ask(f"/api/pipelines/{pipeline}/publish", PublishStagesBody(_stages(tasks), epoch), PublishStagesResponse)


def write(connection: ServerConnection, writer: str, tasks: Sequence[StagedTask], source: str, number: int) -> None:
    """Publish what tasks of a writer have staged, once for each number. Returns when all of it is in the log."""
    body = WriteStagesBody(_stages(tasks), source, number)
    while not connection.ask(f"/api/pipelines/{writer}/write", body, PublishStagesResponse).is_done:
        pass


def discard(connection: ServerConnection, writer: str, tasks: Sequence[StagedTask]) -> None:
    connection.ask(f"/api/pipelines/{writer}/discard", StagesBody(_stages(tasks)), type(None))


def _stages(tasks: Sequence[StagedTask]) -> list[tuple[str, int]]:
    return [(task.stage, task.parts) for task in tasks]
