"""SELECT over tables: values of our types, our meaning of operators, and the limits of a query."""

import asyncio
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from tailrace.model.clock import SystemClock
from tailrace.model.errors import QueryLimitError, SqlError, TailraceError
from tailrace.model.limits import DEFAULT_LIMITS, MIB
from tests.support.aio import on_loop
from tests.support.tables import TableSql, running_tables

SALES = (
    "CREATE TABLE shop.sales (id bigint PRIMARY KEY, item text NOT NULL, amount decimal(12, 2), at timestamp, day date,"
    " ref uuid, paid boolean, note json, tags text[], weight double, raw bytes)"
)
U = "f81d4fae-7dec-41d0-a765-00a0c91e6bf6"


async def given_sales(sql: TableSql) -> None:
    await sql.run(SALES)
    await sql.run(
        f"""INSERT INTO shop.sales VALUES
        (1, 'Pen', 10.05, '2026-01-01 10:00', '2026-01-31', '{U}', true, '{{"a": {{"b": [1, 2]}}}}', '{{x,y}}', 1.5,
         '\\x00ff'),
        (2, 'ink', 9.95, '2026-02-01 12:30:15.25', '2026-02-28', NULL, false, '[3]', '{{}}', 2.0, NULL),
        (3, '50%_*', 100, '2026-02-01T12:30:15.25+01:00', NULL, NULL, NULL, NULL, NULL, NULL, NULL)"""
    )


