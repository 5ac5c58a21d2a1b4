"""`public.t` is another name of `t`: what is not for PostgreSQL to judge (`tests/differential/cases/definitions`)."""

import pytest

from tailrace.model.errors import UnknownTableError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.sql.parse import parse
from tailrace.sql.statements import CreateTableStatement
from tests.support.aio import on_loop
from tests.support.sql import SqlClient, running_sql


async def given_old_table(sql: SqlClient) -> None:
    """Make a table as earlier versions made it, with the schema in its name."""
    (create,) = parse("CREATE TABLE public.old (id int PRIMARY KEY, n int)", DEFAULT_LIMITS)
    assert isinstance(create, CreateTableStatement)
    await sql.engine.tables.create(create)


@on_loop
async def test_a_table_that_has_public_in_its_name_is_found_by_it() -> None:
    async with running_sql() as sql:
        await given_old_table(sql)
        for text in (
            "INSERT INTO public.old VALUES (1, 2)",
            "UPDATE public.old SET n = n + 1",
            "ALTER TABLE public.old ADD COLUMN t text",
            "CREATE INDEX old_n ON public.old (n)",
        ):
            await sql.run(text)
        assert await sql.rows("SELECT * FROM public.old WHERE n = 3") == [(1, 3, None)]
        with pytest.raises(UnknownTableError):
            await sql.run("SELECT * FROM old")
        await sql.run("CREATE TABLE old (id int PRIMARY KEY)")
        assert await sql.rows("SELECT count(*) FROM old") == [(0,)]
        assert await sql.rows("SELECT count(*) FROM public.old") == [(1,)]
        await sql.run("DROP INDEX public.old_n")
        await sql.run("DROP TABLE public.old")
        assert await sql.rows("SELECT count(*) FROM public.old") == [(0,)]


@on_loop
async def test_topics_are_found_with_and_without_public() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC plain")
        await sql.run("CREATE TOPIC public.exact")
        await sql.run("CREATE TABLE exact (id int PRIMARY KEY)")
        await sql.run("INSERT INTO public.plain (value) VALUES ('p')")
        await sql.run("INSERT INTO public.exact (value) VALUES ('e')")
        assert await sql.rows("SELECT value FROM plain") == await sql.rows("SELECT value FROM public.plain") == [("p",)]
        assert await sql.rows("SELECT value FROM public.exact") == [("e",)]
        assert await sql.rows("SELECT count(*) FROM exact") == [(0,)]


@on_loop
async def test_changes_and_routes_of_a_table_are_found_with_public() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TABLE public.t (id int PRIMARY KEY)")
        await sql.run("CREATE TOPIC got")
        await sql.run("ALTER TOPIC got ADD SOURCE public.t ON INSERT")
        assert [row[2] for row in await sql.rows("SHOW ROUTES")] == ["t"]
        await sql.run("INSERT INTO public.t VALUES (1)")
        assert await sql.rows("SELECT id, _change_type FROM table_changes('public.t')") == [(1, "insert")]
        await sql.run("CREATE VIEW public.w AS SELECT id FROM table_changes('public.t')")
        assert await sql.rows("SELECT id FROM w") == [(1,)]
        await sql.run("ALTER TOPIC got DROP SOURCE public.t")
        assert (await sql.run("EXPLAIN DELETE FROM public.t")).rows


@on_loop
async def test_public_stands_before_names_without_a_namespace_only() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TABLE a.b (id int PRIMARY KEY)")
        for text in ("SELECT * FROM public.a.b", "DELETE FROM public.a.b", "DROP TABLE public.a.b"):
            with pytest.raises(UnknownTableError):
                await sql.run(text)
