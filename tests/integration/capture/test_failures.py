"""What can go wrong with a captured database is a state in `system.sources` with what to do. Nothing is lost in silence."""

import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from psycopg import pq

from tests.support.captured_source import PASSWORD_VARIABLE, CapturedSource, captured_source
from tests.support.eventually import eventually
from tests.support.pipeline import CommandProcess
from tests.support.postgres_server import APP, PASSWORDS, PostgresServer
from tests.support.proxy import FaultyProxy
from tests.support.server import ServerProcess

TABLE = "CREATE TABLE orders (id integer PRIMARY KEY, status text)"
BACK_SECONDS = 90.0
"""A capture tries again after half a minute at most."""

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("server") / "data"
    with ServerProcess(folder, environment={PASSWORD_VARIABLE: PASSWORDS[APP]}) as running:
        yield running


@pytest.fixture
def source(postgres: PostgresServer, shared_server: ServerProcess) -> Iterator[CapturedSource]:
    """A source that is not created yet, of a database of its own with the table `orders`."""
    name = f"shop_{next(_numbers)}"
    with FaultyProxy(postgres.address) as network:
        found = CapturedSource(postgres, shared_server, network, name)
        found.database = postgres.create_database(name)
        found.insert(TABLE)
        yield found
        found.api.sql(f"DROP SOURCE IF EXISTS {name} CASCADE")


@contextmanager
def own_source(folder: Path, **settings: object) -> Iterator[CapturedSource]:
    """A source that streams, of a PostgreSQL that the test may stop, with the table `orders`."""
    with PostgresServer(folder / "postgres", **settings) as postgres, captured_source(folder, postgres) as found:
        found.insert(TABLE)
        found.create()
        yield found


@contextmanager
def unreachable(source: CapturedSource) -> Iterator[None]:
    """Cut the database off while the body runs."""
    source.network.refuses = True
    source.network.reset_connections()
    source.await_state("retrying")
    yield
    source.network.refuses = False


def add_order(source: CapturedSource, number: int) -> None:
    source.insert("INSERT INTO orders VALUES (%s, 'new')", number)


def refusal(source: CapturedSource, **options: str) -> str:
    with pytest.raises(AssertionError) as caught:
        source.api.sql(source.statement(**options))
    assert source.api.sql(f"SELECT count(*) FROM system.sources WHERE name = '{source.name}'") == [[0]]
    return str(caught.value)


def failed_checks(source: CapturedSource, **options: str) -> dict[str, str]:
    """Return the checks of a dry run that failed, with their advice."""
    rows = source.api.sql(source.statement(suffix=" DRY RUN", **options))
    return {name: advice for name, result, _, advice in rows if result == "failed"}


def create_role(postgres: PostgresServer, name: str, options: str = "LOGIN REPLICATION") -> None:
    """Make a member of the role that owns the tables."""
    postgres.ask(f"CREATE ROLE {name} {options} PASSWORD '{PASSWORDS[APP]}' IN ROLE {APP}")
    postgres.ask(f"GRANT CREATE ON DATABASE {name} TO {name}")


def test_a_wrong_password_is_refused_and_not_shown(source: CapturedSource, postgres: PostgresServer) -> None:
    create_role(postgres, source.database)
    postgres.ask(f"ALTER ROLE {source.database} PASSWORD 'another'")
    message = refusal(source, user=source.database)
    assert "password" in message
    assert PASSWORDS[APP] not in message
    assert "password" in failed_checks(source, user=source.database)["connection"]


def test_a_password_that_becomes_wrong_is_a_state_until_it_is_right_again(
    source: CapturedSource, postgres: PostgresServer
) -> None:
    create_role(postgres, source.database)
    source.create(user=source.database)
    postgres.ask(f"ALTER ROLE {source.database} PASSWORD 'another'")
    source.network.reset_connections()
    row = source.await_state("failed")
    assert "password" in (row.error or "")
    assert "password" in (row.advice or "")
    assert PASSWORDS[APP] not in f"{row}"
    add_order(source, 1)
    postgres.ask(f"ALTER ROLE {source.database} PASSWORD '{PASSWORDS[APP]}'")
    row = source.await_state("streaming", seconds=BACK_SECONDS)
    assert (row.error, row.advice) == (None, None)
    source.await_events(1)


def test_a_missing_password_names_its_variable(source: CapturedSource) -> None:
    assert "NO_SUCH_VARIABLE" in refusal(source, password_env="NO_SUCH_VARIABLE")  # noqa: S106


