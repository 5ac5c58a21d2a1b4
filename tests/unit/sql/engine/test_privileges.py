"""Which statement needs which rights: each kind of statement, run by principals with different grants."""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa
import pytest

from tailrace.model.errors import (
    ConstraintError,
    ForbiddenError,
    RouteExistsError,
    SqlError,
    SqlForbiddenError,
    TailraceError,
    UnknownRouteError,
    UnknownTableError,
    UnknownTopicError,
    UnsupportedSqlError,
)
from tailrace.sql.parse import kind_of, parse
from tailrace.sql.statements import Statement
from tests.support.aio import on_loop
from tests.support.sql import AUTHENTICATED, SqlClient, acting_as, running_sql

NOBODY, READER, STRANGER, GRANTED, ADMIN = "nobody", "reader", "stranger", "granted", "chief"
PRINCIPALS = (NOBODY, READER, STRANGER, GRANTED, ADMIN)
READERS = {READER, GRANTED, ADMIN}
OWNERS = {GRANTED, ADMIN}
EVERYBODY = set(PRINCIPALS)

SETUP = """
CREATE TABLE app.t (id int PRIMARY KEY, n int); INSERT INTO app.t VALUES (1, 10), (2, 20);
CREATE TABLE other.t (id int PRIMARY KEY, n int); INSERT INTO other.t VALUES (1, 11);
CREATE TOPIC app.o; INSERT INTO app.o (key, value) VALUES ('k', 'v'); CREATE TOPIC other.o;
CREATE VIEW app.v AS SELECT * FROM app.t; CREATE VIEW app.mixed AS SELECT a.id FROM app.t a JOIN other.t b USING (id);
CREATE USER nobody; CREATE USER reader; CREATE USER stranger; CREATE USER granted; CREATE USER chief ROLE admin;
GRANT SELECT ON TABLE app.t, app.v, app.mixed TO reader; GRANT CONSUME ON TOPIC app.o TO reader;
GRANT CONSUME ON GROUP 'app-*' TO reader;
GRANT ALL ON TABLE other.* TO stranger; GRANT ALL ON PATTERN 'other.>' TO stranger; GRANT ALL ON GROUP 'other-*' TO stranger;
GRANT ALL ON TABLE app.* TO granted; GRANT ALL ON PATTERN 'app.>' TO granted; GRANT ALL ON GROUP 'app-*' TO granted;
GRANT ALL ON SOURCE app* TO granted;
"""


_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Case(NamedTuple):
    text: str
    allowed: set[str]
    before: str = ""
    """Run by the server before each try."""
    error: type[TailraceError] | None = None
    """What is raised to those who are allowed."""


