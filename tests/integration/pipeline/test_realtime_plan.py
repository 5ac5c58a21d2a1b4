"""The real-time mode makes of changes what the model says, and what the micro-batch mode makes of them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.integration.pipeline.conftest import RunOnce
from tests.integration.pipeline.realtime import RealtimeRouter
from tests.integration.pipeline.test_router import ALL, MESSAGES, fill
from tests.support.api import Api
from tests.support.routed_tables import RoutedTables, read_topic
from tests.support.routing_model import Change, Message, Route
from tests.support.server import ServerProcess

TYPES = """id bigint PRIMARY KEY, small smallint, n integer, x double precision, f real, amount decimal(10, 2), name text,
    code varchar(9), flag boolean, d date, t time, ts timestamp, u uuid, j json, tags text[], nums integer[], b bytea"""
CONDITIONS = (
    "NEW.n > 1 AND NEW.small < 100",
    "10 / n > 1",
    "name LIKE '%é%' OR code = 'a''b'",
    "amount > 1.5 AND x < 10.5",
    "flag",
    "d >= DATE '2026-01-02' AND ts < TIMESTAMP '2026-02-01 00:00:00'",
    "u = '00000000-0000-0000-0000-000000000001'",
    "j ->> 'a' = '1'",
    "tags[1] = 'x' AND nums[2] = 2",
    "initcap(name) = 'Née'",
    "CAST(name AS integer) > 1",
    "b = '\\x00ff' AND t > TIME '10:00'",
    "f > 0.1",
)
KEYS = ("n", "name, small", "ts", "amount", "initcap(name)")


@pytest.fixture
def chat(tables: RoutedTables) -> RoutedTables:
    tables.create(MESSAGES, channel_id="INT", user_id="INT", is_visible="INT", body="TEXT")
    return tables


@pytest.mark.long
def test_decisions_make_of_changes_what_the_model_says(chat: RoutedTables, spark: SparkSession) -> None:
    for topic, partitions in (("app.new", 1), ("app.keys", 3), ("app.diffs", 12), ("app.both", 2), ("app.once", 1)):
        chat.api.create_topic(topic, partitions)
    chat.create("shop.orders", total="INT", note="TEXT")
    chat.create("shop.unrouted", total="INT")

    def visible(change: Change) -> bool:
        return change.row["is_visible"] == 1 and change.row["channel_id"] == 42

    chat.route(Route("app.new", MESSAGES, ("insert", "update"), "full", visible), "is_visible = 1 AND channel_id = 42")
    chat.route(Route("app.keys", MESSAGES, ALL, "key"))
    chat.route(Route("app.diffs", MESSAGES, ALL, "diff", partition_by=("user_id",)))
    chat.route(Route("app.both", "shop.orders", ALL, "full"))

    def cheap(change: Change) -> bool:
        return 100 / change.row["total"] > 1

    chat.route(Route("app.once", "shop.orders", ("insert",), "full", cheap), "100 / total > 1")
    router = RealtimeRouter(spark, chat)
    fill(chat, 40)
    for id, total in enumerate([1, 50, 0, 200, 0, 7]):
        chat.insert("shop.orders", {"id": id, "total": total, "note": "x" * id})
        chat.insert("shop.unrouted", {"id": id, "total": total})
    chat.delete("shop.orders", 2)
    topics = ["app.new", "app.keys", "app.diffs", "app.both", "app.once", "app.once.dead_letters"]
    view = router.view()
    decided = router.decided(view)
    assert router.send(decided) == []
    chat.check(topics)
    # As after a crash before Spark has noted what it has sent: all of it comes again, and a part of it.
    assert router.send(decided) == router.send(decided[17:]) == []
    chat.check(topics)
    fill(chat, 20, 100)
    router.route_once()
    chat.check(topics)
    assert chat.api.ask("/api/pipelines")[0]["lag"] == 0


def test_routes_count_from_their_place_in_the_log(chat: RoutedTables, spark: SparkSession) -> None:
    chat.api.create_topic("first", 2)
    chat.api.create_topic("second", 1)
    chat.route(Route("first", MESSAGES, ALL, "key"))
    router = RealtimeRouter(spark, chat)
    fill(chat, 20)
    view = router.view()
    chat.route(Route("second", MESSAGES, ("insert",), "full"))
    fill(chat, 20, 100)
    # The query does not know of the second route, and ends where that comes into force.
    (error, *_) = router.send(router.decided(view))
    assert "POLICY_VIOLATION" in error or "policy" in error.lower(), error
    router.route_once()
    chat.check(["first", "second"])
    view = router.view()
    chat.end_routes("second", MESSAGES)
    fill(chat, 10, 200)
    assert router.send(router.decided(view)) != []
    router.route_once()
    chat.check(["first", "second"])


def test_both_modes_make_the_same_records_of_all_types(
    spark: SparkSession, server: ServerProcess, route_once: RunOnce, tmp_path: Path
) -> None:
    with ServerProcess(tmp_path / "other", "--durability", "relaxed") as other:
        for each in (server, other):
            _given_types(Api(each.url))
        route_once()
        RealtimeRouter(spark, RoutedTables(other)).route_once()
        for topic in _topics():
            batched, decided = (
                [(one.partition, one.message, one.headers | {"timestamp": b""}) for one in read_topic(each.kafka, topic)]
                for each in (server, other)
            )
            assert list(map(_without_time, batched)) == list(map(_without_time, decided)), topic


def _topics() -> Iterator[str]:
    for number in range(len(CONDITIONS) + len(KEYS)):
        yield f"t{number}"
    yield from ("t1.dead_letters", "t10.dead_letters")


def _without_time(record: tuple[int, Message, dict[str, bytes]]) -> tuple[object, ...]:
    """Leave out when a change was made, which a dead letter has in its value too."""
    partition, message, headers = record
    letter = json.loads(message.value)
    event = letter.get("event") if isinstance(letter, dict) else None
    value: object = message.value if event is None else letter | {"event": event | {"ts": 0}}
    return partition, message._replace(value=b""), value, headers


def _given_types(api: Api) -> None:
    api.sql(f"CREATE TABLE v ({TYPES})")
    for number in range(len(CONDITIONS) + len(KEYS)):
        api.create_topic(f"t{number}", 1 + number % 3)
    for number, condition in enumerate(CONDITIONS):
        operations = "INSERT, UPDATE" if "NEW." in condition else "INSERT, UPDATE, DELETE"
        payload = ("full", "diff", "key")[number % 3]
        api.sql(f"ALTER TOPIC t{number} ADD SOURCE v ON {operations} WHERE ({condition}) WITH (payload = '{payload}')")
    for number, key in enumerate(KEYS, len(CONDITIONS)):
        api.sql(f"ALTER TOPIC t{number} ADD SOURCE v ON INSERT, UPDATE PARTITION BY ({key}) WITH (payload = 'diff')")
    row = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    for id in range(12):
        values = [
            id,
            id * 50 % 300,
            id % 3,
            id + 0.25,
            0.1 * id,
            f"{id}.5",
            ("née", 'q"é\n', "7", "x", None)[id % 5],
            ("a'b", "", None)[id % 3],
            (True, False, None)[id % 3],
            f"2026-01-{1 + id:02}",
            f"{8 + id}:30:00.25",
            f"2026-01-{1 + 2 * id:02} 10:00:00.123456",
            f"00000000-0000-0000-0000-{id:012}",
            ({"a": 1, "b": [1, {"c": "d"}]}, {"a": "1"}, None)[id % 3],
            (["x", "y"], [], None)[id % 3],
            ([1, 2], [None, 2], None)[id % 3],
            ("\\x00ff", "\\x", None)[id % 3],
        ]
        api.sql(f"INSERT INTO v VALUES {row}", *values)
    api.sql("UPDATE v SET n = n + 1, name = 'née', amount = amount * 2 WHERE id % 2 = 0")
    api.sql("UPDATE v SET tags = ARRAY['x', NULL], j = NULL WHERE id < 4")
    api.sql("DELETE FROM v WHERE id % 4 = 1")
