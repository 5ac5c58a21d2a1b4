"""Queries and writes: what passes, what they read, where their parameters are, and what is refused."""

import time

import pytest

from tailrace.model.errors import LimitExceededError, SqlError, SqlSyntaxError, UnsupportedSqlError
from tailrace.model.limits import Limits
from tailrace.sql.parse import parse
from tailrace.sql.statements import BeginStatement, CommitStatement, Query, RollbackStatement, Write


def query(text: str) -> Query:
    (statement,) = parse(text)
    assert isinstance(statement, Query)
    return statement


@pytest.mark.parametrize(
    ("text", "kind", "target"),
    [
        ("INSERT INTO a.b (x, y) VALUES (1, 'z'), (2, NULL)", "insert", "a.b"),
        ("insert into a.b select * from c", "insert", "a.b"),
        ("INSERT INTO a (x) VALUES (1) ON CONFLICT (x) DO UPDATE SET x = excluded.x RETURNING x", "insert", "a"),
        ("INSERT INTO a VALUES (1) ON CONFLICT DO NOTHING", "insert", "a"),
        ("UPDATE a.b SET x = x + 1, y = DEFAULT WHERE z = 3 RETURNING *", "update", "a.b"),
        ("UPDATE a SET x = b.x FROM b WHERE a.i = b.i", "update", "a"),
        ("DELETE FROM a.b WHERE x = 1", "delete", "a.b"),
        ("WITH c AS (SELECT 1 AS x) DELETE FROM a WHERE x IN (SELECT x FROM c)", "delete", "a"),
    ],
)
def test_a_write_knows_what_it_writes(text: str, kind: str, target: str) -> None:
    (statement,) = parse(text)
    assert isinstance(statement, Write)
    assert (statement.kind, statement.target) == (kind, target)


def test_parameters_are_numbered_by_their_place_in_the_text() -> None:
    found = query("SELECT ? FROM t WHERE a = ? OFFSET ? LIMIT ?")
    assert found.parameters == ("1", "2", "3", "4")
    assert found.postgres_text == "SELECT $1 FROM t WHERE a = $2 OFFSET $3 LIMIT $4"


def test_parameters_by_name_are_kept_once() -> None:
    found = query("SELECT :a, :b, :a::int")
    assert found.parameters == ("a", "b")
    assert found.postgres_text == "SELECT $1, $2, $1::int"


@pytest.mark.parametrize(
    ("text", "written", "names"),
    [
        ("SELECT a ? 'b', ? ? ?, c->'d'?'e'", "SELECT a ? 'b', $1 ? $2, c->'d'?'e'", ("1", "2")),
        ("SELECT j ?| ?, j ?& ARRAY[?], j @? ?", "SELECT j ?| $1, j ?& ARRAY[$2], j @? $3", ("1", "2", "3")),
        ("SELECT a=?, a>=? AND b BETWEEN ? AND ?", "SELECT a=$1, a>=$2 AND b BETWEEN $3 AND $4", ("1", "2", "3", "4")),
        ("SELECT ?||'x'||?::text LIMIT ?", "SELECT $1||'x'||$2::text LIMIT $3", ("1", "2", "3")),
        ("SELECT a[1:2], a[:n], a[b:c], :n::int", "SELECT a[1:2], a[$1], a[b:c], $1::int", ("n",)),
        ("SELECT '?', \"?\", $$ ? :a $$, E'\\'?', /* ? /* :b */ ? */ :c -- ?", None, ("c",)),
        ("SELECT $2 + $1", "SELECT $2 + $1", ("1", "2")),
        ("SELECT 1 FETCH FIRST ? ROWS ONLY", "SELECT 1 FETCH FIRST $1 ROWS ONLY", ("1",)),
    ],
)
def test_parameters_stand_where_operands_do(text: str, written: str | None, names: tuple[str, ...]) -> None:
    found = query(text)
    assert found.parameters == names
    assert written is None or found.postgres_text == written


def test_parameters_of_two_forms_are_refused() -> None:
    with pytest.raises(SqlError, match="parameters of both forms"):
        parse("SELECT $1, ?")


