"""Names of tables, views and columns in any script, wherever they can stand."""

import string

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.errors import InvalidTopicNameError, SqlError, TableExistsError
from tailrace.model.limits import Limits
from tailrace.model.names import check_topic_name, topic_form
from tailrace.model.route import ROUTES_TOPIC
from tests.unit.sql.engine.conftest import SharedSql


@pytest.fixture
def sql(engine: SharedSql) -> SharedSql:
    engine.drop_all()
    return engine


LEGAL = string.ascii_letters + string.digits + "_-"


@given(st.lists(st.text(st.sampled_from("aöu_0f6 \N{DUCK}"), max_size=8), min_size=2, max_size=2))
def test_no_two_names_have_the_same_topic(names: list[str]) -> None:
    one, other = names
    assert (topic_form(one) == topic_form(other)) == (one == other)


@given(st.text(min_size=1, max_size=20))
def test_every_name_has_a_form_that_kafka_takes(name: str) -> None:
    form = topic_form(name.replace(".", ""))
    if form:
        check_topic_name(form, Limits())


@pytest.mark.parametrize("name", ["chat.messages", "a_u_b", "x_u12_y", "My-Table", LEGAL])
def test_names_that_topics_can_have_stay_as_they_are(name: str) -> None:
    assert topic_form(name) == name


def test_columns_of_any_script_work_in_statements_events_routes_and_views(sql: SharedSql) -> None:
    sql.result(
        'CREATE TABLE u (id INTEGER PRIMARY KEY, Größe INTEGER, "ÄÖ Ü" TEXT, "日本" JSONB, "GROSS" INTEGER, "x.y" INTEGER)'
    )
    sql.result("""INSERT INTO u VALUES (1, 5, 'ä', '{"é": 1}', 4, 9)""")
    sql.result('INSERT INTO u (id, größe, "ÄÖ Ü") VALUES (?, ?, ?)', [2, 6, "b"])
    changed = 'UPDATE u SET Größe = Größe + 1, "ÄÖ Ü" = upper("ÄÖ Ü") WHERE "日本" IS NOT NULL RETURNING größe, "ÄÖ Ü"'
    result = sql.result(changed)
    assert [column.name for column in result.columns] == ["größe", "ÄÖ Ü"]
    assert list(result.rows) == [(6, "Ä")]
    assert sql.rows('SELECT Größe, sum("GROSS"), max("x.y") FROM u GROUP BY größe') == [(6, 4, 9)]
    feed = "SELECT größe, \"ÄÖ Ü\", _change_type FROM table_changes('u') ORDER BY _commit_version, 3 DESC"
    assert [row[:2] for row in sql.rows(feed)] == [(5, "ä"), (6, "b"), (5, "ä"), (6, "Ä")]
    assert sql.rows("SELECT value -> 'new' ->> 'größe' FROM _changes.u ORDER BY \"offset\"") == [
        ("5",),
        ("6",),
        ("6",),
    ]
    sql.result("CREATE TOPIC r")
    route = "ALTER TOPIC r ADD SOURCE u ON INSERT, UPDATE WHERE größe > 5 PARTITION BY (\"ÄÖ Ü\") WITH (payload = 'full')"
    matched = [row[3] for row in sql.rows(f"EXPLAIN {route}")]
    assert matched == ["false", "true", "true"]
    sql.result(route)
    (added,) = sql.broker.routes
    assert added.sql is not None
    assert "größe" in str(added.sql)
    sql.result('CREATE VIEW w AS SELECT größe AS "Ü" FROM u; CREATE TABLE c AS SELECT id, größe, "ÄÖ Ü" FROM u')
    assert sql.rows('SELECT c."ÄÖ Ü", w."Ü" FROM c, w WHERE c.id = 1 AND w."Ü" = c.größe LIMIT 1') == [("Ä", 6)]
    sql.result('ALTER TOPIC r DROP SOURCE u; DROP VIEW w; ALTER TABLE u RENAME COLUMN Größe TO "Länge"')
    assert sql.rows('SELECT "Länge" FROM u WHERE id = 1') == [(6,)]
    # Only ASCII letters are folded.
    with pytest.raises(SqlError, match='column "lÄnge" does not exist'):
        sql.result("SELECT LÄNGE FROM u")


