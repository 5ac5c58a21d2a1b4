"""Table changes reach their topics through a real Spark: what a small model in Python says, once and in order."""

import json
import random
import threading
import urllib.request
from collections.abc import Callable

import pytest

from tests.integration.pipeline.conftest import Running, RunOnce
from tests.support.eventually import eventually
from tests.support.routed_tables import RoutedTables
from tests.support.routing_model import Change, Route, to_json

MESSAGES = "chat.messages"
ALL = ("insert", "update", "delete")


def message(id: int, **given: object) -> dict[str, object]:
    return {"id": id, "channel_id": 42, "user_id": id % 5, "is_visible": 1, "body": f'hello {id} \u00e9"\n'} | given


def fill(tables: RoutedTables, count: int, first: int = 0) -> None:
    """Inserts, updates and deletes, over a dozen rows of each dozen."""
    for start in range(first, first + count, 10):
        tables.insert(MESSAGES, *(message(id, channel_id=42 + id % 2) for id in range(start, start + 10)))
        tables.update(MESSAGES, start, body=None)
        tables.update(MESSAGES, start, body="again", is_visible=0)
        tables.update(MESSAGES, start + 1, body=f'hello {start + 1} \u00e9"\n')
        tables.delete(MESSAGES, start + 2)


@pytest.fixture
def chat(tables: RoutedTables) -> RoutedTables:
    tables.create(MESSAGES, channel_id="INT", user_id="INT", is_visible="INT", body="TEXT")
    return tables


def test_routes_make_of_changes_what_the_model_says(chat: RoutedTables, route_once: RunOnce) -> None:
    """Filters and payloads, keys and partitions, two routes to a topic, two tables, dead letters, duplicates: in one batch."""
    for topic, partitions in (("app.new", 1), ("app.keys", 3), ("app.diffs", 12), ("app.all", 1), ("app.both", 2)):
        chat.api.create_topic(topic, partitions)
    chat.api.create_topic("app.once", 1, dedup="content", dedup_window_seconds=3600)
    chat.create("shop.orders", total="INT", note="TEXT")

    def visible(change: Change) -> bool:
        return change.row["is_visible"] == 1 and change.row["channel_id"] == 42

    def not_again(change: Change) -> bool | None:
        return None if change.row["body"] is None else change.row["body"] != "again"

    chat.route(Route("app.new", MESSAGES, ("insert", "update"), "full", visible), "is_visible = 1 AND channel_id = 42")
    chat.route(Route("app.keys", MESSAGES, ALL, "key"))
    chat.route(Route("app.diffs", MESSAGES, ALL, "diff", partition_by=("user_id",)))
    chat.route(Route("app.all", MESSAGES, ("delete",), "full"))
    chat.route(Route("app.all", MESSAGES, ("insert",), "diff"))
    chat.route(Route("app.both", MESSAGES, ("update",), "full", not_again), "body <> 'again'")
    chat.route(Route("app.both", "shop.orders", ALL, "full"))

    def cheap(change: Change) -> bool:
        return 100 / change.row["total"] > 1

    chat.route(Route("app.once", "shop.orders", ("insert",), "full", cheap), "100 / total > 1")
    fill(chat, 40)
    for id, total in enumerate([1, 50, 0, 200, 0, 7]):
        chat.insert("shop.orders", {"id": id, "total": total, "note": "x" * id})
    chat.delete("shop.orders", 2)
    (report,) = route_once()
    chat.check(["app.new", "app.keys", "app.diffs", "app.all", "app.both", "app.once", "app.once.dead_letters"])
    assert (report.rows, report.routes, report.dead_letters) == (40 + 4 * 4 + 7, 8, 2)
    letters = [json.loads(each.message.value) for each in chat.records("app.once.dead_letters")]
    assert [letter["event"]["new"]["id"] for letter in letters] == [2, 4]
    assert {(letter["route"], letter["topic"], letter["source_table"]) for letter in letters} == {
        (8, "app.once", "shop.orders")
    }
    assert all("division by zero" in letter["cause"] for letter in letters)
    first = chat.records("app.new")[0]
    assert set(first.headers) == {"source_table", "op", "timestamp", "payload_mode", "message_id", "cursor"}
    assert first.headers["message_id"] == first.headers["cursor"] + b"-1"
    # One partition and one table: the order of changes, whatever the key, and the routes' own order for one change.
    stored = [each.message for each in chat.records("app.all")]
    assert stored == chat.model.topics["app.all"]
    assert [report.rows for report in route_once()] == [0]