QUERIES = [
    Case("SELECT * FROM app.t", READERS),
    Case("SELECT id FROM app.t WHERE id = 1", READERS),
    Case("SELECT id + 1 FROM app.t WHERE n > 10 ORDER BY n LIMIT 1", READERS),
    Case("SELECT count(*) FROM app.t GROUP BY n", READERS),
    Case("SELECT 1 WHERE EXISTS (SELECT 1 FROM app.t)", READERS),
    Case("SELECT (SELECT max(n) FROM app.t)", READERS),
    Case("WITH x AS (SELECT * FROM app.t) SELECT * FROM x", READERS),
    Case(
        "WITH RECURSIVE x AS (SELECT min(id) AS i FROM app.t UNION ALL SELECT i + 1 FROM x WHERE i < 3) SELECT * FROM x",
        READERS,
    ),
    Case("TABLE app.t", READERS),
    Case("SELECT * FROM public.p", {ADMIN}, "CREATE TABLE IF NOT EXISTS p (id int PRIMARY KEY)"),
    Case("SELECT id FROM other.t UNION SELECT id FROM app.t", {ADMIN}),
    Case("SELECT * FROM app.t a LEFT JOIN other.t b ON a.id = b.id", {ADMIN}),
    Case("SELECT * FROM app.t, LATERAL (SELECT * FROM other.t o WHERE o.id = t.id) AS x", {ADMIN}),
    Case("SELECT * FROM app.v", READERS),
    Case("SELECT * FROM app.v WHERE id = 1", READERS),
    Case("SELECT * FROM app.mixed", {ADMIN}),
    Case("SELECT * FROM (SELECT * FROM app.v) AS x JOIN app.t USING (id)", READERS),
    Case("SELECT * FROM table_changes('app.t')", READERS),
    Case("SELECT * FROM _changes.app.t", READERS),
    Case("SELECT * FROM app.o", READERS),
    Case("SELECT value FROM LATEST(app.o)", READERS),
    Case("SELECT * FROM app.missing", OWNERS, error=UnknownTableError),
    Case("SELECT * FROM table_changes('app.missing')", OWNERS, error=SqlError),
    Case("SELECT 1", EVERYBODY),
    Case("VALUES (1)", EVERYBODY),
    Case("WITH secret AS (SELECT 1) SELECT * FROM secret", EVERYBODY),
    Case("SELECT name FROM system.topics", EVERYBODY),
    Case("SELECT * FROM system.grants", EVERYBODY),
    Case("SELECT * FROM information_schema.tables", EVERYBODY),
    Case("SELECT * FROM system.missing", EVERYBODY, error=UnknownTableError),
    Case("EXPLAIN SELECT * FROM app.t", READERS),
    Case("EXPLAIN SELECT * FROM app.t WHERE id = 1", READERS),
    Case("EXPLAIN SELECT n, count(*) FROM app.t GROUP BY n", READERS),
    Case("EXPLAIN ANALYZE SELECT * FROM app.o", READERS),
    Case("BEGIN; SELECT id FROM app.t WHERE id = 1; COMMIT", READERS),
    Case("BEGIN; SELECT count(*) FROM app.t GROUP BY n; COMMIT", READERS),
    Case("BEGIN; SELECT id FROM app.t WHERE id = 1; ROLLBACK", EVERYBODY),
]
WRITES = [
    Case("INSERT INTO app.t (id, n) VALUES (1, 1) ON CONFLICT DO NOTHING", OWNERS),
    Case("INSERT INTO app.t (id, n) VALUES (3, 1)", OWNERS, "DELETE FROM app.t WHERE id = 3"),
    Case("INSERT INTO app.t (id, n) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = 10", OWNERS),
    Case("INSERT INTO app.t SELECT id + 10, n FROM app.t", OWNERS, "DELETE FROM app.t WHERE id > 10"),
    Case("INSERT INTO app.t SELECT id + 10, n FROM other.t", {ADMIN}, "DELETE FROM app.t WHERE id > 10"),
    Case("INSERT INTO other.t SELECT id + 10, n FROM app.t", {ADMIN}, "DELETE FROM other.t WHERE id > 10"),
    Case("INSERT INTO app.missing VALUES (1)", OWNERS, error=UnknownTableError),
    Case("INSERT INTO app.v VALUES (1, 1)", READERS, error=UnsupportedSqlError),
    Case("UPDATE app.t SET n = 10 WHERE id = 1", OWNERS),
    Case("UPDATE app.t SET n = o.n FROM other.t o WHERE o.id = t.id", {ADMIN}),
    Case("DELETE FROM app.t WHERE id = 99", OWNERS),
    Case("DELETE FROM app.t WHERE id IN (SELECT id + 100 FROM other.t)", {ADMIN}),
    Case("TRUNCATE app.t", OWNERS, "INSERT INTO app.t VALUES (1, 10) ON CONFLICT DO NOTHING"),
    Case("EXPLAIN UPDATE app.t SET n = 1", OWNERS),
    Case("EXPLAIN INSERT INTO app.t SELECT id + 10, n FROM other.t", {ADMIN}),
    Case("EXPLAIN DELETE FROM app.missing", OWNERS, error=UnknownTableError),
    Case("BEGIN; INSERT INTO app.t VALUES (1, 1) ON CONFLICT DO NOTHING; COMMIT", OWNERS),
    Case("BEGIN; DELETE FROM app.t WHERE id IN (SELECT id + 100 FROM other.t); COMMIT", {ADMIN}),
    Case("BEGIN; TRUNCATE app.t; COMMIT", OWNERS),
    Case("INSERT INTO app.o (value) VALUES ('x')", OWNERS),
    Case("INSERT INTO app.o (value) SELECT n FROM other.t", {ADMIN}),
    Case("BEGIN; INSERT INTO app.o (value) VALUES ('x'); COMMIT", OWNERS),
    Case("INSERT INTO _changes.app.t (value) VALUES ('x')", {ADMIN}, error=TailraceError),
    Case("DELETE FROM app.o", READERS, error=UnsupportedSqlError),
]
TABLES = [
    Case("CREATE TABLE app.new (id int PRIMARY KEY)", OWNERS, "DROP TABLE IF EXISTS app.new"),
    Case("CREATE TABLE IF NOT EXISTS app.t (id int PRIMARY KEY)", OWNERS),
    Case("CREATE TABLE app.new AS SELECT * FROM app.t", OWNERS, "DROP TABLE IF EXISTS app.new"),
    Case("CREATE TABLE app.new AS SELECT * FROM other.t", {ADMIN}, "DROP TABLE IF EXISTS app.new"),
    Case("CREATE TABLE app.new AS SELECT * FROM other.t WITH NO DATA", {ADMIN}, "DROP TABLE IF EXISTS app.new"),
    Case("EXPLAIN CREATE TABLE app.newer AS SELECT * FROM app.t", OWNERS),
    Case("ALTER TABLE app.t ALTER COLUMN n SET DEFAULT 1", OWNERS),
    Case("ALTER TABLE IF EXISTS app.missing ALTER COLUMN n SET DEFAULT 1", OWNERS),
    Case("CREATE INDEX by_n ON app.t (n)", OWNERS, "DROP INDEX IF EXISTS app.by_n"),
    Case("DROP INDEX app.by_n", OWNERS, "CREATE INDEX IF NOT EXISTS by_n ON app.t (n)"),
    Case("DROP TABLE app.new", OWNERS, "CREATE TABLE IF NOT EXISTS app.new (id int PRIMARY KEY)"),
    Case("DROP TABLE IF EXISTS app.missing", OWNERS),
    Case("DROP TABLE app.missing", OWNERS, error=UnknownTableError),
    Case("CREATE VIEW app.seen AS SELECT * FROM app.t", OWNERS, "DROP VIEW IF EXISTS app.seen"),
    Case("CREATE VIEW app.seen AS SELECT * FROM other.t", {ADMIN}, "DROP VIEW IF EXISTS app.seen"),
    Case("CREATE OR REPLACE VIEW app.v AS SELECT * FROM app.t", OWNERS),
    Case("DROP VIEW app.seen", OWNERS, "DROP VIEW IF EXISTS app.seen; CREATE VIEW app.seen AS SELECT * FROM app.t"),
    Case("DROP VIEW IF EXISTS app.missing", OWNERS),
    Case("CREATE TYPE app.mood AS ENUM ('a')", {ADMIN}, "DROP TYPE IF EXISTS app.mood"),
    Case("ALTER TYPE app.mood ADD VALUE IF NOT EXISTS 'b'", {ADMIN}),
    Case("DROP TYPE app.mood", {ADMIN}),
    Case("DESCRIBE app.t", READERS),
    Case("DESCRIBE TABLE app.v", READERS, error=UnknownTableError),
    Case("DESCRIBE VIEW app.v", READERS),
    Case("DESCRIBE app.missing", OWNERS, error=UnknownTableError),
]
TOPICS = [
    Case("CREATE TOPIC app.new_topic", OWNERS, "DROP TOPIC IF EXISTS app.new_topic"),
    Case("CREATE TOPIC IF NOT EXISTS app.o", OWNERS),
    Case("ALTER TOPIC app.o SET (retention_seconds = 100)", OWNERS),
    Case("ALTER TOPIC app.o ADD PARTITIONS 1", OWNERS),
    Case("CLEAR TOPIC app.o", OWNERS),
    Case("DROP TOPIC app.new_topic", OWNERS, "CREATE TOPIC IF NOT EXISTS app.new_topic"),
    Case("DROP TOPIC IF EXISTS app.missing", OWNERS),
    Case("DESCRIBE TOPIC app.o", READERS),
    Case("DESCRIBE app.o", READERS),
    Case("CONSUME FROM app.o GROUP 'app-g' FROM EARLIEST", READERS),
    Case("CONSUME FROM app.missing", OWNERS, error=UnknownTopicError),
    Case("ACK app.o GROUP 'app-g' UPTO OFFSET 0", READERS, "INSERT INTO app.o (value) VALUES ('x')", TailraceError),
    Case("REDRIVE DEAD LETTERS OF app.o", OWNERS, error=UnknownTopicError),
    Case("ALTER TOPIC app.o ADD SOURCE app.t ON INSERT", OWNERS, "ALTER TOPIC app.o DROP SOURCE app.t"),
    Case("ALTER TOPIC app.o DROP SOURCE app.t", OWNERS, "ALTER TOPIC app.o ADD SOURCE app.t ON INSERT, UPDATE"),
    Case("ALTER TOPIC app.o ADD SOURCE other.t ON INSERT", {ADMIN}, "ALTER TOPIC app.o DROP SOURCE other.t"),
    Case("ALTER TOPIC other.o ADD SOURCE app.t ON INSERT", {ADMIN}, "ALTER TOPIC other.o DROP SOURCE app.t"),
    Case("EXPLAIN ALTER TOPIC app.o ADD SOURCE app.t ON DELETE", OWNERS),
    Case("ALTER TOPIC app.o DROP ROUTE 99", OWNERS, error=TailraceError),
]
SERVER = [
    Case(
        "CREATE SOURCE app FROM POSTGRES 'postgresql://u@h/d' WITH (captured_by = 'command')",
        OWNERS,
        "DROP SOURCE IF EXISTS app FORCE",
    ),
    Case("ALTER SOURCE app SET (tables = 'public.x')", OWNERS),
    Case("ALTER SOURCE app SNAPSHOT", OWNERS),
    Case("ALTER SOURCE app RESYNC", OWNERS),
    Case(
        "DROP SOURCE IF EXISTS app FORCE",
        OWNERS,
        "CREATE SOURCE IF NOT EXISTS app FROM POSTGRES 'postgresql://u@h/d' WITH (captured_by = 'command')",
    ),
    Case("CREATE SHADOW app TO KAFKA 'k:1' WITH (topics = 'x.>', copied_by = 'command')", {ADMIN}, "DROP SHADOW IF EXISTS app"),
    Case("ALTER SHADOW app SET (throttle = '1 MB')", {ADMIN}),
    Case("ALTER SHADOW app PAUSE", {ADMIN}),
    Case("ALTER SHADOW app SKIP LOST", {ADMIN}, error=TailraceError),
    Case("DROP SHADOW app", {ADMIN}),
    Case("ALTER PIPELINE router SET (latency = 'batch')", {ADMIN}),
    *(
        Case(f"SHOW {what}", EVERYBODY)
        for what in (
            "TOPICS",
            "TABLES",
            "VIEWS",
            "ROUTES",
            "GROUPS",
            "PIPELINES",
            "SOURCES",
            "SHADOWS",
            "USERS",
            "ROLES",
            "TOKENS",
        )
    ),
    Case("SHOW GRANTS", EVERYBODY),
    Case("SHOW GRANTS FOR reader", {READER, ADMIN}),
    Case("CREATE USER fresh PASSWORD 'x'", {ADMIN}, "DROP USER IF EXISTS fresh"),
    Case("ALTER USER fresh PASSWORD 'y'", {ADMIN}),
    Case("CREATE TOKEN FOR fresh", {ADMIN}),
    Case("ALTER USER reader SET QUOTA (requests = 5)", {ADMIN}),
    Case("ALTER USER reader RESET QUOTA", {ADMIN}),
    Case("ALTER CLIENT ID DEFAULT SET QUOTA (requests = 500)", {ADMIN}),
    Case("SHOW QUOTAS", EVERYBODY),
    Case("DROP TOKEN 'nothing'", {ADMIN}, error=TailraceError),
    Case("CREATE ROLE fresh_role", {ADMIN}, "DROP ROLE IF EXISTS fresh_role"),
    Case("GRANT fresh_role TO fresh", {ADMIN}),
    Case("REVOKE fresh_role FROM fresh", {ADMIN}),
    Case("GRANT SELECT ON TABLE app.t TO fresh", {ADMIN}),
    Case("REVOKE SELECT ON TABLE app.t FROM fresh", {ADMIN}),
    Case("DROP ROLE fresh_role", {ADMIN}),
    Case("DROP USER fresh", {ADMIN}),
]
CASES = {"queries": QUERIES, "writes": WRITES, "tables": TABLES, "topics": TOPICS, "server": SERVER}


