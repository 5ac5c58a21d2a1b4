"""The rows of captured PostgreSQL tables are read by the tasks of a real pipeline, each once, whatever becomes of it."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.pipeline.conftest import Running
from tests.support.api import Api
from tests.support.change_replay import ChangeReader, ReplayedTable
from tests.support.eventually import eventually
from tests.support.pipeline import CommandProcess
from tests.support.postgres_server import APP, DATABASE, PASSWORDS, PostgresServer
from tests.support.server import ServerProcess

ROWS = 60_000
CHUNK_BYTES = 131_072
READ_SECONDS = 120.0
ENVIRONMENT = {"APP_PASSWORD": PASSWORDS[APP]}
LAST_KEY = b'{"id":0}'
LINE = re.compile(r"snapshots: ([\d,]+) rows? read by \d+ tasks? in")


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with PostgresServer(tmp_path_factory.mktemp("postgres") / "data") as running, running.connect() as connection:
        connection.execute("CREATE TABLE items (id int PRIMARY KEY, version int NOT NULL, body text)")
        connection.execute(f"INSERT INTO items SELECT id, 0, md5(id::text) FROM generate_series(1, {ROWS}) AS id")
        yield running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    config = tmp_path / "tailrace.toml"
    config.write_text(f"[limits]\nsnapshot_chunk_bytes = {CHUNK_BYTES}\n")
    flags = ("--durability", "relaxed", "--config", str(config))
    with ServerProcess(tmp_path / "data", *flags, environment=ENVIRONMENT) as running:
        yield running


@pytest.fixture
def pipeline(tmp_path: Path, server: ServerProcess) -> Iterator[CommandProcess]:
    flags = ("--server", server.url, "--master", "local[2]")
    with CommandProcess(tmp_path / "logs", "pipeline", *flags, environment=ENVIRONMENT) as running:
        running.await_line("the pipeline is running")
        yield running


@contextmanager
def captured(api: Api, postgres: PostgresServer) -> Iterator[None]:
    url = f"postgresql://{APP}@127.0.0.1:{postgres.port}/{DATABASE}"
    api.sql(f"CREATE SOURCE shop FROM POSTGRES '{url}' WITH (snapshot = 'initial', password_env = 'APP_PASSWORD')")
    yield
    api.sql("DROP SOURCE shop CASCADE")


@contextmanager
def changing(postgres: PostgresServer) -> Iterator[None]:
    """Changes rows meanwhile: old ones, new ones, and some that come and go."""
    stopping = threading.Event()

    def change() -> None:
        with postgres.connect(autocommit=False) as connection:
            for number in range(1_000_000):
                row, new = number * 7_919 % ROWS + 1, ROWS + 1 + number
                with connection.transaction():
                    connection.execute("UPDATE items SET version = version + 1 WHERE id IN (%s, %s)", (row, ROWS + 1 - row))
                    connection.execute("INSERT INTO items VALUES (%s, 0, 'new') ON CONFLICT DO NOTHING", (new,))
                    connection.execute("DELETE FROM items WHERE id = %s", (new - 2,))
                if stopping.wait(0.01):
                    return

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def rows_read(api: Api) -> int:
    ((rows,),) = api.sql("SELECT coalesce(snapshot_rows, 0) FROM system.sources")
    return int(rows)


def await_snapshot(api: Api) -> None:
    state = "SELECT state, snapshot_state FROM system.sources"
    eventually(lambda: api.sql(state) == [["streaming", None]], "the end of the snapshot", READ_SECONDS)


def read_by_spark(pipeline: CommandProcess) -> int:
    return sum(int(rows.replace(",", "")) for rows in LINE.findall(pipeline.output))


def check_events(server: ServerProcess, postgres: PostgresServer) -> int:
    """Check that the events are the rows of the snapshot, each once, then their changes in order, up to the table as it is
    now. Return the number of rows of the snapshot."""
    table = dict(postgres.ask("SELECT id::text, version::text || ' ' || body FROM items"))

    with ChangeReader(server.url, "shop") as reader, postgres.connect() as connection:

        def are_there() -> bool:
            reader.poll()
            return reader.events[-1].key == LAST_KEY and reader.events[-1].op == "delete"

        connection.execute("INSERT INTO items VALUES (0, 0, 'last')")
        connection.execute("DELETE FROM items WHERE id = 0")
        eventually(are_there, "all events", READ_SECONDS)
        events = reader.events
    is_snapshot = ["snapshot" in event.headers for event in events]
    rows = is_snapshot.count(True)
    assert all(is_snapshot[:rows]), "rows of the snapshot stand behind changes"
    transactions = [event.tx for event in events]
    assert transactions == sorted(transactions)
    assert len(set(transactions[:rows])) == 1
    assert transactions[0] < transactions[rows]
    replayed = ReplayedTable()
    for event in events:
        replayed.apply(event)
    found = {row["id"].decode(): f"{row['version'].decode()} {row['body'].decode().strip(chr(34))}" for row in replayed.rows()}
    assert found == table
    return rows


def test_tasks_read_each_row_once_while_rows_change(
    api: Api, server: ServerProcess, pipeline: CommandProcess, postgres: PostgresServer
) -> None:
    with captured(api, postgres):
        with changing(postgres):
            await_snapshot(api)
        rows = check_events(server, postgres)
        assert rows >= ROWS
        eventually(lambda: read_by_spark(pipeline) == rows, f"{rows} rows read by Spark: {pipeline.output}")
    assert pipeline.terminate() == 0
    assert not any(line.startswith(("spark: ", "\tat ")) for line in pipeline.output.splitlines()), pipeline.output


@pytest.mark.long
def test_a_pipeline_that_is_killed_leaves_the_rest_to_the_capture(
    api: Api, server: ServerProcess, pipeline: CommandProcess, postgres: PostgresServer
) -> None:
    with captured(api, postgres):
        with changing(postgres):
            eventually(lambda: rows_read(api) > 0, "the first rows", READ_SECONDS)
            pipeline.kill()
            assert rows_read(api) < ROWS
            await_snapshot(api)
        assert check_events(server, postgres) >= ROWS


@pytest.mark.long
def test_tasks_without_the_password_say_so_and_the_capture_reads_alone(
    api: Api, server: ServerProcess, routing: Running, postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    with routing(), captured(api, postgres):
        await_snapshot(api)

        def lines() -> list[str]:
            return [record.message for record in caplog.records if "snapshots" in record.message]

        eventually(lambda: len(lines()) > 0, "a line in the log")
        (line,) = lines()
        assert line.startswith("Spark's tasks can't read snapshots, so captures read them alone: on ")
        assert "the environment variable APP_PASSWORD with the password is not set" in line
        eventually(lambda: api.sql("SELECT last_error FROM system.pipelines") == [[line]], "the error is reported")
        assert check_events(server, postgres) >= ROWS
