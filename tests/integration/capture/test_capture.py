"""Sources against a real PostgreSQL: what is committed there is in the log, once, whole and in order."""

import json
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.api import Api
from tests.support.eventually import eventually
from tests.support.postgres_server import APP, DATABASE, PASSWORDS, PostgresServer
from tests.support.server import ServerProcess

_SECONDS = 60.0


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with PostgresServer(tmp_path_factory.mktemp("postgres") / "data") as running:
        yield running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", environment={"APP_PASSWORD": PASSWORDS[APP]}) as running:
        yield running


class Shop:
    """A database of its own and the source `shop` for it."""

    def __init__(self, postgres: PostgresServer, server: ServerProcess, name: str) -> None:
        self.postgres = postgres
        self.server = server
        self.database = postgres.create_database(name) if name != DATABASE else name

    @property
    def api(self) -> Api:
        return Api(self.server.url)

    def run(self, *statements: str) -> None:
        """Run statements in one transaction."""
        with self.postgres.connect(self.database, autocommit=False) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def create(self, tables: str = "public.*", snapshot: str = "none") -> None:
        url = f"postgresql://{APP}@127.0.0.1:{self.postgres.port}/{self.database}"
        options = f"tables = '{tables}', snapshot = '{snapshot}', password_env = 'APP_PASSWORD'"
        self.api.sql(f"CREATE SOURCE shop FROM POSTGRES '{url}' WITH ({options})")

    def state(self) -> dict[str, Any]:
        names = ("state", "error", "advice", "position", "slot", "owner")
        listed = ", ".join(f'"{name}"' for name in names)
        (row,) = self.api.sql(f"SELECT {listed} FROM system.sources WHERE name = 'shop'")
        return dict(zip(names, row, strict=True))

    def await_state(self, state: str) -> dict[str, Any]:
        eventually(lambda: self.state()["state"] == state, f"the source is {state}; it is {self.state()}", _SECONDS)
        return self.state()

    def events(self, table: str) -> list[dict[str, Any]]:
        if not self.api.sql(f"SELECT 1 FROM system.source_tables WHERE name = 'shop.public.{table}'"):
            return []
        rows = self.api.sql(f'SELECT "value" FROM shop.public.{table} ORDER BY "offset"')
        return [json.loads(value) if isinstance(value, str) else value for (value,) in rows]

    def await_events(self, table: str, count: int) -> list[dict[str, Any]]:
        eventually(lambda: len(self.events(table)) >= count, f"{count} events of {table}; {self.state()}", _SECONDS)
        found = self.events(table)
        assert len(found) == count
        return found

    def end_capture(self) -> None:
        """Kill the process that captures, and nothing else."""
        for process in psutil.Process(self.server.pid).children(recursive=True):
            if "capture" in process.cmdline():
                process.send_signal(signal.SIGKILL)


@pytest.fixture
def shop(postgres: PostgresServer, server: ServerProcess) -> Iterator[Shop]:
    made = Shop(postgres, server, f"shop_{random.randrange(10**9)}")
    yield made
    if made.api.sql("SELECT 1 FROM system.sources"):
        made.api.sql("DROP SOURCE shop CASCADE")


def test_rows_and_changes_are_events_with_their_transaction(shop: Shop) -> None:
    shop.run("CREATE TABLE orders (id int PRIMARY KEY, status text)", "ALTER TABLE orders REPLICA IDENTITY FULL")
    shop.create()
    shop.await_state("streaming")
    shop.run("INSERT INTO orders VALUES (1, 'new'), (2, 'new')", "UPDATE orders SET status = 'paid' WHERE id = 1")
    shop.run("DELETE FROM orders WHERE id = 2")
    shop.run("TRUNCATE orders")
    events = shop.await_events("orders", 5)
    assert [event["op"] for event in events] == ["insert", "insert", "update", "delete", "truncate"]
    assert events[2]["old"] == {"id": 1, "status": "new"}
    assert events[2]["new"] == {"id": 1, "status": "paid"}
    assert len({event["tx"] for event in events[:3]}) == 1
    numbers = [int(event["tx"]) for event in events]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == 3


def test_the_rows_that_exist_come_first_and_once(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE items (id int PRIMARY KEY, body text)", "INSERT INTO items SELECT g, 'x' FROM generate_series(1, 5000) g"
    )
    shop.create(snapshot="initial")
    shop.await_state("streaming")
    shop.run("UPDATE items SET body = 'y' WHERE id = 7")
    events = shop.await_events("items", 5001)
    assert {event["new"]["id"] for event in events[:5000]} == set(range(1, 5001))
    assert {event["op"] for event in events[:5000]} == {"insert"}
    assert all(event["key"] == {"id": event["new"]["id"]} for event in events)
    assert events[5000]["op"] == "update"