def test_routes_that_come_and_go_while_it_runs_count_from_their_place_in_the_log(chat: RoutedTables, routing: Running) -> None:
    """A writer never stops; the router sees no route at first, then a few, then others, of two tables."""
    chat.create("shop.orders", total="INT")
    for topic in ("first", "second", "third"):
        chat.api.create_topic(topic, 2)
    with routing(most_rows=50) as reports:
        fill(chat, 20)
        chat.route(Route("first", MESSAGES, ALL, "key"))
        fill(chat, 20, 100)
        chat.route(Route("second", MESSAGES, ("insert",), "full", lambda change: change.row["id"] % 2 == 0), "id % 2 = 0")
        fill(chat, 20, 200)
        chat.end_routes("first", MESSAGES)
        chat.insert("shop.orders", {"id": 1, "total": 5})
        chat.route(Route("first", "shop.orders", ALL, "diff"))
        chat.insert("shop.orders", {"id": 2, "total": None})
        fill(chat, 20, 300)
        eventually(lambda: chat.count("second") == 20, "half of the inserts of two rounds")
        chat.route(Route("third", MESSAGES, ("delete",), "full"))
        chat.update("shop.orders", 2, total=7)
        fill(chat, 20, 400)
        eventually(lambda: router_of(chat)["lag"] == 0, "all changes routed")
        assert router_of(chat)["running"]
    assert reports[-1].last_error is None
    chat.check(["first", "second", "third"])
    assert not router_of(chat)["running"]


def router_of(tables: RoutedTables) -> dict[str, object]:
    (router,) = [each for each in tables.api.ask("/api/pipelines") if each["name"] == "router"]
    return router


def test_waiting_changes_are_counted_everywhere(chat: RoutedTables, route_once: RunOnce) -> None:
    chat.api.create_topic("keys")
    chat.route(Route("keys", MESSAGES, ALL, "key"))
    fill(chat, 10)
    assert len(route_once()) == 1
    fill(chat, 10, 100)
    status = router_of(chat)
    assert (status["lag"], status["running"], status["epoch"]) == (14, False, 1)
    ((state, rows, lag, batch, routes),) = chat.api.sql("SELECT state, rows, lag, batch, routes FROM system.pipelines")
    assert (state, rows, lag, batch, routes) == ("stopped", 14, 14, 0, 1)
    with urllib.request.urlopen(f"{chat.server.url}/metrics") as answer:  # noqa: S310  the test's own server
        shown = dict(
            line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line.startswith("tailrace_pipeline")
        )
    label = '{pipeline="router"}'
    assert float(shown["tailrace_pipeline_lag" + label]) == 14
    assert float(shown["tailrace_pipeline_rows_total" + label]) == 14
    assert float(shown["tailrace_pipeline_batches_total" + label]) == 1
    assert float(shown["tailrace_pipeline_dead_letters_total" + label]) == 0
    assert 0 < float(shown["tailrace_pipeline_idle_seconds" + label]) < 60


def test_tables_and_topics_dropped_under_it_do_not_stop_the_rest(chat: RoutedTables, routing: Running) -> None:
    for topic in ("kept", "dropped", "other"):
        chat.api.create_topic(topic)
    chat.create("shop.orders", total="INT")
    chat.route(Route("kept", MESSAGES, ALL, "key"))
    chat.route(Route("dropped", MESSAGES, ALL, "full"))
    chat.route(Route("other", "shop.orders", ALL, "full"))
    stop = threading.Event()

    def write() -> None:
        for first in range(0, 10_000, 10):
            if stop.is_set():
                return
            fill(chat, 10, first)

    with routing():
        writer = threading.Thread(target=write)
        writer.start()
        eventually(lambda: chat.count("dropped") > 0, "the first messages")
        chat.api.sql("DROP TOPIC dropped CASCADE")
        chat.insert("shop.orders", {"id": 1, "total": 1})
        eventually(lambda: chat.count("other") == 1, "the order")
        chat.api.sql("DROP TABLE shop.orders CASCADE")
        seen = chat.count("kept")
        eventually(lambda: chat.count("kept") > seen, "more messages")
        stop.set()
        writer.join()
        eventually(lambda: router_of(chat)["lag"] == 0, "all changes routed")
    chat.check(["kept"])


def test_rows_that_are_too_large_for_their_topic_go_to_dead_letters(chat: RoutedTables, route_once: RunOnce) -> None:
    chat.api.create_topic("small", 1, max_message_bytes=20_000)
    chat.route(Route("small", MESSAGES, ("insert",), "full"))
    for id, size in enumerate([10, 30_000, 1_200_000, 100]):
        chat.insert(MESSAGES, message(id, body="x" * size))
    chat.insert(MESSAGES, *(message(id, body="y" * 3_000) for id in range(10, 40)))
    route_once()
    stored = [json.loads(each.message.value)["id"] for each in chat.records("small")]
    assert stored == [0, 3, *range(10, 40)]
    letters = [json.loads(each.message.value) for each in chat.records("small.dead_letters")]
    assert [len(letter["event"]["new"]["body"]) for letter in letters] == [30_000, 1_200_000]
    assert all("larger than its topic allows" in letter["cause"] for letter in letters)


