"""A route with a snapshot, through a real Spark: the rows that were there, then their changes, once and in order."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.integration.pipeline.conftest import RunOnce
from tests.support.api import Api
from tests.support.eventually import eventually
from tests.support.routed_tables import Stored, read_topic
from tests.support.server import ServerProcess

ROWS = 2_500
"""More than two chunks."""


def told(stored: Sequence[Stored]) -> dict[int, list[tuple[str, Any]]]:
    """By the key of the row: operation and value of each message, in order."""
    found: dict[int, list[tuple[str, Any]]] = {}
    for each in stored:
        value = json.loads(each.message.value)
        found.setdefault(value.get("key", value)["id"], []).append((each.message.op, value))
    return found


def is_done(api: Api) -> bool:
    return all(route["snapshot"] != "running" for route in api.ask("/api/routes")["routes"])


def row(id: int, **given: object) -> Mapping[str, object]:
    return {"id": id, "channel": id % 2, "body": f"row {id}"} | given


def test_rows_that_were_there_come_before_their_changes(server: ServerProcess, api: Api, route_once: RunOnce) -> None:
    """One route on all operations, one on deletes alone with a filter, and one beside them without a snapshot."""
    api.sql("CREATE TABLE chat.rows (id BIGINT PRIMARY KEY, channel INT, body TEXT)")
    for topic, partitions in (("app.all", 3), ("app.gone", 1), ("app.plain", 1)):
        api.create_topic(topic, partitions)
    api.ask(
        "/api/sql", {"sql": "INSERT INTO chat.rows VALUES (?, ?, ?)", "params": [list(row(id).values()) for id in range(ROWS)]}
    )
    api.sql("ALTER TOPIC app.plain ADD SOURCE chat.rows ON UPDATE, INSERT, DELETE")
    body = {
        "topic": "app.all",
        "source_table": "chat.rows",
        "operations": ["insert", "update", "delete"],
        "payload_mode": "full",
    }
    assert api.ask("/api/routes", {**body, "snapshot": True})["snapshot"] != "none"
    api.sql(
        "ALTER TOPIC app.gone ADD SOURCE chat.rows ON DELETE WHERE (channel = 1 AND id < 100)"
        " WITH (payload = 'diff', snapshot = true)"
    )
    api.sql("UPDATE chat.rows SET body = 'early' WHERE id IN (0, 2400)")
    eventually(lambda: is_done(api), "both snapshots")
    route_once()
    api.sql("UPDATE chat.rows SET body = 'late' WHERE id = 7")
    api.sql("DELETE FROM chat.rows WHERE id IN (7, 8)")
    api.sql("INSERT INTO chat.rows VALUES (8, 1, 'again')")
    route_once()
    stored = read_topic(server.kafka, "app.all")
    by_key = told(stored)
    assert len({each.headers["message_id"] for each in stored}) == len(stored)
    assert set(by_key) == set(range(ROWS))
    assert all(messages[0][0] == "read" for messages in by_key.values())
    assert sum(op == "read" for messages in by_key.values() for op, _ in messages) == ROWS
    assert [by_key[id] for id in (1, 7, 8)] == [
        [("read", row(1))],
        [("read", row(7)), ("update", row(7, body="late")), ("delete", row(7, body="late"))],
        [("read", row(8)), ("delete", row(8)), ("insert", row(8, channel=1, body="again"))],
    ]
    # Read before or after the early update: what came last is the same.
    assert [by_key[id][-1][1] for id in (0, 2400)] == [row(0, body="early"), row(2400, body="early")]
    gone = told(read_topic(server.kafka, "app.gone"))
    assert {id: [op for op, _ in messages] for id, messages in gone.items()} == {
        id: ["read", "delete"] if id == 7 else ["read"] for id in range(1, 100, 2)
    }
    assert gone[9] == [
        ("read", {"key": {"id": 9}, "changed": {name: {"new": value} for name, value in row(9).items()}}),
    ]
    plain = [each.message.op for each in read_topic(server.kafka, "app.plain")]
    assert plain == ["update", "update", "update", "delete", "delete", "insert"]