def test_events_are_those_of_the_transactions_whatever_is_killed(shop: Shop) -> None:
    shop.run("CREATE TABLE a (id serial PRIMARY KEY, n int)", "CREATE TABLE b (id serial PRIMARY KEY, n int)")
    shop.create()
    shop.await_state("streaming")
    random_ = random.Random(7)
    written = 0
    for round_ in range(12):
        for _ in range(5):
            written += 1
            rows = random_.choice((1, 3, 2000))
            shop.run(
                f"INSERT INTO a (n) SELECT {written} FROM generate_series(1, {rows})",
                f"INSERT INTO b (n) SELECT {written} FROM generate_series(1, {rows})",
            )
        match round_ % 4:
            case 0:
                shop.end_capture()
            case 1:
                shop.server.kill()
                shop.server.start()
            case 2:
                shop.postgres.kill()
                shop.postgres.start()
    (expected,) = shop.postgres.ask("SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b)", database=shop.database)

    def counts() -> list[int]:
        return [shop.api.sql(f"SELECT count(*) FROM shop.public.{table}")[0][0] for table in "ab"]

    eventually(lambda: sum(counts()) >= sum(expected), f"all events are there; {shop.state()}", _SECONDS)
    assert counts() == list(expected)
    for table in "ab":
        found = [(event["key"]["id"], event["new"]["n"], int(event["tx"])) for event in shop.events(table)]
        asked = shop.postgres.ask(f"SELECT id, n FROM {table} ORDER BY id", database=shop.database)
        assert [(id_, n) for id_, n, _ in found] == asked
        assert [tx for *_, tx in found] == sorted(tx for *_, tx in found)


def test_a_large_transaction_is_seen_whole_or_not_at_all(shop: Shop) -> None:
    shop.run("CREATE TABLE big (id int PRIMARY KEY, body text)")
    shop.create()
    shop.await_state("streaming")
    shop.run(
        "INSERT INTO big SELECT g, repeat('x', 200) FROM generate_series(1, 60000) g",
        "SAVEPOINT s",
        "DELETE FROM big",
        "ROLLBACK TO s",
    )
    seen = set()
    deadline = time.monotonic() + _SECONDS
    while 60000 not in seen and time.monotonic() < deadline:
        if shop.api.sql("SELECT 1 FROM system.source_tables"):
            seen.add(shop.api.sql("SELECT count(*) FROM shop.public.big")[0][0])
    assert seen <= {0, 60000}
    assert 60000 in seen


def test_a_slot_that_is_gone_is_not_created_again(shop: Shop) -> None:
    shop.run("CREATE TABLE t (id int PRIMARY KEY)")
    shop.create()
    slot = shop.await_state("streaming")["slot"]
    shop.postgres.ask("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", slot)
    dropped = False
    deadline = time.monotonic() + _SECONDS
    while not dropped and time.monotonic() < deadline:
        shop.end_capture()
        try:
            shop.postgres.ask("SELECT pg_drop_replication_slot(%s)", slot)
            dropped = True
        except Exception:  # noqa: BLE001  it is active until the capture is gone
            time.sleep(0.1)
    assert dropped
    failed = shop.await_state("failed")
    assert "does not exist" in failed["error"]
    assert "RESYNC" in failed["advice"]
    assert shop.postgres.ask("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", slot) == []


def test_the_slot_advances_while_no_captured_table_changes(shop: Shop) -> None:
    shop.run("CREATE TABLE quiet (id int PRIMARY KEY)", "CREATE TABLE busy (id int, body text)")
    shop.create(tables="public.quiet")
    slot = shop.await_state("streaming")["slot"]
    behind = "pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint"
    query = f"SELECT {behind} FROM pg_replication_slots WHERE slot_name = %s"
    for _ in range(8):
        shop.run("INSERT INTO busy SELECT g, repeat('x', 500) FROM generate_series(1, 2000) g")
    eventually(lambda: shop.postgres.ask(query, slot)[0][0] < 2_000_000, "the slot is confirmed", _SECONDS)


