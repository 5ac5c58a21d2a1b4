"""`tailrace fsck`, `tailrace dump` and `tailrace salvage` on a folder that a real server has written."""

import base64
import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import apsw
import httpx
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tailrace.log.fsck import run_fsck
from tailrace.log.options import LogOptions
from tailrace.model.ids import Offset
from tailrace.model.limits import KIB
from tailrace.sql.tables.table_file import checksum_vfs
from tailrace.store.embedded import EmbeddedStore
from tests.integration.topics import create, publish
from tests.support.aio import on_loop
from tests.support.brokers import append, raw, running_broker
from tests.support.eventually import eventually
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

LARGE = "x" * 200_000
DIGEST = sha256(f'"{LARGE}"'.encode()).hexdigest()
"""By which the value is kept, as JSON."""


def tailrace(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tailrace", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def contents(folder: Path) -> dict[Path, bytes]:
    """Every file but the lock, which names its holder."""
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file() and file != folder / "LOCK"}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics and four frames of records, one with a payload beside the log, written by a server that ended well."""
    folder = tmp_path_factory.mktemp("written") / "data"
    with ServerProcess(folder) as server:
        create(server.url, "orders")
        create(server.url, "payments")
        publish(server.url, "orders", {"order": 1}, {"order": 2})
        publish(server.url, "payments", {"paid": 1})
        message = {"topic": "orders", "value_base64": base64.b64encode(b"\x1b[2J clears a terminal").decode()}
        httpx.post(
            f"{server.url}/api/topics/publish", json={"messages": [message]}, timeout=PATIENCE_SECONDS
        ).raise_for_status()
        publish(server.url, "payments", LARGE)
        assert server.terminate() == 0
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged at will."""
    return Path(shutil.copytree(written, tmp_path / "data"))


def test_fsck_of_a_good_folder_says_so_and_changes_nothing(folder: Path) -> None:
    before = contents(folder)
    ended = tailrace("fsck", folder)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(f"{folder}: all good (segments 1, frames ")
    assert "records 5" in ended.stdout
    assert "payloads 1)" in ended.stdout
    assert contents(folder) == before


def test_fsck_names_a_changed_byte_and_exits_with_one(folder: Path) -> None:
    (segment,) = (folder / "log").iterdir()
    data = bytearray(segment.read_bytes())
    data[data.index(b'{"order":2}')] ^= 1
    segment.write_bytes(data)
    ended = tailrace("fsck", folder)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert f"wrong: {segment.name}, position " in ended.stdout


@pytest.mark.parametrize(("damage", "named"), [(None, "it is missing"), (b"x", "it has 1 bytes instead of 200002")])
def test_fsck_names_a_payload_that_is_missing_or_damaged(folder: Path, damage: bytes | None, named: str) -> None:
    payload = folder / "payloads" / DIGEST
    payload.unlink()
    if damage is not None:
        payload.write_bytes(damage)
    (finding,) = run_fsck(folder).findings
    assert finding.where == f"payload {DIGEST}"
    assert named in finding.what
    assert finding.what.endswith("records that refer to it: 1, the first at partition 0 of 'payments', offset 1")


def test_fsck_notes_payloads_that_nobody_refers_to(folder: Path) -> None:
    orphan = sha256(b"nobody's").hexdigest()
    (folder / "payloads" / orphan).write_bytes(b"nobody's")
    (folder / "payloads" / f"{orphan}.unfinished").write_bytes(b"nob")
    report = run_fsck(folder)
    assert not report.findings
    assert f"payload {orphan} is not referred to by any record; a running server removes it" in report.notes
    assert any(note.startswith(f"{orphan}.unfinished was being written") for note in report.notes)


def test_a_server_does_not_start_on_a_damaged_folder(folder: Path) -> None:
    (segment,) = (folder / "log").iterdir()
    segment.write_bytes(segment.read_bytes()[:-200])
    ended = tailrace("serve", "--data", folder, "--http", "127.0.0.1:0", "--kafka", "127.0.0.1:0")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("tailrace: ")
    assert ended.stderr.count("\n") == 1


def test_fsck_of_a_folder_in_use_gets_one_clear_line(server: ServerProcess) -> None:
    ended = tailrace("fsck", server.folder)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("tailrace: ")
    assert str(server.folder) in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["fsck", "dump"])
def test_what_is_no_data_folder_gets_one_clear_line(tmp_path: Path, command: str) -> None:
    ended = tailrace(command, tmp_path)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == f"tailrace: {tmp_path} is not a data folder: it has no 'log' in it\n"
    missing = tmp_path / "missing"
    assert tailrace(command, missing).stderr == f"tailrace: the folder {missing} does not exist\n"
    missing.write_text("")
    assert tailrace(command, missing).stderr == f"tailrace: {missing} is a file, not a data folder\n"