async def outcome(sql: SqlClient, case: Case, principal: str) -> str:
    if case.before:
        with suppress(RouteExistsError, UnknownRouteError):
            await sql.run(case.before)
    with acting_as(principal):
        try:
            await sql.run(case.text)
        except ForbiddenError as error:
            return "forbidden" if error.sqlstate == "42501" else f"forbidden with {error.sqlstate}"
        except TailraceError as error:
            if case.error is not None and isinstance(error, case.error):
                return "allowed"
            return f"{type(error).__name__}: {error}"
    return "allowed"


@pytest.mark.parametrize("kind", CASES)
@on_loop
async def test_each_statement_needs_its_rights(kind: str) -> None:
    wrong = {}
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run(SETUP)
        for case in CASES[kind]:
            for principal in PRINCIPALS:
                expected = "allowed" if principal in case.allowed else "forbidden"
                found = await outcome(sql, case, principal)
                if found != expected:
                    wrong[case.text, principal] = found
    assert wrong == {}


@pytest.mark.parametrize("kind", CASES)
@on_loop
async def test_without_authentication_nothing_is_refused(kind: str) -> None:
    async with running_sql() as sql:
        await sql.run(SETUP)
        refused = [case.text for case in CASES[kind] if (await outcome(sql, case, NOBODY)).startswith("forbidden")]
        assert refused == []