def test_a_message_is_a_record_of_its_topic_in_the_same_transaction(shop: Shop) -> None:
    shop.run("CREATE TABLE t (id int PRIMARY KEY)")
    shop.create()
    shop.await_state("streaming")
    shop.run("INSERT INTO t VALUES (1)", "SELECT pg_logical_emit_message(true, 'tailrace:mail.out:7', '{\"a\": 1}')")
    with pytest.raises(ZeroDivisionError), shop.postgres.connect(shop.database, autocommit=False) as connection:
        connection.execute("SELECT pg_logical_emit_message(true, 'tailrace:mail.out', 'never')")
        raise ZeroDivisionError
    (event,) = shop.await_events("t", 1)
    ((key, value, headers),) = shop.api.sql("SELECT key, value, headers::text FROM mail.out")
    assert (key, value) == ("7", '{"a": 1}')
    assert event["tx"] in headers


def test_a_route_that_a_changed_schema_breaks_waits_and_goes_on_when_it_is_mended(shop: Shop) -> None:
    shop.run("CREATE TABLE orders (id int PRIMARY KEY, status varchar(20))")
    shop.create()
    shop.await_state("streaming")
    shop.run("INSERT INTO orders VALUES (1, 'paid')")
    shop.await_events("orders", 1)
    api = shop.api
    api.sql("CREATE TOPIC app.paid")
    api.sql("ALTER TOPIC app.paid ADD SOURCE shop.public.orders ON INSERT WHERE (status = 'paid') WITH (payload = 'full')")
    shop.run("INSERT INTO orders VALUES (2, 'paid')")
    shop.run("ALTER TABLE orders RENAME COLUMN status TO state", "INSERT INTO orders VALUES (3, 'paid')")
    events = shop.await_events("orders", 3)
    assert events[2]["schema_version"] == 2
    assert events[2]["new"] == {"id": 3, "state": "paid"}
    ((state, error, number),) = api.sql("SELECT state, error, route_id FROM system.topic_routes")
    assert state == "broken"
    assert "'status'" in error
    assert f"DROP ROUTE {number}" in error
    lease = api.ask("/api/pipelines/router/lease", {"owner": "test"})
    (source,) = api.ask("/api/pipelines/router/sources", {"epoch": lease["epoch"]})
    assert (source["mark"], source["end"]) == (1, 2), "changes of the new schema wait"
    api.sql("ALTER TOPIC app.paid ADD SOURCE shop.public.orders ON INSERT WHERE (state = 'paid') WITH (payload = 'full')")
    api.sql(f"ALTER TOPIC app.paid DROP ROUTE {number}")
    assert api.sql("SELECT state FROM system.topic_routes") == [["active"]]
    (source,) = api.ask("/api/pipelines/router/sources", {"epoch": lease["epoch"]})
    assert (source["mark"], source["end"]) == (1, 3)
    broken, mended = sorted(api.ask("/api/pipelines/router/routes"), key=lambda route: route["id"])
    assert broken["until"] == mended["since"] + 1, "the new route begins where the other one ended"


def test_a_route_that_needs_old_rows_is_refused_with_what_to_do(shop: Shop) -> None:
    shop.run("CREATE TABLE orders (id int PRIMARY KEY, status text)")
    shop.create()
    shop.await_state("streaming")
    shop.api.sql("CREATE TOPIC app.paid")
    shop.api.sql("ALTER TOPIC app.paid ADD SOURCE shop.public.orders ON UPDATE WHERE (NEW.status = 'paid')")
    with pytest.raises(AssertionError, match=r"ALTER TABLE public\.orders REPLICA IDENTITY FULL"):
        shop.api.sql("ALTER TOPIC app.paid ADD SOURCE shop.public.orders ON UPDATE WHERE (OLD.status <> 'paid')")


def test_a_dry_run_says_what_is_wrong_and_creates_nothing(shop: Shop) -> None:
    url = f"postgresql://nobody@127.0.0.1:{shop.postgres.port}/{shop.database}"
    rows = shop.api.sql(f"CREATE SOURCE shop FROM POSTGRES '{url}' DRY RUN")
    assert rows[0][:2] == ["connection", "failed"]
    assert shop.api.sql("SELECT * FROM system.sources") == []
    with pytest.raises(AssertionError, match="password"):
        shop.api.sql(f"CREATE SOURCE shop FROM POSTGRES '{url}'")


def test_dropping_a_source_drops_its_slot(shop: Shop) -> None:
    shop.run("CREATE TABLE t (id int PRIMARY KEY)")
    shop.create()
    slot = shop.await_state("streaming")["slot"]
    shop.api.sql("DROP SOURCE shop")
    assert shop.postgres.ask("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", slot) == []
    assert shop.postgres.ask("SELECT 1 FROM pg_publication", database=shop.database) == []
