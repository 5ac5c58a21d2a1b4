"""One task's reading: a range of offsets of one partition, fetched in large pieces and decoded where Spark runs."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tailrace.model.limits import MIB
from tailrace.pipeline.columns import TopicColumns
from tailrace.pipeline.connection import ServerConnection
from tailrace.pipeline.errors import TOPIC_GONE, DataLossError, RefusedError
from tailrace.pipeline.ranges import OffsetRange

FETCH_BYTES = 8 * MIB


def read_range(
    connection: ServerConnection,
    wanted: OffsetRange,
    names: Sequence[str],
    *,
    fail_on_data_loss: bool,
    skips_corrupt: bool = False,
) -> Iterator[pa.RecordBatch]:
    columns = TopicColumns(names, skips_corrupt=skips_corrupt)
    at = wanted.start
    while at < wanted.end:
        try:
            fetched = connection.batches(wanted.topic, wanted.partition, at, FETCH_BYTES, topic_uuid=wanted.topic_uuid)
        except RefusedError as error:
            at = _after_loss(connection, wanted, at, error, fail_on_data_loss)
            continue
        following = fetched.head.next_offset
        if following <= at:
            raise DataLossError(f"{wanted.topic!r}, partition {wanted.partition}, ends at {at}, before {wanted.end}")
        yield from columns.decode(wanted.topic, wanted.partition, fetched.batches, at, wanted.end)
        at = following


def _after_loss(connection: ServerConnection, wanted: OffsetRange, at: int, error: RefusedError, fail: bool) -> int:
    """Where to go on when what was to be read is gone."""
    if error.kind not in ("offset-out-of-range", "unknown-partition", *TOPIC_GONE):
        raise error
    if fail:
        raise DataLossError(
            f"{wanted.topic!r}, partition {wanted.partition}: records from {at} to {wanted.end} can't be read: {error}. They"
            " were removed by retention, or the topic was deleted. Set failOnDataLoss to false to go on without them"
        ) from error
    if error.kind != "offset-out-of-range":
        return wanted.end
    start = connection.offsets([wanted.topic], at="earliest").offsets[wanted.topic][wanted.partition]
    return wanted.end if start <= at else start
