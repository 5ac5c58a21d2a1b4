"""The metrics page of a running server tells what happened to it."""

import httpx

from tests.integration.topics import consume, create, metric, publish
from tests.support.server import ServerProcess


def test_messages_are_counted_in_and_out_by_topic(server: ServerProcess) -> None:
    create(server.url, "orders")
    publish(server.url, "orders", 1, 2, 3)
    consume(server.url, "orders")
    assert metric(server.url, 'tailrace_messages_in_total{topic="orders"}') == 3
    assert metric(server.url, 'tailrace_messages_out_total{topic="orders"}') == 3
    assert metric(server.url, 'tailrace_bytes_in_total{topic="orders"}') > 0
    assert metric(server.url, "tailrace_end_cursor") == 3


def test_commits_and_syncs_are_measured(server: ServerProcess) -> None:
    create(server.url, "orders")
    before = metric(server.url, "tailrace_commits_total")
    publish(server.url, "orders", 1)
    assert metric(server.url, "tailrace_commits_total") == before + 1
    assert metric(server.url, "tailrace_commit_seconds_count") == before + 1
    assert metric(server.url, "tailrace_sync_seconds_count") > 0
    assert metric(server.url, "tailrace_commits_per_sync_count") > 0


def test_a_replay_after_a_kill_is_counted(server: ServerProcess) -> None:
    create(server.url, "orders")
    publish(server.url, "orders", 1)
    server.kill()
    server.start()
    assert metric(server.url, "tailrace_replayed_frames") >= 2
    assert "bytes replayed" in server.ready_line


def test_statements_and_changes_of_tables_are_counted(server: ServerProcess, client: httpx.Client) -> None:
    def run(text: str) -> int:
        return client.post("/api/sql", json={"sql": text}).status_code

    assert run("CREATE TABLE a.t (id integer, PRIMARY KEY (id)); CREATE TABLE a.u (id integer, PRIMARY KEY (id))") == 200
    assert run("INSERT INTO a.t VALUES (1), (2), (3)") == 200
    assert (
        run("BEGIN; UPDATE a.t SET id = 4 WHERE id = 1; DELETE FROM a.t WHERE id = 2; INSERT INTO a.u VALUES (1); COMMIT")
        == 200
    )
    assert run("SELECT * FROM a.t") == 200
    assert run("SELECT * FORM a.t") == 400
    assert run("DROP TABLE a.u") == 200
    kinds = {"create_table": 2, "insert": 2, "update": 1, "delete": 1, "select": 1, "drop_table": 1}
    for kind, count in kinds.items():
        assert metric(server.url, f'tailrace_sql_statements_total{{statement="{kind}"}}') == count
    assert metric(server.url, "tailrace_sql_failures_total") == 1
    # A change of the key is a delete and an insert.
    assert metric(server.url, 'tailrace_table_rows_total{table="a.t"}') == 3 + 2 + 1
    assert 'table="a.u"' not in client.get("/metrics").text
    assert metric(server.url, "tailrace_table_transactions_total") == 2
    assert metric(server.url, "tailrace_table_write_seconds_count") == 2
    assert metric(server.url, "tailrace_table_transactions_per_commit_count") == 2
    assert metric(server.url, "tailrace_waiting_table_writes") == 0


def test_changes_that_the_tables_lacked_at_the_start_are_counted(server: ServerProcess, client: httpx.Client) -> None:
    client.post("/api/sql", json={"sql": "CREATE TABLE t (id integer, PRIMARY KEY (id)); INSERT INTO t VALUES (1), (2)"})
    server.kill()
    for file in server.folder.glob("tables.db*"):
        file.unlink()
    server.start()
    assert metric(server.url, "tailrace_replayed_changes") == 2


def test_the_process_and_its_version_are_there(server: ServerProcess, client: httpx.Client) -> None:
    version = client.get("/health").json()["version"]
    assert metric(server.url, f'tailrace_server{{durability="fsync",version="{version}"}}') == 1
    assert metric(server.url, "tailrace_uptime_seconds") > 0
    assert metric(server.url, "process_resident_memory_bytes") > 0
    assert metric(server.url, "tailrace_unexpected_errors_total") == 0