def by_cursor(tables: RoutedTables, *topics: str) -> list[tuple[int, str, str]]:
    """The id of the row, the operation and the topic of each message, in the order of the log."""
    found = [
        (cursor, json.loads(value)["id"], op, topic)
        for topic in topics
        for cursor, value, op in tables.api.sql(f"SELECT cursor, value, op FROM {topic}")
    ]
    return [(id, op, topic) for _, id, op, topic in sorted(found)]


def test_by_cursor_messages_about_a_row_come_in_the_order_of_its_changes(tables: RoutedTables, route_once: RunOnce) -> None:
    """A row that moves from partition to partition, and one whose inserts and deletes go to two topics."""
    sql = tables.api.sql
    for topic, partitions in (("moving", 12), ("inserted", 1), ("deleted", 1)):
        tables.api.create_topic(topic, partitions)
    sql("CREATE TABLE people (id INT PRIMARY KEY, region TEXT)")
    sql("CREATE TABLE visits (id INT PRIMARY KEY)")
    sql("ALTER TOPIC moving ADD SOURCE people ON INSERT, UPDATE PARTITION BY (region, id % 2) WITH (payload = 'full')")
    sql("ALTER TOPIC inserted ADD SOURCE visits ON INSERT WITH (payload = 'key')")
    sql("ALTER TOPIC deleted ADD SOURCE visits ON DELETE WITH (payload = 'key')")
    regions = ["eu", "us", "asia", "eu", "africa", "us"]
    sql("INSERT INTO people VALUES (1, 'eu'), (2, 'eu')")
    for region in regions[1:]:
        sql("UPDATE people SET region = ?", region)
    for _ in range(3):
        sql("INSERT INTO visits VALUES (1), (2)")
        sql("DELETE FROM visits")
    route_once()
    for id in (1, 2):
        moved = [value for (value,) in sql("SELECT value FROM moving ORDER BY cursor") if json.loads(value)["id"] == id]
        assert [json.loads(value)["region"] for value in moved] == regions
        visits = [(op, topic) for each, op, topic in by_cursor(tables, "inserted", "deleted") if each == id]
        assert visits == [("insert", "inserted"), ("delete", "deleted")] * 3


def test_a_value_over_payload_bytes_becomes_a_dead_letter(chat: RoutedTables, route_once: RunOnce) -> None:
    """Also where the topic would take it."""
    chat.api.create_topic("roomy", 1, max_message_bytes=8_000_000)
    chat.route(Route("roomy", MESSAGES, ("insert",), "full"))
    for id, size in enumerate([1_000_000, 1_200_000]):
        chat.insert(MESSAGES, message(id, body="x" * size))
    route_once()
    assert [json.loads(each.message.value)["id"] for each in chat.records("roomy")] == [0]
    (letter,) = [json.loads(each.message.value) for each in chat.records("roomy.dead_letters")]
    assert letter["event"]["new"]["id"] == 1
    assert "payload_bytes allows (1048576)" in letter["cause"]


def test_conditions_see_values_of_every_type_as_they_are(tables: RoutedTables, route_once: RunOnce) -> None:
    """Each condition holds for row 1 and not for row 2; row 3 has nulls, for which none of them is true."""
    columns = {
        "flag BOOLEAN": ("true", "false", "flag"),
        "small SMALLINT": ("-32768", "5", "small = -32768"),
        "big BIGINT": ("9223372036854775807", "5", "big > 9223372036854775806"),
        "price DECIMAL(20, 2)": ("'123456789012345678.25'", "1", "price = 123456789012345678.25"),
        "ratio DOUBLE": ("1e300", "1.5", "ratio > 1e299"),
        "name TEXT": ("'a \"b\" \\ \u00fc'", "'b'", "name = 'a \"b\" \\ \u00fc'"),
        "raw BYTEA": ("'\\x00ff'", "'\\x01'", "raw = other_raw"),
        "other_raw BYTEA": ("'\\x00ff'", "'\\x02'", "raw = other_raw"),
        "born DATE": ("'1969-12-31'", "'2000-01-01'", "born < DATE '1970-01-01'"),
        "seen TIMESTAMP": ("'2026-01-31 13:45:00.5'", "'2026-01-31 13:45:00'", "seen > TIMESTAMP '2026-01-31 13:45:00.4'"),
        "tags TEXT[]": ("ARRAY['x', 'y']", "ARRAY['z']", "'y' = ANY (tags)"),
        "extra JSON": ("""'{"a": [1, "}"]}'""", "NULL", "(extra -> 'a') IS NOT NULL"),
    }
    tables.api.sql(f"CREATE TABLE typed (id BIGINT PRIMARY KEY, {', '.join(columns)})")
    for number, (_, _, condition) in enumerate(columns.values()):
        tables.api.create_topic(f"topic{number}")
        tables.api.sql(
            f"ALTER TOPIC topic{number} ADD SOURCE typed ON INSERT, DELETE WHERE ({condition}) WITH (payload = 'key')"
        )
    for id, place in ((1, 0), (2, 1)):
        tables.api.sql(f"INSERT INTO typed VALUES ({id}, {', '.join(each[place] for each in columns.values())})")
    tables.api.sql("INSERT INTO typed (id) VALUES (3)")
    tables.api.sql("DELETE FROM typed")
    route_once()
    found = {
        condition: [(each.message.op, each.message.value) for each in tables.records(f"topic{number}")]
        for number, (_, _, condition) in enumerate(columns.values())
    }
    once = [("insert", b'{"id":1}'), ("delete", b'{"id":1}')]
    assert found == {condition: once for _, _, condition in columns.values()}