def test_every_kind_of_statement_is_tried() -> None:
    tried = {kind_of(statement) for cases in CASES.values() for case in cases for statement in parse(case.text)}
    kinds = {"insert", "update", "delete", "select"}
    kinds |= {_CAPITAL.sub("_", kind.__name__.removesuffix("Statement")).lower() for kind in _kinds(Statement)}
    assert kinds - tried == {"postgres", "security", "query", "write"}


def _kinds(root: type[Statement]) -> Iterator[type[Statement]]:
    for kind in root.__subclasses__():
        if kind.__module__ == Statement.__module__:
            yield kind
            yield from _kinds(kind)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM {}",
        "SELECT * FROM {} WHERE id = 1",
        "SELECT * FROM table_changes('{}')",
        "SELECT 1 FROM (SELECT * FROM {}) AS x",
        "EXPLAIN SELECT * FROM {}",
        "INSERT INTO {} (id) VALUES (1)",
        "INSERT INTO {} (id) SELECT 1",
        "UPDATE {} SET id = 1",
        "DELETE FROM {}",
        "TRUNCATE {}",
        "DROP TABLE {}",
        "DROP TABLE IF EXISTS {}",
        "DROP VIEW IF EXISTS {}",
        "DROP TOPIC IF EXISTS {}",
        "ALTER TABLE {} ADD COLUMN x int",
        "ALTER TOPIC {} SET (retention_seconds = 1)",
        "CREATE INDEX ON {} (id)",
        "DESCRIBE {}",
        "DESCRIBE TOPIC {}",
        "DESCRIBE VIEW {}",
        "CLEAR TOPIC {}",
        "CONSUME FROM {}",
        "ALTER TOPIC app.o ADD SOURCE {} ON INSERT",
        "CREATE TABLE own.t AS SELECT * FROM {}",
        "BEGIN; INSERT INTO {} (id) VALUES (1); COMMIT",
    ],
)
@on_loop
async def test_what_does_not_exist_and_what_may_not_be_known_are_the_same(text: str) -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run("CREATE TABLE app.tab1e (id int PRIMARY KEY); CREATE TOPIC app.topic; CREATE TOPIC app.o")
        await sql.run(
            "CREATE VIEW app.view1 AS SELECT * FROM app.tab1e; CREATE USER nobody; GRANT ALL ON TABLE own.* TO nobody"
        )
        found = {}
        for name in ("app.tab1e", "app.topic", "app.view1", "app.none0"):
            with acting_as(NOBODY), pytest.raises(ForbiddenError) as caught:
                await sql.run(text.format(name))
            error = caught.value
            found[name] = (type(error), str(error).replace(name, "NAME"), getattr(error, "column", None))
        assert len(set(found.values())) == 1, found


