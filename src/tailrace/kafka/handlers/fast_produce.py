"""Fast path of `produce.py`: a produce request with one record batch for one partition, and acks of 1 or all.

Producers that do not batch send one request for each record, so the cost of a request decides how many the server takes. This
path goes from the bytes of the request to the broker and back to bytes, without messages, futures and tasks. Every other
request is left to `produce.py`. `tests/unit/kafka/test_fast_produce.py` holds the responses of both equal, and
`tests/property/test_fast_produce.py` the reading and writing of bytes.
"""

from tailrace.broker.broker import Broker
from tailrace.kafka.dispatch import PendingResponse
from tailrace.model.errors import TailraceError, TopicForbiddenError
from tailrace.model.record import Appended, RawBatch
from tailrace.wire.batch import FLAGS_AT, HEADER_BYTES, LENGTH_FROM, TRANSACTIONAL_MASK, batch_length
from tailrace.wire.fast_produce import (
    SingleBatchRequest,
    read_single_batch_request,
    write_single_batch_rejection,
    write_single_batch_response,
)
from tailrace.wire.route_decisions import DECISIONS_TOPIC

PARTITIONS_ADDED_SINCE = 12
"""From this version on clients add partitions to their transaction by writing to them."""
_ACKNOWLEDGED = (-1, 1)
_MAYBE_STORED = 20
"""NOT_ENOUGH_REPLICAS_AFTER_APPEND: the records may be stored. Clients retry with the same sequence numbers."""


class FastProduce:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._is_secured = broker.permissions.is_on

    def produce(self, frame: bytearray) -> PendingResponse | None:
        """Append the batch of a request. Return `None` if the request is not of this kind."""
        request = read_single_batch_request(frame)
        if request is None or request.acks not in _ACKNOWLEDGED:
            return None
        records = request.records
        if len(records) < LENGTH_FROM or batch_length(records) + LENGTH_FROM != len(records):
            return None
        if self._is_secured and (len(records) < HEADER_BYTES or records[FLAGS_AT] & TRANSACTIONAL_MASK):
            # One of a transaction needs a right to the transactional id, too.
            return None
        topic = request.topic
        if not topic:
            try:
                topic = self._broker.topics.by_uuid(request.topic_id).topic.name
            except TailraceError:
                return None
        if topic == DECISIONS_TOPIC:
            return None
        pending = _PendingProduce(request)
        adds_partitions = request.version >= PARTITIONS_ADDED_SINCE
        self._broker.appender.append_one(RawBatch(topic, request.partition, records), pending, adds_partitions=adds_partitions)
        return pending


class _PendingProduce(PendingResponse):
    """The response to one batch, written when the broker has appended or rejected it."""

    __slots__ = ("_request",)

    def __init__(self, request: SingleBatchRequest) -> None:
        super().__init__()
        self._request = request

    def completed(self, outcome: Appended | TailraceError) -> None:
        if isinstance(outcome, Appended):
            self.settle(
                (write_single_batch_response(self._request, outcome.base_offset, outcome.append_time, outcome.log_start),)
            )
        else:
            self.failed(outcome)

    def failed(self, error: BaseException) -> None:
        if isinstance(error, TailraceError):
            message = producer_error_message(error, is_named=bool(self._request.topic))
            self.settle((write_single_batch_rejection(self._request, producer_error_code(error), message),))
        else:
            self.fail(error)


def producer_error_code(error: TailraceError) -> int:
    """Return the error code for a producer."""
    return _MAYBE_STORED if error.outcome == "unknown" else error.kafka_code


def producer_error_message(error: TailraceError, *, is_named: bool) -> str:
    """Return what a producer is told. One that named the topic by its id may not learn its name."""
    if isinstance(error, TopicForbiddenError) and not is_named:
        return "you may not publish to the topic with this id; have an administrator grant it"
    return str(error)
