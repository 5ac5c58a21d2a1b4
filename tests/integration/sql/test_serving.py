"""SQL in a server that stops, dies and starts again."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from tests.integration.statements import ask, rows, run
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r, {source}"


@pytest.mark.parametrize("source", ["t", "a"])
def test_a_query_without_end_does_not_keep_the_server_from_stopping(server: ServerProcess, source: str) -> None:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as client, ThreadPoolExecutor(1) as thread:
        run(client, "CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (1); CREATE TOPIC a")
        run(client, "INSERT INTO a (value) VALUES ('x')")
        run(client, f"SELECT count(*) FROM {source}")
        busy = cpu_seconds(server) + 0.5
        endless = thread.submit(ask, client, ENDLESS.format(source=source))
        while cpu_seconds(server) < busy:
            assert not endless.done()
        assert server.terminate() == 0
        assert endless.result(20).status_code == 503


def cpu_seconds(server: ServerProcess) -> float:
    """Of the server and of the processes that run queries for it."""
    process = psutil.Process(server.pid)
    return sum(one.cpu_times().user for one in (process, *process.children(recursive=True)))


def test_everything_is_there_after_a_kill(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        with httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as client:
            run(
                client,
                "CREATE TABLE t (id INTEGER PRIMARY KEY, body TEXT); CREATE TOPIC a WITH (alias = 'b');"
                "ALTER TOPIC a ADD SOURCE t ON INSERT, DELETE WHERE id > 1 WITH (payload = 'full');"
                "BEGIN; INSERT INTO t VALUES (1, 'x'), (2, 'y'); INSERT INTO a (key, value) VALUES ('k', 'v'); COMMIT;"
                "CONSUME FROM b GROUP 'g'; ACK b GROUP 'g' UPTO OFFSET 0",
            )
            before = [rows(client, text) for text in LOOKS]
        server.kill()
        server.start()
        with httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as client:
            assert [rows(client, text) for text in LOOKS] == before
            run(client, "INSERT INTO t VALUES (3, 'z')")
            assert [row["op"] for row in rows(client, "CONSUME FROM t")] == ["insert"] * 3


LOOKS = (
    "SELECT * FROM t ORDER BY id",
    "CONSUME FROM a",
    "CONSUME FROM t",
    "CONSUME FROM a GROUP 'g'",
    "SHOW TOPICS",
    "SHOW TABLES",
    "SHOW ROUTES",
    "SHOW GROUPS",
    "DESCRIBE TABLE t",
    "DESCRIBE TOPIC b",
)