def test_names_may_have_more_than_three_parts() -> None:
    found = query('SELECT é, a.b."C".d.key FROM a.b."C".d, x.y.z.w AS w WHERE :p = 1')
    assert found.postgres_text == 'SELECT é, a.b."C".d.key FROM "a.b.C.d", "x.y.z.w" AS w WHERE $1 = 1'
    where = found.tree["SelectStmt"]["whereClause"]["A_Expr"]
    assert found.position_of(where["rexpr"]["A_Const"]["location"]) == (1, 65)


def test_many_statements_have_their_places() -> None:
    statements = parse("BEGIN; -- one\nSELECT 1;\n  /* two; */ COMMIT ;; start transaction; rollback work;")
    assert [type(statement) for statement in statements] == [
        BeginStatement,
        Query,
        CommitStatement,
        BeginStatement,
        RollbackStatement,
    ]
    assert [(statement.line, statement.column, statement.text) for statement in statements[:3]] == [
        (1, 1, "BEGIN"),
        (2, 1, "SELECT 1"),
        (3, 14, "COMMIT"),
    ]


def test_names_in_a_tree_have_their_places_in_the_whole_text() -> None:
    found = parse("SELECT 1;\nSELECT 'ü', :a,\n       wrong FROM t")[1]
    assert isinstance(found, Query)
    column = found.tree["SelectStmt"]["targetList"][2]["ResTarget"]["val"]["ColumnRef"]
    assert found.position_of(column["location"]) == (3, 8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT * FROM t WHERE (a = 1", "line 1, column 29: syntax error at end of input"),
        ("SELECT * FROM t\nWHERE a = = 1", 'line 2, column 11: syntax error at or near "="'),
        ("SELECT 1 FROMM x y", 'line 1, column 16: syntax error at or near "x"'),
        ("SELECT a,, b", 'line 1, column 10: syntax error at or near ","'),
        ("SELECT a, FROM t", 'line 1, column 11: syntax error at or near "FROM"'),
        ("SELECT , a", 'line 1, column 8: syntax error at or near ","'),
        ("INSERT INTO t VALUES (1,)", 'line 1, column 25: syntax error at or near ")"'),
        ("INSERT INTO t", "line 1, column 14: syntax error at end of input"),
        ("INSERT INTO t VALUES (1) ON CONFLICT", "line 1, column 37: syntax error at end of input"),
        ("UPDATE t SET", "line 1, column 13: syntax error at end of input"),
        ("SELECT * FROM a JOIN b ON", "line 1, column 26: syntax error at end of input"),
        ("SELECT 'abc", "line 1, column 8: what starts here is not closed; expected ', found the end of the text"),
        ("SELECT e'\\'; SELECT 1", "line 1, column 8: what starts here is not closed; expected '"),
        ('SELECT "abc', 'expected "'),
        ("SELECT /* abc", "expected the end of a comment"),
        ("SELECT 1e", "line 1, column 8: trailing junk after numeric literal"),
        ("SELECT `a`", "line 1, column 11: syntax error at end of input"),
        ("SELECT key, offset FROM t", 'offset is a keyword: if you mean a name, write it in quotes ("offset")'),
        ("", "expected a statement"),
        (" ;; -- nothing\n", "expected a statement"),
    ],
)
def test_a_syntax_error_says_where_and_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(SqlSyntaxError) as refused:
        parse(text)
    assert message in str(refused.value)


