"""Tables and routes that are changed on a server and in the model alike, and the comparison of what came out."""

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Consumer, TopicPartition

from tests.support.api import Api
from tests.support.routing_model import Change, Message, Route, RoutingModel


class Listening(Protocol):
    """Where a server listens."""

    @property
    def url(self) -> str: ...
    @property
    def kafka(self) -> str: ...


class Stored(NamedTuple):
    """A record that a Kafka client has read."""

    partition: int
    message: Message
    headers: dict[str, bytes]


class RoutedTables:
    """Every table has the primary key `id`; other columns are integers and texts."""

    def __init__(self, server: Listening) -> None:
        self.server = server
        self.model = RoutingModel()
        self._rows: dict[str, dict[int, dict[str, Any]]] = {}

    @property
    def api(self) -> Api:
        return Api(self.server.url)

    def create(self, table: str, **columns: str) -> None:
        rest = "".join(f", {name} {kind}" for name, kind in columns.items())
        self.api.sql(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY{rest})")
        self._rows[table] = {}

    def insert(self, table: str, *rows: dict[str, Any]) -> None:
        columns = list(rows[0])
        places = ", ".join(f"({', '.join('?' * len(columns))})" for _ in rows)
        values = [row[column] for row in rows for column in columns]
        self.api.sql(f"INSERT INTO {table} ({', '.join(columns)}) VALUES {places}", *values)
        for row in rows:
            self._rows[table][row["id"]] = dict(row)
            self._changed(table, "insert", None, row)

    def update(self, table: str, id: int, **values: Any) -> None:
        settings = ", ".join(f"{name} = ?" for name in values)
        self.api.sql(f"UPDATE {table} SET {settings} WHERE id = ?", *values.values(), id)
        old = self._rows[table][id]
        new = self._rows[table][id] = {**old, **values}
        self._changed(table, "update", old, new)

    def delete(self, table: str, id: int) -> None:
        self.api.sql(f"DELETE FROM {table} WHERE id = ?", id)
        self._changed(table, "delete", self._rows[table].pop(id), None)

    def route(self, route: Route, where: str | None = None) -> None:
        """The condition stands here in SQL, and in the route in Python."""
        condition = "" if where is None else f" WHERE ({where})"
        by = f" PARTITION BY ({', '.join(route.partition_by)})" if route.partition_by else ""
        self.api.sql(
            f"ALTER TOPIC {route.topic} ADD SOURCE {route.table} ON {', '.join(route.ops).upper()}{condition}{by}"
            f" WITH (payload = '{route.payload}')"
        )
        self.model.routes.append(route)

    def end_routes(self, topic: str, table: str) -> None:
        self.api.sql(f"ALTER TOPIC {topic} DROP SOURCE {table}")
        self.model.routes = [route for route in self.model.routes if (route.topic, route.table) != (topic, table)]

    def records(self, topic: str) -> list[Stored]:
        return read_topic(self.server.kafka, topic)

    def count(self, topic: str) -> int:
        return sum(each["end_offset"] for each in self.api.ask(f"/api/topics/{topic}/partitions")["partitions"])

    def check(self, topics: Iterable[str] | None = None) -> None:
        """What the topics hold is what the model says: nothing lost, nothing twice, and for each key in order."""
        for topic in self.model.topics if topics is None else topics:
            stored = self.records(topic)
            if topic.endswith(".dead_letters"):
                stored = [each._replace(message=each.message._replace(value=b"")) for each in stored]
            wanted = self.model.topics.get(topic, [])
            for table in {message.source_table for message in wanted}:
                # Tables are routed side by side: their order among each other is open.
                assert _by_key(stored, table) == _by_key([Stored(0, message, {}) for message in wanted], table), topic
            assert len(stored) == len(wanted), topic
            ids = [each.headers["message_id"] for each in stored]
            assert len(set(ids)) == len(ids)
            assert len({(each.message.key, each.partition) for each in stored}) == len({each.message.key for each in stored})

    def _changed(self, table: str, op: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        row = new or old or {}
        self.model.change(Change(table, op, {"id": row["id"]}, old, new))


def read_topic(address: str, topic: str) -> list[Stored]:
    """All of it, partition by partition."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "judge", "enable.auto.commit": False})
    found = []
    try:
        for partition in consumer.list_topics(topic, 10).topics[topic].partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), 10)
            consumer.assign([TopicPartition(topic, partition, low)])
            messages = consumer.consume(high - low, 30) if high > low else []
            assert len(messages) == high - low, f"{topic}: {len(messages)} of {high - low} records could be read"
            found += [_stored(partition, message) for message in messages]
    finally:
        consumer.close()
    return found


def _stored(partition: int, message: Any) -> Stored:
    assert message.error() is None
    headers = dict(message.headers())
    names = ("source_table", "op", "payload_mode")
    known = Message(message.key(), message.value(), *(headers[name].decode() for name in names))
    return Stored(partition, known, headers)


def _by_key(stored: Iterable[Stored], table: str) -> dict[bytes, list[Message]]:
    found: dict[bytes, list[Message]] = {}
    for each in stored:
        if each.message.source_table == table:
            found.setdefault(each.message.key, []).append(each.message)
    return found
