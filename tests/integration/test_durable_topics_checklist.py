"""The checklist of durable topics, point by point, on a server over HTTP. The pipeline that routes has its own tests."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.statements import refusal, rows, run
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

CLEAN = """
DROP TABLE IF EXISTS chat.messages CASCADE;
DROP TOPIC IF EXISTS app.new_messages CASCADE;
DROP TOPIC IF EXISTS app.one;
"""
SETUP = """
CREATE TABLE chat.messages (
    id BIGINT PRIMARY KEY, channel_id INTEGER, user_id INTEGER, is_visible BOOLEAN DEFAULT true, body TEXT
);
CREATE TOPIC app.new_messages PARTITIONS 2 WITH (alias = 'app.new_messages_alias', retention_seconds = 86400);
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """One server for most points, because a start takes longer than what they do."""
    with (
        ServerProcess(tmp_path_factory.mktemp("checklist") / "data") as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as client,
    ):
        yield client


@pytest.fixture
def chat(shared: httpx.Client) -> httpx.Client:
    run(shared, CLEAN)
    run(shared, SETUP)
    return shared


def test_system_tables_exist_and_are_queryable(chat: httpx.Client) -> None:
    run(chat, "ALTER TOPIC app.new_messages ADD SOURCE chat.messages ON INSERT")
    run(chat, "CONSUME FROM app.new_messages GROUP 'ai-service' FROM EARLIEST LIMIT 100")
    (topic,) = rows(chat, "SELECT * FROM system.topics WHERE name = 'app.new_messages'")
    assert (topic["alias"], topic["partitions"]) == ("app.new_messages_alias", 2)
    assert (topic["retention_seconds"], topic["retention_max_bytes"]) == (86400, None)
    (route,) = rows(chat, "SELECT * FROM system.topic_routes")
    assert route["topic_id"] == topic["topic_id"]
    assert {"table_id", "op", "payload_mode", "filter_expr", "partition_key_expr"} <= set(route)
    offsets = rows(chat, "SELECT * FROM system.topic_offsets")
    assert {offset["partition_id"] for offset in offsets} == {0, 1}
    assert {offset["group_id"] for offset in offsets} == {"ai-service"}
    assert {"topic_id", "last_acked_offset", "updated_at"} <= set(offsets[0])
    for name in ("tables", "groups", "partitions", "stats"):
        assert rows(chat, f"SELECT * FROM system.{name}") != []


def test_create_topic_persists_metadata(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        with httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as client:
            run(client, SETUP)
            before = rows(client, "SELECT * FROM system.topics ORDER BY topic_id")
        server.kill()
        server.start()
        with httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as client:
            assert rows(client, "SELECT * FROM system.topics ORDER BY topic_id") == before
            assert refusal(client, "CREATE TOPIC app.new_messages")["status"] == 409


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("WITH (payload = 'key')", ("key", None, [])),
        ("WITH (payload = 'full')", ("full", None, [])),
        ("WHERE (is_visible = true AND channel_id = 42) WITH (payload = 'key')", ("key", "filter", [])),
        ("PARTITION BY (user_id) WITH (payload = 'key')", ("key", None, ["user_id"])),
    ],
)
def test_alter_topic_add_source_creates_a_route(
    chat: httpx.Client, clauses: str, expected: tuple[str, str | None, list[str]]
) -> None:
    run(chat, f"ALTER TOPIC app.new_messages ADD SOURCE chat.messages ON INSERT {clauses}")
    (route,) = rows(chat, "SHOW ROUTES")
    payload, filtered, partition_by = expected
    assert (route["topic"], route["table"], route["operations"]) == ("app.new_messages", "chat.messages", ["insert"])
    assert (route["payload"], route["partition_by"]) == (payload, partition_by)
    assert (route["filter"] is not None) == (filtered is not None)


def test_change_events_append_to_topic_logs(chat: httpx.Client) -> None:
    run(chat, "INSERT INTO chat.messages (id, channel_id, body) VALUES (1, 42, 'hello')")
    run(chat, "UPDATE chat.messages SET body = 'bye' WHERE id = 1; DELETE FROM chat.messages WHERE id = 1")
    events = rows(chat, "CONSUME FROM _changes.chat.messages FROM EARLIEST LIMIT 100")
    assert [event["op"] for event in events] == ["insert", "update", "delete"]
    assert [event["offset"] for event in events] == [0, 1, 2]
    assert {event["source_table"] for event in events} == {"chat.messages"}
    assert {event["key"] for event in events} == {'{"id":1}'}
    assert rows(chat, "CONSUME FROM chat.messages FROM OFFSET 1 LIMIT 100") == events[1:]


def test_consume_supports_earliest_latest_and_offset(chat: httpx.Client) -> None:
    run(chat, "CREATE TOPIC app.one WITH (alias = 'app.uno')")
    run(chat, "INSERT INTO app.one (value) VALUES (?)", [[str(number)] for number in range(5)])

    def values(text: str) -> list[str]:
        return [row["value"] for row in rows(chat, text)]

    assert values("CONSUME FROM app.one GROUP 'late' FROM LATEST LIMIT 100") == []
    assert values("CONSUME FROM app.one GROUP 'early' FROM EARLIEST LIMIT 100") == ["0", "1", "2", "3", "4"]
    assert values("CONSUME FROM app.one GROUP 'early' FROM OFFSET 3 LIMIT 100") == ["3", "4"]
    run(chat, "INSERT INTO app.uno (value) VALUES ('5')")
    assert values("CONSUME FROM app.uno GROUP 'late' FROM LATEST LIMIT 100") == ["5"]


def test_ack_updates_offsets_correctly(chat: httpx.Client) -> None:
    run(chat, "CREATE TOPIC app.one; INSERT INTO app.one (value) VALUES ('0'), ('1'), ('2')")
    run(chat, "ACK app.one GROUP 'ai-service' PARTITION 0 UPTO OFFSET 1")
    (offset,) = rows(chat, "SELECT * FROM system.topic_offsets WHERE group_id = 'ai-service'")
    assert (offset["partition_id"], offset["last_acked_offset"]) == (0, 1)
    assert [row["value"] for row in rows(chat, "CONSUME FROM app.one GROUP 'ai-service' FROM EARLIEST")] == ["2"]
    assert refusal(chat, "ACK app.one GROUP 'ai-service' PARTITION 0 UPTO OFFSET 0")["status"] == 409
    assert refusal(chat, "ACK app.one GROUP 'ai-service' PARTITION 0 UPTO OFFSET 220")["status"] == 416
    run(chat, "COMMIT app.one GROUP 'ai-service' PARTITION 0 UPTO OFFSET 2")
    (offset,) = rows(chat, "SELECT * FROM system.topic_offsets WHERE group_id = 'ai-service'")
    assert offset["last_acked_offset"] == 2


def test_the_retention_job_prunes_old_log_entries(tmp_path: Path) -> None:
    settings = tmp_path / "often.toml"
    settings.write_text("[broker]\nretention_interval_seconds = 1\n")
    with (
        ServerProcess(tmp_path / "data", "--config", str(settings)) as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as client,
    ):
        run(client, "CREATE TOPIC app.short WITH (retention_seconds = 3600)")
        run(client, "INSERT INTO app.short (value, timestamp) VALUES ('old', '2020-01-01T00:00:00Z')")
        run(client, "INSERT INTO app.short (value) VALUES ('new')")
        kept: list[dict[str, object]] = []
        while [row["value"] for row in kept] != ["new"]:
            kept = rows(client, "CONSUME FROM app.short FROM EARLIEST")
        assert kept[0]["offset"] == 1