def test_a_database_without_logical_wal_is_refused(tmp_path: Path) -> None:
    with (
        PostgresServer(tmp_path / "postgres", wal_level="replica") as postgres,
        captured_source(tmp_path, postgres) as source,
    ):
        message = refusal(source)
        assert "wal_level = replica" in message
        assert "wal_level = logical" in message
        assert "wal_level" in failed_checks(source)
        postgres.restart(wal_level="logical")
        source.insert(TABLE)
        source.create()


def test_a_user_without_the_right_to_replicate_is_refused(source: CapturedSource, postgres: PostgresServer) -> None:
    create_role(postgres, source.database, "LOGIN")
    message = refusal(source, user=source.database)
    assert f"ALTER ROLE {source.database} REPLICATION" in message
    assert "replication" in failed_checks(source, user=source.database)


def test_a_right_to_replicate_that_is_taken_away_is_a_state(source: CapturedSource, postgres: PostgresServer) -> None:
    create_role(postgres, source.database)
    source.create(user=source.database)
    postgres.ask(f"ALTER ROLE {source.database} NOREPLICATION")
    source.network.reset_connections()
    assert "REPLICATION" in (source.await_state("failed").advice or "")
    add_order(source, 1)
    postgres.ask(f"ALTER ROLE {source.database} REPLICATION")
    source.await_state("streaming", seconds=BACK_SECONDS)
    source.await_events(1)


def test_a_slot_in_use_is_waited_for(source: CapturedSource) -> None:
    source.create()
    add_order(source, 1)
    source.await_events(1)
    with unreachable(source):
        eventually(lambda: not source.slot()["active"], "the slot is free")
        with using_slot(source):
            source.network.refuses = False
            eventually(lambda: "in use" in (source.row().error or ""), "the state says that the slot is in use")
            row = source.row()
            assert row.state == "retrying"
            assert "stop it" in (row.advice or "")
            add_order(source, 2)
    source.await_state("streaming", seconds=BACK_SECONDS)
    source.await_events(2)


@contextmanager
def using_slot(source: CapturedSource) -> Iterator[None]:
    """Stream from the slot, and confirm nothing."""
    slot = source.row().slot
    conninfo = (
        f"host=127.0.0.1 port={source.postgres.port} dbname={source.database} user={APP}"
        f" password='{PASSWORDS[APP]}' replication=database"
    )
    connection = pq.PGconn.connect(conninfo.encode())
    options = f"proto_version '1', publication_names '{slot}'"
    result = connection.exec_(f"START_REPLICATION SLOT {slot} LOGICAL 0/0 ({options})".encode())
    assert result.status == pq.ExecStatus.COPY_BOTH, connection.get_error_message()
    try:
        yield
    finally:
        connection.finish()


def test_a_dropped_slot_is_never_made_again_in_silence(source: CapturedSource, postgres: PostgresServer) -> None:
    source.create()
    add_order(source, 1)
    source.await_events(1)
    slot = source.row().slot
    with unreachable(source):
        eventually(lambda: not source.slot()["active"], "the slot is free")
        postgres.ask("SELECT pg_drop_replication_slot(%s)", slot)
        add_order(source, 2)
    row = source.await_state("failed", seconds=BACK_SECONDS)
    assert slot in (row.error or "")
    assert "RESYNC" in (row.advice or "")
    source.kill_captures()
    source.await_state("starting", "stopped", "failed")
    source.await_state("failed")
    assert source.slot() == {}
    assert len(source.events()) == 1
    source.api.sql(f"DROP SOURCE {source.name}")
    source.create()
    add_order(source, 3)
    source.await_events(1)


def test_an_invalidated_slot_says_what_has_bounded_it(tmp_path: Path) -> None:
    with own_source(tmp_path, max_slot_wal_keep_size="2MB") as source:
        with unreachable(source):
            eventually(lambda: not source.slot()["active"], "the slot is free")
            write_wal(source.postgres, megabytes=12)
            eventually(lambda: source.slot()["wal_status"] == "lost", "the slot is lost")
        row = source.await_state("failed", seconds=BACK_SECONDS)
        assert "max_slot_wal_keep_size" in (row.error or "")
        assert row.advice


def write_wal(postgres: PostgresServer, megabytes: int) -> None:
    for _ in range(megabytes):
        postgres.ask("SELECT pg_logical_emit_message(false, 'nobody', repeat('x', 1000000))")
    postgres.ask("CHECKPOINT")


