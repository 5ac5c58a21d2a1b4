"""Topics with a codec store all batches with it, whoever sends them."""

import asyncio
import threading
from random import Random

import pytest

from tailrace.broker.broker import Broker
from tailrace.model.errors import MessageTooLargeError, StoreClosedError
from tailrace.model.ids import Offset
from tailrace.model.limits import Limits
from tailrace.model.record import Message, RawBatch, Record
from tailrace.model.topic import CompressionMode
from tailrace.model.transaction import ProducerIdentity
from tailrace.wire.batch import TIMESTAMP_TYPE_MASK, BatchHeader, read_header
from tailrace.wire.compression import Compression, compress
from tailrace.wire.records import decode_batch, encode_batch
from tests.support.aio import on_loop
from tests.support.brokers import append, options, placed, raw, running_broker, values_in
from tests.support.clocks import ManualClock

NOW = ManualClock().now_ms()
CODECS: tuple[CompressionMode, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
VALUES = [b"%d " % number * 40 for number in range(50)]
RANDOM = Random(1).randbytes(100_000)


def stored(broker: Broker, topic: str = "t") -> list[BatchHeader]:
    batches = broker.store.fetch(broker.topics.get(topic).partition(0), Offset(0), 1 << 30).batches
    return [read_header(batch) for batch in batches]


def stored_codecs(broker: Broker, topic: str = "t") -> list[str]:
    return [Compression(header.codec).name.lower() for header in stored(broker, topic)]


@pytest.mark.parametrize("sent", CODECS)
@pytest.mark.parametrize("compression", CODECS)
@on_loop
async def test_a_batch_is_stored_with_the_codec_of_its_topic(compression: CompressionMode, sent: str) -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(compression=compression))
        assert await append(broker, raw("t", 0, *VALUES, codec=Compression[sent.upper()])) == placed(0, 0)
        assert stored_codecs(broker) == [compression]
        assert await values_in(broker, "t") == VALUES


@on_loop
async def test_keys_headers_and_timestamps_are_kept() -> None:
    records = [Record(b"k", b"v" * 300, [("h", b"1"), ("n", None)], NOW), Record(None, None, (), NOW - 5)]
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(compression="zstd"))
        await append(broker, RawBatch("t", 0, encode_batch(records, codec=Compression.GZIP)))
        (batch,) = broker.store.fetch(broker.topics.get("t").partition(0), Offset(0), 1 << 20).batches
        found = decode_batch(batch, Limits())
        assert [(each.key, each.value, list(each.headers), each.timestamp) for each in found] == [
            (b"k", b"v" * 300, [("h", b"1"), ("n", None)], NOW),
            (None, None, [], NOW - 5),
        ]
        assert stored(broker)[0].max_timestamp == NOW


@on_loop
async def test_a_batch_that_has_the_codec_is_stored_as_it_came() -> None:
    sent = bytes(encode_batch([Record(None, b"v" * 100, (), NOW)], codec=Compression.LZ4))
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(compression="lz4"))
        await append(broker, RawBatch("t", 0, sent))
        (batch,) = broker.store.fetch(broker.topics.get("t").partition(0), Offset(0), 1 << 20).batches
        assert bytes(batch)[16:] == sent[16:]


@on_loop
async def test_an_alteration_holds_for_the_batches_that_come_later() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await append(broker, raw("t", 0, b"a"))
        await broker.topics.alter("t", options(compression="gzip"))
        await append(broker, raw("t", 0, b"b"))
        await broker.topics.alter("t", options(compression=None))
        await append(broker, raw("t", 0, b"c", codec=Compression.SNAPPY))
        assert stored_codecs(broker) == ["none", "gzip", "snappy"]
        assert await values_in(broker, "t") == [b"a", b"b", b"c"]


@on_loop
async def test_append_time_is_stamped_on_the_batch_as_it_is_stored() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(compression="gzip", timestamps="append"))
        assert await append(broker, raw("t", 0, *VALUES, timestamp=1)) == placed(0, 0, append_time=NOW)
        (header,) = stored(broker)
        assert (header.codec, header.attributes & TIMESTAMP_TYPE_MASK, header.max_timestamp) == (1, TIMESTAMP_TYPE_MASK, NOW)
        assert await values_in(broker, "t") == VALUES


@on_loop
async def test_what_an_idempotent_producer_sends_again_is_stored_once() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(compression="zstd"))
        producer_id = await broker.producers.allocate()

        def numbered(sequence: int) -> RawBatch:
            return raw("t", 0, b"%d" % sequence, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)

        assert await append(broker, numbered(0)) == placed(0, 0)
        assert (await append(broker, numbered(0))).base_offset == 0
        assert await append(broker, numbered(1)) == placed(1, 1)
        assert [(header.producer_id, header.base_sequence, header.codec) for header in stored(broker)] == [
            (producer_id, 0, Compression.ZSTD),
            (producer_id, 1, Compression.ZSTD),
        ]


@on_loop
async def test_batches_of_a_partition_keep_their_order_whatever_they_cost() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(compression="gzip"))
        sent = [[b"large %d" % number + RANDOM] if number % 3 == 0 else [b"small %d" % number] for number in range(12)]
        codecs = [Compression.GZIP if number % 4 == 1 else Compression.NONE for number in range(12)]
        batches = [raw("t", 0, *values, codec=codec) for values, codec in zip(sent, codecs, strict=True)]
        answered = await asyncio.gather(*(broker.appender.append([batch]) for batch in batches))
        assert answered == [[placed(number, number)] for number in range(12)]
        assert await values_in(broker, "t") == [values[0] for values in sent]
        assert set(stored_codecs(broker)) == {"gzip"}