@on_loop
async def test_refusals_point_at_the_place() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run(SETUP)
        with acting_as(STRANGER):
            for text, line, column in (
                ("SELECT *\nFROM other.t JOIN app.t USING (id)", 2, 19),
                ("SELECT 1; INSERT INTO app.t (id) VALUES (9)", 1, 23),
                ("DELETE FROM app.t", 1, 13),
                ("DROP TABLE app.t", 1, 1),
            ):
                with pytest.raises(SqlForbiddenError, match=r"'stranger' may not .* 'app.t'; have an administrator") as caught:
                    await sql.run(text)
                assert (caught.value.line, caught.value.column) == (line, column)


@on_loop
async def test_suggestions_are_names_that_may_be_known() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run("CREATE TABLE app.secrets (id int PRIMARY KEY); CREATE TABLE own.secretz (id int PRIMARY KEY)")
        await sql.run("CREATE USER alice; GRANT ALL ON TABLE own.* TO alice")
        with acting_as("alice"):
            for text in (
                "SELECT * FROM own.secrets",
                "DROP TABLE own.secrets",
                "INSERT INTO own.secrets VALUES (1)",
                "DESCRIBE own.secrets",
            ):
                with pytest.raises(UnknownTableError, match=r"did you mean 'own.secretz'\?"):
                    await sql.run(text)


