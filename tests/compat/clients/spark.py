"""Spark's `format("kafka")`: batch writes, batch reads, and streaming queries that end when they have read what there is.

Runs in an environment of its own, so it imports nothing but pyspark, the contract and where the connector is.
"""

import json
from functools import cached_property
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructField, StructType

from tests.compat.contract import NOT_KAFKA, Client, Codec, Incoming, Outgoing, Start, Unsupported
from tests.compat.kinds import SPARK_JARS

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
ROW = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", ArrayType(HEADER)),
        StructField("partition", IntegerType()),
    ]
)
CODES = {"RecordTooLargeException": 10, "UnknownTopicOrPartitionException": 3, "ProducerFencedException": 90}


class Adapter(Client):
    @cached_property
    def _spark(self) -> SparkSession:
        """Starts at the first verb that needs it: it takes seconds."""
        return (
            SparkSession.builder.master("local[1]")
            .config("spark.jars", ",".join(map(str, sorted(SPARK_JARS.glob("*.jar")))))
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "1")
            .config("spark.task.maxFailures", "1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .getOrCreate()
        )

    @classmethod
    def version(cls) -> str:
        return str(pyspark.__version__)

    def code_of(self, error: Exception) -> int:
        return next((code for name, code in CODES.items() if name in str(error)), NOT_KAFKA)

    def produce(self, topic: str, records: list[Outgoing], codec: Codec = "none", max_bytes: int | None = None) -> None:
        settings: dict[str, Any] = {"kafka.compression.type": codec, "kafka.enable.idempotence": "false"}
        if max_bytes is not None:
            settings["kafka.max.request.size"] = max_bytes
        self._write(topic, records, settings)

    def produce_idempotent(self, topic: str, records: list[Outgoing]) -> None:
        self._write(topic, records, {})

    def read(self, topic: str, partition: int, start: Start, count: int, committed_only: bool = False) -> list[Incoming]:
        settings = {
            "assign": json.dumps({topic: [partition]}),
            "includeHeaders": "true",
            "kafka.isolation.level": "read_committed" if committed_only else "read_uncommitted",
            **_starting(topic, partition, start),
        }
        frame = self._spark.read.format("kafka").options(**{"kafka.bootstrap.servers": self.bootstrap}, **settings).load()
        rows = (
            frame.selectExpr("partition", "offset", "unix_millis(timestamp) AS at", "key", "value", "headers")
            .orderBy("offset")
            .limit(count)
            .collect()
        )
        return [
            Incoming(
                row.partition,
                row.offset,
                row.at,
                _bytes(row.key),
                _bytes(row.value),
                [(header.key, _bytes(header.value)) for header in row.headers or ()],
            )
            for row in rows
        ]

    def join(
        self, group: str, topic: str, session_ms: int = 10_000, hand_over: bool = False, instance_id: str | None = None
    ) -> None:
        raise Unsupported("it keeps its offsets in its own checkpoints, not in a group")

    def stream(self, source: str, target: str, checkpoint: str) -> None:
        query = (
            self._spark.readStream.format("kafka")
            .options(**{"kafka.bootstrap.servers": self.bootstrap, "subscribe": source, "startingOffsets": "earliest"})
            .load()
            .selectExpr("key", "upper(CAST(value AS STRING)) AS value")
            .writeStream.format("kafka")
            .options(**{"kafka.bootstrap.servers": self.bootstrap, "topic": target, "checkpointLocation": checkpoint})
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def _write(self, topic: str, records: list[Outgoing], settings: dict[str, Any]) -> None:
        if any(each.timestamp_ms is not None for each in records):
            raise Unsupported("its sink can not set timestamps")
        rows = [(each.key, each.value, list(each.headers) or None, each.partition) for each in records]
        frame: DataFrame = self._spark.createDataFrame(rows, ROW).coalesce(1)
        frame.write.format("kafka").options(**{"kafka.bootstrap.servers": self.bootstrap, "topic": topic}, **settings).save()


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def _starting(topic: str, partition: int, start: Start) -> dict[str, str]:
    if start.at == "offset":
        return {"startingOffsets": json.dumps({topic: {str(partition): start.value}})}
    if start.at == "time":
        return {"startingOffsetsByTimestamp": json.dumps({topic: {str(partition): start.value}})}
    return {"startingOffsets": "earliest"}
