"""Attempts to read what was not granted: neither values nor names of columns come back, whatever a statement looks like."""

import pytest

from tailrace.model.errors import TailraceError
from tests.support.aio import on_loop
from tests.support.sql import AUTHENTICATED, acting_as, running_sql

VALUE = "42424242"
COLUMN = "salary_of_boss"
SETUP = f"""
CREATE TABLE app.hidden (id int PRIMARY KEY, {COLUMN} int UNIQUE, CHECK ({COLUMN} > 0));
INSERT INTO app.hidden VALUES (1, {VALUE}); CREATE INDEX by_it ON app.hidden ({COLUMN});
CREATE TABLE "Odd"."Name" (id int PRIMARY KEY, {COLUMN} int); INSERT INTO "Odd"."Name" VALUES (1, {VALUE});
CREATE TABLE bare (id int PRIMARY KEY, {COLUMN} int); INSERT INTO bare VALUES (1, {VALUE});
CREATE VIEW app.seen AS SELECT {COLUMN} FROM app.hidden;
CREATE TOPIC app.letters WITH (alias = 'post'); INSERT INTO app.letters (key, value) VALUES ('{VALUE}', '{VALUE}');
CREATE TABLE own.t (id int PRIMARY KEY, n int); INSERT INTO own.t VALUES (1, 1); CREATE TOPIC own.o;
CREATE USER eve; GRANT ALL ON TABLE own.* TO eve; GRANT ALL ON PATTERN 'own.>' TO eve; GRANT ALL ON GROUP 'own*' TO eve;
"""
NAMES = ["app.hidden", '"app"."hidden"', "APP.Hidden", '"Odd"."Name"', "odd.name", "bare", "public.bare", '"bare"', "app.seen"]
READS = [
    "SELECT * FROM {}",
    "SELECT * FROM ONLY {}",
    "TABLE {}",
    "SELECT x.* FROM {} AS x",
    "SELECT x FROM {} AS x",
    "SELECT row_to_json(x) FROM {} AS x",
    "SELECT * FROM {} WHERE id = 1",
    "SELECT count(*) FROM {}",
    "SELECT 1 FROM own.t WHERE n < (SELECT count(*) FROM {})",
    "SELECT n, (SELECT max(x::text) FROM {} AS x) FROM own.t",
    "SELECT * FROM own.t NATURAL JOIN {}",
    "SELECT * FROM own.t FULL JOIN {} AS x ON true",
    "SELECT * FROM own.t, LATERAL (SELECT * FROM {}) AS x",
    "SELECT n FROM own.t UNION ALL SELECT id FROM {}",
    "SELECT n FROM own.t EXCEPT SELECT id FROM {}",
    "WITH x AS MATERIALIZED (SELECT * FROM {}) SELECT * FROM x",
    "WITH hidden AS (SELECT 1), bare AS (SELECT 1), seen AS (SELECT 1) SELECT * FROM {} JOIN bare ON true JOIN hidden ON true",
    "WITH x AS (WITH bare AS (SELECT 1) SELECT * FROM bare) SELECT * FROM x, {}",
    "SELECT * FROM (VALUES (1)) AS v(i) WHERE EXISTS (SELECT FROM {})",
    "SELECT * FROM own.t ORDER BY (SELECT count(*) FROM {})",
    "SELECT * FROM own.t LIMIT (SELECT count(*) FROM {})",
    "SELECT n FROM own.t GROUP BY n HAVING n <= (SELECT count(*) FROM {})",
    "SELECT sum((SELECT count(*) FROM {})) OVER () FROM own.t",
    "SELECT CASE WHEN true THEN (SELECT count(*) FROM {}) END",
    "SELECT ARRAY(SELECT id FROM {})",
    "SELECT 1 = ANY (SELECT id FROM {})",
    "EXPLAIN SELECT * FROM {}",
    "EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM {} WHERE id = 1",
    "EXPLAIN ANALYZE UPDATE own.t SET n = 1 WHERE id IN (SELECT id FROM {})",
    "INSERT INTO own.t SELECT id + 10, 1 FROM {}",
    "INSERT INTO own.t VALUES (9, (SELECT count(*) FROM {}))",
    "INSERT INTO own.o (value) SELECT x::text FROM {} AS x",
    "UPDATE own.t SET n = (SELECT count(*) FROM {})",
    "UPDATE own.t SET n = x.id FROM {} AS x",
    "DELETE FROM own.t USING {} AS x WHERE x.id = t.id",
    "BEGIN; SELECT * FROM {} WHERE id = 1; COMMIT",
    "BEGIN; INSERT INTO own.t SELECT id + 10, 1 FROM {}; SELECT * FROM {}; COMMIT",
    "CREATE VIEW own.v AS SELECT * FROM {}",
    "CREATE TABLE own.copy AS SELECT * FROM {}",
    "CREATE TABLE own.copy (PRIMARY KEY (id)) AS SELECT * FROM {} WITH NO DATA",
    "INSERT INTO {} (id) VALUES (1)",
    "INSERT INTO {} (id, nothing) VALUES (1, 1)",
    "INSERT INTO {} VALUES (1) RETURNING *",
    "UPDATE {} SET nothing = 1",
    "UPDATE {} SET id = id RETURNING *",
    "DELETE FROM {} WHERE nothing = 1",
    "DELETE FROM {} RETURNING *",
    "ALTER TABLE {} DROP COLUMN nothing",
    "CREATE UNIQUE INDEX ON {} (nothing)",
    "DESCRIBE {}",
    "ALTER TOPIC own.o ADD SOURCE {} ON INSERT WHERE nothing = 1",
    "EXPLAIN ALTER TOPIC own.o ADD SOURCE {} ON INSERT WITH (payload = 'full')",
    "SELECT nothing FROM {}",
    "SELECT id::nothing FROM {}",
]
OTHERS = [
    "SELECT * FROM table_changes('app.hidden')",
    "SELECT * FROM table_changes('public.bare')",
    "SELECT * FROM table_changes('app.hidden'::text)",
    "SELECT * FROM table_changes('app.' || 'hidden')",
    "SELECT * FROM _changes.app.hidden",
    'SELECT * FROM "_changes.app.hidden"',
    "SELECT * FROM _changes.bare",
    "SELECT * FROM LATEST(_changes.app.hidden)",
    "SELECT * FROM LATEST('_changes.app.hidden')",
    "SELECT * FROM app.letters",
    "SELECT * FROM post",
    "SELECT * FROM POST",
    "SELECT * FROM LATEST(post)",
    "CONSUME FROM app.letters",
    "CONSUME FROM post",
    "CONSUME FROM post GROUP 'own' FROM EARLIEST",
    "CONSUME FROM _changes.app.hidden FROM EARLIEST",
    "CONSUME FROM app.hidden FROM EARLIEST",
    "REDRIVE DEAD LETTERS OF app.letters",
    "DROP INDEX app.by_it",
    f"DROP INDEX app.hidden_{COLUMN}_key",
    "DESCRIBE TOPIC post",
    "DESCRIBE VIEW app.seen",
    *(f"SELECT * FROM system.{name}" for name in ("tables", "constraints", "indexes", "topics", "partitions", "stats")),
    *(f"SELECT * FROM information_schema.{name}" for name in ("columns", "views", "check_constraints", "key_column_usage")),
    *(f"SELECT * FROM pg_{name}" for name in ("tables", "views", "indexes")),
    "SHOW TABLES",
    "SHOW VIEWS",
    "SHOW TOPICS",
    "SELECT * FROM app.hiddem",
    "SELECT * FROM own.hidden",
    "SELECT hidden.id FROM own.t",
]


