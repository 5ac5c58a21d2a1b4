"""SQL over HTTP: rows as JSON and as Arrow, several statements, errors, routes."""

import io
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.integration.topics import create
from tests.support.patience import PATIENCE_SECONDS

ARROW = "application/vnd.apache.arrow.stream"
UUID = "01234567-89ab-cdef-0123-456789abcdef"


def run(client: httpx.Client, text: str, params: Any = ()) -> httpx.Response:
    return client.post("/api/sql", json={"sql": text, "params": params})


def rows(client: httpx.Client, text: str, params: Any = ()) -> list[list[Any]]:
    answer = run(client, text, params)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["rows"])


@pytest.fixture(scope="module")
def typed(url: str) -> str:
    """A table with a row of all types and a row of nulls."""
    with httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as client:
        made = run(
            client,
            "CREATE TABLE typed (id INTEGER PRIMARY KEY, yes BOOLEAN, big BIGINT, real DOUBLE, price DECIMAL(10, 2), name TEXT,"
            " data BYTES, day DATE, at TIMESTAMP, key UUID, doc JSON);"
            " INSERT INTO typed VALUES (1, true, 9007199254740993, 0.5, 12.50, 'Zoë', '\\xff00', DATE '2026-01-28',"
            f" TIMESTAMP '2026-01-28 10:00:00', '{UUID}', '{{\"a\": [1, null]}}'); INSERT INTO typed (id) VALUES (2)",
        )
        assert made.status_code == 200, made.text
    return "typed"


def test_values_are_json_where_it_has_words_for_them_and_text_elsewhere(client: httpx.Client, typed: str) -> None:
    answer = run(client, f"SELECT * FROM {typed} ORDER BY id").json()
    assert [(column["name"], column["type"]) for column in answer["columns"]] == [
        ("id", "integer"),
        ("yes", "boolean"),
        ("big", "bigint"),
        ("real", "double"),
        ("price", "decimal(10, 2)"),
        ("name", "text"),
        ("data", "bytes"),
        ("day", "date"),
        ("at", "timestamp"),
        ("key", "uuid"),
        ("doc", "json"),
    ]
    at = "2026-01-28T10:00:00.000000Z"
    full = [1, True, 9007199254740993, 0.5, "12.50", "Zoë", "/wA=", "2026-01-28", at, UUID, {"a": [1, None]}]
    assert answer["rows"] == [full, [2, *[None] * 10]]


def test_arrow_holds_the_same_rows(client: httpx.Client, typed: str) -> None:
    answer = client.post("/api/sql", json={"sql": f"SELECT * FROM {typed} ORDER BY id"}, headers={"accept": ARROW})
    assert answer.headers["content-type"] == ARROW
    table = pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()
    first, second = table.to_pylist()
    assert (first["id"], first["big"], str(first["price"]), first["data"], first["day"].isoformat()) == (
        1,
        9007199254740993,
        "12.50",
        b"\xff\x00",
        "2026-01-28",
    )
    assert first["at"].isoformat() == "2026-01-28T10:00:00+00:00"
    assert set(second.values()) == {2, None}


def test_arrow_of_no_rows_has_its_columns(client: httpx.Client, typed: str) -> None:
    answer = client.post("/api/sql", json={"sql": f"SELECT id, name FROM {typed} WHERE id = 9"}, headers={"accept": ARROW})
    table = pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()
    assert (table.num_rows, table.column_names) == (0, ["id", "name"])


def test_arrow_of_two_statements_is_rejected(client: httpx.Client) -> None:
    answer = client.post("/api/sql", json={"sql": "SELECT 1; SELECT 2"}, headers={"accept": ARROW})
    assert (answer.status_code, "one statement" in answer.json()["detail"]) == (400, True)


def test_several_statements_have_several_results(client: httpx.Client) -> None:
    answer = run(
        client, "CREATE TABLE many (id INTEGER PRIMARY KEY); INSERT INTO many VALUES (1), (2); SELECT id FROM many"
    ).json()
    assert [result["status"].split()[0] for result in answer["results"]] == ["CREATE", "INSERT", "SELECT"]
    assert answer["results"][1]["affected"] == 2
    assert sorted(answer["results"][2]["rows"]) == [[1], [2]]


