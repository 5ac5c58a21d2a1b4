"""The produce request that comes most often: one batch for one partition, outside of transactions.

Producers that do not wait for more records send one request for each, and what a request costs decides how many of them a
server takes. So it goes from its bytes to the broker, and from there to the bytes of its answer, without messages, futures and
tasks. A request that is not of this kind is left to `produce.py`.
"""

from tailrace.broker.broker import Broker
from tailrace.kafka.dispatch import PendingResponse
from tailrace.model.errors import TailraceError
from tailrace.model.record import Appended, RawBatch
from tailrace.wire.batch import LENGTH_FROM, batch_length
from tailrace.wire.fast_produce import (
    SingleBatchRequest,
    read_single_batch_request,
    write_single_batch_rejection,
    write_single_batch_response,
)

PARTITIONS_ADDED_SINCE = 12
"""Clients that speak this version add partitions to their transaction by writing to them."""
_ACKNOWLEDGED = (-1, 1)
_PERHAPS_STORED = 20
"""Kafka's code for records that were written and perhaps not kept: clients send them again as the same, not as others."""


class FastProduce:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def take(self, frame: bytearray) -> PendingResponse | None:
        asked = read_single_batch_request(frame)
        if asked is None or asked.acks not in _ACKNOWLEDGED:
            return None
        records = asked.records
        if len(records) < LENGTH_FROM or batch_length(records) + LENGTH_FROM != len(records):
            return None
        topic = asked.topic
        if not topic:
            try:
                topic = self._broker.topics.by_uuid(asked.topic_id).topic.name
            except TailraceError:
                return None
        lone = _PendingProduce(asked)
        adds_partitions = asked.version >= PARTITIONS_ADDED_SINCE
        self._broker.appender.append_one(RawBatch(topic, asked.partition, records), lone, adds_partitions=adds_partitions)
        return lone


class _PendingProduce(PendingResponse):
    """One of them, which is told what becomes of its batch."""

    __slots__ = ("_asked",)

    def __init__(self, asked: SingleBatchRequest) -> None:
        super().__init__()
        self._asked = asked

    def completed(self, outcome: Appended | TailraceError) -> None:
        if isinstance(outcome, Appended):
            self.settle(
                (write_single_batch_response(self._asked, outcome.base_offset, outcome.append_time, outcome.log_start),)
            )
        else:
            self.failed(outcome)

    def failed(self, error: BaseException) -> None:
        if isinstance(error, TailraceError):
            self.settle((write_single_batch_rejection(self._asked, producer_error_code(error), str(error)),))
        else:
            self.fail(error)


def producer_error_code(error: TailraceError) -> int:
    """For a producer."""
    return _PERHAPS_STORED if error.outcome == "unknown" else error.kafka_code
