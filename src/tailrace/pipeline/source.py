"""Topics as a Spark source, batch and streaming.

The driver asks the server where partitions begin and end; tasks fetch stored batches and decode them themselves. Offsets in
Spark's checkpoints look as in its Kafka source: `{"orders.paid": {"0": 23, "1": 5}}`.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from tailrace.pipeline.columns import column_names
from tailrace.pipeline.connection import ServerConnection
from tailrace.pipeline.errors import DataLossError, OptionError
from tailrace.pipeline.options import EARLIEST, LATEST, SourceOptions, Start, resolve_offset
from tailrace.pipeline.pushdown import RowBounds
from tailrace.pipeline.ranges import OffsetRange, Offsets, limited, ranges_between, split
from tailrace.pipeline.reading import read_range

_WAIT_MS = 200
"""How long the server holds a question for new records. Longer would delay the stop of a query."""

SparkOffsets = dict[str, dict[str, int]]
"""As Spark stores them: partitions are text, because keys of JSON are."""


class TopicReader(DataSourceReader):
    """A batch: what was there when it was planned."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.bounds = RowBounds()

    def partitions(self) -> list[InputPartition]:
        options = self.options
        with _connection(options) as connection:
            start = _resolve(connection, options, options.starting)
            end = _resolve(connection, options, options.ending)
            ranges = self.bounds.narrowed(connection, ranges_between(start, end))
        return [InputPartition(tuple(each)) for each in split(ranges, options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self.options, partition)


class FilteringTopicReader(TopicReader):
    """The same, for sessions that push filters down; in others Spark refuses a reader that could take them."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self.bounds.take(filters)
        return filters


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.starts: SparkOffsets | None = None
        self.goal: Offsets | None = None
        """Where a query with the trigger AvailableNow ends."""

    def initialOffset(self) -> SparkOffsets:
        if self.starts is None:
            with _connection(self.options) as connection:
                starts = _resolve(connection, self.options, self.options.starting)
                if self.options.pin is not None:
                    starts = _pinned(connection, self.options.pin, starts)
                self.starts = _to_spark(starts)
        return self.starts

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        with _connection(self.options) as connection:
            self.goal = _ends(connection, self.options)

    def latestOffset(self, start: SparkOffsets, limit: ReadLimit) -> SparkOffsets:
        begun = _from_spark(start)
        end = self.goal
        if end is None:
            with _connection(self.options) as connection:
                end = _ends(connection, self.options, beyond=begun, wait_ms=_WAIT_MS)
        end = self._checked(begun, end)
        if isinstance(limit, ReadMaxRows):
            end = limited(begun, end, limit.max_rows)
        return _to_spark(end)

    def reportLatestOffset(self) -> SparkOffsets:
        with _connection(self.options) as connection:
            return _to_spark(_ends(connection, self.options))

    def partitions(self, start: SparkOffsets, end: SparkOffsets) -> Sequence[InputPartition]:
        ranges = list(ranges_between(_from_spark(start), _from_spark(end)))
        return [InputPartition(tuple(each)) for each in split(ranges, self.options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self.options, partition)

    def commit(self, end: SparkOffsets) -> None:
        """Spark comes here a batch late and nothing depends on it: the checkpoint says how far the query is."""

    def stop(self) -> None:
        """No connection outlives the question it was opened for."""

    def _checked(self, begun: Offsets, end: Offsets) -> Offsets:
        """The end, where it isn't before the start: then a topic was deleted and made again, or its log was lost."""
        for topic, starts in begun.items():
            ends = end.get(topic)
            lost = ends is None or any(upto < at for at, upto in zip(starts, ends, strict=False))
            if lost and self.options.fail_on_data_loss:
                raise DataLossError(
                    f"{topic!r} was read up to {starts} and now ends at {ends}: it was deleted or made anew. Set failOnDataLoss"
                    " to false to go on with what is there"
                )
        return dict(end) | {topic: starts for topic, starts in begun.items() if topic not in end}


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    names = column_names(options.include_headers)
    with _connection(options) as connection:
        yield from read_range(connection, OffsetRange(*partition.value), names, fail_on_data_loss=options.fail_on_data_loss)


def _connection(options: SourceOptions) -> ServerConnection:
    return ServerConnection(options.server, options.patience_seconds)


def _ends(
    connection: ServerConnection, options: SourceOptions, beyond: Offsets | None = None, wait_ms: int = 0
) -> dict[str, list[int]]:
    return connection.offsets(options.topics, options.pattern, beyond=beyond, wait_ms=wait_ms).offsets


def _resolve(connection: ServerConnection, options: SourceOptions, at: Start) -> dict[str, list[int]]:
    if not isinstance(at, dict):
        return connection.offsets(options.topics, options.pattern, at).offsets
    earliest = connection.offsets(options.topics, options.pattern, EARLIEST).offsets
    latest = connection.offsets(options.topics, options.pattern, LATEST).offsets
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
    return found


def _pinned(connection: ServerConnection, name: str, starts: Offsets) -> dict[str, list[int]]:
    """Where the query of this name started first, kept by the server; it stays so whatever happens to the checkpoint."""
    lease = connection.ask("POST", f"/api/pipelines/{name}/lease", {"owner": f"query {name}", "take_over": True})
    flat = {f"{topic}/{number}": at for topic, each in starts.items() for number, at in enumerate(each)}
    pinned = connection.ask("POST", f"/api/pipelines/{name}/pin", {"epoch": lease["epoch"], "starts": flat})["marks"]
    return {topic: [pinned[f"{topic}/{number}"] for number in range(len(each))] for topic, each in starts.items()}


def _to_spark(offsets: Offsets) -> SparkOffsets:
    return {topic: {str(number): at for number, at in enumerate(each)} for topic, each in offsets.items()}


def _from_spark(offsets: SparkOffsets) -> dict[str, list[int]]:
    return {topic: [each[str(number)] for number in range(len(each))] for topic, each in offsets.items()}