UNSUPPORTED = [
    "ABORT",
    "ANALYZE",
    "ATTACH 'x.db' AS x",
    "CACHE TABLE t",
    "CALL f()",
    "CHECKPOINT",
    "COMMENT ON TABLE t IS 'x'",
    "CREATE DATABASE x",
    "CREATE EXTENSION x",
    "CREATE FUNCTION f() RETURNS int AS 'x'",
    "CREATE MACRO f(a) AS a",
    "CREATE OR REPLACE TABLE t (a int)",
    "CREATE SCHEMA s",
    "CREATE SECRET x",
    "CREATE SEQUENCE s",
    "CREATE TRIGGER x",
    "ALTER SYSTEM SET x = 1",
    "DROP SCHEMA s",
    "DEALLOCATE x",
    "DECLARE c CURSOR FOR SELECT 1",
    "DETACH x",
    "DO $$ x $$",
    "END",
    "EXECUTE x",
    "EXPORT DATABASE 'x'",
    "FETCH 1 FROM c",
    "FROM t",
    "IMPORT DATABASE 'x'",
    "INSTALL httpfs",
    "KILL 1",
    "LISTEN x",
    "LOAD httpfs",
    "LOCK TABLE t",
    "MERGE INTO t USING u ON true WHEN MATCHED THEN DELETE",
    "NOTIFY x",
    "PIVOT t ON a",
    "PRAGMA journal_mode = OFF",
    "PREPARE x AS SELECT 1",
    "REFRESH MATERIALIZED VIEW v",
    "REINDEX",
    "RELEASE x",
    "REPLACE INTO t VALUES (1)",
    "RESET x",
    "SAVEPOINT x",
    "SELEC 1",
    "SET x = 1",
    "SUMMARIZE t",
    "UNPIVOT t ON a",
    "USE x",
    "VACUUM",
]


@pytest.mark.parametrize("text", ["COPY t TO 'file'", "COPY t FROM PROGRAM 'sh'"])
def test_copy_is_run_by_clients(text: str) -> None:
    with pytest.raises(SqlError, match="line 1, column 1: COPY reads and writes files of the client, so a client runs it"):
        parse(text)


@pytest.mark.parametrize("text", UNSUPPORTED)
def test_what_is_not_on_the_list_is_refused_by_name(text: str) -> None:
    with pytest.raises(UnsupportedSqlError, match=r"line 1, column \d+: .* is not supported; expected ") as refused:
        parse(text)
    named = str(refused.value).partition(": ")[2].partition(" is not")[0]
    assert text.upper().startswith(named)


NESTED = {
    "brackets": ("SELECT " + "(" * 5000, "1", ")" * 5000),
    "subqueries": ("SELECT * FROM " + "(SELECT * FROM " * 3000, "t", ")" * 3000),
    "types": ("SELECT " + "decimal(" * 40, "1", ")" * 40),
    "casts to arrays": ("SELECT " + "a::int[" * 40, "1", "]" * 40),
    "negations": ("SELECT " + "NOT " * 20_000, "a", ""),
    "signs": ("SELECT " + "- " * 20_000, "1", ""),
    "sums": ("SELECT " + "1 + " * 20_000, "1", ""),
    "cases": ("SELECT " + "CASE WHEN a THEN " * 3000, "1", " END" * 3000),
    "casts": ("SELECT 1", "", "::int" * 20_000),
    "names": ("SELECT a", "", ".a" * 20_000),
}


@pytest.mark.parametrize("kind", NESTED)
def test_deep_nesting_is_refused_at_once(kind: str) -> None:
    text = "".join(NESTED[kind])
    began = time.process_time()
    with pytest.raises((SqlError, LimitExceededError)):
        parse(text)
    assert time.process_time() - began < 5


def test_long_chains_of_conditions_are_no_nesting() -> None:
    conditions = " OR ".join(f"a = {number}" for number in range(1000))
    assert query(f"SELECT * FROM t WHERE {conditions}").parameters == ()


def test_a_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(LimitExceededError, match="statement_bytes"):
        parse("SELECT 1 -- " + "x" * 100, Limits(statement_bytes=100))


def test_too_many_statements_are_refused() -> None:
    assert len(parse("SELECT 1;" * 3, Limits(statements=3))) == 3
    with pytest.raises(LimitExceededError, match="4 statements, more than the limit statements allows"):
        parse("SELECT 1;" * 4, Limits(statements=3))


def test_nothing_of_a_text_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    for text in ("WITH a AS (CREATE secret", "SELECT IF > > secret", "WITH a AS (SET secret = 1) SELECT 1"):
        with pytest.raises(SqlError):
            parse(text)
    assert caplog.records == []
