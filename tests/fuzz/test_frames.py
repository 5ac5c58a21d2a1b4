"""Every captured request is read as kio reads it, is written back as the same bytes, and is answered."""

import io
from collections import Counter
from struct import Struct
from typing import NamedTuple

import pytest
from kio.serial import entity_reader, entity_writer

from tailrace.kafka.dispatch import PendingResponse
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.wire.batch import check_batch
from tailrace.wire.compression import Compression
from tailrace.wire.message import Api, KafkaMessage
from tailrace.wire.message_codec import MessageCodec, MessageSource, skip_tags
from tailrace.wire.messages.produce import ProduceRequest
from tailrace.wire.records import decode_batch
from tests.fuzz.inputs import CapturedFrame, captured_frames
from tests.support.aio import on_loop
from tests.support.kafka import CLIENT, answer_of, running_asker
from tools.generate_messages import APIS, generated_apis, top_class

HEAD = Struct(">hhih")
CORPUS = captured_frames()
BY_KEY = {api.key: (name, api) for name, api in zip(APIS, generated_apis(), strict=True)}
CODEC = MessageCodec()


class Opened(NamedTuple):
    """A request without its header."""

    module: str
    api: Api
    version: int
    body: bytes

    def read(self) -> KafkaMessage:
        source = MessageSource(self.body)
        message = CODEC.read(self.api.request, self.version, self.api.is_flexible(self.version), source)
        assert source.at == len(self.body)
        return message


def opened(frame: bytes) -> Opened:
    key, version, _, id_length = HEAD.unpack_from(frame)
    module, api = BY_KEY[key]
    source = MessageSource(frame, HEAD.size + max(0, id_length))
    if api.is_flexible(version):
        skip_tags(source)
    return Opened(module, api, version, frame[source.at :])


@pytest.mark.parametrize("sent", CORPUS, ids=str)
def test_a_captured_request_is_read_and_written_again_byte_for_byte(sent: CapturedFrame) -> None:
    request = opened(sent.frame)
    assert sent.name.startswith(f"{request.api.name}-v{request.version}")
    again = bytearray()
    CODEC.write(request.read(), request.version, request.api.is_flexible(request.version), again)
    assert bytes(again) == request.body


@pytest.mark.parametrize("sent", CORPUS, ids=str)
def test_kio_agrees_about_a_captured_request(sent: CapturedFrame) -> None:
    request = opened(sent.frame)
    theirs = top_class(request.module, request.version, "request")
    entity, size = entity_reader(theirs)(request.body, 0)
    assert size == len(request.body)
    again = io.BytesIO()
    entity_writer(theirs)(again, entity)
    assert again.getvalue() == request.body
    assert (
        CODEC.read(request.api.request, request.version, theirs.__flexible__, MessageSource(again.getvalue())) == request.read()
    )


@pytest.mark.parametrize("sent", [each for each in CORPUS if each.name.startswith("Produce-")], ids=str)
def test_the_batches_of_a_captured_produce_match_their_heads(sent: CapturedFrame) -> None:
    request = opened(sent.frame).read()
    assert isinstance(request, ProduceRequest)
    batches = [each.records for topic in request.topic_data for each in topic.partition_data]
    assert batches
    for batch in batches:
        assert batch is not None
        header = check_batch(batch)
        assert Compression(header.codec).name.lower() == sent.name.rpartition("-")[2]
        records = decode_batch(batch, DEFAULT_LIMITS)
        assert len(records) == header.records
        assert max(record.timestamp for record in records) == header.max_timestamp


@on_loop
async def test_captured_requests_are_handled_without_unexpected_errors() -> None:
    async with running_asker() as asker:
        for sent in CORPUS:
            reply = asker.dispatcher.dispatch(bytearray(sent.frame), CLIENT)
            if isinstance(reply, PendingResponse):
                await answer_of(reply, 0.05)
            assert asker.traffic.handler_faults == 0, sent


def test_every_client_has_captured_frames() -> None:
    counts = Counter(sent.client for sent in CORPUS)
    assert set(counts) >= {"aiokafka", "confluent-kafka", "java", "kafka-python", "kcat", "spark", "franz-go", "kafkajs"}
    assert all(count > 5 for count in counts.values())
    assert sum(len(sent.frame) for sent in CORPUS) < 200_000