@on_loop
async def test_nothing_of_what_was_not_granted_comes_back() -> None:
    texts = [template.replace("{}", name) for name in NAMES for template in READS] + OTHERS
    told = {}
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run(SETUP)
        # What is remembered of a text is there when it is run without the right.
        for name in NAMES:
            await sql.run(f"SELECT * FROM {name} WHERE id = 1; SELECT * FROM {name}" if name != "app.seen" else "SELECT 1")
        before = await sql.rows("SELECT * FROM own.t")
        with acting_as("eve"):
            for text in texts:
                try:
                    results = await sql.engine.execute(text)
                except TailraceError as error:
                    shown = f"{error} {vars(error)}"
                else:
                    shown = repr([(result.columns, [tuple(row) for row in result.rows], result.status) for result in results])
                for secret in (VALUE, COLUMN, "'hidden'", "'app.hidden'?"):
                    if secret in shown and secret not in text:
                        told[text] = shown
        assert told == {}
        assert await sql.rows("SELECT * FROM own.t") == before
        assert await sql.rows("SHOW VIEWS") == [("app.seen", 1, f"SELECT {COLUMN} FROM app.hidden")]
        assert [name for name, *_ in await sql.rows("SHOW TABLES")] == ["Odd.Name", "app.hidden", "bare", "own.t"]
        assert await sql.rows("SELECT value FROM own.o") == []


@pytest.mark.parametrize("name", NAMES)
@on_loop
async def test_the_same_is_read_once_it_is_granted(name: str) -> None:
    """What the attempts above are about is there."""
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run(SETUP)
        await sql.run('GRANT SELECT ON TABLE app.hidden, app.seen, "Odd"."Name", bare TO eve')
        with acting_as("eve"):
            assert VALUE in repr(await sql.rows(f"SELECT * FROM {name}"))