def test_parameters_come_by_place_by_name_and_in_rows(client: httpx.Client) -> None:
    run(client, "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)").raise_for_status()
    run(client, "INSERT INTO people VALUES (?, ?)", [1, "ann"]).raise_for_status()
    run(client, "INSERT INTO people VALUES (:id, :name)", {"id": 2, "name": "ben'; DROP TABLE people; --"}).raise_for_status()
    assert run(client, "INSERT INTO people VALUES (?, ?)", [[3, "c"], [4, "d"]]).json()["affected"] == 2
    assert rows(client, "SELECT name FROM people WHERE id = ?", [2]) == [["ben'; DROP TABLE people; --"]]
    assert rows(client, "SELECT count(*) FROM people") == [[4]]


def test_an_error_says_where_in_the_text(client: httpx.Client) -> None:
    answer = run(client, "SELECT 1;\n  SELEC 2")
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
    problem = answer.json()
    assert (problem["type"], problem["line"], problem["column"]) == ("urn:tailrace:error:unsupported-sql", 2, 3)


def test_table_changes_are_messages_with_their_origin(client: httpx.Client) -> None:
    run(client, "CREATE TABLE chat.messages (id INTEGER PRIMARY KEY, text TEXT)").raise_for_status()
    run(client, "INSERT INTO chat.messages VALUES (1, 'hi')").raise_for_status()
    (message,) = client.post("/api/topics/consume", json={"topic": "chat.messages"}).json()["messages"]
    assert (message["topic_name"], message["source_table"], message["op"]) == (
        "_changes.chat.messages",
        "chat.messages",
        "insert",
    )
    assert message["value"]["new"] == {"id": 1, "text": "hi"}
    assert [table["name"] for table in client.get("/api/tables").json()["tables"]].count("chat.messages") == 1
    refused = client.post("/api/topics/publish", json={"messages": [{"topic": "chat.messages", "value": 1}]})
    assert 400 <= refused.status_code < 500


def test_views_are_listed_with_their_columns_and_queries(client: httpx.Client) -> None:
    run(client, "CREATE TABLE shop.größe (id INTEGER PRIMARY KEY, name VARCHAR(9))").raise_for_status()
    run(client, "CREATE VIEW shop.namen AS SELECT name, id AS größe FROM shop.größe").raise_for_status()
    listed = {view["name"]: view for view in client.get("/api/views").json()["views"]}["shop.namen"]
    columns = [{"name": "name", "type": "varchar(9)"}, {"name": "größe", "type": "int4"}]
    assert (listed["columns"], listed["query"]) == (columns, "SELECT name, id AS größe FROM shop.größe")
    tables = {table["name"]: table for table in client.get("/api/tables").json()["tables"]}
    assert tables["shop.größe"]["changes"] == "_changes.shop.gr_u00f6__u00df_e"
    refused = run(client, "DROP TABLE shop.größe")
    assert (refused.status_code, refused.json()["sqlstate"]) == (409, "2BP01")
    route = {"topic": "shop.small", "source_table": "shop.größe", "operations": ["insert"], "where": "größe IS NULL"}
    run(client, "CREATE TOPIC shop.small").raise_for_status()
    assert client.post("/api/routes", json=route).status_code == 400
    assert client.post("/api/routes", json={**route, "where": "name IS NULL"}).status_code == 200
    run(client, "DROP TABLE shop.größe CASCADE").raise_for_status()


def test_routes_are_added_with_the_checks_of_sql_listed_and_dropped(client: httpx.Client, url: str) -> None:
    run(client, "CREATE TABLE shop.orders (id INTEGER PRIMARY KEY, total INTEGER)").raise_for_status()
    create(url, "large")
    route = {
        "topic": "large",
        "source_table": "shop.orders",
        "operations": ["insert", "update"],
        "where": "total > 100 -- large",
        "payload_mode": "full",
    }
    added = client.post("/api/routes", json=route)
    assert added.status_code == 200, added.text
    assert added.json() in client.get("/api/routes").json()["routes"]
    assert (added.json()["source_table"], added.json()["operations"]) == ("shop.orders", ["insert", "update"])
    for wrong in ("nothing > 1", "total > 1); DROP TABLE shop.orders; SELECT (1", "total"):
        assert client.post("/api/routes", json={**route, "where": wrong}).status_code == 400, wrong
    assert rows(client, "SELECT count(*) FROM shop.orders") == [[0]]
    dropped = client.delete("/api/routes", params={"topic": "large", "source_table": "shop.orders"})
    assert dropped.status_code == 204
    assert client.get("/api/routes").json()["routes"] == []
