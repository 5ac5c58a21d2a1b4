"""Topics as a Spark source, batch and streaming.

The driver asks the server where partitions start and end; tasks fetch stored batches and decode them themselves. Offsets in
Spark's checkpoints look as in its Kafka source, with the UUID of the topic that they belong to:
`{"orders.paid": {"0": 23, "1": 5, "topic_uuid": "..."}}`. A topic that was deleted and created again has another UUID, so its
records are not mistaken for a continuation of the old ones.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from tailrace.api.pipelines import MarksResponse, PinBody, TakeLeaseBody
from tailrace.model.pipeline import Lease
from tailrace.pipeline.connection import ServerConnection, TopicOffsets
from tailrace.pipeline.errors import DataLossError, OptionError
from tailrace.pipeline.options import EARLIEST, LATEST, OffsetsOption, SourceOptions, resolve_offset
from tailrace.pipeline.topic_reading import OffsetRange, Offsets, column_names, limited, ranges_between, read_range, split

_WAIT_MS = 200
"""How long the server may wait for new records before it answers. Longer would delay the stop of a query."""

_UUID = "topic_uuid"

SparkOffsets = dict[str, dict[str, Any]]
"""As Spark stores them: partitions are text, because JSON has no other keys."""


class TopicReader(DataSourceReader):
    """Reads a batch: the records that existed when it was planned."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.bounds = RowBounds()

    def partitions(self) -> list[InputPartition]:
        options = self.options
        with _connection(options) as connection:
            start = _resolve(connection, options, options.starting)
            end = _resolve(connection, options, options.ending)
            ranges = self.bounds.narrowed(connection, ranges_between(start.offsets, end.offsets, end.uuids))
        return [InputPartition(tuple(each)) for each in split(ranges, options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self.options, partition)


class FilteringTopicReader(TopicReader):
    """A `TopicReader` for sessions that push filters down; in other sessions Spark rejects a reader that accepts them."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self.bounds.take(filters)
        return filters


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.starts: SparkOffsets | None = None
        self.goal: TopicOffsets | None = None
        """The end of a query with the trigger AvailableNow."""

    def initialOffset(self) -> SparkOffsets:
        if self.starts is None:
            with _connection(self.options) as connection:
                starts = _resolve(connection, self.options, self.options.starting)
                if self.options.pin is not None:
                    starts = starts._replace(offsets=_pinned(connection, self.options.pin, starts))
                self.starts = _to_spark(starts.offsets, starts.uuids)
        return self.starts

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        with _connection(self.options) as connection:
            self.goal = _ends(connection, self.options)

    def latestOffset(self, start: SparkOffsets, limit: ReadLimit) -> SparkOffsets:
        starts = _from_spark(start)
        known = self.goal
        if known is None:
            with _connection(self.options) as connection:
                known = _ends(connection, self.options, beyond=starts, wait_ms=_WAIT_MS)
        self._check_loss(start, known)
        deleted = {topic: offsets for topic, offsets in starts.items() if topic not in known.offsets}
        uuids = known.uuids | {topic: uuid for topic, uuid in _uuids(start).items() if topic in deleted}
        end = known.offsets | deleted
        if isinstance(limit, ReadMaxRows):
            end = limited(_still_valid(start, uuids), end, limit.max_rows)
        return _to_spark(end, uuids)

    def reportLatestOffset(self) -> SparkOffsets:
        with _connection(self.options) as connection:
            ends = _ends(connection, self.options)
        return _to_spark(ends.offsets, ends.uuids)

    def partitions(self, start: SparkOffsets, end: SparkOffsets) -> Sequence[InputPartition]:
        uuids = _uuids(end)
        ranges = list(ranges_between(_still_valid(start, uuids), _from_spark(end), uuids))
        return [InputPartition(tuple(each)) for each in split(ranges, self.options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self.options, partition)

    def commit(self, end: SparkOffsets) -> None:
        """Do nothing: Spark calls this one batch late, and its checkpoint has the position of the query."""

    def stop(self) -> None:
        """Do nothing: no connection stays open between requests."""

    def _check_loss(self, start: SparkOffsets, end: TopicOffsets) -> None:
        """Raise an error, unless data may be lost, if a topic was deleted, created again, or ends before the position."""
        if not self.options.fail_on_data_loss:
            return
        uuids = _uuids(start)
        for topic, starts in _from_spark(start).items():
            ends = end.offsets.get(topic)
            if ends is None or uuids.get(topic, end.uuids[topic]) != end.uuids[topic]:
                happened = "was deleted" if ends is None else "was deleted and created again"
            elif any(upto < at for at, upto in zip(starts, ends, strict=False)):
                happened = f"ends at {ends} now: it was deleted and created again, or its log was lost"
            else:
                continue
            raise DataLossError(
                f"{topic!r} was read up to {starts} and {happened}. Set failOnDataLoss to false to continue with what is"
                " there, from the start of a topic that was created again"
            )


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    names = column_names(options.include_headers)
    with _connection(options) as connection:
        yield from read_range(
            connection,
            OffsetRange(*partition.value),
            names,
            fail_on_data_loss=options.fail_on_data_loss,
            skips_corrupt=options.skips_corrupt,
        )


def _connection(options: SourceOptions) -> ServerConnection:
    return ServerConnection(options.server, options.retry_seconds)


def _ends(
    connection: ServerConnection, options: SourceOptions, beyond: Offsets | None = None, wait_ms: int = 0
) -> TopicOffsets:
    return connection.offsets(options.topics, options.pattern, beyond=beyond, wait_ms=wait_ms)


def _resolve(connection: ServerConnection, options: SourceOptions, at: OffsetsOption) -> TopicOffsets:
    if not isinstance(at, dict):
        return connection.offsets(options.topics, options.pattern, at)
    earliest = connection.offsets(options.topics, options.pattern, EARLIEST).offsets
    newest = connection.offsets(options.topics, options.pattern, LATEST)
    latest = newest.offsets
    unknown = at.keys() - latest.keys()
    if unknown:
        raise OptionError(f"offsets are given for {sorted(unknown)}, which are not among the topics to read: {sorted(latest)}")
    found = {}
    for topic, ends in latest.items():
        given = at.get(topic, {})
        missing = {str(number) for number in range(len(ends))} ^ given.keys()
        if missing:
            raise OptionError(
                f"offsets of {topic!r} must name its partitions, 0 to {len(ends) - 1}; too few or too many: {sorted(missing)}"
            )
        found[topic] = [resolve_offset(given[str(at)], earliest[topic][at], end) for at, end in enumerate(ends)]
    return newest._replace(offsets=found)


def _pinned(connection: ServerConnection, name: str, starts: TopicOffsets) -> dict[str, list[int]]:
    """Return where the query of this name first started. The server keeps it, whatever happens to the checkpoint."""
    lease = connection.ask(f"/api/pipelines/{name}/lease", TakeLeaseBody(f"query {name}", take_over=True), Lease)
    offsets, ids = starts.offsets, starts.topic_ids
    flat = {f"{ids[topic]}/{number}": at for topic, each in offsets.items() for number, at in enumerate(each)}
    pinned = connection.ask(f"/api/pipelines/{name}/pin", PinBody(lease.epoch, flat), MarksResponse).marks
    return {topic: [pinned[f"{ids[topic]}/{number}"] for number in range(len(each))] for topic, each in offsets.items()}


def _to_spark(offsets: Offsets, uuids: Mapping[str, str]) -> SparkOffsets:
    return {
        topic: {str(number): at for number, at in enumerate(each)} | ({_UUID: uuids[topic]} if topic in uuids else {})
        for topic, each in offsets.items()
    }


def _from_spark(offsets: SparkOffsets) -> dict[str, list[int]]:
    return {topic: [each[str(number)] for number in range(len(each.keys() - {_UUID}))] for topic, each in offsets.items()}


def _uuids(offsets: SparkOffsets) -> dict[str, str]:
    """Return the UUIDs of the topics. Checkpoints of older versions have none."""
    return {topic: each[_UUID] for topic, each in offsets.items() if _UUID in each}


def _still_valid(start: SparkOffsets, uuids: Mapping[str, str]) -> dict[str, list[int]]:
    """Return the offsets of topics that still exist; new topics of the same name are read from their start."""
    before = _uuids(start)
    return {
        topic: each
        for topic, each in _from_spark(start).items()
        if topic not in before or before[topic] == uuids.get(topic, before[topic])
    }


class RowBounds(msgspec.Struct):
    """What a query's filters say about where to read. They only narrow the reading: Spark checks every row again."""

    partitions: set[int] | None = None
    first_offset: int = 0
    end_offset: int | None = None
    first_ms: int | None = None

    def take(self, filters: Iterable[Filter]) -> None:
        for each in filters:
            column = getattr(each, "attribute", ())
            value: Any = getattr(each, "value", None)
            if column == ("partition",) and isinstance(each, EqualTo | In):
                numbers = {value} if isinstance(each, EqualTo) else set(value)
                self.partitions = numbers if self.partitions is None else self.partitions & numbers
            elif column == ("offset",):
                self._take_offset(each, value)
            elif column == ("timestamp",) and isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual):
                self.first_ms = max(self.first_ms or 0, _milliseconds(value))

    def narrowed(self, connection: ServerConnection, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        found = []
        by_time = {}
        for each in ranges:
            if self.partitions is not None and each.partition not in self.partitions:
                continue
            start = max(each.start, self.first_offset)
            if self.first_ms is not None:
                if each.topic not in by_time:
                    by_time[each.topic] = connection.offsets([each.topic], at=self.first_ms).offsets[each.topic]
                start = max(start, by_time[each.topic][each.partition])
            end = each.end if self.end_offset is None else min(each.end, self.end_offset)
            if start < end:
                found.append(each._replace(start=start, end=end))
        return found

    def _take_offset(self, each: Filter, value: int) -> None:
        if isinstance(each, EqualTo | GreaterThanOrEqual):
            self.first_offset = max(self.first_offset, value)
        elif isinstance(each, GreaterThan):
            self.first_offset = max(self.first_offset, value + 1)
        if isinstance(each, EqualTo | LessThanOrEqual):
            self._end_at(value + 1)
        elif isinstance(each, LessThan):
            self._end_at(value)

    def _end_at(self, offset: int) -> None:
        self.end_offset = offset if self.end_offset is None else min(self.end_offset, offset)


def _milliseconds(instant: datetime) -> int:
    """Convert a literal, which Spark passes in UTC or in the session's time zone."""
    aware = instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)
