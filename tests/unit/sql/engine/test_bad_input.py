"""Injections and other bad input: values stay values, engines stay in their cage, and the server goes on."""

import time

import pytest

from tailrace.model.errors import LimitExceededError, SqlError, TailraceError
from tests.unit.sql.engine.conftest import SharedSql

SETUP = (
    "DROP TABLE IF EXISTS t; DROP TOPIC IF EXISTS a; CREATE TABLE t (id INTEGER PRIMARY KEY, body TEXT); CREATE TOPIC a;"
    " INSERT INTO t VALUES (1, 'one'), (2, 'two'); INSERT INTO a (key, value) VALUES ('k', 'v')"
)


@pytest.fixture(scope="module")
def prepared(engine: SharedSql) -> SharedSql:
    engine.run(SETUP)
    return engine


def check_unchanged(sql: SharedSql) -> None:
    assert sql.rows("SELECT id, body FROM t ORDER BY id") == [(1, "one"), (2, "two")]
    assert sql.rows("SELECT key, value FROM a") == [("k", "v")]


HOSTILE_VALUES = [
    "'; DROP TABLE t; --",
    "' OR '1'='1",
    "1); DELETE FROM t; --",
    '"; DROP TOPIC a; --',
    "\\'; DROP TABLE t; --",
    "'/*",
    "*/ DROP TABLE t /*",
    "$$; DROP TABLE t; $$",
    "?",
    ":id",
    "$1",
    "%s",
    "{{7*7}}",
    "\u0000x"[1:],
    "\u2019; DROP TABLE t",
    "\n;\nDROP TABLE t",
    "x" * 100_000,
    "🦆" * 1000,
    "../../etc/passwd",
    "${jndi:ldap://x}",
]


@pytest.mark.parametrize("value", HOSTILE_VALUES, ids=lambda value: repr(value[:20]))
def test_a_value_is_never_a_statement(engine: SharedSql, value: str) -> None:
    engine.run(SETUP)
    quoted = "'" + value.replace("'", "''") + "'"
    engine.run("INSERT INTO t VALUES (?, ?)", [3, value])
    engine.run(f"INSERT INTO t VALUES (4, {quoted})")
    engine.run("INSERT INTO a (key, value) VALUES (:k, :v)", {"k": value[:1000], "v": value})
    engine.run(f"UPDATE t SET body = body || {quoted} WHERE body = :v AND id = 4", {"v": value})
    assert engine.rows("SELECT id, body FROM t WHERE id > 2 ORDER BY id") == [(3, value), (4, value * 2)]
    assert engine.rows("SELECT id FROM t WHERE body = ?", [value]) == [(3,)]
    assert engine.rows("SELECT value FROM a WHERE value = ?", [value]) == [(value,)]
    with pytest.raises(TailraceError):
        engine.run("CONSUME FROM a GROUP :g FROM OFFSET 99", {"g": value})
    assert engine.rows("SELECT count(*) FROM t") == [(4,)]


ESCAPES = [
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_csv_auto('/etc/passwd')",
    "SELECT * FROM read_parquet('x.parquet')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM read_json('/etc/passwd')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM '/etc/passwd'",
    'SELECT * FROM "/etc/passwd"',
    "SELECT * FROM 'https://example.com/x.csv'",
    "SELECT * FROM a, read_text('/etc/passwd')",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM sqlite_schema",
    "SELECT * FROM pragma_table_info('t')",
    "SELECT * FROM information_schema.triggers",
    "SELECT * FROM pg_catalog.pg_class",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_extensions()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('t')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT load_extension('x.so')",
    "SELECT getenv('PATH')",
    "SELECT current_setting('memory_limit')",
    "SELECT readfile('/etc/passwd') FROM t",
    "SELECT writefile('/tmp/x', 'y') FROM t",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_sleep(100)",
    "SELECT lo_import('/etc/passwd')",
    "SELECT sqlite_version() FROM t",
    "SELECT fts3_tokenizer('x') FROM t",
    "SELECT zeroblob(1000000000) FROM t",
    "SELECT randomblob(1000000000) FROM t",
    "SELECT system('id')",
    "INSERT INTO sqlite_master VALUES (1)",
    "UPDATE sqlite_sequence SET seq = 1",
    "DELETE FROM sqlite_schema",
    "DELETE FROM system.topics",
    "INSERT INTO system.topics VALUES (1)",
    "INSERT INTO _changes.t (value) VALUES ('x')",
    "INSERT INTO _routes (value) VALUES ('x')",
    "DROP TABLE sqlite_master",
    "DROP TABLE system.topics",
    "CREATE TABLE sqlite_x (id INTEGER PRIMARY KEY)",
    "CREATE TABLE SQLite_y (id INTEGER PRIMARY KEY)",
    "CREATE TABLE _tailrace.tables (id INTEGER PRIMARY KEY)",
    "DELETE FROM t WHERE (SELECT count(*) FROM _tailrace.tables) > 0",
    "DELETE FROM t WHERE (SELECT count(*) FROM sqlite_master) > 0",
    "CREATE TABLE system.x (id INTEGER PRIMARY KEY)",
    "CREATE TABLE _changes.x (id INTEGER PRIMARY KEY)",
    "CREATE TOPIC _routes",
    "ALTER TOPIC a ADD SOURCE t ON INSERT WHERE (SELECT 1) = 1",
    "ALTER TOPIC a ADD SOURCE t ON INSERT WHERE random() > 0.5",
    "ALTER TOPIC a ADD SOURCE t ON INSERT WHERE reflect('java.lang.Runtime', 'exec')",
    "ALTER TOPIC a ADD SOURCE t ON INSERT WHERE java_method('x', 'y')",
    "ALTER TOPIC a ADD SOURCE t ON INSERT PARTITION BY (load_extension('x'))",
]