@on_loop
async def test_rows_hold_values_of_the_types_of_their_columns(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await given_sales(sql)
        result = await sql.run("SELECT * FROM shop.sales WHERE id = 1")
        assert [str(column.type) for column in result.columns] == [
            "bigint", "text", "decimal(12, 2)", "timestamp", "date", "uuid", "boolean", "json", "text[]", "double", "bytes",
        ]  # fmt: skip
        assert result.rows == [
            (
                1,
                "Pen",
                Decimal("10.05"),
                datetime(2026, 1, 1, 10, tzinfo=UTC),
                date(2026, 1, 31),
                UUID(U),
                True,
                {"a": {"b": [1, 2]}},
                ["x", "y"],
                1.5,
                b"\x00\xff",
            )
        ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Decimals are exact and are compared as numbers.
        ("SELECT sum(amount) FROM shop.sales", Decimal("120.00")),
        ("SELECT avg(amount) FROM shop.sales", Decimal("40.0000000000000000")),
        ("SELECT max(amount) FROM shop.sales", Decimal("100.00")),
        ("SELECT min(amount + 0) FROM shop.sales", Decimal("9.95")),
        ("SELECT amount * 3 - 0.01 FROM shop.sales WHERE id = 1", Decimal("30.14")),
        ("SELECT -amount FROM shop.sales WHERE id = 1", Decimal("-10.05")),
        ("SELECT round(amount / 3, 2) FROM shop.sales WHERE id = 3", Decimal("33.33")),
        ("SELECT abs(0 - amount) FROM shop.sales WHERE id = 1", Decimal("10.05")),
        ("SELECT count(*) FROM shop.sales WHERE amount > 9.99", 2),
        ("SELECT count(*) FROM shop.sales WHERE amount = '100'", 1),
        ("SELECT count(*) FROM shop.sales WHERE amount * 2 < 21", 2),
        ("SELECT count(*) FROM shop.sales WHERE amount BETWEEN 9.95 AND 10.05", 2),
        ("SELECT count(*) FROM shop.sales WHERE amount IN (100, 9.950)", 2),
        ("SELECT item FROM shop.sales ORDER BY amount DESC LIMIT 1", "50%_*"),
        ("SELECT id FROM shop.sales ORDER BY amount * 2 LIMIT 1", 2),
        ("SELECT x.id FROM (SELECT id, sum(amount) AS total FROM shop.sales GROUP BY id) AS x ORDER BY total LIMIT 1", 2),
        ("SELECT sum(amount) OVER (ORDER BY id) FROM shop.sales ORDER BY id DESC LIMIT 1", Decimal("120.00")),
        ("SELECT CAST('1.005' AS decimal(5, 2))", Decimal("1.01")),
        # Moments.
        ("SELECT count(*) FROM shop.sales WHERE at >= '2026-02-01 12:00'", 1),
        ("SELECT count(*) FROM shop.sales WHERE at = '2026-02-01 11:30:15.250'", 1),
        ("SELECT count(*) FROM shop.sales WHERE at < day", 2),
        ("SELECT max(at) FROM shop.sales", datetime(2026, 2, 1, 12, 30, 15, 250_000, tzinfo=UTC)),
        ("SELECT at + INTERVAL '1 day 30 minutes' FROM shop.sales WHERE id = 1", datetime(2026, 1, 2, 10, 30, tzinfo=UTC)),
        ("SELECT at - INTERVAL '2' HOUR FROM shop.sales WHERE id = 1", datetime(2026, 1, 1, 8, tzinfo=UTC)),
        ("SELECT day + INTERVAL '1 month' FROM shop.sales WHERE id = 1", datetime(2026, 2, 28, tzinfo=UTC)),
        ("SELECT day + 1 FROM shop.sales WHERE id = 1", date(2026, 2, 1)),
        ("SELECT day - DATE '2026-01-01' FROM shop.sales WHERE id = 1", 30),
        ("SELECT date_trunc('month', at) FROM shop.sales WHERE id = 2", datetime(2026, 2, 1, tzinfo=UTC)),
        ("SELECT extract(epoch FROM at) FROM shop.sales WHERE id = 1", Decimal("1767261600.000000")),
        ("SELECT extract(dow FROM day) FROM shop.sales WHERE id = 1", Decimal(6)),
        ("SELECT at::date FROM shop.sales WHERE id = 1", date(2026, 1, 1)),
        ("SELECT count(*) FROM shop.sales WHERE at < now()", 0),
        # Text.
        ("SELECT count(*) FROM shop.sales WHERE item LIKE 'p%'", 0),
        ("SELECT count(*) FROM shop.sales WHERE item ILIKE 'p%'", 1),
        ("SELECT count(*) FROM shop.sales WHERE item LIKE '50\\%\\_*'", 1),
        ("SELECT count(*) FROM shop.sales WHERE item LIKE '50!%_*' ESCAPE '!'", 1),
        ("SELECT count(*) FROM shop.sales WHERE item NOT LIKE '___'", 1),
        ("SELECT count(*) FROM shop.sales WHERE item NOT ILIKE 'p%' AND item NOT LIKE '50!%_*' ESCAPE '!'", 1),
        ("SELECT count(*) FROM shop.sales WHERE id NOT IN (1, 2) AND id NOT BETWEEN 4 AND 9 AND at IS NOT NULL", 1),
        ("SELECT count(*) FROM shop.sales WHERE amount NOT IN (100, 9.95)", 1),
        ("SELECT count(*) FROM shop.sales WHERE amount NOT BETWEEN 5 AND 10 AND paid IS NOT TRUE", 1),
        ("SELECT count(*) FROM shop.sales WHERE day IS DISTINCT FROM '2026-01-31'", 2),
        ("SELECT count(*) FROM shop.sales WHERE item LIKE lower('I') || '%'", 1),
        ("SELECT upper('straße') || lower('É')", "STRAßEé"),
        ("SELECT id FROM shop.sales ORDER BY ref LIMIT 1", 1),
        # Others.
        (f"SELECT id FROM shop.sales WHERE ref = '{U.upper()}'", 1),
        ("SELECT count(*) FROM shop.sales WHERE paid", 1),
        ("SELECT count(*) FROM shop.sales WHERE paid = 'no'", 1),
        ("SELECT paid AND weight > 1 FROM shop.sales WHERE id = 1", True),
        ("SELECT paid::text FROM shop.sales WHERE id = 2", "false"),
        ("SELECT note -> 'a' -> 'b' FROM shop.sales WHERE id = 1", [1, 2]),
        ("SELECT note ->> 'a' FROM shop.sales WHERE id = 1", '{"b": [1, 2]}'),
        ("SELECT encode(raw, 'base64') FROM shop.sales WHERE id = 1", "AP8="),
        ("SELECT coalesce(day, DATE '2000-01-01') FROM shop.sales WHERE id = 3", date(2000, 1, 1)),
        ("SELECT CASE WHEN id = 3 THEN amount END FROM shop.sales ORDER BY id DESC LIMIT 1", Decimal("100.00")),
        ("SELECT shop.sales.id FROM shop.sales WHERE sales.item = 'ink'", 2),
        ("WITH big AS (SELECT * FROM shop.sales WHERE amount > 50) SELECT item FROM big", "50%_*"),
        ("SELECT count(*) FROM shop.sales a JOIN shop.sales b ON a.at <= b.at", 6),
        ("SELECT count(*) FILTER (WHERE amount < 10) FROM shop.sales", 1),
        ("SELECT 7 / 2", 3),
        ("SELECT id FROM shop.sales UNION SELECT 9 FROM shop.sales ORDER BY 1 DESC LIMIT 1", 9),
    ],
)
@on_loop
async def test_operators_mean_what_they_mean_in_our_sql(text: str, expected: object, tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await given_sales(sql)
        found = await sql.value(text)
        assert (found, type(found)) == (expected, type(expected))


@on_loop
async def test_tables_of_one_name_in_two_namespaces_are_told_apart(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        for namespace, name in (("a", "left"), ("b", "right")):
            await sql.run(f"CREATE TABLE {namespace}.t (id bigint PRIMARY KEY, name text)")
            await sql.run(f"INSERT INTO {namespace}.t VALUES (1, '{name}')")
        assert await sql.rows("SELECT a.t.name, b.t.name FROM a.t JOIN b.t ON a.t.id = b.t.id") == [("left", "right")]


@on_loop
async def test_parameters_are_values_and_never_sql(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await given_sales(sql)
        hostile = "x' OR '1'='1'; DROP TABLE shop.sales; --"
        assert await sql.rows("SELECT id FROM shop.sales WHERE item = ?", [hostile]) == []
        await sql.run("INSERT INTO shop.sales (id, item) VALUES (?, ?)", [4, hostile])
        assert await sql.rows("SELECT id FROM shop.sales WHERE item = :it", {"it": hostile}) == [(4,)]
        found = await sql.rows(
            "SELECT id FROM shop.sales WHERE at > ? AND amount < ? ORDER BY id",
            [datetime(2025, 1, 1, tzinfo=UTC), Decimal("10.01")],
        )
        assert found == [(2,)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM sqlite_master",
        'SELECT * FROM "_tailrace.tables"',
        "SELECT * FROM pragma_database_list",
        "SELECT * FROM pragma_table_info('shop.sales')",
        "SELECT load_extension('/tmp/x.so') FROM shop.sales",
        "SELECT readfile('/etc/passwd') FROM shop.sales",
        "SELECT writefile('/tmp/x', 'y') FROM shop.sales",
        "SELECT fts3_tokenizer('x') FROM shop.sales",
        "SELECT sqlite_compileoption_get(1) FROM shop.sales",
        "SELECT zeroblob(1000000000) FROM shop.sales",
        "SELECT randomblob(1000000000) FROM shop.sales",
        "SELECT * FROM dbstat",
        "UPDATE shop.sales SET item = (SELECT sql FROM sqlite_master)",
        'INSERT INTO "_tailrace.tables" VALUES (1, 2, 3)',
        "DELETE FROM sqlite_master",
        "SELECT nope FROM shop.sales",
        'SELECT "nope" FROM shop.sales',
        "SELECT nope(1) FROM shop.sales",
        "SELECT amount / 0 FROM shop.sales",
        "SELECT CAST('x' AS integer) FROM shop.sales",
        "SELECT id FROM shop.sales WHERE at > 'soon'",
        "SELECT id FROM shop.sales WHERE ref = 'x'",
        "SELECT date_trunc('blink', at) FROM shop.sales",
        "SELECT at + INTERVAL 'x' FROM shop.sales",
        "SELECT CAST(item AS geometry) FROM shop.sales",
        "SELECT printf('%.*c', 100000000, 'x') FROM shop.sales",
        "SELECT replace(hex(item || item), '5', printf('%.*c', 60000000, 'x')) FROM shop.sales",
    ],
)
@on_loop
async def test_what_a_query_may_not_do_is_an_error_and_nothing_more(text: str, tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await given_sales(sql)
        with pytest.raises(TailraceError) as refused:
            await sql.run(text)
        assert refused.value.http_status < 500
        assert await sql.value("SELECT count(*) FROM shop.sales") == 3


async def given_numbers(sql: TableSql, count: int) -> None:
    await sql.run("CREATE TABLE n (i bigint PRIMARY KEY)")
    await sql.run("INSERT INTO n VALUES (?)", [[i] for i in range(count)])


ENDLESS = "SELECT count(*) FROM n a, n b, n c, n d WHERE a.i + b.i + c.i + d.i = -1"


@on_loop
async def test_a_query_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    limits = msgspec.structs.replace(DEFAULT_LIMITS, query_seconds=2)
    async with running_tables(tmp_path, clock=SystemClock(), limits=limits) as sql:
        await given_numbers(sql, 1000)
        with pytest.raises(QueryLimitError, match="query_seconds"):
            await sql.run(ENDLESS)
        assert await sql.value("SELECT count(*) FROM n") == 1000


@on_loop
async def test_a_long_query_holds_up_no_writer(tmp_path: Path) -> None:
    async with running_tables(tmp_path, clock=SystemClock()) as sql:
        await given_numbers(sql, 1000)
        query = asyncio.create_task(sql.run(ENDLESS))
        for i in range(1000, 1050):
            await sql.run("INSERT INTO n VALUES (?)", [i])
        assert await sql.value("SELECT count(*) FROM n") == 1050
        assert not query.done()
        query.cancel()
        with pytest.raises(asyncio.CancelledError):
            await query


@on_loop
async def test_a_cancelled_query_frees_its_thread(tmp_path: Path) -> None:
    limits = msgspec.structs.replace(DEFAULT_LIMITS, query_threads=1, query_seconds=3600)
    async with running_tables(tmp_path, clock=SystemClock(), limits=limits) as sql:
        await given_numbers(sql, 1000)
        running, waiting = asyncio.create_task(sql.run(ENDLESS)), asyncio.create_task(sql.run(ENDLESS))
        await asyncio.sleep(0.05)
        for task in (waiting, running):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await sql.value("SELECT count(*) FROM n") == 1000


@on_loop
async def test_closing_does_not_wait_for_queries(tmp_path: Path) -> None:
    limits = msgspec.structs.replace(DEFAULT_LIMITS, query_threads=1, query_seconds=3600)
    async with running_tables(tmp_path, clock=SystemClock(), limits=limits) as sql:
        await given_numbers(sql, 1000)
        running, waiting = asyncio.create_task(sql.run(ENDLESS)), asyncio.create_task(sql.run(ENDLESS))
        await asyncio.sleep(0.05)
        sql.queries.close()
        await sql.tables.close()
        for query in (running, waiting):
            with pytest.raises((TailraceError, asyncio.CancelledError)):
                await query


@on_loop
async def test_rows_beyond_the_limit_are_cut_off_and_that_is_told(tmp_path: Path) -> None:
    limits = msgspec.structs.replace(DEFAULT_LIMITS, query_rows=10)
    async with running_tables(tmp_path, limits=limits) as sql:
        await given_numbers(sql, 11)
        whole = await sql.run("SELECT i FROM n ORDER BY i LIMIT 10")
        assert (len(whole.rows), whole.truncated) == (10, False)
        cut = await sql.run("SELECT i FROM n ORDER BY i")
        assert (len(cut.rows), cut.truncated) == (10, True)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT string_agg(a.i::text || b.i, ',') FROM n a, n b, n c",
        "SELECT a.i, b.i, c.i FROM n a, n b, n c ORDER BY b.i + c.i",
        "SELECT a.i::text || b.i || c.i FROM n a, n b, n c",
    ],
)
@on_loop
async def test_a_query_that_takes_too_much_memory_is_stopped(text: str, tmp_path: Path) -> None:
    limits = msgspec.structs.replace(DEFAULT_LIMITS, query_bytes=4 * MIB, query_rows=10**9)
    async with running_tables(tmp_path, clock=SystemClock(), limits=limits) as sql:
        await given_numbers(sql, 150)
        with pytest.raises(QueryLimitError, match="query_bytes"):
            await sql.run(text)


@on_loop
async def test_a_parameter_that_is_missing_is_an_error(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await given_numbers(sql, 1)
        with pytest.raises(SqlError):
            await sql.run("SELECT i FROM n WHERE i = ?")
