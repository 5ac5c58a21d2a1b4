"""Changes of captured PostgreSQL tables reach their topics through a real Spark, as those of the server's own tables do."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.pipeline.conftest import RunOnce
from tests.support.api import Api
from tests.support.eventually import eventually
from tests.support.postgres_server import APP, DATABASE, PASSWORDS, PostgresServer
from tests.support.server import ServerProcess


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    environment = {"APP_PASSWORD": PASSWORDS[APP]}
    with ServerProcess(tmp_path / "data", "--durability", "relaxed", environment=environment) as running:
        yield running


def messages(api: Api, topic: str) -> list[dict[str, object]]:
    rows = api.sql(f'SELECT "value" FROM {topic} ORDER BY "offset"')
    return [json.loads(value) for (value,) in rows]


def test_changes_of_a_captured_table_are_routed_and_unknown_values_decide_nothing(
    tmp_path: Path, server: ServerProcess, api: Api, route_once: RunOnce
) -> None:
    with PostgresServer(tmp_path / "postgres") as postgres, postgres.connect() as connection:
        connection.execute(
            "CREATE TABLE orders (id int PRIMARY KEY, status varchar(20), total numeric(10, 2), due date, body text)"
        )
        connection.execute("ALTER TABLE orders ALTER body SET STORAGE EXTERNAL")
        url = f"postgresql://{APP}@127.0.0.1:{postgres.port}/{DATABASE}"
        api.sql(f"CREATE SOURCE shop FROM POSTGRES '{url}' WITH (snapshot = 'initial', password_env = 'APP_PASSWORD')")
        connection.execute("INSERT INTO orders VALUES (1, 'new', 10.50, '2026-01-31', 'x')")
        count = "SELECT count(*) FROM system.source_tables"
        eventually(lambda: api.sql(count) == [[1]], "the table is known", 60)
        for topic, condition in (
            ("app.paid", "status = 'paid' AND total > 10"),
            ("app.due", "due > '2026-01-01'"),
            ("app.long", "length(body) > 5"),
        ):
            api.sql(f"CREATE TOPIC {topic}")
            added = f"ALTER TOPIC {topic} ADD SOURCE shop.public.orders ON INSERT, UPDATE WHERE ({condition})"
            api.sql(f"{added} WITH (payload = 'full')")
        connection.execute("INSERT INTO orders VALUES (2, 'paid', 12, 'infinity', repeat('long', 5000))")
        # The long text is stored out of line, and is not sent again.
        connection.execute("UPDATE orders SET status = 'done' WHERE id = 2")
        connection.execute("UPDATE orders SET status = 'paid' WHERE id = 1")
        eventually(lambda: api.sql("SELECT count(*) FROM shop.public.orders") == [[4]], "all changes are there", 60)
        route_once()
        paid = messages(api, "app.paid")
        assert [(row["id"], row["status"], row["total"]) for row in paid] == [(2, "paid", "12.00"), (1, "paid", "10.50")]
        assert "due" not in paid[0]
        assert paid[0]["_absent"] == ",due,"
        assert [row["id"] for row in messages(api, "app.due")] == [1]
        letters = [letter["event"] for letter in messages(api, "app.due.dead_letters")]
        assert [(event["op"], event["new"]["id"]) for event in letters] == [("insert", 2), ("update", 2)]  # type: ignore[index]
        assert [row["id"] for row in messages(api, "app.long")] == [2]
        (letter,) = (letter["event"] for letter in messages(api, "app.long.dead_letters"))
        assert (letter["op"], letter["new"]["id"]) == ("update", 2)  # type: ignore[index]
        api.sql("DROP SOURCE shop CASCADE")