@on_loop
async def test_writers_that_may_not_read_learn_nothing() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 7); CREATE USER alice")
        await sql.run("GRANT INSERT, UPDATE, DELETE ON TABLE t TO alice")
        with acting_as("alice"):
            await sql.run("INSERT INTO t VALUES (2, 8); INSERT INTO t VALUES (2, 8) ON CONFLICT DO NOTHING")
            await sql.run("UPDATE t SET n = 5; EXPLAIN UPDATE t SET n = 5")
            for text in (
                "INSERT INTO t VALUES (3, 1) RETURNING n",
                "INSERT INTO t SELECT id + 1, n FROM t",
                "WITH x AS (SELECT 1) INSERT INTO t SELECT id + 1, n FROM t, x",
                "INSERT INTO t VALUES ((SELECT max(n) FROM t), 1)",
                "INSERT INTO t VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = t.n",
                "UPDATE t SET n = n + 1",
                "UPDATE t SET n = 1 WHERE n = 7",
                "UPDATE t SET n = (SELECT max(n) FROM t)",
                "UPDATE t SET n = 1 RETURNING id",
                "DELETE FROM t WHERE n = 7",
                "DELETE FROM t USING (SELECT 1) AS x",
                "DELETE FROM t RETURNING *",
                "EXPLAIN DELETE FROM t WHERE n = 7",
                "BEGIN; UPDATE t SET n = 1 WHERE n = 7; COMMIT",
            ):
                with pytest.raises(SqlForbiddenError, match="'alice' may not read 't'"):
                    await sql.run(text)
            await sql.run("DELETE FROM t")


@on_loop
async def test_errors_of_writers_that_may_not_read_have_no_values() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run("CREATE TABLE t (id int PRIMARY KEY, a int, b int, UNIQUE (a, b))")
        await sql.run("INSERT INTO t VALUES (1, 1, 777), (2, 2, 777)")
        await sql.run("CREATE USER alice; GRANT UPDATE ON TABLE t TO alice")
        for text in ("UPDATE t SET a = 5", "BEGIN; UPDATE t SET a = 5; COMMIT", "EXPLAIN ANALYZE UPDATE t SET a = 5"):
            with pytest.raises(ConstraintError, match="777"):
                await sql.run(text)
            with acting_as("alice"), pytest.raises(ConstraintError, match="would have values that must be unique") as caught:
                await sql.run(text)
            assert (caught.value.sqlstate, "777" in str(caught.value)) == ("23505", False)


