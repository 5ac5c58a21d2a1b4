"""Fills a topic fast, beside the clock: the same batch over and over, by the way that Spark's tasks take."""

from typing import NamedTuple
from uuid import uuid4

from bench.http.server import HttpServer
from tailrace.model.ids import TopicId
from tailrace.model.record import Record
from tailrace.pipeline.connection import ServerAddress, ServerConnection
from tailrace.pipeline.staging import Stager, write
from tailrace.wire.records import encode_batch
from tailrace.wire.staged_chunks import StagedBatch

_TIMESTAMP = 1_700_000_000_000
_BATCH_RECORDS = 5_000
_STAGE_BATCHES = 50
"""So many fit into a frame."""


class Loaded(NamedTuple):
    records: int
    value_bytes: int
    """Of all values together."""


def load_topic(server: HttpServer, topic: str, records: int, value_bytes: int) -> Loaded:
    """At least so many records, whose values have up to so many bytes."""
    values = [b"%0*d" % (1 + number * value_bytes // _BATCH_RECORDS, number % 10) for number in range(_BATCH_RECORDS)]
    batch = encode_batch([Record(b"%d" % number, value, (), _TIMESTAMP) for number, value in enumerate(values)])
    wanted = -(-records // _BATCH_RECORDS)
    server.create_topic(topic)
    with ServerConnection(ServerAddress(server.url)) as connection:
        topic_id = TopicId(connection.offsets([topic]).topic_ids[topic])
        writer = f"loading-{uuid4().hex}"
        for first in range(0, wanted, _STAGE_BATCHES):
            stager = Stager(connection, writer, f"{writer}-{first}")
            for _ in range(min(_STAGE_BATCHES, wanted - first)):
                stager.add([StagedBatch(topic_id, topic, 0, batch)], _BATCH_RECORDS)
            write(connection, writer, [stager.finish()], "batches", first)
    return Loaded(wanted * _BATCH_RECORDS, wanted * sum(map(len, values)))
