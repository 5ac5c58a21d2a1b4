"""What the server has said about users and grants holds after it was killed."""

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.security.secured_server import ADMINISTRATOR, SecuredServer, secured_server

_CHANGES = 60


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SecuredServer]:
    with secured_server(tmp_path) as running:
        yield running


def test_acknowledged_users_and_grants_survive_kill_and_dropped_ones_leave_nothing(server: SecuredServer) -> None:
    acknowledged: list[str] = []
    half_way = threading.Event()

    def change() -> None:
        with server.http(ADMINISTRATOR) as client:
            for number in range(_CHANGES):
                name = f"user{number}"
                for text in (
                    f"CREATE USER {name}",
                    f"GRANT SELECT ON TABLE acme.bills TO {name}",
                    f"GRANT PUBLISH ON TOPIC acme.orders TO {name}",
                    *([f"DROP USER {name}"] if number % 2 else []),
                ):
                    try:
                        client.post("/api/sql", json={"sql": text}).raise_for_status()
                    except httpx.TransportError:
                        return
                    acknowledged.append(text)
                if number == _CHANGES // 2:
                    half_way.set()

    changing = threading.Thread(target=change)
    changing.start()
    assert half_way.wait(60)
    server.process.kill()
    changing.join(60)
    server.process.start()

    with server.http(ADMINISTRATOR) as client:
        users = {row[0] for row in _rows(client, "SELECT name FROM system.users")}
        grants = {(row[0], row[1]) for row in _rows(client, "SELECT principal, operation FROM system.grants")}
    for text in acknowledged:
        words = text.split()
        name = words[-1]
        is_dropped = f"DROP USER {name}" in acknowledged
        if words[0] == "CREATE":
            assert is_dropped or name in users, text
        elif words[0] == "GRANT":
            assert is_dropped or (name, words[1].lower()) in grants, text
        else:
            assert name not in users, text
    assert {name for name, _ in grants if name.startswith("user")} <= users, "no grant is left of a user that was dropped"


def _rows(client: httpx.Client, text: str) -> list[list[str]]:
    response = client.post("/api/sql", json={"sql": text})
    response.raise_for_status()
    rows: list[list[str]] = response.json()["rows"]
    return rows
