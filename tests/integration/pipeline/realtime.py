"""The real-time mode without Spark's Kafka connector, which PyPI does not have: a Kafka client does what it would do."""

from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from pyspark.sql import SparkSession

from tailrace.api.pipelines import RealtimeView
from tailrace.pipeline.realtime import CHANGES, decisions
from tailrace.wire.route_decisions import DECISIONS_TOPIC, query_key
from tests.support.routed_tables import RoutedTables

SCHEMA = "key BINARY, value BINARY, offset BIGINT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


class RealtimeRouter:
    """Routes what is there as the real-time query does."""

    def __init__(self, spark: SparkSession, tables: RoutedTables) -> None:
        self._spark = spark
        self._tables = tables
        self.epoch = tables.api.ask("/api/pipelines/router/lease", {"owner": "test", "take_over": True})["epoch"]

    def view(self) -> RealtimeView:
        return msgspec.convert(self._tables.api.ask("/api/pipelines/router/realtime", {"epoch": self.epoch}), RealtimeView)

    def changes(self, start: int) -> list[tuple[Any, ...]]:
        """Return the changes of all tables from this cursor on, as the connector gives them."""
        end = self._tables.api.ask("/health")["end_cursor"]
        consumer = Consumer(
            {"bootstrap.servers": self._tables.server.kafka, "group.id": "realtime", "enable.partition.eof": True}
        )
        found: list[tuple[Any, ...]] = []
        try:
            consumer.assign([TopicPartition(CHANGES, 0, start)])
            while (message := consumer.poll(30)) is not None:
                if message.error() is not None:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    break
                found.append((message.key(), message.value(), message.offset(), message.headers()))
                if message.offset() >= end - 1:
                    break
        finally:
            consumer.close()
        return found

    def decided(self, view: RealtimeView) -> list[tuple[str, str]]:
        """Return the decisions on all changes that are there, as keys and values."""
        rows = self._spark.createDataFrame(self.changes(view.start), SCHEMA).coalesce(1)
        made = decisions(rows, view.routes, query_key(self.epoch, view.version))
        return [(row.key, row.value) for row in made.collect()]

    def send(self, records: list[tuple[str, str]]) -> list[str]:
        """Send decisions and return the errors."""
        errors: list[str] = []
        producer = Producer({"bootstrap.servers": self._tables.server.kafka, "linger.ms": 5, "retries": 0})
        for key, value in records:
            producer.produce(DECISIONS_TOPIC, value, key, partition=0, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(60) == 0
        return [str(error) for error in errors if error is not None]

    def route_once(self) -> None:
        assert self.send(self.decided(self.view())) == []