CONDITIONS: dict[str, Callable[[Change], bool | None]] = {
    "a > 3": lambda change: None if change.row["a"] is None else change.row["a"] > 3,
    "t = 'x' OR a IS NULL": lambda change: True if change.row["a"] is None else (change.row["t"] == "x"),
    "10 / a >= 2": lambda change: None if change.row["a"] is None else 10 / change.row["a"] >= 2,
    "a <> b AND b < 4": lambda change: _and(_different(change), None if change.row["b"] is None else change.row["b"] < 4),
    "NOT (t LIKE 'x%')": lambda change: None if change.row["t"] is None else not change.row["t"].startswith("x"),
}


def _different(change: Change) -> bool | None:
    a, b = change.row["a"], change.row["b"]
    return None if a is None or b is None else a != b


def _and(left: bool | None, right: bool | None) -> bool | None:
    return False if left is False or right is False else (None if left is None or right is None else True)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
def test_random_routes_of_random_tables_equal_the_model(tables: RoutedTables, route_once: RunOnce, seed: int) -> None:
    choose = random.Random(seed)
    names = [f"t.t{number}" for number in range(choose.randint(1, 3))]
    topics = [f"topic{number}" for number in range(4)]
    for name in names:
        tables.create(name, a="INT", b="INT", t="TEXT")
    for topic in topics:
        tables.api.create_topic(topic, choose.choice([1, 2, 12]))
    rows: dict[str, list[int]] = {name: [] for name in names}

    def value(column: str) -> object:
        return (
            choose.choice([None, "", "x", "xyz", "\u00fc \u65e5\u672c"])
            if column == "t"
            else choose.choice([None, 0, 1, 3, 4, 9, -2])
        )

    def change() -> None:
        name = choose.choice(names)
        kind = choose.random()
        if kind < 0.5 or not rows[name]:
            first = max([*rows[name], 0]) + 1
            new = [
                {"id": first + number, **{column: value(column) for column in "abt"}} for number in range(choose.randint(1, 5))
            ]
            tables.insert(name, *new)
            rows[name] += [row["id"] for row in new]  # type: ignore[misc]
        elif kind < 0.8:
            columns = choose.sample("abt", choose.randint(1, 3))
            tables.update(name, choose.choice(rows[name]), **{column: value(column) for column in columns})
        else:
            tables.delete(name, rows[name].pop(choose.randrange(len(rows[name]))))

    def alter() -> None:
        topic, name = choose.choice(topics), choose.choice(names)
        there = [route for route in tables.model.routes if (route.topic, route.table) == (topic, name)]
        if there:
            tables.end_routes(topic, name)
            return
        ops = tuple(sorted(choose.sample(ALL, choose.randint(1, 3))))
        where = choose.choice([None, *CONDITIONS])
        by = choose.choice([(), (), ("b",), ("t", "a")])
        matches = (lambda change: True) if where is None else CONDITIONS[where]
        tables.route(Route(topic, name, ops, choose.choice(["key", "full", "diff"]), matches, by), where)

    for _ in range(6):
        for _ in range(choose.randint(1, 3)):
            alter()
        for _ in range(12):
            change()
        if choose.random() < 0.3:
            route_once(most_rows=choose.choice([7, 200]))
    route_once()
    assert tables.model.topics
    tables.check()


def test_keys_of_the_model_are_those_of_json() -> None:
    """The model is only as good as its JSON."""
    assert to_json({"id": 1, "t": '\u00e9"\n'}) == '{"id":1,"t":"\u00e9\\"\\n"}'.encode()
