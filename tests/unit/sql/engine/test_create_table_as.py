"""CREATE TABLE AS: its columns, its key, and all of its rows or none."""

import asyncio

import pytest

from tailrace.model.errors import ConstraintError, SqlError, TableExistsError, TailraceError, UnsupportedSqlError
from tailrace.model.limits import MIB, Limits
from tailrace.model.route import ROUTES_TOPIC
from tailrace.sql.handlers import create_table_as
from tailrace.sql.parse import parse
from tailrace.sql.statements import CreateTableAsStatement, CreateTableStatement
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, until
from tests.support.sql import running_sql
from tests.unit.sql.engine.conftest import SharedSql

TABLE = (
    "CREATE TABLE t (id INTEGER PRIMARY KEY, k TEXT, n NUMERIC(8, 2), j JSONB, l TEXT[], at TIMESTAMP, v VARCHAR(5));"
    " INSERT INTO t VALUES (1, 'a', 1.5, '{\"x\": [1, \"1\"]}', ARRAY['p', NULL], '2026-01-02 03:04:05.6', 'abc'),"
    " (2, 'b', NULL, '\"text\"', NULL, NULL, NULL), (3, 'a', 3.25, '5', ARRAY[]::text[], '2026-01-02', 'x')"
)


def refused(sql: SharedSql, statement: str, sqlstate: str, message: str) -> None:
    with pytest.raises(SqlError, match=message) as caught:
        sql.result(statement)
    assert caught.value.sqlstate == sqlstate


@pytest.fixture
def sql(engine: SharedSql) -> SharedSql:
    engine.drop_all()
    return engine


def test_a_copy_of_a_table_has_its_rows_its_types_and_its_key(sql: SharedSql) -> None:
    sql.result(TABLE)
    result = sql.result("CREATE TABLE copy AS SELECT * FROM t")
    assert (result.status, result.affected) == ("SELECT 3", 3)
    described = [row[:2] + row[4:] for row in sql.rows("DESCRIBE TABLE t")]
    assert [row[:2] + row[4:] for row in sql.rows("DESCRIBE TABLE copy")] == described
    assert sql.rows("SELECT * FROM copy ORDER BY id") == sql.rows("SELECT * FROM t ORDER BY id")
    assert sql.rows("SELECT count(*) FROM table_changes('copy') WHERE _change_type = 'insert'") == [(3,)]
    sql.result("UPDATE copy SET k = 'z' WHERE id = 1; INSERT INTO copy (id) VALUES (4)")
    assert sql.rows("SELECT id, k FROM copy WHERE id IN (1, 4) ORDER BY id") == [(1, "z"), (4, None)]


def test_the_key_follows_from_the_query_or_is_written(sql: SharedSql) -> None:
    sql.result(TABLE + "; CREATE TOPIC e; INSERT INTO e (key, value) VALUES ('a', '1'), ('b', '2')")
    sql.result("CREATE VIEW w AS SELECT n, id AS number FROM t")
    for name, query, key in (
        ("c1", 'SELECT k, id + 0 AS other, id AS "Id" FROM t WHERE n > 0', ["Id"]),
        ("c2", "SELECT k, count(*) AS c FROM t GROUP BY k", ["k"]),
        ("c3", "SELECT DISTINCT k, v IS NULL AS is_empty FROM t", ["k", "is_empty"]),
        ("c4", "SELECT id FROM t UNION SELECT 7", ["id"]),
        ("c5", "SELECT value, cursor FROM e", ["cursor"]),
        ("c6", 'SELECT "offset", key, partition FROM e', ["partition", "offset"]),
        ("c7", "SELECT number FROM w", ["number"]),
        ("c8", "SELECT x.a FROM (SELECT id AS a FROM t) x ORDER BY 1 LIMIT 2", ["a"]),
    ):
        sql.result(f"CREATE TABLE {name} AS {query}")
        assert list(sql.broker.tables.get(name).primary_key) == key, name
    sql.result("CREATE TABLE d (a, b, PRIMARY KEY (b)) AS SELECT k, id, n FROM t")
    assert sql.rows("SELECT * FROM d ORDER BY b") == [("a", 1, 1.5), ("b", 2, None), ("a", 3, 3.25)]
    sql.result("CREATE TABLE f (PRIMARY KEY (y, x)) AS SELECT * FROM (VALUES (1, 'p'), (1, 'q')) AS v(x, y)")
    assert sql.broker.tables.get("f").primary_key == ("y", "x")
    for query in (
        "SELECT a.id FROM t a, t b",
        "SELECT id FROM t UNION ALL SELECT id FROM t",
        "SELECT k FROM t",
        "SELECT id, unnest(l) AS item FROM t",
        "VALUES (1)",
        "SELECT count(*) FROM t",
    ):
        refused(sql, f"CREATE TABLE g AS {query}", "42P16", "PRIMARY KEY")


