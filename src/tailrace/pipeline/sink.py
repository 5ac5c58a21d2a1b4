"""Topics as a Spark sink: each batch takes effect exactly once and as a whole, whatever Spark has to repeat.

Tasks stage record batches at the server, where no reader sees them. The driver's commit has the server publish those of all
tasks, together with the number of the batch; a batch whose number was published before is skipped. A batch that fits into one
frame becomes visible at once. The server publishes a larger one in several frames, and finishes it even if the driver dies.
"""

import time
from collections.abc import Iterator
from typing import NamedTuple
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, ShortType, StringType, StructType, TimestampType

from tailrace.pipeline.connection import ServerConnection
from tailrace.pipeline.errors import OptionError
from tailrace.pipeline.options import SinkOptions
from tailrace.pipeline.staging import RecordEncoder, RecordRows, StagedTask, Stager, discard, write
from tailrace.wire.compression import Compression

_TEXT = (BinaryType, StringType)
_LEGAL: dict[str, tuple[type[DataType], ...]] = {
    "topic": (StringType,),
    "key": _TEXT,
    "value": _TEXT,
    "partition": (IntegerType, ShortType, LongType),
    "timestamp": (TimestampType,),
}
_COLUMNS = (*_LEGAL, "headers")
_BATCH = "batch"
_JOB = "job"
_HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


class Staged(WriterCommitMessage, NamedTuple("Staged", [("writer", str), ("task", StagedTask)])):
    """What a task reports to the driver. It has the writer's name, because Spark does not give it to the driver."""


class TopicWriter(DataSourceArrowWriter):
    """Writes a batch job. Each job has a new name, so writing the same rows again publishes them again, as it should."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("a topic can't be overwritten: write with mode('append')")
        check_schema(schema, options.topic)
        self.options = options
        self.writer = f"job-{uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _stage(self.options, self.writer, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _write(self.options, messages, _JOB, 1)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _discard(self.options, messages)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes a streaming query. Its name is the query's id, which the checkpoint keeps."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(schema, options.topic)
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        if query is None:
            raise OptionError("this task belongs to no streaming query")
        return _stage(self.options, f"query-{query}", iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _write(self.options, messages, _BATCH, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        # What was published or decided stays: Spark also aborts a batch that failed after its commit.
        _discard(self.options, messages)


def check_schema(schema: StructType, topic: str | None) -> None:
    """Raise an error if the rows of a data frame can't become records, before anything runs."""
    names = [field.name for field in schema]
    unknown = [name for name in names if name not in _COLUMNS]
    if unknown:
        raise OptionError(f"a topic has no columns {unknown}; select only columns of {list(_COLUMNS)}")
    if "value" not in names:
        raise OptionError("there is no column value, which every record needs")
    if topic is None and "topic" not in names:
        raise OptionError("the topic is missing: give the option topic, or a column topic")
    for field in schema:
        legal = _LEGAL.get(field.name)
        if legal is not None and not isinstance(field.dataType, legal):
            wanted = " or ".join(kind.typeName() for kind in legal)
            raise OptionError(f"the column {field.name} is {field.dataType.simpleString()}; it must be {wanted}")


def record_rows(batch: pa.RecordBatch, topic: str | None, now_ms: int) -> tuple[pa.Array, RecordRows]:
    """Return the topic of each row, and the columns of its record."""
    rows = batch.num_rows
    names = batch.schema.names

    def column(name: str, kind: pa.DataType) -> pa.Array:
        return batch.column(name).cast(kind) if name in names else pa.nulls(rows, kind)

    times = column("timestamp", pa.timestamp("us", "UTC")).cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    topics = column("topic", pa.string())
    return topics if topic is None else pa.repeat(topic, rows), RecordRows(
        values=column("value", pa.binary()),
        keys=column("key", pa.binary()),
        timestamps=times.fill_null(now_ms),
        headers=batch.column("headers").cast(_HEADERS) if "headers" in names else None,
        partitions=column("partition", pa.int32()) if "partition" in names else None,
    )


def _stage(options: SinkOptions, writer: str, rows: Iterator[pa.RecordBatch]) -> Staged:
    context = TaskContext.get()
    task = context.partitionId() if context is not None else 0
    # Each attempt has a name of its own, so that one that was given up does not overwrite the parts of another.
    stage = f"{writer[-36:]}-{task}-{uuid4().hex[:12]}"
    with ServerConnection(options.server, options.retry_seconds) as connection:
        encoder = RecordEncoder(connection, Compression[options.compression.upper()], task)
        stager = Stager(connection, writer, stage)
        for batch in rows:
            if batch.num_rows:
                stager.add_plain(encoder.batches(*record_rows(batch, options.topic, int(time.time() * 1000))), batch.num_rows)
        return Staged(writer, stager.finish())


def _write(options: SinkOptions, messages: list[WriterCommitMessage | None], source: str, number: int) -> None:
    staged = [message for message in messages if isinstance(message, Staged)]
    if staged:
        with ServerConnection(options.server, options.retry_seconds) as connection:
            write(connection, staged[0].writer, [each.task for each in staged], source, number)


def _discard(options: SinkOptions, messages: list[WriterCommitMessage | None]) -> None:
    staged = [message for message in messages if isinstance(message, Staged)]
    if staged:
        with ServerConnection(options.server, options.retry_seconds) as connection:
            discard(connection, staged[0].writer, [each.task for each in staged])
