"""A server whose log lost its end, or all of it: it does not start, says why, and goes on once the loss is named."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tailrace.log.data_folder import TABLES_FILE
from tailrace.log.high_mark import read_high_mark
from tailrace.sql.tables.tables import FILE_NAME
from tests.integration.topics import consume, create, publish
from tests.support.eventually import eventually
from tests.support.folders import segment_files, wait_until_sealed
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess


def sql(server: ServerProcess, text: str) -> httpx.Response:
    return httpx.post(f"{server.url}/api/sql", json={"sql": text}, timeout=PATIENCE_SECONDS).raise_for_status()


def tailrace(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tailrace", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a server with default sizes that was killed a second after 200 publishes and 200 inserts."""
    folder = tmp_path_factory.mktemp("killed") / "data"
    with ServerProcess(folder) as server:
        create(server.url, "orders")
        sql(server, "CREATE TABLE shop.orders (id INT PRIMARY KEY, v TEXT)")
        with httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as client:
            for number in range(200):
                message = {"topic": "orders", "value": number}
                client.post("/api/topics/publish", json={"messages": [message]}).raise_for_status()
                insert = f"INSERT INTO shop.orders VALUES ({number}, 'v{number}')"
                client.post("/api/sql", json={"sql": insert}).raise_for_status()
        end = wait_until_sealed(folder).position
        eventually(lambda: read_high_mark(folder).position >= end, "the mark has caught up", PATIENCE_SECONDS)
        server.kill()
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "data"))


def refusal(folder: Path, command: str = "serve") -> str:
    ended = tailrace(command, "--data", folder, "--http", "127.0.0.1:0", "--kafka", "127.0.0.1:0")
    assert ended.returncode == 1, ended
    said = ended.stderr + ended.stdout
    assert sum("tailrace: " in line for line in said.splitlines()) == 1, said
    return said


def test_a_segment_cut_to_half_is_rejected_until_the_loss_is_named(folder: Path) -> None:
    (segment,) = segment_files(folder)
    os.truncate(segment, segment.stat().st_size // 2)
    found = tailrace("fsck", folder)
    assert found.returncode == 1
    assert "the log has lost its end" in found.stdout
    said = refusal(folder)
    match = re.search(r"the log has lost its end.* --accept-loss-after (\d+) ", said)
    assert match, said
    assert match[1] in refusal(folder), "a refused start has changed nothing"
    with ServerProcess(folder, "--accept-loss-after", match[1]) as server:
        kept = consume(server.url, "orders")
        assert kept == list(range(len(kept)))
        assert 0 < len(kept) < 200
        assert publish(server.url, "orders", "new") == [len(kept)]
        rows = sql(server, "SELECT count(*) AS n FROM shop.orders").json()
        assert 0 < rows["rows"][0][0] < 200
        assert server.terminate() == 0
    assert tailrace("fsck", folder).returncode == 0
    with ServerProcess(folder) as server:
        assert consume(server.url, "orders") == [*kept, "new"]


def test_up_rejects_too_and_takes_the_same_flag(folder: Path) -> None:
    (segment,) = segment_files(folder)
    os.truncate(segment, segment.stat().st_size // 2)
    said = refusal(folder, "up")
    assert re.search(r"--accept-loss-after \d+", said)
    assert "--accept-loss-after" in tailrace("up", "--help").stdout
    ended = tailrace("up", "--data", folder, "--http", "127.0.0.1:0", "--kafka", "127.0.0.1:0", "--accept-loss-after", "1")
    assert ended.returncode == 1, "another position than the one that the log can be read to"


def test_a_missing_log_is_rejected(folder: Path) -> None:
    shutil.rmtree(folder / "log")
    for _ in range(2):
        assert "but no log" in refusal(folder)
    assert "no log" in tailrace("fsck", folder).stdout
    assert not (folder / "log").exists()


def test_the_tables_file_is_the_one_that_the_log_knows() -> None:
    assert TABLES_FILE == FILE_NAME


def test_an_untouched_folder_opens_after_the_kill(folder: Path) -> None:
    assert tailrace("fsck", folder).returncode == 0
    with ServerProcess(folder) as server:
        assert consume(server.url, "orders") == list(range(200))