def test_names_and_data_are_as_in_postgresql(sql: SharedSql) -> None:
    sql.result(TABLE + "; CREATE VIEW w AS SELECT 1 AS one")
    sql.result("CREATE TABLE empty AS SELECT id, k FROM t WITH NO DATA")
    assert sql.rows("SELECT count(*) FROM empty") == [(0,)]
    sql.result("CREATE TABLE filled AS SELECT id, k FROM t WITH DATA; CREATE TABLE none AS SELECT id FROM t WHERE false")
    assert sql.rows("SELECT (SELECT count(*) FROM filled), (SELECT count(*) FROM none)") == [(3, 0)]
    result = sql.result("CREATE TABLE IF NOT EXISTS empty AS SELECT id FROM t")
    assert "which exists" in result.status
    assert sql.rows("SELECT count(*) FROM empty") == [(0,)]
    sql.result("CREATE TABLE given AS SELECT id FROM t WHERE id = ?", [2])
    assert sql.rows("SELECT * FROM given") == [(2,)]
    for name in ("empty", "w"):
        refused(sql, f"CREATE TABLE {name} AS SELECT id FROM t", "42P07", name)
    refused(sql, "CREATE TABLE x (a, b) AS SELECT id FROM t", "42601", "too many column names")
    refused(sql, "CREATE TABLE x AS SELECT id, id FROM t", "42701", "more than once")
    refused(sql, "CREATE TABLE x (a INTEGER) AS SELECT id FROM t", "42601", "types")
    refused(sql, "SELECT id INTO x FROM t", "0A000", "CREATE TABLE ... AS")


def test_a_table_that_can_not_be_filled_is_not_there(sql: SharedSql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create_table_as, "_CHUNK_ROWS", 100)
    series = "SELECT g AS id, 1000 / (5000 - g) AS q FROM generate_series(1, 6000) AS g"
    refused(sql, f"CREATE TABLE c (PRIMARY KEY (id)) AS {series}", "22012", "division by zero")
    with pytest.raises(ConstraintError):
        sql.result("CREATE TABLE c (PRIMARY KEY (k)) AS SELECT g / 2 AS k FROM generate_series(1, 6000) AS g")
    with pytest.raises(SqlError, match="null"):
        sql.result("CREATE TABLE c AS SELECT NULLIF(g % 7, 3) AS k FROM generate_series(1, 60) AS g GROUP BY 1")
    assert list(sql.broker.tables) == []
    assert [live.topic.name for live in sql.broker.topics if live.topic.name != ROUTES_TOPIC] == []
    sql.result("CREATE TABLE c (PRIMARY KEY (id)) AS SELECT g AS id, repeat('x', 100) AS x FROM generate_series(1, 6000) AS g")
    assert sql.rows("SELECT count(*), sum(id), sum(length(x)) FROM c") == [(6000, 18_003_000, 600_000)]


@on_loop
async def test_rows_of_any_size_are_split_to_what_a_frame_holds() -> None:
    async with running_sql(limits=Limits(frame_bytes=2 * MIB)) as sql:
        text = "SELECT g AS id, repeat('x', 20000) AS x FROM generate_series(1, 60) AS g"
        await sql.run(f"CREATE TABLE c (PRIMARY KEY (id)) AS {text}")
        assert await sql.rows("SELECT count(*), sum(length(x)) FROM c") == [(60, 1_200_000)]


@on_loop
async def test_nobody_sees_a_table_before_it_is_filled_and_a_start_drops_it() -> None:
    store = MemoryStore()
    async with running_sql(store=store) as sql:
        await sql.run(TABLE)
        filling = await sql.engine._filling.definition(_parsed("CREATE TABLE c AS SELECT id, k FROM t"), ())
        assert isinstance(filling, CreateTableStatement)
        table = await sql.engine.tables.create(filling, is_filling=True)
        await create_table_as.TableFiller(sql.engine.tables, table, Limits())._write([(1, "a")])
        for statement in (
            "SELECT * FROM c",
            "INSERT INTO c VALUES (2, 'b')",
            "DROP TABLE c",
            "CONSUME FROM c",
            "CLEAR TOPIC c",
        ):
            with pytest.raises(TailraceError, match="no t"):
                await sql.run(statement)
        for statement in ("CREATE TABLE c (id INTEGER PRIMARY KEY)", 'CREATE TABLE "C" (id INTEGER PRIMARY KEY)'):
            with pytest.raises(TableExistsError, match="being created"):
                await sql.run(statement)
        for statement in ("CREATE TOPIC c", "CREATE VIEW c AS SELECT 1 AS one", "CREATE TABLE c AS SELECT id FROM t"):
            with pytest.raises(TailraceError, match=r"being created|choose another name"):
                await sql.run(statement)
        assert [row[0] for row in await sql.rows("SHOW TABLES")] == ["t"]
        assert [live.topic.name for live in sql.broker.topics] == ["_changes.t"]
    async with running_sql(store=store) as sql:
        await sql.run("CREATE TABLE c AS SELECT id FROM t WHERE id > 1")
        assert await sql.rows("SELECT id FROM c ORDER BY 1") == [(2,), (3,)]
        assert await sql.rows("SELECT count(*) FROM table_changes('c')") == [(2,)]


@on_loop
async def test_a_client_that_goes_away_leaves_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create_table_as, "_CHUNK_ROWS", 500)
    async with running_sql() as sql:
        series = "SELECT g AS id FROM generate_series(1, 300000) AS g"
        running = asyncio.create_task(sql.run(f"CREATE TABLE c (PRIMARY KEY (id)) AS {series}"))
        await until(lambda: sql.broker.changes.stats.rows["c"] > 500)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await until(lambda: not sql.broker.tables._filling)
        await sql.run("CREATE TABLE c (PRIMARY KEY (id)) AS SELECT 1 AS id")
        assert await sql.rows("SELECT count(*) FROM c") == [(1,)]


def _parsed(text: str) -> CreateTableAsStatement:
    (statement,) = parse(text)
    assert isinstance(statement, CreateTableAsStatement)
    return statement


def test_unsupported_forms_are_refused() -> None:
    for text in ("CREATE TABLE x AS EXECUTE p", "CREATE TABLE x WITH (fillfactor = 70) AS SELECT 1"):
        with pytest.raises(UnsupportedSqlError):
            _parsed(text)