@pytest.mark.parametrize("text", ESCAPES)
def test_engines_stay_in_their_cage(prepared: SharedSql, text: str) -> None:
    with pytest.raises(TailraceError) as refused:
        prepared.run(text)
    assert 400 <= refused.value.http_status < 500, refused.value
    assert "root:" not in str(refused.value)
    check_unchanged(prepared)


TORN = [
    "SELECT",
    "SELECT * FROM",
    "SELECT * FROM t WHERE",
    "SELECT nothing FROM t",
    "SELECT * FROM nothing",
    "SELECT nothing FROM a",
    "SELECT 1 / 0 FROM nothing",
    "SELECT no_such_function(id) FROM t",
    "SELECT no_such_function(value) FROM a",
    "SELECT id FROM t GROUP BY",
    "SELECT CAST('x' AS INTEGER) FROM a",
    "SELECT CAST(id AS NOTHING) FROM t",
    "INSERT INTO t VALUES (1)",
    "INSERT INTO t VALUES (1, 2, 3)",
    "INSERT INTO t (nothing) VALUES (1)",
    "INSERT INTO t VALUES ('x', 'y')",
    "INSERT INTO t VALUES (99999999999, 'y')",
    "INSERT INTO t VALUES (NULL, 'y')",
    "UPDATE t SET nothing = 1",
    "UPDATE t SET id = 'x'",
    "DELETE FROM t WHERE nothing = 1",
    "ALTER TOPIC a ADD SOURCE nothing ON INSERT",
    "ALTER TOPIC nothing ADD SOURCE t ON INSERT",
    "ALTER TOPIC a ADD SOURCE t ON INSERT WHERE nothing = 1",
    "ALTER TOPIC a ADD SOURCE t ON INSERT WHERE OLD.id = 1",
    "ALTER TOPIC a ADD SOURCE t ON INSERT WHERE body = 1 +",
    "DESCRIBE TOPIC nothing",
    "DESCRIBE TABLE nothing",
    "CLEAR TOPIC nothing",
    "SELECT 'x",
    "SELECT /*",
    'SELECT "',
    "\u0000",
    "\ufeffSELECT",
    "💥",
    ")",
    "(((",
    ";;;",
    "SELECT 1; ;; SELEKT",
    "SELECT ?",
    "SELECT :x",
]


@pytest.mark.parametrize("text", TORN, ids=repr)
def test_bad_statements_are_refused_and_change_nothing(prepared: SharedSql, text: str) -> None:
    with pytest.raises(TailraceError) as refused:
        prepared.run(text)
    assert 400 <= refused.value.http_status < 500, refused.value
    check_unchanged(prepared)


HEAVY = [
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r, t",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r, a",
]


@pytest.mark.parametrize("text", HEAVY)
def test_a_query_without_end_is_stopped(prepared: SharedSql, text: str) -> None:
    began = time.monotonic()
    with pytest.raises(TailraceError, match="query_seconds") as refused:
        prepared.run(text)
    assert refused.value.http_status == 422
    assert time.monotonic() - began < 60, "it has five seconds, and would go on for ever"
    check_unchanged(prepared)


DEEP = "[" * 3_000 + "]" * 3_000


def nested(depth: int) -> list[object]:
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value


def test_parameters_of_a_query_hold_only_so_many_values(prepared: SharedSql) -> None:
    for value in ([1] * 20_001, [[1] * 12_000, [2] * 12_000]):
        with pytest.raises(LimitExceededError, match="query_nodes"):
            prepared.run("SELECT ?", [value])


@pytest.mark.parametrize(
    ("text", "params"),
    [
        (f"SELECT '{DEEP}'::json", ()),
        ("SELECT (?)::json", [DEEP]),
        ("SELECT ?", [nested(900)]),
        ("UPDATE t SET body = ?", [nested(900)]),
        (f"SELECT {'NOT ' * 3_000}TRUE", ()),
        (f"SELECT {'CASE WHEN TRUE THEN ' * 3_000}1{' END' * 3_000}", ()),
        (f"ALTER TOPIC a ADD SOURCE t ON INSERT WHERE {'NOT ' * 3_000}TRUE", ()),
    ],
)
def test_what_is_nested_too_deep_is_told_so(prepared: SharedSql, text: str, params: object) -> None:
    with pytest.raises(SqlError, match="nested"):
        prepared.run(text, params)
    check_unchanged(prepared)
