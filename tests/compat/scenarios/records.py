"""What a producer sends is what a consumer reads."""

from collections.abc import Callable

from tests.compat.contract import Bounds, Codec, Outgoing
from tests.compat.scenarios.stage import BEGINNING, PARTITIONS, SOME_TIME_MS, Scenario, Stage, refusal, values

MESSAGE_TOO_LARGE = 10


def keyed(stage: Stage) -> None:
    stage.create(PARTITIONS)
    sent = [Outgoing(f"key {number % 7}".encode(), f"value {number}".encode()) for number in range(70)]
    stage.client.produce(topic=stage.topic, records=sent)
    counts = [stage.referee.bounds(stage.topic, partition).latest for partition in range(PARTITIONS)]
    read = [
        stage.client.read(topic=stage.topic, partition=partition, start=BEGINNING, count=count)
        for partition, count in enumerate(counts)
        if count
    ]
    by_key: dict[bytes | None, list[bytes | None]] = {}
    for record in sent:
        by_key.setdefault(record.key, []).append(record.value)
    for key, expected in by_key.items():
        homes = [[record.value for record in records if record.key == key] for records in read]
        assert [home for home in homes if home] == [expected]
    assert len(read) > 1


def text_headers(stage: Stage) -> None:
    stage.create()
    stage.client.produce(topic=stage.topic, records=[Outgoing(b"k", b"v", [("a", b"1"), ("b", b"two words")], 0)])
    (record,) = stage.client.read(topic=stage.topic, partition=0, start=BEGINNING, count=1)
    assert record.headers == [("a", b"1"), ("b", b"two words")]


def headers(stage: Stage) -> None:
    stage.create()
    sent = [("a", b"1"), ("a", b"2"), ("none", None), ("bytes", bytes(range(256))), ("empty", b"")]
    stage.client.produce(topic=stage.topic, records=[Outgoing(b"k", b"v", sent, 0), Outgoing(b"k", b"v", [], 0)])
    first, second = stage.client.read(topic=stage.topic, partition=0, start=BEGINNING, count=2)
    assert first.headers == sent
    assert second.headers == []


def nulls(stage: Stage) -> None:
    stage.create()
    sent: list[tuple[bytes | None, bytes | None]] = [(b"gone", None), (None, b"no key"), (b"k", b"v")]
    stage.client.produce(topic=stage.topic, records=[Outgoing(key, value, [], 0) for key, value in sent])
    read = stage.client.read(topic=stage.topic, partition=0, start=BEGINNING, count=len(sent))
    assert [(each.key, each.value) for each in read] == sent


def every_byte(stage: Stage) -> None:
    stage.create()
    sent = [(bytes(range(256)), bytes(range(255, -1, -1))), (b"", b"")]
    stage.client.produce(topic=stage.topic, records=[Outgoing(key, value, [], 0) for key, value in sent])
    read = stage.client.read(topic=stage.topic, partition=0, start=BEGINNING, count=len(sent))
    assert [(each.key, each.value) for each in read] == sent


def timestamps(stage: Stage) -> None:
    stage.create()
    stage.client.produce(topic=stage.topic, records=[Outgoing(b"k", b"v", [], 0, SOME_TIME_MS)])
    (record,) = stage.client.read(topic=stage.topic, partition=0, start=BEGINNING, count=1)
    assert record.timestamp_ms == SOME_TIME_MS


def through(codec: Codec) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        stage.create()
        sent = [
            (f"{number}".encode(), f"{number} {number * 7919 % 104729:x} ".encode() * (1 + number % 5))
            for number in range(stage.volume)
        ]
        for part in (sent[:40], sent[40:]):
            stage.client.produce(topic=stage.topic, records=[Outgoing(key, value, [], 0) for key, value in part], codec=codec)
        read = stage.client.read(topic=stage.topic, partition=0, start=BEGINNING, count=len(sent))
        assert [each.offset for each in read] == list(range(len(sent)))
        assert [(each.key, each.value) for each in read] == sent

    return play


def idempotent(stage: Stage) -> None:
    stage.create()
    sent = [f"{number}" for number in range(500)]
    stage.client.produce_idempotent(topic=stage.topic, records=[Outgoing(value=value.encode(), partition=0) for value in sent])
    assert values(stage.referee.read(stage.topic, 0, BEGINNING, len(sent))) == sent
    assert stage.referee.bounds(stage.topic, 0).latest == len(sent)


def one_megabyte(stage: Stage) -> None:
    stage.create()
    large = bytes(range(3, 253)) * 3_990
    stage.client.produce(topic=stage.topic, records=[Outgoing(b"k", large, [], 0)])
    (record,) = stage.client.read(topic=stage.topic, partition=0, start=BEGINNING, count=1)
    assert record.value == large


def too_large(stage: Stage) -> None:
    stage.create()
    large = b"x" * 2_000_000
    refused = refusal(
        lambda: stage.client.produce(topic=stage.topic, records=[Outgoing(b"k", large, [], 0)], max_bytes=4_000_000)
    )
    assert refused.code == MESSAGE_TOO_LARGE, refused
    assert stage.referee.bounds(stage.topic, 0) == Bounds(0, 0)


def larger_topic(stage: Stage) -> None:
    stage.create(max_message_bytes="12000000")
    large = bytes(range(3, 253)) * 40_000
    stage.client.produce(topic=stage.topic, records=[Outgoing(b"k", large, [], 0)], max_bytes=12_000_000)
    (record,) = stage.client.read(topic=stage.topic, partition=0, start=BEGINNING, count=1)
    assert record.value == large


SCENARIOS = (
    Scenario("keyed", "Keyed records: one partition a key, in order", "Produce, Fetch, Metadata", keyed),
    Scenario("text-headers", "Headers", "Produce, Fetch", text_headers),
    Scenario("headers", "Headers: bytes, nulls, empty ones, the same name twice", "Produce, Fetch", headers),
    Scenario("nulls", "Null keys and null values", "Produce, Fetch", nulls),
    Scenario("every-byte", "Keys and values of any bytes, and of none", "Produce, Fetch", every_byte),
    Scenario("timestamps", "Timestamps given by the producer", "Produce, Fetch", timestamps),
    Scenario("gzip", "gzip: byte for byte, in order", "Produce, Fetch", through("gzip")),
    Scenario("snappy", "snappy: byte for byte, in order", "Produce, Fetch", through("snappy")),
    Scenario("lz4", "lz4: byte for byte, in order", "Produce, Fetch", through("lz4")),
    Scenario("zstd", "zstd: byte for byte, in order", "Produce, Fetch", through("zstd")),
    Scenario("idempotent", "Idempotent producer", "InitProducerId, Produce", idempotent),
    Scenario("one-megabyte", "A record of 1 MB (997,500 bytes) with default limits", "Produce, Fetch", one_megabyte),
    Scenario("too-large", "A record of 2 MB is refused as too large by the server", "Produce", too_large),
    Scenario("larger-topic", "A record of 10 MB where the topic allows it", "CreateTopics, Produce, Fetch", larger_topic),
)
