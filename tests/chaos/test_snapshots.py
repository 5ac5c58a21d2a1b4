"""The server dies in the middle of a snapshot, under writes: the next one continues, and the route gets each row once."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.model.ids import Cursor, Offset, RouteId, TableId, TopicId
from tailrace.model.killpoint import EXIT_CODE
from tailrace.model.record import Record
from tailrace.model.route import Route
from tests.support.api import Api
from tests.support.eventually import eventually
from tests.support.server import ServerProcess
from tests.support.snapshots import events_for, rows_told

ROWS = 2_000
ADD = "ALTER TOPIC app.rows ADD SOURCE s.t ON INSERT, UPDATE, DELETE WITH (payload = 'full', snapshot = true)"
SIGKILL = "SIGKILL"


@pytest.mark.parametrize(("name", "passes"), [("change.logged", 40), (SIGKILL, 0)])
def test_a_snapshot_goes_on_after_a_kill_at(name: str, passes: int, tmp_path: Path) -> None:
    environment = {"TAILRACE_KILLPOINT": f"{name}:{passes}"} if passes else {}
    folder = tmp_path / "data"
    # One row at a time, so that it is far from its end when it dies.
    with ServerProcess(folder, "--config", with_chunks_of(1, tmp_path), environment=environment) as server:
        api = Api(server.url)
        api.sql("CREATE TABLE s.t (id BIGINT PRIMARY KEY, n BIGINT)")
        api.create_topic("app.rows")
        api.sql(f"INSERT INTO s.t VALUES {', '.join(f'({id}, 0)' for id in range(ROWS))}")
        with writing(api, 1) as acknowledged:
            with contextlib.suppress(OSError):
                api.sql(ADD)
                eventually(lambda: snapshot_of(api)[1] > 50, "a part of the snapshot")
            if name == SIGKILL:
                server.kill()
            else:
                assert server.wait() == EXIT_CODE
    died_ms = round(time.time() * 1000)
    with ServerProcess(folder, "--config", with_chunks_of(100, tmp_path)) as server:
        api = Api(server.url)
        with writing(api, 100_000) as also_acknowledged:
            eventually(lambda: snapshot_of(api)[0] == "done", "the rest of the snapshot")
        rows = {json.dumps({"id": id}): {"id": id, "n": n} for id, n in api.sql("SELECT id, n FROM s.t")}
        records = records_of(api)
        events = events_for(route_of(api), records)
        assert rows_told(events) == rows
        assert sum(event["op"] == "read" for event in events) == snapshot_of(api)[1]
        read_ms = [record.timestamp for record in records if json.loads(record.value or b"")["op"] == "read"]
        assert min(read_ms) <= died_ms < max(read_ms), "a part of the rows was read before it died, and a part after"
        images = [json.loads(record.value or b"")["new"] for record in records]
        assert acknowledged
        assert {*acknowledged, *also_acknowledged} <= {image["n"] for image in images if image is not None}


def with_chunks_of(rows: int, folder: Path) -> str:
    """Return settings by which a snapshot takes a while."""
    path = folder / f"chunks_of_{rows}.toml"
    path.write_text(f"[limits]\nsnapshot_rows = {rows}\n")
    return str(path)


@contextlib.contextmanager
def writing(api: Api, first: int) -> Iterator[list[int]]:
    """Change rows all over the table until the end or until the server dies. Return the acknowledged numbers."""
    done: list[int] = []
    stop = threading.Event()

    def write() -> None:
        with contextlib.suppress(OSError):
            for number in range(first, first + 100_000):
                if stop.is_set():
                    return
                at = number * 7919 % ROWS
                api.sql("INSERT INTO s.t VALUES (?, ?)", ROWS + number, number)
                done.append(number)
                api.sql("UPDATE s.t SET n = ? WHERE id = ?", number, at)
                if number % 5 == 0:
                    api.sql("DELETE FROM s.t WHERE id = ?", (at + 300) % ROWS)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield done
    finally:
        stop.set()
        writer.join()


def snapshot_of(api: Api) -> tuple[str, int]:
    (route,) = api.ask("/api/routes")["routes"]
    return route["snapshot"], route["snapshot_rows"]


def route_of(api: Api) -> Route:
    (route,) = api.ask("/api/routes")["routes"]
    return Route(
        id=RouteId(route["id"]),
        topic=TopicId(0),
        topic_name=route["topic_name"],
        table=TableId(0),
        table_name=route["source_table"],
        changes=TopicId(0),
        operations=("insert", "update", "delete"),
        payload="full",
        since=Cursor(route["since"]),
    )


def records_of(api: Api) -> list[Record]:
    found = api.sql(
        """SELECT "offset", "cursor", headers, value, (extract(epoch FROM "timestamp") * 1000)::bigint
        FROM _changes.s.t ORDER BY 1"""
    )
    assert [row[0] for row in found] == list(range(len(found)))
    return [
        Record(None, _text(value).encode(), tuple(_headers(headers)), timestamp_ms, Offset(offset), Cursor(cursor))
        for offset, cursor, headers, value, timestamp_ms in found
    ]


def _headers(headers: Any) -> Iterator[tuple[str, bytes]]:
    read = headers if isinstance(headers, dict) else json.loads(headers)
    for name, value in read.items():
        yield name, str(value).encode()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
