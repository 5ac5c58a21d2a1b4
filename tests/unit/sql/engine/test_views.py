"""Views: what they show, what they depend on, and what happens when that changes."""

import asyncio
import random

import pytest

from tailrace.model.errors import (
    DependentViewsError,
    SqlError,
    TableExistsError,
    TailraceError,
    UnknownTableError,
    UnsupportedSqlError,
)
from tailrace.model.limits import Limits
from tailrace.sql.parse import parse
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop
from tests.support.sql import running_sql
from tests.unit.sql.engine.conftest import SharedSql

TABLE = (
    "CREATE TABLE t (id INTEGER PRIMARY KEY, k TEXT, n INTEGER); INSERT INTO t VALUES (1, 'a', 10), (2, 'b', 20), (3, 'a', 30)"
)


def fails(sql: SharedSql, statement: str, kind: type[Exception], sqlstate: str, message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        sql.result(statement)
    assert isinstance(caught.value, SqlError)
    assert caught.value.sqlstate == sqlstate


@pytest.fixture
def sql(engine: SharedSql) -> SharedSql:
    engine.drop_all()
    return engine


def test_a_view_stands_for_its_query_wherever_a_table_may_stand(sql: SharedSql) -> None:
    sql.result(TABLE + "; CREATE TOPIC e; INSERT INTO e (key, value) VALUES ('a', '{\"x\": 1}'), ('b', '{\"x\": 2}')")
    sql.result("CREATE VIEW big (id, label) AS SELECT id, k, n FROM t WHERE n >= $$20$$::int")
    sql.result("CREATE VIEW counts AS SELECT label, count(*) FROM big GROUP BY label")
    sql.result("CREATE VIEW records AS SELECT key, (value::jsonb ->> 'x')::int AS x FROM e")
    assert sql.rows("SELECT * FROM big ORDER BY id") == [(2, "b", 20), (3, "a", 30)]
    assert sql.rows("SELECT b.label, big.n FROM counts b JOIN big USING (label) ORDER BY 1") == [("a", 30), ("b", 20)]
    joined = "SELECT r.x, v.count FROM records r, counts v WHERE v.label = r.key ORDER BY 1"
    assert sql.rows(joined) == [(1, 1), (2, 1)]
    assert sql.rows("WITH t AS (SELECT 1 AS one) SELECT id, one FROM big, t ORDER BY 1") == [(2, 1), (3, 1)]
    assert sql.rows("SELECT id FROM t WHERE id IN (SELECT id FROM big) ORDER BY 1") == [(2,), (3,)]
    sql.result("INSERT INTO t SELECT id + 10, label, n FROM big")
    assert sql.rows("SELECT count(*) FROM public.big") == [(4,)]
    sql.result("CREATE VIEW feed AS SELECT id, _change_type FROM table_changes('t') WHERE id > 10")
    assert sql.rows("SELECT * FROM feed ORDER BY 1") == [(12, "insert"), (13, "insert")]
    sql.result("CREATE VIEW names AS SELECT name FROM system.tables")
    assert sql.rows("SELECT * FROM names") == [("t",)]


def test_a_view_is_listed_with_its_columns_and_its_text(sql: SharedSql) -> None:
    sql.result(TABLE)
    sql.result('CREATE VIEW App.Big ("Id", K2) AS  SELECT id, k, n::numeric(8, 2) AS amount FROM t -- all of them')
    assert sql.rows("SHOW VIEWS") == [("app.big", 3, "SELECT id, k, n::numeric(8, 2) AS amount FROM t")]
    assert sql.rows("DESCRIBE VIEW app.big") == [("Id", "int4"), ("k2", "text"), ("amount", "numeric(8, 2)")]
    assert sql.rows('SELECT "Id", amount FROM app.big WHERE k2 = $$b$$') == [(2, 20)]


def test_names_are_shared_with_tables_topics_and_aliases(sql: SharedSql) -> None:
    sql.result(TABLE + "; CREATE TOPIC e WITH (alias = 'f'); CREATE VIEW v AS SELECT 1 AS one")
    for name in ("t", "v", "e", "f"):
        fails(sql, f"CREATE VIEW {name} AS SELECT 1 AS one", TableExistsError, "42P07", name)
    fails(sql, "CREATE TABLE V (id INTEGER PRIMARY KEY)", TableExistsError, "42P07", "view")
    fails(sql, "CREATE TOPIC v", TableExistsError, "42P07", "view")
    fails(sql, "ALTER TOPIC e SET (alias = 'v')", TableExistsError, "42P07", "view")
    fails(sql, "DROP TABLE v", SqlError, "42809", "use DROP VIEW")
    fails(sql, "DROP VIEW t", SqlError, "42809", "use DROP TABLE")
    fails(sql, "DROP VIEW e", SqlError, "42809", "use DROP TOPIC")
    fails(sql, "DROP VIEW nothing", UnknownTableError, "42P01", "no view")
    assert (sql.result("DROP VIEW IF EXISTS nothing")).status == "DROP VIEW, which does not exist"


def test_what_a_view_reads_is_dropped_with_the_view_or_not_at_all(sql: SharedSql) -> None:
    sql.result(TABLE + "; CREATE TOPIC e; CREATE VIEW a AS SELECT id FROM t; CREATE VIEW b AS SELECT a.id FROM a, e")
    fails(sql, "DROP TABLE t", DependentViewsError, "2BP01", "'a'")
    fails(sql, "DROP TOPIC e", DependentViewsError, "2BP01", "'b'")
    fails(sql, "DROP VIEW a", DependentViewsError, "2BP01", "'b'")
    sql.result("DROP TOPIC e CASCADE")
    assert [row[0] for row in sql.rows("SHOW VIEWS")] == ["a"]
    sql.result("CREATE VIEW b AS SELECT id FROM a; CREATE VIEW c AS SELECT b.id FROM b, t; DROP TABLE t CASCADE")
    assert sql.rows("SHOW VIEWS") == []
    sql.result(TABLE + "; CREATE VIEW a AS SELECT id FROM t; CREATE VIEW b AS SELECT id FROM a; DROP VIEW a CASCADE")
    assert sql.rows("SHOW VIEWS") == []
    sql.result("DROP TABLE t")


def test_a_replacement_keeps_the_columns_and_reads_something_else(sql: SharedSql) -> None:
    sql.result(TABLE + "; CREATE VIEW a AS SELECT id, k FROM t; CREATE VIEW b AS SELECT * FROM a")
    sql.result("CREATE OR REPLACE VIEW a AS SELECT id + 1 AS id, upper(k) AS k, n FROM t WHERE id = 1")
    assert sql.rows("SELECT * FROM b") == [(2, "A")]
    assert sql.rows("SELECT * FROM a") == [(2, "A", 10)]
    fails(sql, "CREATE OR REPLACE VIEW a AS SELECT * FROM b", SqlError, "42P16", "cannot drop columns")
    fails(sql, "CREATE OR REPLACE VIEW a AS SELECT id, k, 1 AS n FROM b", SqlError, "42P17", "itself")
    sql.result("CREATE OR REPLACE VIEW a AS SELECT 5 AS id, 'x'::text AS k, 7 AS n")
    sql.result("DROP TABLE t")
    assert sql.rows("SELECT * FROM b") == [(5, "x")]


def test_altered_tables_leave_views_as_they_are_or_are_refused(sql: SharedSql) -> None:
    sql.result(TABLE + "; CREATE VIEW every AS SELECT * FROM t; CREATE VIEW few AS SELECT id FROM t WHERE k = 'a'")
    sql.result("ALTER TABLE t ADD COLUMN more INTEGER DEFAULT 7")
    assert sql.rows("SELECT * FROM every WHERE id = 1") == [(1, "a", 10)]
    assert sql.rows("SELECT * FROM t WHERE id = 1") == [(1, "a", 10, 7)]
    for change in ("DROP COLUMN k", "RENAME COLUMN k TO label", "ALTER COLUMN n TYPE BIGINT"):
        fails(sql, f"ALTER TABLE t {change}", DependentViewsError, "2BP01", "'every'")
    sql.result("ALTER TABLE t DROP COLUMN more; DROP VIEW every; ALTER TABLE t DROP COLUMN n")
    assert sql.rows("SELECT * FROM few ORDER BY id") == [(1,), (3,)]


def test_an_alias_that_moves_does_not_change_what_a_view_reads(sql: SharedSql) -> None:
    sql.result("CREATE TOPIC one WITH (alias = 'x'); CREATE TOPIC two; INSERT INTO one (value) VALUES ('first')")
    sql.result("CREATE VIEW v AS SELECT x.value FROM x")
    sql.result("ALTER TOPIC one SET (alias = NULL); ALTER TOPIC two SET (alias = 'x')")
    assert sql.rows("SELECT * FROM v") == [("first",)]


def test_views_are_not_written_to_and_have_no_parameters(sql: SharedSql) -> None:
    sql.result(TABLE + "; CREATE VIEW v AS SELECT id, k, n FROM t")
    for statement in ("INSERT INTO v VALUES (9, 'x', 1)", "UPDATE v SET k = 'x'", "DELETE FROM v"):
        fails(sql, statement, UnsupportedSqlError, "0A000", "is a view")
    with pytest.raises(SqlError, match="parameter") as caught:
        sql.result("CREATE VIEW w AS SELECT id FROM t WHERE id = ?", [1])
    assert caught.value.sqlstate == "42P02"
    fails(sql, "CREATE TEMP VIEW w AS SELECT 1", UnsupportedSqlError, "0A000", "plain view")
    fails(sql, "CREATE VIEW w AS DELETE FROM t", SqlError, "42601", "a query")
    fails(sql, "CREATE VIEW user AS SELECT 1", SqlError, "42601", "in quotes")
    fails(sql, "CREATE VIEW w (select) AS SELECT 1", SqlError, "42601", "in quotes")


def test_conditions_on_views_are_given_to_what_they_read(sql: SharedSql) -> None:
    sql.run(TABLE + "; CREATE VIEW inner_view AS SELECT n AS x, id AS number FROM t")
    sql.run("CREATE VIEW outer_view AS SELECT number + 0 AS sum, number FROM inner_view WHERE x > 5")
    plan = [str(row[0]).strip() for row in sql.rows("EXPLAIN SELECT * FROM outer_view WHERE number = 2")]
    assert 'Conditions: "id" = 2 AND "n" > 5' in plan
    assert sql.rows("SELECT * FROM outer_view WHERE number = 2") == [(2, 2)]
    for query, rows in (
        ("SELECT id FROM t ORDER BY id LIMIT 2", [(2,)]),
        ("SELECT id FROM t ORDER BY id OFFSET 1", [(2,)]),
        ("SELECT DISTINCT ON (k) id FROM t ORDER BY k, id", [(2,)]),
        ("SELECT id FROM t WHERE id <> 2 UNION ALL SELECT 2", [(2,)]),
        ("SELECT b.id FROM t LEFT JOIN t b ON b.id = t.id + 1", [(2,)]),
    ):
        sql.run(f"CREATE OR REPLACE VIEW plain AS {query}")
        assert sql.rows("SELECT id FROM plain WHERE id = 2") == rows, query
    sql.run(
        "CREATE VIEW numbered AS SELECT id, row_number() OVER (ORDER BY id DESC) AS place, count(*) OVER () AS total FROM t"
    )
    assert sql.rows("SELECT * FROM numbered WHERE id = 2") == [(2, 2, 3)]
    sql.run("CREATE VIEW grouped AS SELECT k, count(*) AS c FROM t GROUP BY k")
    assert sql.rows("SELECT * FROM grouped WHERE c = 2 AND k = 'a'") == [("a", 2)]


def test_views_of_views_are_bounded(sql: SharedSql) -> None:
    sql.run("CREATE VIEW v0 AS SELECT 1 AS a")
    for number in range(6):
        sql.run(f"CREATE VIEW v{number + 1} AS SELECT x.a FROM v{number} x, v{number} y")
    assert sql.rows("SELECT count(*) FROM v3") == [(1,)]
    fails(sql, "CREATE VIEW v7 AS SELECT x.a FROM v6 x, v6 y", SqlError, "54001", "view_uses")
    with pytest.raises(SqlError, match="view_bytes"):
        parse(f"CREATE VIEW w AS SELECT '{'x' * 300}' AS a", Limits(view_bytes=200))


@on_loop
async def test_forty_clients_leave_names_once_and_no_view_without_what_it_reads() -> None:
    choices = random.Random(7)

    def statement() -> str:
        name, other = choices.choice("abcde"), choices.choice("abcde")
        view = f"CREATE OR REPLACE VIEW {name} AS SELECT id FROM {choices.choice(('base', other))}"
        return choices.choice((view, view, view, f"DROP VIEW {name} CASCADE", f"CREATE TABLE {name} (id INTEGER PRIMARY KEY)"))

    async with running_sql() as sql:
        await sql.run("CREATE TABLE base (id INTEGER PRIMARY KEY)")
        outcomes: list[object] = []

        async def client() -> None:
            for _ in range(6):
                try:
                    outcomes.append((await sql.run(statement())).status)
                except TailraceError as error:
                    outcomes.append(error)

        await asyncio.gather(*(client() for _ in range(40)))
        assert outcomes.count("CREATE VIEW") > 5
        broker = sql.broker
        for view in broker.views:
            for source in view.sources:
                assert source.topic is None or broker.topics.by_id(source.topic) is not None
                assert source.view is None or broker.views.by_id(source.view) is not None
            assert await sql.rows(f"SELECT count(*) FROM {view.name}") == [(0,)]
        names = [one.name for one in (*broker.views, *broker.tables)]
        assert len(names) == len(set(names))


@on_loop
async def test_views_are_there_after_a_restart() -> None:
    store = MemoryStore()
    async with running_sql(store=store) as sql:
        await sql.run("CREATE TOPIC e; INSERT INTO e (value) VALUES ('1'); CREATE VIEW a AS SELECT value FROM e")
        await sql.run("CREATE VIEW b AS SELECT value AS v FROM a; CREATE VIEW c AS SELECT 1 AS one; DROP VIEW c")
    async with running_sql(store=store) as sql:
        assert await sql.rows("SELECT v FROM b") == [("1",)]
        assert [row[0] for row in await sql.rows("SHOW VIEWS")] == ["a", "b"]
        with pytest.raises(DependentViewsError, match="'a'"):
            await sql.run("DROP TOPIC e")
        await sql.run("CREATE VIEW c AS SELECT 2 AS two")
        assert len({view.id for view in sql.broker.views}) == 3