def test_a_server_does_not_take_a_file_for_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("mine")
    ended = tailrace("serve", "--data", file)
    assert (ended.returncode, ended.stderr) == (1, f"tailrace: {file} is a file, not a data folder\n")
    assert file.read_text() == "mine"


def test_dump_shows_frames_by_topic_and_offset(folder: Path) -> None:
    lines = tailrace("dump", folder).stdout.splitlines()
    assert "  create  orders with 1 partition" in lines
    assert [line.split("  cursors")[0] for line in lines if line.startswith("  append")] == [
        "  append  orders[0]  offsets 0 to 1",
        "  append  payments[0]  offsets 0 to 0",
        "  append  orders[0]  offsets 2 to 2",
        "  append  payments[0]  offsets 1 to 1",
    ]


def test_dump_shows_records_and_keeps_the_terminal_safe(folder: Path) -> None:
    shown = tailrace("dump", folder, "--records").stdout
    assert '{"order":1}' in shown
    assert "clears a terminal" in shown
    assert "\x1b" not in shown
    assert f"payload {DIGEST} of 200002 bytes" in shown


def test_dump_begins_at_a_cursor_and_stops_at_its_limit(folder: Path) -> None:
    lines = tailrace("dump", folder, "--from", 2).stdout.splitlines()
    assert lines[0].startswith("cursor 2  position ")
    first_append = next(line for line in lines if line.startswith("  append "))
    assert first_append.startswith("  append  payments[0]  offsets 0 to 0  cursors 2 to 2")

    # A server that had a moment's rest before the record has sealed its log in a frame of its own, with the same cursor.
    limited = tailrace("dump", folder, "--from", 2, "--limit", 1).stdout.splitlines()
    assert limited[0] == lines[0]
    assert [line for line in limited if line.startswith("cursor ")] == limited[:1]


@on_loop
async def test_dump_names_topics_whose_first_frames_were_cleaned_away(tmp_path: Path) -> None:
    options = LogOptions(segment_bytes=KIB, checkpoint_bytes=1 << 30)
    store = EmbeddedStore.open(tmp_path / "data", options=options)
    async with running_broker(store) as broker:
        await broker.topics.create("orders")
        await broker.topics.create("payments")
        for number in range(20):
            await append(broker, raw("orders", 0, b"%d" % number + b"x" * 200))
            await append(broker, raw("payments", 0, b"%d" % number + b"x" * 200))
        await broker.retention.delete_before("orders", 0, Offset(15))
        store.clean()
        assert store.stats().segments_rewritten
    store.close()
    lines = tailrace("dump", tmp_path / "data").stdout.splitlines()
    assert not any(line.startswith("  create  payments") for line in lines), "the frame that named it is gone"
    appended = [line.split()[1] for line in lines if line.startswith("  append")]
    assert set(appended) == {"orders[0]", "payments[0]"}


def test_dump_works_beside_a_running_server(server: ServerProcess) -> None:
    create(server.url, "orders")
    publish(server.url, "orders", "here")
    assert '"here"' in tailrace("dump", server.folder, "--records").stdout


def sql(server: ServerProcess, text: str) -> None:
    httpx.post(f"{server.url}/api/sql", json={"sql": text}, timeout=PATIENCE_SECONDS).raise_for_status()