@on_loop
async def test_shown_is_what_may_be_described() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run(SETUP)
        await sql.run("ALTER TOPIC app.o ADD SOURCE app.t ON INSERT; ALTER TOPIC other.o ADD SOURCE app.t ON INSERT")
        await sql.run(
            "CREATE INDEX by_n ON app.t (n); CREATE INDEX by_m ON other.t (n); CREATE TABLE other.u (id int PRIMARY KEY)"
        )
        await sql.run("CREATE TOKEN FOR reader; CREATE TOKEN FOR chief; ALTER PIPELINE router SET (latency = 'batch')")
        await sql.run("CREATE VIEW other.w AS SELECT 1 AS x")
        await sql.run("ALTER USER reader SET QUOTA (requests = 5); ALTER USER chief SET QUOTA (requests = 5)")
        await sql.run("CONSUME FROM app.o GROUP 'app-1' FROM EARLIEST; CONSUME FROM other.o GROUP 'other-1' FROM EARLIEST")
        shown = {
            "SHOW TOPICS": ["app.o"],
            "SHOW TABLES": ["app.t"],
            "SHOW VIEWS": ["app.mixed", "app.v"],
            "SELECT topic FROM system.topic_routes": ["app.o"],
            "SHOW GROUPS": ["app-1"],
            "SHOW PIPELINES": [],
            "SHOW USERS": ["reader"],
            "SHOW ROLES": [],
            "SHOW QUOTAS": ["reader"],
            "SELECT user_name FROM system.quotas": ["reader"],
            "SELECT DISTINCT principal FROM system.grants": ["reader"],
            "SELECT DISTINCT user_name FROM system.tokens": ["reader"],
            "SELECT name FROM system.users": ["reader"],
            "SELECT name FROM system.roles": [],
            "SELECT name FROM system.topics": ["_changes.app.t", "app.o"],
            "SELECT topic FROM system.partitions": ["_changes.app.t", "app.o"],
            "SELECT group_id FROM system.topic_offsets": ["app-1"],
            "SELECT group_id FROM system.groups": ["app-1"],
            "SELECT name FROM system.tables": ["app.t"],
            "SELECT name FROM system.indexes": ["by_n"],
            "SELECT table_name FROM system.constraints": ["app.t"],
            "SELECT name FROM system.pipelines": [],
            "SELECT name FROM system.stats": [],
            "SELECT table_schema || '.' || table_name FROM information_schema.tables": ["app.mixed", "app.o", "app.t", "app.v"],
            "SELECT DISTINCT table_schema FROM information_schema.columns": ["app"],
            "SELECT table_name FROM information_schema.views": ["mixed", "v"],
            "SELECT tablename FROM pg_tables": ["t"],
            "SELECT schema_name FROM information_schema.schemata WHERE schema_name IN ('app', 'other')": ["app"],
        }
        with acting_as(READER):
            assert {text: sorted(row[0] for row in await sql.rows(text)) for text in shown} == shown  # type: ignore[type-var]
            assert ("sources", "app.t") in await sql.rows("DESCRIBE TOPIC app.o")
        with acting_as(ADMIN):
            everything = {text: sorted(row[0] for row in await sql.rows(text)) for text in shown}  # type: ignore[type-var]
        assert [text for text in shown if not set(shown[text]) < set(everything[text])] == []