def test_tables_and_views_have_names_of_any_script_and_topics_for_kafka(sql: SharedSql) -> None:
    sql.result('CREATE TABLE Lager.Größe (id INTEGER PRIMARY KEY); CREATE TABLE "my table" (id INTEGER PRIMARY KEY)')
    sql.result('INSERT INTO lager.größe VALUES (1), (2); INSERT INTO "my table" SELECT id FROM lager."größe"')
    names = [live.topic.name for live in sql.broker.topics if live.topic.name != ROUTES_TOPIC]
    assert names == ["_changes.lager.gr_u00f6__u00df_e", "_changes.my_u0020_table"]
    consumed = sql.dicts("CONSUME FROM lager.gr_u00f6__u00df_e LIMIT 1")
    assert (consumed[0]["source_table"], consumed[0]["key"]) == ("lager.größe", '{"id":1}')
    sql.result('CREATE VIEW 見る AS SELECT count(*) AS "数" FROM "my table"')
    assert sql.rows("SELECT 数 FROM 見る") == [(2,)]
    assert sql.rows("SELECT table_schema, table_name FROM information_schema.tables ORDER BY 2") == [
        ("lager", "größe"),
        ("public", "my table"),
        ("public", "見る"),
    ]
    for statement in ("CREATE VIEW lager.größe AS SELECT 1 AS x", "CREATE TABLE 見る (id INTEGER PRIMARY KEY)"):
        with pytest.raises(TableExistsError):
            sql.result(statement)
    for statement in ("CREATE TOPIC größe", 'CREATE TABLE "a""b" (id INTEGER PRIMARY KEY)'):
        with pytest.raises(InvalidTopicNameError):
            sql.result(statement)
    sql.result("DROP TABLE lager.größe; DROP VIEW 見る")
    assert [row[0] for row in sql.rows("SHOW TABLES")] == ["my table"]


def test_rows_are_copied_into_tables_and_columns_of_any_script(sql: SharedSql) -> None:
    sql.run('CREATE TABLE lager.größe (id INTEGER PRIMARY KEY, 名前 TEXT, "ÄÖ Ü" INTEGER)')
    rows = pa.table({"id": [1, 2], "名前": ["太郎", None], "ÄÖ Ü": [5, 6]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    assert sql.copy_rows("lager.größe", sink.getvalue().to_pybytes()).rows == 2
    assert sql.rows("SELECT * FROM lager.größe ORDER BY id") == [(1, "太郎", 5), (2, None, 6)]


def test_names_are_cut_after_63_bytes_as_in_postgresql(sql: SharedSql) -> None:
    sql.result(f"CREATE TABLE {'a' * 70} ({'b' * 70} INTEGER PRIMARY KEY)")
    assert [table.name for table in sql.broker.tables] == ["a" * 63]
    assert sql.rows(f"SELECT {'b' * 80} FROM {'a' * 63}") == []


def test_topics_with_capitals_are_found_without_quotes_where_that_is_clear(sql: SharedSql) -> None:
    sql.result("CREATE TOPIC App.Orders WITH (alias = 'Bestellungen'); INSERT INTO App.Orders (value) VALUES ('1')")
    assert sql.rows("SELECT value FROM App.Orders UNION ALL SELECT value FROM bestellungen") == [("1",), ("1",)]
    sql.result('CREATE TOPIC app.ORDERS; INSERT INTO "App.Orders" (value) VALUES (2)')
    with pytest.raises(SqlError, match="no table"):
        sql.result("SELECT * FROM App.Orders")
    assert sql.rows('SELECT count(*) FROM "App"."Orders"') == [(2,)]