@pytest.fixture(scope="module")
def with_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables, of one of which the log has a checkpoint and the newest changes only."""
    folder = tmp_path_factory.mktemp("tables") / "data"
    with ServerProcess(folder) as server:
        sql(server, "CREATE TABLE app.old (id BIGINT PRIMARY KEY, body TEXT); CREATE TABLE app.new (id BIGINT PRIMARY KEY)")
        for first in range(0, 300, 100):
            sql(server, f"INSERT INTO app.old VALUES {', '.join(f'({first + id}, {LARGE[:40]!r})' for id in range(100))}")
        sql(server, "INSERT INTO app.new VALUES (1), (2), (3)")
        admin = AdminClient({"bootstrap.servers": server.kafka, "log_level": 0})
        before = [TopicPartition("_changes.app.old", 0, 300)]

        def deleted() -> bool:
            (future,) = admin.delete_records(before).values()
            try:
                return bool(future.result().low_watermark == 300)
            except KafkaException:
                # Until SQLite has synced its rows.
                return False

        eventually(deleted, "the changes are deleted")
        sql(server, "UPDATE app.old SET body = 'again' WHERE id < 10")
        sql(server, "DELETE FROM app.old WHERE id >= 290")
        server.kill()
    return folder


@pytest.fixture
def tables_folder(with_tables: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(with_tables, tmp_path / "data"))


def test_fsck_holds_the_rows_of_tables_against_the_log(tables_folder: Path) -> None:
    before = contents(tables_folder)
    ended = tailrace("fsck", tables_folder)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "tables 2, rows 293, " in ended.stdout
    assert contents(tables_folder) == before


def test_fsck_names_a_row_that_the_log_does_not_know(tables_folder: Path) -> None:
    with ServerProcess(tables_folder) as server:
        assert server.terminate() == 0
    connection = apsw.Connection(str(tables_folder / "tables.db"), vfs=checksum_vfs())
    connection.execute("""UPDATE "app.old" SET body = 'other' WHERE id = 117""")
    connection.close()
    ended = tailrace("fsck", tables_folder)
    assert ended.returncode == 1
    assert "wrong: tables.db, table app.old: the row with id = 117 differs from the log" in ended.stdout


def test_fsck_names_a_changed_bit_of_the_tables(tables_folder: Path) -> None:
    with ServerProcess(tables_folder) as server:
        assert server.terminate() == 0
    path = tables_folder / "tables.db"
    data = bytearray(path.read_bytes())
    data[data.index(LARGE[:40].encode())] ^= 1
    path.write_bytes(data)
    ended = tailrace("fsck", tables_folder)
    assert ended.returncode == 1
    assert "wrong: tables.db: a page of the tables' file is not what was written" in ended.stdout
    assert "the next start rebuilds it from the log" in ended.stdout


def test_a_file_of_tables_that_is_missing_does_no_harm(tables_folder: Path) -> None:
    for path in tables_folder.glob("tables.db*"):
        path.unlink()
    ended = tailrace("fsck", tables_folder)
    assert ended.returncode == 0
    assert "note: tables.db is missing; the next start rebuilds it from the log" in ended.stdout
    with ServerProcess(tables_folder) as server:
        answer = httpx.post(
            f"{server.url}/api/sql", json={"sql": "SELECT count(*), min(body) FROM app.old"}, timeout=PATIENCE_SECONDS
        )
        assert answer.json()["rows"] == [[290, "again"]]
    assert "rows 293, " in tailrace("fsck", tables_folder).stdout


def test_everything_in_the_folder_is_for_its_owner_alone(tables_folder: Path) -> None:
    """Also what an older version, or somebody who restored a copy, has left open to others."""
    for path in (tables_folder, *tables_folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    old_umask = os.umask(0)
    try:
        with ServerProcess(tables_folder) as server:
            create(server.url, "large")
            publish(server.url, "large", LARGE)
            sql(server, "INSERT INTO app.new VALUES (10)")
            assert (tables_folder / "tables.db-wal").exists()
            assert list((tables_folder / "payloads").iterdir())
            assert open_to_others(tables_folder) == []
            assert server.terminate() == 0
    finally:
        os.umask(old_umask)
    assert open_to_others(tables_folder) == []


def open_to_others(folder: Path) -> list[str]:
    return [str(path) for path in (folder, *folder.rglob("*")) if path.stat().st_mode & 0o077]


def test_salvage_makes_a_folder_on_which_everything_else_goes_on(folder: Path, tmp_path: Path) -> None:
    (segment,) = (folder / "log").iterdir()
    data = bytearray(segment.read_bytes())
    data[data.index(b'{"order":2}')] ^= 1
    segment.write_bytes(data)
    before = contents(folder)
    target = tmp_path / "salvaged"
    ended = tailrace("salvage", folder, target)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert f"left out: {segment.name}, position " in ended.stdout
    assert "partition 0 of 'orders', offsets 0 to 1 (" in ended.stdout
    assert "the checksum of the batch at offset 0 does not match its bytes" in ended.stdout
    assert f"{target}: 3 records copied (" in ended.stdout
    assert "2 offsets empty, 1 thing left out." in ended.stdout
    assert contents(folder) == before
    assert tailrace("fsck", target).returncode == 0
    with ServerProcess(target) as server:
        assert publish(server.url, "orders", {"order": 4}) == [3]
        consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": "g", "log_level": 0})
        consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
        read = [message for _ in range(2) if (message := consumer.poll(PATIENCE_SECONDS)) is not None]
        assert [(message.error(), message.offset()) for message in read] == [(None, 2), (None, 3)]
        consumer.close()
        payments = httpx.post(
            f"{server.url}/api/topics/consume", json={"topic": "payments", "start": "earliest"}, timeout=PATIENCE_SECONDS
        ).json()["messages"]
        assert [message["value"] for message in payments] == [{"paid": 1}, LARGE]


def test_salvage_of_a_good_folder_leaves_nothing_out_and_a_second_one_is_rejected(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "salvaged"
    ended = tailrace("salvage", folder, target)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert f"{target}: 5 records copied (" in ended.stdout
    assert "0 offsets empty, 0 things left out." in ended.stdout
    again = tailrace("salvage", folder, target)
    assert again.returncode == 1
    assert f"{target} is not an empty folder" in again.stderr
