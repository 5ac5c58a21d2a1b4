"""EXPLAIN says how statements run, and ANALYZE runs them."""

from typing import Any

import pytest

from tailrace.model.errors import SqlError
from tests.unit.sql.engine.conftest import SharedSql

SETUP = (
    "DROP TABLE IF EXISTS ex; DROP TOPIC IF EXISTS ex_events;"
    " CREATE TABLE ex (id INTEGER PRIMARY KEY, k TEXT NOT NULL, x DECIMAL(6, 2)); CREATE TOPIC ex_events PARTITIONS 2;"
    " INSERT INTO ex VALUES (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', 3.5);"
    " INSERT INTO ex_events (partition, value) VALUES (0, '{\"n\": 1}'), (0, '{\"n\": 2}'), (1, '{\"n\": 3}')"
)


@pytest.fixture
def sql(engine: SharedSql) -> SharedSql:
    engine.run(SETUP)
    return engine


def text_of(sql: SharedSql, statement: str, params: object = ()) -> str:
    return "\n".join(str(row[0]) for row in sql.rows(statement, params))


def plan_of(sql: SharedSql, statement: str) -> dict[str, Any]:
    found: Any = sql.rows(statement)
    (([document],),) = found
    assert isinstance(document, dict)
    return document


def test_a_row_by_key_is_read_from_sqlite(sql: SharedSql) -> None:
    assert text_of(sql, "EXPLAIN SELECT k FROM ex WHERE id = $1", [2]).splitlines() == [
        "Read by primary key of table ex",
        "  Columns: k",
        "  Conditions: id = 2",
        "  SQLite: SEARCH ex USING PRIMARY KEY (id=?)",
    ]


def test_a_scan_of_a_table_names_columns_and_conditions(sql: SharedSql) -> None:
    lines = text_of(sql, "EXPLAIN SELECT k, sum(x) FROM ex WHERE id > 1 AND x > 2 GROUP BY k").splitlines()
    assert lines[:6] == [
        "Query by DuckDB",
        "  Output: k text, sum numeric",
        "  ->  Scan of table ex",
        "        Columns: id, k, x",
        '        Conditions: "id" > 1',
        "        SQLite: SEARCH ex USING PRIMARY KEY (id>?)",
    ]
    assert any("GROUP_BY" in line for line in lines)
    assert not any("Cardinality" in line or "cost" in line or "actual" in line for line in lines)


def test_a_scan_of_a_topic_shows_its_bounds(sql: SharedSql) -> None:
    text = text_of(sql, 'EXPLAIN SELECT value FROM ex_events WHERE partition = 0 AND "offset" >= 1')
    assert "Scan of topic ex_events" in text
    assert "Bounds: partition in (0), offset >= 1" in text
    assert "Partitions: 1 of 2" in text
    assert "Offsets: 0: 1 to 1" in text
    assert "Records: 1" in text
    later = "TIMESTAMPTZ '2020-01-02' + interval '1 day'"
    computed = text_of(sql, f"EXPLAIN SELECT value FROM ex_events WHERE timestamp >= {later}")
    assert "timestamp >= 2020-01-03 00:00:00.000+00:00" in computed


def test_analyze_counts_what_each_step_reads(sql: SharedSql) -> None:
    document = plan_of(sql, "EXPLAIN (ANALYZE, FORMAT JSON) SELECT k, count(*) FROM ex WHERE id < 3 GROUP BY k")
    assert document.keys() == {"Plan", "Planning Time", "Execution Time"}
    plan: dict[str, Any] = document["Plan"]
    assert (plan["Node Type"], plan["Actual Rows"]) == ("Query by DuckDB", 2)
    scan = plan["Plans"][0]
    assert (scan["Node Type"], scan["Relation Name"], scan["Actual Rows"]) == ("Scan of table", "ex", 2)
    assert scan["Actual Total Time"] >= 0
    untimed = plan_of(sql, "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) SELECT count(*) FROM ex_events")
    assert "Actual Total Time" not in str(untimed)
    assert untimed["Plan"]["Plans"][0]["Actual Rows"] == 3


