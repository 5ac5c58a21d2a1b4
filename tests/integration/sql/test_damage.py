"""Bits of the tables' file change while a real server runs: clients are told to try again, and never get a wrong row."""

import random
import re
import time
from pathlib import Path
from typing import Any

import httpx

from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

FLIPS = 25


def ask(url: str, text: str) -> httpx.Response:
    return httpx.post(f"{url}/api/sql", json={"sql": text}, timeout=PATIENCE_SECONDS)


def answer(url: str, text: str) -> tuple[list[Any], int]:
    """The rows, and how often the server said to try again before it gave them."""
    refusals = 0
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        response = ask(url, text)
        if response.status_code == 200:
            return response.json().get("rows", []), refusals
        problem = response.json()
        assert (response.status_code, problem["retriable"]) == (503, True), response.text
        assert time.monotonic() < deadline, response.text
        refusals += 1
        time.sleep(0.01)


def rebuilds(url: str) -> int:
    metrics = httpx.get(f"{url}/metrics", timeout=PATIENCE_SECONDS).text
    (count,) = re.findall(r"^tailrace_table_rebuilds_total (\d+)", metrics, re.MULTILINE)
    return int(count)


def test_a_running_server_mends_its_tables(tmp_path: Path) -> None:
    chance = random.Random(7)
    with ServerProcess(tmp_path / "data") as server:
        answer(server.url, "CREATE TABLE app.t (id BIGINT PRIMARY KEY, name TEXT)")
        rows = [[id, f"name {id} " * 10] for id in range(600)]
        answer(server.url, "INSERT INTO app.t VALUES " + ", ".join(f"({id}, '{name}')" for id, name in rows))
        assert server.terminate() == 0
    with ServerProcess(tmp_path / "data") as server:
        path = tmp_path / "data" / "tables.db"
        met = 0
        for flip in range(FLIPS):
            # A change makes readers look at the file again, instead of at the pages that they remember.
            _, refused = answer(server.url, f"UPDATE app.t SET name = 'flip {flip}' WHERE id = 599")
            rows[599][1] = f"flip {flip}"
            met += refused
            bit = chance.randrange(path.stat().st_size * 8)
            with path.open("r+b") as file:
                file.seek(bit // 8)
                (byte,) = file.read(1)
                file.seek(bit // 8)
                file.write(bytes((byte ^ 1 << bit % 8,)))
            found, refused = answer(server.url, "SELECT id, name FROM app.t ORDER BY id")
            met += refused
            assert found == rows, f"bit {bit} gave a wrong answer"
        print(f"{FLIPS} flips, {met} refusals, {rebuilds(server.url)} times made again")
        assert rebuilds(server.url) > 0
        assert "is damaged" in server.stderr
        assert "tables" not in httpx.get(f"{server.url}/health", timeout=PATIENCE_SECONDS).json()
        assert server.terminate() == 0