def test_a_database_that_is_gone_is_waited_for(tmp_path: Path) -> None:
    with own_source(tmp_path) as source:
        add_order(source, 1)
        source.postgres.restart()
        add_order(source, 2)
        source.await_events(2)
        source.await_state("streaming")
        source.postgres.stop()
        row = source.await_state("retrying")
        assert row.error
        assert "tried again by itself" in (row.advice or "")
        source.postgres.start()
        add_order(source, 3)
        row = source.await_state("streaming", seconds=BACK_SECONDS)
        assert (row.error, row.advice) == (None, None)
        source.await_events(3)
        source.postgres.kill()
        source.postgres.start()
        add_order(source, 4)
        source.await_events(4, BACK_SECONDS)


def test_another_database_behind_the_address_is_not_captured(tmp_path: Path) -> None:
    with own_source(tmp_path) as source, PostgresServer(tmp_path / "other") as other:
        add_order(source, 1)
        source.await_events(1)
        other.ask(TABLE, user=APP)
        source.network.point_at(other.address)
        source.network.reset_connections()
        row = source.await_state("failed")
        assert "system identifier" in (row.error or "")
        other.ask("INSERT INTO orders VALUES (99, 'of another')")
        assert other.ask("SELECT count(*) FROM pg_replication_slots") == [(0,)]
        add_order(source, 2)
        source.network.point_at(source.postgres.address)
        source.await_state("streaming", seconds=BACK_SECONDS)
        assert [event["key"] for event in source.await_events(2)] == ['{"id":1}', '{"id":2}']


def test_a_database_restored_from_an_older_backup_is_not_captured_in_silence(tmp_path: Path) -> None:
    with own_source(tmp_path) as source:
        postgres = source.postgres
        add_order(source, 1)
        source.await_events(1)
        with unreachable(source):
            postgres.stop()
            shutil.copytree(postgres.folder, tmp_path / "backup")
            postgres.start()
        source.await_state("streaming", seconds=BACK_SECONDS)
        write_wal(postgres, megabytes=3)
        add_order(source, 2)
        source.await_events(2)
        with unreachable(source):
            postgres.stop()
            shutil.rmtree(postgres.folder)
            (tmp_path / "backup").rename(postgres.folder)
            _give_to_postgres(postgres.folder)
            postgres.start()
            add_order(source, 7)
        row = source.await_state("failed", seconds=BACK_SECONDS)
        assert row.error
        assert row.advice
        assert len(source.events()) == 2


def _give_to_postgres(folder: Path) -> None:
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            shutil.chown(path, "pgserver", "pgserver")


def test_a_promoted_standby_with_the_slot_is_followed(tmp_path: Path) -> None:
    with own_source(tmp_path) as source:
        primary = source.postgres
        with primary.standby(tmp_path / "standby_1") as standby:
            numbers = itertools.count(1)

            def slot_is_synchronized() -> bool:
                # The standby takes a slot over when it has moved on the primary.
                add_order(source, next(numbers))
                primary.ask("SELECT pg_log_standby_snapshot()")
                query = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s AND synced AND NOT temporary"
                return standby.ask(query, source.row().slot) == [(1,)]

            eventually(slot_is_synchronized, "the slot is on the standby", BACK_SECONDS)
            before = next(numbers)
            add_order(source, before)
            source.await_events(before)
            primary.kill()
            standby.promote()
            source.network.point_at(standby.address)
            source.network.reset_connections()
            standby.ask("INSERT INTO orders VALUES (%s, 'after the failover')", before + 1)
            source.await_state("streaming", seconds=BACK_SECONDS)
            keys = [event["key"] for event in source.await_events(before + 1, BACK_SECONDS)]
            assert keys == [f'{{"id":{number}}}' for number in range(1, before + 2)]