@on_loop
async def test_the_user_of_a_statement_is_its_principal() -> None:
    asked = "SELECT current_user, session_user, user, current_role"
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run("CREATE TABLE t (id int PRIMARY KEY, who text); CREATE VIEW v AS SELECT current_user AS me")
        await sql.run("INSERT INTO t VALUES (0, 'x'); CREATE USER alice; CREATE USER bob; GRANT ALL ON ALL TABLES TO PUBLIC")
        for name in ("alice", "bob", "alice"):
            with acting_as(name):
                result = await sql.run(asked)
                assert [column.name for column in result.columns] == ["current_user", "session_user", "user", "current_role"]
                assert [tuple(row) for row in result.rows] == [(name,) * 4]
                assert await sql.rows("SELECT me FROM v") == [(name,)]
                assert await sql.rows("SELECT current_user FROM t WHERE id = 0") == [(name,)]
                await sql.run("INSERT INTO t VALUES (1, current_user) ON CONFLICT (id) DO UPDATE SET who = session_user")
                assert await sql.rows("SELECT who FROM t WHERE who = user") == [(name,)]
                await sql.run("DROP TABLE IF EXISTS u; CREATE TABLE u AS SELECT id, current_user AS who FROM t")
                assert await sql.rows("SELECT DISTINCT who FROM u") == [(name,)]
        assert await sql.rows(asked) == [("tailrace",) * 4]
    async with running_sql() as sql:
        with acting_as("alice"):
            assert await sql.rows(asked) == [("tailrace",) * 4]


@on_loop
async def test_each_refusal_is_noted_once_for_the_audit() -> None:
    noted: list[tuple[str, str, str]] = []
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run(SETUP)
        sql.broker.permissions.on_denial = lambda principal, what, resource: noted.append((principal.name, what, resource))
        for text, what, resource in (
            ("SELECT * FROM app.t", "select", "relation app.t"),
            ("SELECT * FROM app.t WHERE id = 1", "select", "relation app.t"),
            ("SELECT 1; SELECT * FROM table_changes('app.nothing')", "select", "relation app.nothing"),
            ("BEGIN; INSERT INTO app.t VALUES (5, 5); COMMIT", "insert", "relation app.t"),
            ("INSERT INTO app.t SELECT 1, 2", "insert", "relation app.t"),
            ("CREATE TYPE x AS ENUM ('a')", "alter", "cluster"),
            ("ALTER SOURCE s RESYNC", "alter", "source s"),
            ("DROP TOPIC app.o", "drop", "topic app.o"),
            ("CLEAR TOPIC app.o", "drop", "topic app.o"),
            ("CREATE USER x PASSWORD 'secret'", "administer", ""),
            ("GRANT SELECT ON TABLE app.t TO nobody", "admin", "table app.t"),
        ):
            noted.clear()
            with acting_as(NOBODY), pytest.raises(ForbiddenError):
                await sql.run(text)
            assert noted == [(NOBODY, what, resource)], text
        noted.clear()
        with acting_as(NOBODY), pytest.raises(SqlForbiddenError, match=r"may not insert into 'app.t'"):
            await sql.engine.copy_rows("app.t", b"", skip=False)
        assert noted == [(NOBODY, "insert", "relation app.t")]
        noted.clear()
        with acting_as(READER):
            await sql.run("SELECT * FROM app.t; SELECT * FROM app.v; SHOW TABLES; SELECT * FROM system.tables")
        assert noted == []


@on_loop
async def test_rows_are_copied_with_the_right_to_insert() -> None:
    data = pa.BufferOutputStream()
    table = pa.table({"id": pa.array([7, 8], pa.int32())})
    with pa.ipc.new_stream(data, table.schema) as writer:
        writer.write_table(table)
    rows = data.getvalue().to_pybytes()
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run(f"{SETUP}; CREATE USER writer; GRANT INSERT ON TABLE app.t TO writer")
        for name in ("app.t", "app.missing", "app.o"):
            with acting_as(READER), pytest.raises(SqlForbiddenError, match=f"may not insert into '{name}'"):
                await sql.engine.copy_rows(name, rows, skip=True)
        with acting_as("writer"):
            assert (await sql.engine.copy_rows("app.t", rows, skip=True)).rows == 2
            assert len((await sql.engine.copy_rows("app.t", rows, skip=True)).rejected) == 2


@pytest.mark.parametrize("options", ["", "WITH (snapshot = true)"])
@on_loop
async def test_a_route_belongs_to_who_made_it(options: str) -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run(SETUP)
        with acting_as(GRANTED):
            await sql.run(f"ALTER TOPIC app.o ADD SOURCE app.t ON INSERT {options}")
        assert [route.owner for route in sql.broker.routes] == [GRANTED]
