"""Tables that are altered and truncated while routes run, through a real Spark: each change once, with the columns it had."""

import json
from typing import Any

import pytest

from tests.integration.pipeline.conftest import Running, RunOnce
from tests.support.api import Api
from tests.support.eventually import eventually
from tests.support.routed_tables import read_topic
from tests.support.server import ServerProcess

ALTERS = (
    "ALTER TABLE shop.orders ADD COLUMN note TEXT DEFAULT 'none', DROP COLUMN old",
    "ALTER TABLE shop.orders RENAME COLUMN amount TO total",
    "TRUNCATE shop.orders",
    "ALTER TABLE shop.orders ALTER COLUMN total TYPE DECIMAL(12, 2)",
)
COLUMNS = (
    ("id", "kind", "amount", "old"),
    ("id", "kind", "amount", "note"),
    ("id", "kind", "total", "note"),
    ("id", "kind", "total", "note"),
    ("id", "kind", "total", "note"),
)
"""Of the rows before each of these statements, and after the last."""
ROWS = 6


def insert(api: Api, version: int, first: int) -> list[dict[str, Any]]:
    """Insert some rows and return them as their events have them."""
    names = COLUMNS[version]
    rows = [[id, id % 2, id, f"v{version}"] for id in range(first, first + ROWS)]
    text = f"INSERT INTO shop.orders ({', '.join(names)}) VALUES (?, ?, ?, ?)"
    api.ask("/api/sql", {"sql": text, "params": rows})
    found: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in rows]
    for row in found:
        row |= {"old": None} if version >= 3 else {}
        row |= {"total": f"{row['id']}.00"} if version >= 4 else {}
    return found


def routed(server: ServerProcess, topic: str) -> list[Any]:
    return [json.loads(each.message.value) for each in read_topic(server.kafka, topic)]


@pytest.mark.long
def test_routes_go_on_through_alters_and_truncates(
    server: ServerProcess, api: Api, route_once: RunOnce, routing: Running
) -> None:
    api.sql("CREATE TABLE shop.orders (id INT PRIMARY KEY, kind INT, amount INT, old TEXT)")
    for topic, partitions in (("app.odd", 1), ("app.keys", 3), ("app.gone", 1), ("app.again", 1)):
        api.create_topic(topic, partitions)
    api.sql("ALTER TOPIC app.odd ADD SOURCE shop.orders ON INSERT WHERE (kind = 1) PARTITION BY (kind) WITH (payload = 'full')")
    api.sql("ALTER TOPIC app.keys ADD SOURCE shop.orders ON INSERT, DELETE")
    api.sql("ALTER TOPIC app.gone ADD SOURCE shop.orders ON DELETE WITH (payload = 'full')")
    with pytest.raises(AssertionError, match=r"route 1 to topic 'app\.odd'"):
        api.sql("ALTER TABLE shop.orders DROP COLUMN kind")
    expected: list[dict[str, Any]] = []
    for version in range(3):
        expected += insert(api, version, version * 100)
        api.sql(ALTERS[version])
    # The name of a column that events have as a text, now of a number.
    api.sql("ALTER TABLE shop.orders ADD COLUMN old INT")
    api.sql("ALTER TOPIC app.again ADD SOURCE shop.orders ON INSERT WHERE (old = 7)")
    # One batch with events of three versions and a TRUNCATE.
    (report,) = route_once()
    assert report.rows == 3 * ROWS + 1
    assert report.dead_letters == 0
    with routing():
        expected += insert(api, 3, 300)
        api.sql(ALTERS[3])
        expected += insert(api, 4, 400)
        api.sql("TRUNCATE shop.orders")
        api.sql("INSERT INTO shop.orders VALUES (900, 1, 9, 'last', 7)")
        expected.append({"id": 900, "kind": 1, "total": "9.00", "note": "last", "old": 7})
        eventually(lambda: len(routed(server, "app.keys")) >= len(expected), "all changes")
    assert routed(server, "app.odd") == [row for row in expected if row["kind"] == 1]
    assert sorted(row["id"] for row in routed(server, "app.keys")) == [row["id"] for row in expected]
    assert routed(server, "app.gone") == []
    assert routed(server, "app.again") == [{"id": 900}]
