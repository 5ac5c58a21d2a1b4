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
    assert "read again" in server.ready_line


def test_the_process_and_its_version_are_there(server: ServerProcess, client: httpx.Client) -> None:
    version = client.get("/health").json()["version"]
    assert metric(server.url, f'tailrace_server{{durability="fsync",version="{version}"}}') == 1
    assert metric(server.url, "tailrace_uptime_seconds") > 0
    assert metric(server.url, "process_resident_memory_bytes") > 0
    assert metric(server.url, "tailrace_unexpected_errors_total") == 0
