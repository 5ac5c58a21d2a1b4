"""Streamed SQL responses: all rows arrive, in little memory, and an incomplete response is never taken for a complete one."""

import csv
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import httpx
import pyarrow as pa
import pytest

from tests.integration.topics import create
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

ARROW = "application/vnd.apache.arrow.stream"
CSV = "text/csv"
LINES = "application/x-ndjson"
SIDE = 400
ROWS = SIDE * SIDE
"""More than `query_rows`."""

OF_TABLES = "SELECT a.id * 400 + b.id AS n, 'row ' || a.id AS name FROM side a, side b ORDER BY n"
OF_TOPICS = "SELECT a.offset * 400 + b.offset AS n, 'row ' || a.offset AS name FROM numbers a, numbers b ORDER BY n"
BOTH = pytest.mark.parametrize("query", [OF_TABLES, OF_TOPICS], ids=["tables", "topics"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder: Path = tmp_path_factory.mktemp("server")
    config = folder / "tailrace.toml"
    config.write_text("[limits]\nquery_seconds = 4\nstreamed_answers = 1\n")
    with ServerProcess(folder / "data", "--config", str(config)) as running:
        create(running.url, "numbers")
        values = [{"topic": "numbers", "value": number} for number in range(SIDE)]
        httpx.post(f"{running.url}/api/topics/publish", json={"messages": values}, timeout=PATIENCE_SECONDS).raise_for_status()
        rows = ", ".join(f"({number}, {number}.25)" for number in range(SIDE))
        made = f"CREATE TABLE side (id INTEGER PRIMARY KEY, price DECIMAL(20, 2)); INSERT INTO side VALUES {rows}"
        httpx.post(f"{running.url}/api/sql", json={"sql": made}, timeout=PATIENCE_SECONDS).raise_for_status()
        yield running


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as open_client:
        yield open_client


def ask(client: httpx.Client, query: str, kind: str) -> bytes:
    answer = client.post("/api/sql", json={"sql": query}, headers={"accept": kind})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == kind
    return answer.content


@BOTH
def test_arrow_holds_all_rows_however_many(client: httpx.Client, query: str) -> None:
    table = pa.ipc.open_stream(io.BytesIO(ask(client, query, ARROW))).read_all()
    assert table.column("n").to_pylist() == list(range(ROWS))
    assert table.column("name")[ROWS - 1].as_py() == f"row {SIDE - 1}"


@BOTH
def test_csv_holds_all_rows_however_many(client: httpx.Client, query: str) -> None:
    names, *rows = csv.reader(io.StringIO(ask(client, query, CSV).decode()))
    assert names == ["n", "name"]
    assert [int(row[0]) for row in rows] == list(range(ROWS))


@BOTH
def test_json_by_lines_holds_all_rows_however_many(client: httpx.Client, query: str) -> None:
    lines = ask(client, query, LINES).splitlines()
    assert [json.loads(line)["n"] for line in lines] == list(range(ROWS))
    assert json.loads(lines[-1]) == {"n": ROWS - 1, "name": f"row {SIDE - 1}"}


@BOTH
def test_json_says_that_it_is_truncated(client: httpx.Client, query: str) -> None:
    answer = client.post("/api/sql", json={"sql": query}).json()
    assert (len(answer["rows"]), answer["truncated"]) == (100_000, True)


def test_decimals_are_those_that_duckdb_and_others_read(client: httpx.Client) -> None:
    wide = "SELECT id, price, CAST(price AS DECIMAL(38, 4)) AS wide FROM side ORDER BY id"
    table = pa.ipc.open_stream(io.BytesIO(ask(client, wide, ARROW))).read_all()
    assert table.schema.field("price").type == pa.decimal128(20, 2)
    (found,) = duckdb.from_arrow(table).aggregate("sum(price), typeof(any_value(price))").fetchall()
    assert (str(found[0]), found[1]) == (str(sum(range(SIDE)) + SIDE * 0.25) + "0", "DECIMAL(20,2)")


def test_no_type_of_an_answer_is_one_that_only_arrow_knows(client: httpx.Client) -> None:
    query = "SELECT CAST(price AS DECIMAL(38, 2)) AS d, sum(price) AS s FROM side GROUP BY 1 ORDER BY 1 LIMIT 3"
    schema = pa.ipc.open_stream(io.BytesIO(ask(client, query, ARROW))).schema
    assert not any(pa.types.is_decimal256(kind) for kind in schema.types), schema


@pytest.mark.parametrize("kind", [ARROW, CSV, LINES])
def test_an_answer_without_rows_is_complete(client: httpx.Client, kind: str) -> None:
    for query in ("SELECT id FROM side WHERE id < 0", 'SELECT "offset" FROM numbers WHERE "offset" < 0'):
        body = ask(client, query, kind)
        assert kind != ARROW or pa.ipc.open_stream(io.BytesIO(body)).read_all().num_rows == 0
        assert kind == ARROW or body in (b"id\n", b"offset\n", b"")


@pytest.mark.parametrize("kind", [ARROW, CSV, LINES])
@pytest.mark.parametrize("query", ["SELECT nothing FROM side", "SELECT nothing FROM numbers", "SELEKT 1"])
def test_an_error_before_the_first_row_is_a_problem(client: httpx.Client, kind: str, query: str) -> None:
    answer = client.post("/api/sql", json={"sql": query}, headers={"accept": kind})
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"


def test_skipping_batches_needs_json(client: httpx.Client) -> None:
    body = {"sql": "SELECT 1", "corrupt_batches": "skip"}
    answer = client.post("/api/sql", json=body, headers={"accept": CSV})
    assert (answer.status_code, "text/csv can't report skipped batches" in answer.text) == (400, True)


def test_several_statements_are_rejected_before_any_is_run(client: httpx.Client) -> None:
    both = "INSERT INTO side (id) VALUES (-7); SELECT id FROM side"
    answer = client.post("/api/sql", json={"sql": both}, headers={"accept": CSV})
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:tailrace:error:invalid-request")
    assert ask(client, "SELECT count(*) AS n FROM side WHERE id = -7", CSV) == b"n\n0\n"


def test_other_statements_answer_in_the_same_formats(client: httpx.Client) -> None:
    assert ask(client, "CONSUME FROM numbers LIMIT 2", LINES).count(b"\n") == 2
    assert b"numbers" in ask(client, "SHOW TOPICS", CSV)


FAILING = {
    "topics": "SELECT CASE WHEN a.offset = 399 AND b.offset = 399 THEN 1 / (a.offset - 399) END AS x, b.offset AS y"
    " FROM numbers a, numbers b",
    "tables": "SELECT CASE WHEN a.id = 399 AND b.id = 399 THEN CAST('x' || b.id AS INTEGER) END AS x, b.id FROM side a, side b",
}


@pytest.mark.parametrize("kind", [ARROW, CSV, LINES])
@pytest.mark.parametrize("where", FAILING)
def test_a_response_that_fails_in_the_middle_is_aborted(client: httpx.Client, where: str, kind: str) -> None:
    received = 0
    asked = {"sql": FAILING[where]}
    with (
        pytest.raises(httpx.RemoteProtocolError),
        client.stream("POST", "/api/sql", json=asked, headers={"accept": kind}) as answer,
    ):
        assert answer.status_code == 200
        for part in answer.iter_raw():
            received += len(part)
    assert received > 0


SLOW = {
    "tables": "SELECT count(*) FROM side a, side b, side c, side d",
    "topics": "SELECT sum(a.offset * b.offset % (c.offset + d.offset + 1)) FROM numbers a, numbers b, numbers c, numbers d",
}


@pytest.mark.parametrize("where", SLOW)
def test_a_query_that_takes_too_long_is_an_error(client: httpx.Client, where: str) -> None:
    answer = client.post("/api/sql", json={"sql": SLOW[where]}, headers={"accept": CSV})
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:tailrace:error:query-limit")


def test_a_query_that_takes_too_long_after_some_rows_is_aborted(client: httpx.Client) -> None:
    query = (
        "SELECT a.id FROM side a, side b, side c, side d"
        " WHERE (c.id = 0 AND d.id = 0) OR (a.id + b.id * 7 + c.id * 13 + d.id * 31) % 1000003 < 0"
    )
    with (
        pytest.raises(httpx.RemoteProtocolError),
        client.stream("POST", "/api/sql", json={"sql": query}, headers={"accept": CSV}) as answer,
    ):
        assert answer.status_code == 200
        for _ in answer.iter_raw():
            pass


@BOTH
def test_the_time_of_the_client_does_not_count_for_the_query(client: httpx.Client, query: str) -> None:
    received = []
    with client.stream("POST", "/api/sql", json={"sql": query + " LIMIT 150000"}, headers={"accept": LINES}) as answer:
        parts = answer.iter_raw()
        received.append(next(parts))
        time.sleep(4.5)  # longer than query_seconds
        received += parts
    assert b"".join(received).count(b"\n") == 150_000


@BOTH
def test_a_disconnect_releases_the_memory_of_the_response(client: httpx.Client, query: str) -> None:
    """This server makes one response at a time, so a second one shows that the first has ended."""
    endless = query.replace(" ORDER BY n", "") + f" UNION ALL {query.replace(' ORDER BY n', '')}"
    for _ in range(3):
        with client.stream("POST", "/api/sql", json={"sql": endless}, headers={"accept": CSV}) as answer:
            next(answer.iter_raw())
    first = query.replace(" ORDER BY n", " LIMIT 1").replace("a.id * 400 + b.id", "1").replace("a.offset * 400 + b.offset", "1")
    assert ask(client, first, LINES).count(b"\n") == 1


def test_a_large_answer_takes_little_memory(server: ServerProcess, client: httpx.Client) -> None:
    def resident() -> int:
        words = Path(f"/proc/{server.pid}/status").read_text().split()
        return int(words[words.index("VmRSS:") + 1])

    query = "SELECT a.id, b.id AS b, '" + "x" * 400 + "' AS filler FROM side a, side b"
    ask(client, OF_TABLES, CSV)
    before = highest = resident()
    received = 0
    with client.stream("POST", "/api/sql", json={"sql": query}, headers={"accept": CSV}) as answer:
        for part in answer.iter_raw():
            received += len(part)
            highest = max(highest, resident())
    assert received > 60_000_000
    assert highest - before < 40_000
