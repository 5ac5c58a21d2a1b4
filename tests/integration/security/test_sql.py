"""SQL on a real server with authentication: what was granted counts at once, and passwords are found nowhere afterwards."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.security.secured_server import ADMINISTRATOR, SecuredServer, secured_server
from tests.support.eventually import eventually

PLANTED = "planted-hunter2-of-sql"
SENT = [
    ("CREATE USER carol PASSWORD '{}'", [], 200),
    ("ALTER USER carol PASSWORD ?", [PLANTED], 200),
    ("SELECT 1; ALTER USER carol PASSWORD '{}'", [], 200),
    ("CREATE USER carol PASSWORD '{}'", [], 409),
    ("ALTER USER nobody PASSWORD '{}'", [], 404),
    ("ALTER USER carol PASWORD '{}'", [], 400),
    ("ALTER USER carol PASSWORD '{}' '{}'", [], 400),
    ("ALTER USER carol PASSWORD '{}", [], 400),
    ("ALTER USER carol PASSWORD ?", [[PLANTED]], 400),
    ("BEGIN; ALTER USER carol PASSWORD '{}'; COMMIT", [], 400),
    ("ALTER USER carol PASSWORD '{}' -- " + "x" * 5_000, [], 200),
]
POINT = "SELECT total FROM acme.bills WHERE id = 1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SecuredServer]:
    with secured_server(tmp_path) as running:
        yield running


def ask(client: httpx.Client, text: str, params: object = (), **headers: str) -> httpx.Response:
    return client.post("/api/sql", json={"sql": text, "params": params}, headers=headers)


def test_passwords_are_not_in_answers_logs_metrics_and_files(server: SecuredServer, tmp_path: Path) -> None:
    with server.http(ADMINISTRATOR) as client:
        for text, params, status in SENT:
            answer = ask(client, text.format(PLANTED, PLANTED), params)
            assert (answer.status_code, PLANTED in answer.text) == (status, False), (text, answer.text)
        with server.http("reader") as reader:
            assert ask(reader, f"ALTER USER carol PASSWORD '{PLANTED}'").status_code == 403
        tables = ask(client, "SELECT * FROM system.nothing").json()["detail"].rpartition("; use ")[2].split(", ")
        for table in tables:
            assert PLANTED not in ask(client, f"SELECT * FROM {table}").text
        assert PLANTED not in client.get("/metrics").text
        assert PLANTED not in ask(client, "SELECT value FROM _audit").text
        assert PLANTED not in Path(f"/proc/{server.process.pid}/cmdline").read_text()
    with httpx.Client(base_url=server.url, auth=("carol", PLANTED)) as carol:
        assert ask(carol, "SELECT current_user").json()["rows"] == [["carol"]]
    server.process.terminate()
    assert PLANTED not in server.process.stderr
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert files
    assert [file for file in files if PLANTED.encode() in file.read_bytes()] == []


@pytest.mark.parametrize("media_type", ["application/json", "text/csv"])
@pytest.mark.parametrize("text", [POINT, "SELECT total + 1 FROM acme.bills", "SELECT count(*) FROM acme.bills GROUP BY total"])
def test_a_grant_counts_at_once_and_its_end_too(server: SecuredServer, text: str, media_type: str) -> None:
    with server.http(ADMINISTRATOR) as admin, server.http("stranger") as client:
        for _ in range(2):
            assert ask(client, text, accept=media_type).status_code == 403
            assert ask(admin, "GRANT SELECT ON TABLE acme.bills TO stranger").status_code == 200
            assert [ask(client, text, accept=media_type).status_code for _ in range(3)] == [200] * 3
            assert ask(admin, "REVOKE SELECT ON TABLE acme.bills FROM stranger").status_code == 200


def test_a_refusal_says_where_and_is_in_the_audit(server: SecuredServer) -> None:
    with server.http("stranger") as client:
        answer = ask(client, "SELECT *\n  FROM acme.bills")
    problem = answer.json()
    assert (problem["type"], problem["sqlstate"]) == ("urn:tailrace:error:sql-forbidden", "42501")
    assert (problem["line"], problem["column"]) == (2, 8)
    with server.http(ADMINISTRATOR) as admin:
        noted = "SELECT value ->> 'what' FROM _audit WHERE value ->> 'resource' = 'relation acme.bills'"
        eventually(lambda: ask(admin, noted).json()["rows"] == [["select"]], "the refusal is in the audit", 20)


def test_a_token_of_sql_is_a_login(server: SecuredServer) -> None:
    with server.http("reader") as client:
        (row,) = ask(client, "CREATE TOKEN FOR reader EXPIRES '1 hour'").json()["rows"]
        with httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {row[1]}"}) as by_token:
            assert ask(by_token, "SELECT user").json()["rows"] == [["reader"]]
            assert ask(by_token, POINT).status_code == 200
            assert ask(client, f"DROP TOKEN '{row[0]}'").status_code == 200
            assert ask(by_token, POINT).status_code == 401