def test_a_standby_without_the_slot_is_a_state(tmp_path: Path) -> None:
    with own_source(tmp_path) as source, source.postgres.standby(tmp_path / "standby_1") as standby:
        source.postgres.kill()
        standby.promote()
        standby.ask("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
        source.network.point_at(standby.address)
        source.network.reset_connections()
        row = source.await_state("failed", seconds=BACK_SECONDS)
        assert row.slot in (row.error or "")
        assert standby.ask("SELECT count(*) FROM pg_replication_slots") == [(0,)]


def test_wal_is_confirmed_while_only_other_tables_change(tmp_path: Path) -> None:
    """A quiet table beside a busy one that is not captured holds nothing back."""
    with own_source(tmp_path) as source:
        postgres = source.postgres
        postgres.ask("CREATE SCHEMA busy")
        postgres.ask("CREATE TABLE busy.events (body text)")
        first = postgres.ask("SELECT confirmed_flush_lsn FROM pg_replication_slots")[0][0]
        retained: list[int] = []
        for _ in range(12):
            postgres.ask("INSERT INTO busy.events SELECT repeat('x', 1000) FROM generate_series(1, 2000)")
            postgres.ask("CHECKPOINT")
        query = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint FROM pg_replication_slots"

        def is_confirmed() -> bool:
            retained.append(postgres.ask(query)[0][0])
            return retained[-1] < 4_000_000

        eventually(is_confirmed, "the slot is confirmed to within 4 MB", BACK_SECONDS)
        assert postgres.ask("SELECT confirmed_flush_lsn FROM pg_replication_slots")[0][0] != first
        assert source.await_state("streaming").error is None
        assert source.events() == []
        add_order(source, 1)
        source.await_events(1)


def test_messages_of_a_transaction_are_records_of_their_topic(source: CapturedSource) -> None:
    source.create()
    topic = f"mail.{source.name}"
    with source.postgres.connect(source.database) as connection:
        with connection.transaction():
            connection.execute("INSERT INTO orders VALUES (1, 'paid')")
            connection.execute("SELECT pg_logical_emit_message(true, %s, %s)", (f"tailrace:{topic}", '{"order": 1}'))
            connection.execute("SELECT pg_logical_emit_message(true, %s, %s)", (f"tailrace:{topic}:7", '{"order": 7}'))
        with connection.transaction(force_rollback=True):
            connection.execute("SELECT pg_logical_emit_message(true, %s, 'never')", (f"tailrace:{topic}",))
    (event,) = source.await_events(1)
    query = {"topic": topic, "partition_id": 0, "start": 0, "limit": 10}
    first, second = source.api.ask("/api/topics/consume", query)["messages"]
    assert [first["value"], second["value"]] == [{"order": 1}, {"order": 7}]
    assert [first["key"], second["key"]] == [None, "7"]
    headers = {header["name"]: header["value"] for header in first["headers"]}
    assert headers["tx"] == str(event["tx"])
    assert "xid" in headers


def test_a_key_that_was_renamed_since_is_the_key_of_its_time(source: CapturedSource) -> None:
    source.create()
    with unreachable(source):
        add_order(source, 1)
        source.insert("UPDATE orders SET status = 'paid'")
        source.insert("ALTER TABLE orders RENAME COLUMN id TO number")
        source.insert("INSERT INTO orders VALUES (2, 'new')")
    events = source.await_events(3, BACK_SECONDS)
    assert [event["key"] for event in events] == ['{"id":1}', '{"id":1}', '{"number":2}']


def test_a_table_of_somebody_else_does_not_stop_the_others(source: CapturedSource, postgres: PostgresServer) -> None:
    source.create()
    add_order(source, 1)
    postgres.ask("CREATE TABLE public.foreign_one (id integer PRIMARY KEY)", database=source.database)
    source.network.reset_connections()
    add_order(source, 2)
    source.await_events(2, BACK_SECONDS)
    source.await_state("streaming")
    query = f"SELECT notes FROM system.sources WHERE name = '{source.name}'"
    eventually(lambda: "public.foreign_one" in str(source.api.sql(query)), "a note on the table")


def test_a_command_elsewhere_captures(source: CapturedSource, tmp_path: Path) -> None:
    source.api.sql(source.statement(captured_by="command"))
    assert source.row().state == "stopped"
    flags = ("capture", source.name, "--server", source.server.url)
    with CommandProcess(tmp_path / "first", *flags, environment={PASSWORD_VARIABLE: PASSWORDS[APP]}) as command:
        source.await_state("streaming")
        add_order(source, 1)
        source.await_events(1)
        command.kill()
    add_order(source, 2)
    with CommandProcess(tmp_path / "second", *flags, environment={PASSWORD_VARIABLE: PASSWORDS[APP]}):
        source.await_events(2, BACK_SECONDS)
        before = source.slot()["restart_lsn"]
        source.api.sql(f"ALTER SOURCE {source.name} RESYNC")
        eventually(lambda: source.slot().get("restart_lsn", before) != before, "a new slot", BACK_SECONDS)
        source.await_state("streaming", seconds=BACK_SECONDS)
        add_order(source, 3)
        source.await_events(3, BACK_SECONDS)