@on_loop
async def test_batches_are_compressed_in_check_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()

    def recording(codec: int, data: bytes) -> object:
        threads.add(threading.current_thread().name.rpartition("_")[0])
        return compress(codec, data)

    monkeypatch.setattr("tailrace.broker.publishing.validation.compress", recording)
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(compression="gzip"))
        await append(broker, raw("t", 0, b"a"), raw("t", 0, *VALUES, codec=Compression.ZSTD))
    assert threads == {"tailrace-checker"}


@on_loop
async def test_the_size_of_a_batch_is_limited_as_it_comes_and_as_it_is_stored() -> None:
    async with running_broker() as broker:
        await broker.topics.create("plain", options=options(compression="none", max_message_bytes=1_000))
        await broker.topics.create("t", options=options(compression="zstd", max_message_bytes=1_000))
        with pytest.raises(MessageTooLargeError, match="with the compression of topic 'plain'"):
            await append(broker, raw("plain", 0, bytes(5_000), codec=Compression.ZSTD))
        with pytest.raises(MessageTooLargeError, match="max_message_bytes 1000"):
            await append(broker, raw("t", 0, bytes(5_000)))
        assert stored(broker, "plain") == stored(broker, "t") == []


@on_loop
async def test_a_batch_that_is_too_large_without_compression_is_rejected() -> None:
    async with running_broker(limits=Limits(decompressed_batch_bytes=10_000)) as broker:
        await broker.topics.create("t", options=options(compression="none"))
        with pytest.raises(MessageTooLargeError, match="decompressed_batch_bytes"):
            await append(broker, raw("t", 0, bytes(100_000), codec=Compression.ZSTD))


@pytest.mark.parametrize("size", [10, 3_000], ids=["small", "large"])
@pytest.mark.parametrize("compression", CODECS)
@on_loop
async def test_published_messages_are_stored_with_the_codec(compression: CompressionMode, size: int) -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(compression=compression))
        await broker.topics.create("other")
        messages = [Message("t", b"x" * size), Message("t", b"y" * size), Message("other", b"z" * size)]
        published = await broker.publisher.publish(messages)
        assert [(each.topic, each.offset) for each in published] == [("t", 0), ("t", 1), ("other", 0)]
        assert (stored_codecs(broker), stored_codecs(broker, "other")) == ([compression], ["none"])
        assert await values_in(broker, "t") == [b"x" * size, b"y" * size]


@on_loop
async def test_published_duplicates_are_left_out_of_compressed_batches() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(compression="lz4", dedup="content"))
        first, second, third = (Message("t", letter * 5_000) for letter in (b"a", b"b", b"c"))
        # Both are encoded at the same time, in threads; either may be stored first.
        one, other = await asyncio.gather(broker.publisher.publish([first, second]), broker.publisher.publish([second, third]))
        assert not one[0].duplicate and not other[1].duplicate
        assert sorted([one[1].duplicate, other[0].duplicate]) == [False, True]
        assert sorted(await values_in(broker, "t")) == [b"a" * 5_000, b"b" * 5_000, b"c" * 5_000]  # type: ignore[type-var]
        assert set(stored_codecs(broker)) == {"lz4"}


@on_loop
async def test_duplicates_of_producers_are_left_out_of_compressed_batches() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(compression="gzip", dedup="content"))
        await append(broker, raw("t", 0, b"a", b"b"))
        await append(broker, raw("t", 0, b"b", b"c", codec=Compression.SNAPPY))
        assert await values_in(broker, "t") == [b"a", b"b", b"c"]
        assert stored_codecs(broker) == ["gzip", "gzip"]


@on_loop
async def test_publishes_at_the_close_of_the_broker_are_stored_or_rejected() -> None:
    async with running_broker(limits=Limits(check_threads=1)) as broker:
        await broker.topics.create("t", options=options(compression="gzip"))
        publishes = [asyncio.ensure_future(broker.publisher.publish([Message("t", RANDOM[:90_000])])) for _ in range(20)]
        await asyncio.sleep(0)
        await broker.close()
        late = asyncio.ensure_future(broker.publisher.publish([Message("t", RANDOM[:90_000])]))
        outcomes = await asyncio.gather(*publishes, late, return_exceptions=True)
        assert all(isinstance(outcome, list | StoreClosedError) for outcome in outcomes), outcomes
        assert isinstance(outcomes[-1], StoreClosedError)


@on_loop
async def test_transactions_are_stored_with_the_codec() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(compression="zstd"))
        producer_id, epoch = await broker.transactions.init_producer("tx", 60_000, None)
        identity = ProducerIdentity(producer_id, epoch)
        sent = raw("t", 0, *VALUES, producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
        (outcome,) = await broker.appender.append([sent], adds_partitions=True)
        assert outcome == placed(0, 0)
        await broker.transactions.end("tx", identity, committed=True)
        assert await values_in(broker, "t") == VALUES
        batch, *_ = stored(broker)
        assert (batch.codec, batch.is_transactional, batch.producer_id) == (Compression.ZSTD, True, producer_id)