def test_the_plan_of_a_write_says_how_rows_are_found_and_checked(sql: SharedSql) -> None:
    assert text_of(sql, "EXPLAIN UPDATE ex SET x = 1.255 WHERE id = 2 RETURNING k").splitlines() == [
        "Commit to the log",
        "  ->  Update of table ex",
        "        Sets: x",
        "        Casts: x from numeric to numeric",
        "        Returning: k",
        "        Checks: NOT NULL (k), PRIMARY KEY (id)",
        "        Change events: one for each row, in topic _changes.ex",
        "        ->  Read by primary key of table ex",
        '              Conditions: "id" = 2',
        "              SQLite: SEARCH ex USING PRIMARY KEY (id=?)",
    ]
    scanned = text_of(sql, "EXPLAIN DELETE FROM ex WHERE k = 'a' AND length(k) = ?", [1])
    assert "Search of table ex" in scanned
    assert "Conditions: \"k\" = 'a'" in scanned
    assert "Filter: the other conditions, evaluated for each row" in scanned
    inserted = text_of(sql, "EXPLAIN INSERT INTO ex (id, k) VALUES (7, 'x'), (8, 'y') ON CONFLICT (id) DO UPDATE SET k = 'z'")
    assert "Rows: 2 rows of values" in inserted
    assert "On conflict: (id) the row is updated: k" in inserted
    copied = text_of(sql, "EXPLAIN INSERT INTO ex_events (value) SELECT k FROM ex")
    assert "Publish to topic ex_events" in copied
    assert "Scan of table ex" in copied


def test_the_queries_of_a_write_are_part_of_its_plan(sql: SharedSql) -> None:
    updated = text_of(sql, "EXPLAIN UPDATE ex SET k = o.k FROM ex o WHERE o.id = ex.id + 1 AND ex.id = ?", [1])
    assert "Rows: found by the query" in updated
    assert updated.count("->  Scan of table ex") == 2
    assert 'Conditions: "id" = 1' in updated
    inserted = text_of(sql, "EXPLAIN INSERT INTO ex SELECT id + 10, k, x FROM ex WHERE k IN (SELECT 'a')")
    assert "Rows: those of the query" in inserted
    assert "->  Query by DuckDB" in inserted
    assert sql.rows("SELECT count(*) FROM ex") == [(3,)]
    document = plan_of(sql, "EXPLAIN (ANALYZE, FORMAT JSON) DELETE FROM ex WHERE id IN (SELECT max(id) FROM ex)")
    assert document["Plan"]["Actual Rows"] == 1
    assert sql.rows("SELECT count(*) FROM ex") == [(2,)]


def test_constraints_and_indexes_are_part_of_the_plan(sql: SharedSql) -> None:
    sql.run("DROP TABLE IF EXISTS ex_checked")
    sql.run("CREATE TABLE ex_checked (id INTEGER PRIMARY KEY, a INTEGER CHECK (a > 0), b TEXT UNIQUE)")
    text = text_of(sql, "EXPLAIN UPDATE ex_checked SET a = 5 WHERE b = 'x'")
    assert "Checks: PRIMARY KEY (id), UNIQUE (b), CHECK (a > 0)" in text
    assert "SEARCH ex_checked USING INDEX" in text
    sql.run("DROP TABLE ex_checked")


def test_only_analyze_writes(sql: SharedSql) -> None:
    for statement in ("DELETE FROM ex", "UPDATE ex SET k = 'z'", "INSERT INTO ex VALUES (9, 'z', 1)"):
        sql.rows(f"EXPLAIN {statement}")
    assert sql.rows("SELECT id, k FROM ex ORDER BY id") == [(1, "a"), (2, "b"), (3, "a")]
    document = plan_of(sql, "EXPLAIN (ANALYZE, FORMAT JSON) DELETE FROM ex WHERE k = 'a'")
    plan: dict[str, Any] = document["Plan"]
    delete = plan["Plans"][0]
    assert (plan["Actual Rows"], delete["Actual Rows"], delete["Plans"][0]["Actual Rows"]) == (2, 2, 2)
    assert sql.rows("SELECT id FROM ex") == [(2,)]


def test_the_column_is_named_as_in_postgresql(sql: SharedSql) -> None:
    text = sql.result("EXPLAIN SELECT 1")
    document = sql.result("EXPLAIN (FORMAT JSON) SELECT 1")
    assert [(column.name, str(column.type)) for column in text.columns] == [("QUERY PLAN", "text")]
    assert [(column.name, str(column.type)) for column in document.columns] == [("QUERY PLAN", "json")]


@pytest.mark.parametrize(
    "statement", ["SELECT * FROM nothing", "SELECT nothing FROM ex", "UPDATE ex SET nothing = 1", "DELETE FROM nothing"]
)
def test_a_statement_that_would_fail_fails_when_it_is_explained(sql: SharedSql, statement: str) -> None:
    with pytest.raises(SqlError):
        sql.rows(f"EXPLAIN {statement}")
