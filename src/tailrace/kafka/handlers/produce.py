"""Produce: batches of records into the log, each partition judged for itself."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from tailrace.broker.broker import Broker
from tailrace.kafka.dispatch import ApiRoute, DeferredResponse, EncodedResponse, RequestContext
from tailrace.kafka.handlers.fast_produce import PARTITIONS_ADDED_SINCE, FastProduce, producer_error_code
from tailrace.model.errors import InvalidRecordsError, InvalidRequestError, TailraceError
from tailrace.model.record import Appended, RawBatch
from tailrace.wire.batch import LENGTH_FROM, batch_length
from tailrace.wire.fast_produce import ProducedPartition, ProducedTopic, write_produce_response
from tailrace.wire.messages.produce import PRODUCE_API, PartitionProduceData, ProduceRequest, TopicProduceData

_NO_ACKS = 0
_ACKS = (-1, _NO_ACKS, 1)
_INVALID_REQUIRED_ACKS = 21
_IDS_SINCE = 13
_NO_OFFSET = -1
_NO_TIME = -1

Outcomes = Sequence[Appended | TailraceError]


class ProduceHandlers:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> list[ApiRoute]:
        # librdkafka takes a broker that does not know version 0 for one that can't do compression.
        lone = FastProduce(self._broker)
        return [ApiRoute(PRODUCE_API, self.produce, overlaps=True, claimed_lowest=0, fast_path=lone.take)]

    def produce(self, context: RequestContext, request: ProduceRequest) -> EncodedResponse | DeferredResponse:
        if request.acks not in _ACKS:
            return _all_refused(context, request, _INVALID_REQUIRED_ACKS, f"acks is {request.acks}; it must be -1, 0 or 1")
        by_id = context.version >= _IDS_SINCE
        names = [self._name_of(topic, by_id) for topic in request.topic_data]
        placed: list[int | TailraceError] = []
        batches: list[RawBatch] = []
        for topic, name in zip(request.topic_data, names, strict=True):
            for partition in topic.partition_data:
                checked = name if isinstance(name, TailraceError) else _checked(name, partition)
                if isinstance(checked, TailraceError):
                    placed.append(checked)
                else:
                    placed.append(len(batches))
                    batches.append(checked)
        asked = _Asked(request, placed)
        if request.acks == _NO_ACKS:
            return DeferredResponse(self._append(context, batches), lambda done: _unanswered(asked, done))
        return DeferredResponse(self._append(context, batches), lambda done: _answer(context, asked, done))

    def _append(self, context: RequestContext, batches: Sequence[RawBatch]) -> "asyncio.Future[Outcomes]":
        if batches:
            adds_partitions = context.version >= PARTITIONS_ADDED_SINCE
            return self._broker.appender.append(batches, adds_partitions=adds_partitions)  # type: ignore[return-value]
        nothing: asyncio.Future[Outcomes] = asyncio.get_running_loop().create_future()
        nothing.set_result(())
        return nothing

    def _name_of(self, topic: TopicProduceData, by_id: bool) -> str | TailraceError:
        if not by_id:
            return topic.name
        try:
            return self._broker.topics.by_uuid(topic.topic_id).topic.name
        except TailraceError as error:
            return error


class _Asked(NamedTuple):
    request: ProduceRequest
    placed: Sequence[int | TailraceError]
    """For each partition in order: its place among the batches, or why it has none."""

    def outcomes(self, done: "asyncio.Future[Outcomes]") -> list[Appended | TailraceError]:
        error = done.exception()
        if error is not None and not isinstance(error, TailraceError):
            raise error
        appended = () if error is not None else done.result()
        return [
            place if isinstance(place, TailraceError) else error if error is not None else appended[place]
            for place in self.placed
        ]


def _checked(name: str, partition: PartitionProduceData) -> RawBatch | TailraceError:
    """Kafka takes exactly one batch for each partition of a request."""
    records = partition.records
    if not records:
        return InvalidRecordsError("there is no record batch for this partition; send exactly one")
    if len(records) >= LENGTH_FROM and LENGTH_FROM < batch_length(records) + LENGTH_FROM < len(records):
        return InvalidRecordsError("there is more than one record batch for this partition; send exactly one")
    return RawBatch(name, partition.index, records)


def _answer(context: RequestContext, asked: _Asked, done: "asyncio.Future[Outcomes]") -> EncodedResponse:
    outcomes = iter(asked.outcomes(done))
    topics = [
        ProducedTopic(
            topic.name, topic.topic_id, [_produced(partition.index, next(outcomes)) for partition in topic.partition_data]
        )
        for topic in asked.request.topic_data
    ]
    return EncodedResponse((write_produce_response(context.version, topics),))


def _unanswered(asked: _Asked, done: "asyncio.Future[Outcomes]") -> None:
    """A client that wants no answer learns of a failure by losing its connection, as with Kafka."""
    for outcome in asked.outcomes(done):
        if isinstance(outcome, TailraceError):
            raise InvalidRequestError(f"a produce without acknowledgement failed: {outcome}")


def _all_refused(context: RequestContext, request: ProduceRequest, code: int, why: str) -> EncodedResponse:
    topics = [
        ProducedTopic(topic.name, topic.topic_id, [_refused(partition.index, code, why) for partition in topic.partition_data])
        for topic in request.topic_data
    ]
    return EncodedResponse((write_produce_response(context.version, topics),))


def _produced(number: int, outcome: Appended | TailraceError) -> ProducedPartition:
    if isinstance(outcome, TailraceError):
        return _refused(number, producer_error_code(outcome), str(outcome))
    return ProducedPartition(number, 0, outcome.base_offset, outcome.append_time, outcome.log_start)


def _refused(number: int, code: int, why: str) -> ProducedPartition:
    return ProducedPartition(number, code, _NO_OFFSET, _NO_TIME, _NO_OFFSET, why)
