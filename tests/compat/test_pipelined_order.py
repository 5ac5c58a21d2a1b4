"""Requests that a client sends without waiting for answers are taken in the order in which they came."""

from tailrace.model.record import Record
from tailrace.wire.messages.produce import PRODUCE_API, PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.wire.records import encode_batch
from tests.compat.contract import Client, Start
from tests.support.kafka import RawClient, frame, sized
from tests.support.server import ServerProcess

VERSION = 11


def test_a_request_of_several_batches_does_not_overtake_one_of_a_single_batch(server: ServerProcess, referee: Client) -> None:
    topic = "pipelined-order"
    referee.create_topic(topic, 2, {})
    first = sized(frame(PRODUCE_API, VERSION, _request(topic, {0: "first"})))
    second = sized(frame(PRODUCE_API, VERSION, _request(topic, {0: "second", 1: "second"})))
    with RawClient(server.kafka) as raw:
        raw.socket.sendall(first + second)
        raw.receive()
        raw.receive()
    assert [each.value for each in referee.read(topic, 0, Start("beginning"), 2)] == [b"first", b"second"]


def _request(topic: str, values: dict[int, str]) -> ProduceRequest:
    return ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=(
            TopicProduceData(
                name=topic,
                partition_data=tuple(
                    PartitionProduceData(index=partition, records=encode_batch([_record(value)]))
                    for partition, value in values.items()
                ),
            ),
        ),
    )


def _record(value: str) -> Record:
    return Record(None, value.encode(), timestamp=1_700_000_000_000)
