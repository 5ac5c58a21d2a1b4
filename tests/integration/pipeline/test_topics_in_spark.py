"""Topics as a Spark source and sink, on a real Spark and a real server."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.support.api import Api
from tests.support.server import ServerProcess

FORMAT = "tailrace"


def numbers(spark: SparkSession, count: int) -> DataFrame:
    """Rows whose key and value are a number, in order."""
    text = F.col("id").cast("string")
    return spark.range(0, count, 1, 2).select(text.alias("key"), F.concat(F.lit("value "), text).alias("value"))


def produce(server: ServerProcess, topic: str, partition: int, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": server.kafka})
    for number, value in enumerate(values):
        producer.produce(
            topic, value, b"k%d" % number, partition, timestamp=1_700_000_000_000 + number, headers={"h": b"%d" % number}
        )
    assert producer.flush(30) == 0


def consume(server: ServerProcess, topic: str, partition: int, count: int) -> list[tuple[bytes, bytes]]:
    consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, partition, 0)])
    try:
        messages = consumer.consume(count, 30)
    finally:
        consumer.close()
    assert not any(message.error() for message in messages)
    return [(message.key(), message.value()) for message in messages]


def end_of(api: Api, topic: str, partition: int = 0) -> int:
    end: int = api.ask(f"/api/topics/{topic}/partitions")["partitions"][partition]["end_offset"]
    return end


def test_a_topic_is_read_with_the_columns_of_kafka_and_our_own(spark: SparkSession, server: ServerProcess, api: Api) -> None:
    api.create_topic("orders.paid", 2)
    produce(server, "orders.paid", 0, [b"a", b"b"])
    produce(server, "orders.paid", 1, [b"c"])
    frame = (
        spark.read.format(FORMAT)
        .option("server", server.url)
        .option("subscribe", "orders.paid")
        .option("includeHeaders", "true")
        .load()
    )
    rows = frame.orderBy("partition", "offset").collect()
    assert [(row.topic, row.partition, row.offset, bytes(row.key), bytes(row.value)) for row in rows] == [
        ("orders.paid", 0, 0, b"k0", b"a"),
        ("orders.paid", 0, 1, b"k1", b"b"),
        ("orders.paid", 1, 0, b"k0", b"c"),
    ]
    assert [(header.key, bytes(header.value)) for header in rows[1].headers] == [("h", b"1")]
    assert [int(row.timestamp.timestamp() * 1000) for row in rows] == [1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_000]
    assert sorted(row.cursor for row in rows) == [0, 1, 2]


def test_what_spark_writes_kafka_clients_read_once_and_where_their_own_keys_would_go(
    spark: SparkSession, server: ServerProcess, api: Api
) -> None:
    api.create_topic("numbers", 3)
    api.create_topic("same", 3)
    numbers(spark, 1_000).write.format(FORMAT).option("server", server.url).option("topic", "numbers").mode("append").save()
    producer = Producer({"bootstrap.servers": server.kafka, "partitioner": "murmur2_random"})
    for number in range(1_000):
        producer.produce("same", b"value %d" % number, b"%d" % number)
    assert producer.flush(30) == 0
    for partition in range(3):
        wanted = consume(server, "same", partition, end_of(api, "same", partition))
        assert sorted(consume(server, "numbers", partition, len(wanted))) == sorted(wanted)


def test_filters_read_only_where_they_can_match(spark: SparkSession, server: ServerProcess, api: Api) -> None:
    api.create_topic("t", 3)
    for partition in range(3):
        produce(server, "t", partition, [b"%d" % number for number in range(100)])
    frame = spark.read.format(FORMAT).option("server", server.url).option("subscribe", "t").option("pushFilters", "true").load()
    some = frame.where("partition = 1 and offset >= 10 and offset < 20")
    assert [row.offset for row in some.orderBy("offset").collect()] == list(range(10, 20))
    assert some.rdd.getNumPartitions() == 1
    late = frame.where(F.col("timestamp") >= F.timestamp_millis(F.lit(1_700_000_000_090)))
    assert late.count() == 30


def test_one_large_partition_is_read_by_several_tasks(spark: SparkSession, server: ServerProcess, api: Api) -> None:
    api.create_topic("t")
    produce(server, "t", 0, [b"%d" % number for number in range(1_000)])
    frame = spark.read.format(FORMAT).option("server", server.url).option("subscribe", "t").option("minPartitions", "4").load()
    assert frame.rdd.getNumPartitions() == 4
    assert [row.offset for row in frame.select("offset").collect()] == list(range(1_000))


def test_a_stream_copies_a_pattern_of_topics_once_over_restarts(
    spark: SparkSession, server: ServerProcess, api: Api, tmp_path: Path
) -> None:
    api.create_topic("orders.paid", 2)
    api.create_topic("orders.sent")
    api.create_topic("copy")
    produce(server, "orders.paid", 0, [b"paid %d" % number for number in range(300)])

    def copy() -> list[int]:
        source = spark.readStream.format(FORMAT).option("server", server.url).option("pattern", "orders.>")
        frame = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "200").load()
        sink = frame.select("key", "value").writeStream.format(FORMAT).option("server", server.url).option("topic", "copy")
        query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(200)
        assert query.exception() is None
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    assert copy() == [200, 100]
    produce(server, "orders.sent", 0, [b"sent"])
    api.create_topic("orders.late.still")
    produce(server, "orders.late.still", 0, [b"late"])
    assert copy() == [2]
    values = sorted(value for _, value in consume(server, "copy", 0, 302))
    assert values == sorted([*(b"paid %d" % number for number in range(300)), b"sent", b"late"])
    assert end_of(api, "copy") == 302


def test_a_batch_that_is_committed_again_is_stored_once(
    spark: SparkSession, server: ServerProcess, api: Api, tmp_path: Path
) -> None:
    """Spark forgets that a batch was committed: its note of the commit is taken away, as if it had died before writing it."""
    api.create_topic("from")
    api.create_topic("to")
    produce(server, "from", 0, [b"%d" % number for number in range(50)])
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        frame = spark.readStream.format(FORMAT).option("server", server.url).option("subscribe", "from")
        sink = frame.option("startingOffsets", "earliest").load().select("value").writeStream.format(FORMAT)
        query = sink.option("server", server.url).option("topic", "to").option("checkpointLocation", str(checkpoint))
        running = query.trigger(availableNow=True).start()
        assert running.awaitTermination(200)
        assert running.exception() is None

    run()
    for note in (checkpoint / "commits").iterdir():
        note.unlink()
    run()
    assert end_of(api, "to") == 50
    assert [value for _, value in consume(server, "to", 0, 50)] == [b"%d" % number for number in range(50)]


def test_records_that_are_gone_fail_the_query_unless_it_may_go_on(spark: SparkSession, server: ServerProcess, api: Api) -> None:
    api.create_topic("t")
    produce(server, "t", 0, [b"%d" % number for number in range(10)])
    reader = spark.read.format(FORMAT).option("server", server.url).option("subscribe", "t")
    frame = reader.option("startingOffsets", '{"t": {"0": 0}}').load()
    api.sql("CLEAR TOPIC t")
    produce(server, "t", 0, [b"new"])
    with pytest.raises(PySparkException, match="failOnDataLoss"):
        reader.option("startingOffsets", '{"t": {"0": 0}}').load().count()
    assert frame is not None
    kept = reader.option("startingOffsets", '{"t": {"0": 0}}').option("failOnDataLoss", "false").load()
    assert [bytes(row.value) for row in kept.collect()] == [b"new"]


def test_a_stream_does_not_take_a_topic_that_was_made_again_for_the_one_it_read(
    spark: SparkSession, server: ServerProcess, api: Api, tmp_path: Path
) -> None:
    api.create_topic("again")
    api.create_topic("again.copy")
    produce(server, "again", 0, [b"old 0", b"old 1", b"old 2"])

    def copy(fail_on_data_loss: str) -> None:
        source = spark.readStream.format(FORMAT).option("server", server.url).option("subscribe", "again")
        source = source.option("startingOffsets", "earliest").option("failOnDataLoss", fail_on_data_loss)
        frame = source.option("pin", "reader").load()
        sink = frame.select("value").writeStream.format(FORMAT).option("server", server.url).option("topic", "again.copy")
        query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(200)

    copy("true")
    api.ask("/api/topics/again", method="DELETE")
    api.create_topic("again")
    produce(server, "again", 0, [b"new 0", b"new 1", b"new 2", b"new 3", b"new 4"])
    with pytest.raises(PySparkException, match=r"'again' was read up to .* and was deleted and created again"):
        copy("true")
    copy("false")
    values = [value for _, value in consume(server, "again.copy", 0, 8)]
    assert values == [b"old 0", b"old 1", b"old 2", b"new 0", b"new 1", b"new 2", b"new 3", b"new 4"]
    assert end_of(api, "again.copy") == 8


def test_values_over_payload_bytes_are_rejected_before_anything_is_written(
    spark: SparkSession, server: ServerProcess, api: Api
) -> None:
    api.create_topic("t", max_message_bytes=8_000_000)
    frame = spark.sql("SELECT 'small' AS value UNION ALL SELECT repeat('x', 1048577)")
    with pytest.raises(PySparkException, match=r"payload_bytes allows \(1048576\)"):
        frame.write.format(FORMAT).option("server", server.url).option("topic", "t").mode("append").save()
    assert end_of(api, "t") == 0


@pytest.mark.parametrize(
    ("options", "columns", "said"),
    [
        ({}, "key, value", "the topic is missing"),
        ({"topic": "t"}, "key", "no column value"),
        ({"topic": "t"}, "value, key AS colour", "colour"),
        ({"topic": "t"}, "CAST(key AS INT) AS value", "column value is int"),
        ({"topic": "nowhere"}, "value", "no topic or alias 'nowhere'"),
    ],
)
def test_a_data_frame_that_can_not_become_records_is_rejected_with_the_reason(
    spark: SparkSession, server: ServerProcess, api: Api, options: dict[str, str], columns: str, said: str
) -> None:
    api.create_topic("t")
    frame = numbers(spark, 1).selectExpr(*columns.split(", "))
    with pytest.raises(PySparkException, match=said):
        frame.write.format(FORMAT).option("server", server.url).options(**options).mode("append").save()


def test_a_server_that_is_not_there_is_named(spark: SparkSession) -> None:
    frame = (
        spark.read.format(FORMAT).option("server", "http://127.0.0.1:9").option("subscribe", "t").option("patienceSeconds", "1")
    )
    with pytest.raises(PySparkException, match="tailrace serve"):
        frame.load().count()
