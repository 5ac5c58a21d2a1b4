"""INSERT, UPDATE and DELETE on tables, and the change events that they leave."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailrace.model.clock import SystemClock
from tailrace.model.errors import (
    ConstraintError,
    LimitExceededError,
    SqlError,
    TableExistsError,
    TailraceError,
    UnknownTableError,
)
from tailrace.model.limits import DEFAULT_LIMITS, MIB
from tailrace.model.record import Message
from tests.support.aio import on_loop
from tests.support.tables import TableSql, replayed, running_tables

CREATE = "CREATE TABLE shop.items (id bigint PRIMARY KEY, name text NOT NULL, price decimal(8, 2) DEFAULT 1.5)"


async def given_items(sql: TableSql) -> None:
    await sql.run(CREATE)
    await sql.run("INSERT INTO shop.items VALUES (1, 'pen', 2), (2, 'ink', 3.25)")


def item(id: int, name: str, price: str | None) -> dict[str, Any]:
    return {"id": id, "name": name, "price": price}


@on_loop
async def test_each_change_is_an_event_with_both_images(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await given_items(sql)
        await sql.run("UPDATE shop.items SET price = price + 0.10 WHERE name = 'ink'")
        await sql.run("DELETE FROM shop.items WHERE id = 1")
        assert await sql.events("shop.items") == [
            {"op": "insert", "key": {"id": 1}, "old": None, "new": item(1, "pen", "2.00")},
            {"op": "insert", "key": {"id": 2}, "old": None, "new": item(2, "ink", "3.25")},
            {"op": "update", "key": {"id": 2}, "old": item(2, "ink", "3.25"), "new": item(2, "ink", "3.35")},
            {"op": "delete", "key": {"id": 1}, "old": item(1, "pen", "2.00"), "new": None},
        ]
        assert [tuple(map(str, row)) for row in await sql.rows("SELECT * FROM shop.items")] == [("2", "ink", "3.35")]


@on_loop
async def test_an_event_says_its_table_operation_transaction_and_time(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await given_items(sql)
        await sql.run("DELETE FROM shop.items WHERE id = 2")
        first, second, third = await sql.records("_changes.shop.items")
        assert (first.key, third.key) == (b'{"id":1}', b'{"id":2}')
        values = [json.loads(record.value or b"") for record in (first, second, third)]
        assert values[0]["tx"] == values[1]["tx"] != values[2]["tx"]
        for record, value in zip((first, second, third), values, strict=True):
            expected = {"source_table": b"shop.items", "op": value["op"].encode(), "tx": value["tx"].encode()}
            assert dict(record.headers) == expected
            assert record.timestamp == value["ts"] == sql.broker.changes.now_ms()


@on_loop
async def test_a_change_of_the_primary_key_is_a_delete_and_an_insert(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await given_items(sql)
        await sql.run("UPDATE shop.items SET id = id + 10 WHERE id = 1")
        assert (await sql.events("shop.items"))[2:] == [
            {"op": "delete", "key": {"id": 1}, "old": item(1, "pen", "2.00"), "new": None},
            {"op": "insert", "key": {"id": 11}, "old": None, "new": item(11, "pen", "2.00")},
        ]


@on_loop
async def test_a_delete_of_all_rows_tells_each_of_them(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await given_items(sql)
        assert (await sql.run("DELETE FROM shop.items")).affected == 2
        assert [event["op"] for event in (await sql.events("shop.items"))[2:]] == ["delete", "delete"]


@on_loop
async def test_a_conflict_does_what_the_statement_says(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await given_items(sql)
        nothing = await sql.run("INSERT INTO shop.items VALUES (1, 'x', 1) ON CONFLICT DO NOTHING")
        assert (nothing.affected, nothing.cursor) == (0, None)
        result = await sql.run(
            "INSERT INTO shop.items (id, name) VALUES (1, 'pencil'), (3, 'cap')"
            " ON CONFLICT (id) DO UPDATE SET name = excluded.name, price = items.price * 2 WHERE items.id < 9"
            " RETURNING id, name, price AS cost"
        )
        assert [column.name for column in result.columns] == ["id", "name", "cost"]
        assert [tuple(map(str, row)) for row in result.rows] == [("1", "pencil", "4.00"), ("3", "cap", "1.50")]
        assert [event["op"] for event in await sql.events("shop.items")] == ["insert", "insert", "update", "insert"]


@on_loop
async def test_a_key_that_is_there_is_refused_by_name_and_nothing_changes(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await given_items(sql)
        with pytest.raises(ConstraintError, match=r"already has a row with id = 2"):
            await sql.run("INSERT INTO shop.items VALUES (3, 'cap', 1), (2, 'ink', 1)")
        with pytest.raises(ConstraintError, match="id"):
            await sql.run("UPDATE shop.items SET id = 2")
        assert await sql.value("SELECT count(*) FROM shop.items") == 2
        assert len(await sql.events("shop.items")) == 2


@on_loop
async def test_rows_come_from_parameters_constants_defaults_and_queries(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await sql.run(CREATE)
        insert = "INSERT INTO shop.items (name, id) VALUES (?, ?)"
        assert (await sql.run(insert, [["a", 1], ["b", 2]])).affected == 2
        await sql.run("INSERT INTO shop.items (id, name, price) VALUES (:id, upper(:name), 1 + 1)", {"id": 3, "name": "é"})
        await sql.run("INSERT INTO shop.items VALUES (4, 'd', DEFAULT)")
        await sql.run("INSERT INTO shop.items (id, name) SELECT id + 10, name || '!' FROM shop.items WHERE id < 3")
        found = await sql.rows("SELECT id, name, price FROM shop.items ORDER BY id")
        assert [(id, name, str(price)) for id, name, price in found] == [
            (1, "a", "1.50"),
            (2, "b", "1.50"),
            (3, "É", "2.00"),
            (4, "d", "1.50"),
            (11, "a!", "1.50"),
            (12, "b!", "1.50"),
        ]


@on_loop
async def test_now_stands_still_within_a_transaction(tmp_path: Path) -> None:
    async with running_tables(tmp_path, clock=SystemClock()) as sql:
        await sql.run("CREATE TABLE moments (id integer PRIMARY KEY, at timestamp)")
        await sql.run("INSERT INTO moments VALUES (?, NULL)", [[id] for id in range(20_000)])
        await sql.transact("UPDATE moments SET at = now() WHERE id < 15000; UPDATE moments SET at = now() WHERE at IS NULL")
        assert await sql.value("SELECT count(DISTINCT at) FROM moments") == 1


@on_loop
async def test_update_takes_values_from_another_table(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await given_items(sql)
        await sql.run("CREATE TABLE prices (item bigint PRIMARY KEY, price decimal(8, 2))")
        await sql.run("INSERT INTO prices VALUES (2, 9.99)")
        await sql.run("UPDATE shop.items SET price = p.price FROM prices AS p WHERE p.item = shop.items.id")
        assert await sql.value("SELECT name FROM shop.items WHERE price = 9.99") == "ink"


@on_loop
async def test_a_transaction_is_one_frame_in_the_order_of_its_statements(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await given_items(sql)
        await sql.run("CREATE TABLE shop.stock (item bigint PRIMARY KEY, left_over integer NOT NULL)")
        await sql.broker.topics.create("shop.news")
        commits = sql.broker.store.stats().commits
        results = await sql.transact(
            "INSERT INTO shop.stock VALUES (1, 5); UPDATE shop.items SET price = 7 WHERE id = 1;"
            " SELECT count(*) FROM shop.stock; UPDATE shop.stock SET left_over = left_over - 1",
            messages=[Message("shop.news", b"sold")],
        )
        assert results[2].rows == [(1,)]
        assert sql.broker.store.stats().commits == commits + 1
        stock = await sql.records("shop.stock")
        items = (await sql.records("shop.items"))[2:]
        news = await sql.records("shop.news")
        cursors = [stock[0].cursor, items[0].cursor, stock[1].cursor, news[0].cursor]
        assert cursors == list(range(cursors[0], cursors[0] + 4))
        assert [results[at].cursor for at in (0, 1, 3)] == cursors[:3]
        assert len({dict(record.headers)["tx"] for record in (*stock, *items)}) == 1


@on_loop
async def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await given_items(sql)
        await sql.broker.topics.create("shop.news")
        for wrong in ("INSERT INTO shop.items VALUES (2, 'ink', 1)", "UPDATE shop.items SET nope = 1", "SELECT 1/0 FROM nope"):
            with pytest.raises(TailraceError):
                await sql.transact(f"DELETE FROM shop.items WHERE id = 1; {wrong}", messages=[Message("shop.news", b"no")])
        assert await sql.value("SELECT count(*) FROM shop.items") == 2
        assert len(await sql.events("shop.items")) == 2
        assert await sql.records("shop.news") == []


@on_loop
async def test_messages_for_a_topic_that_is_not_there_refuse_the_transaction(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await given_items(sql)
        with pytest.raises(TailraceError, match=r"shop\.nowhere"):
            await sql.transact("DELETE FROM shop.items", messages=[Message("shop.nowhere", b"")])
        assert await sql.value("SELECT count(*) FROM shop.items") == 2


@on_loop
async def test_all_types_come_out_of_the_log_as_they_went_in(tmp_path: Path) -> None:
    columns = (
        'id uuid, k date, b boolean, s smallint, f double, d decimal(20, 5), "t q" text, y bytes, at timestamp, j json,'
        " l text[], PRIMARY KEY (k, id)"
    )
    u = "f81d4fae-7dec-41d0-a765-00a0c91e6bf6"
    async with running_tables(tmp_path / "a") as sql:
        await sql.run(f"CREATE TABLE every (\n{columns})")
        await sql.run(
            "INSERT INTO every VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                u,
                "2026-01-02",
                True,
                -1,
                0.1,
                "12345678901234.56789",
                'é"\\\n',
                b"\0\xff",
                "2026-01-02 03:04:05.000006",
                '{"a":[1.50]}',
                ["x", None],
            ],
        )
        await sql.run("INSERT INTO every (id, k) VALUES (?, ?)", [u, "2026-01-03"])
        full, empty = await sql.events("every")
        assert full["key"] == {"k": "2026-01-02", "id": u}
        assert full["new"] == {
            "id": u,
            "k": "2026-01-02",
            "b": True,
            "s": -1,
            "f": 0.1,
            "d": "12345678901234.56789",
            "t q": 'é"\\\n',
            "y": "AP8=",
            "at": "2026-01-02T03:04:05.000006Z",
            "j": {"a": [1.5]},
            "l": ["x", None],
        }
        assert {name for name, value in empty["new"].items() if value is not None} == {"id", "k"}
        before = await sql.rows("SELECT * FROM every ORDER BY k")
        # Another file for the same log has no rows of its own: all of them come from the events.
        tables = sql.tables
        await tables.close()
        sql.tables = await type(tables).open(_empty(tmp_path / "b"), sql.broker, sql.broker.snowflakes._clock, DEFAULT_LIMITS)
        assert sql.tables.replayed == 2
        assert await sql.rows("SELECT * FROM every ORDER BY k") == before


@on_loop
async def test_numbers_without_a_declared_scale_come_out_of_the_log_as_they_went_in(tmp_path: Path) -> None:
    texts = ["1.50", "1.5000", "-0.0", "NaN", "Infinity", "-Infinity", "9" * 200 + "." + "1" * 200, "0." + "0" * 50 + "1"]
    async with running_tables(tmp_path / "a") as sql:
        await sql.run("CREATE TABLE free (k numeric, id bigint, l numeric[], PRIMARY KEY (k, id))")
        await sql.run("INSERT INTO free VALUES (?, ?, ?)", [[text, id, [text, None]] for id, text in enumerate(texts)])
        kept = [*texts[:2], "0.0", *texts[3:]]
        events = await sql.events("free")
        assert [event["key"]["k"] for event in events] == kept
        assert [event["new"]["l"] for event in events] == [[text, None] for text in kept]
        # A key that is equal but written otherwise is another key to readers of events.
        await sql.run("UPDATE free SET k = 1.5 WHERE k = 1.50 AND id = 0")
        await sql.run("DELETE FROM free WHERE k = 1.5 AND id = 1")
        assert [(event["op"], event["key"]["k"]) for event in (await sql.events("free"))[len(texts) :]] == [
            ("delete", "1.50"),
            ("insert", "1.5"),
            ("delete", "1.5000"),
        ]
        before = await sql.rows("SELECT k::text, id, l::text FROM free ORDER BY k, id")
        assert [row[0] for row in before] == ["-Infinity", "0.0", texts[-1], "1.5", texts[-2], "Infinity", "NaN"]
        tables = sql.tables
        await tables.close()
        sql.tables = await type(tables).open(_empty(tmp_path / "b"), sql.broker, sql.broker.snowflakes._clock, DEFAULT_LIMITS)
        assert await sql.rows("SELECT k::text, id, l::text FROM free ORDER BY k, id") == before


@on_loop
async def test_intervals_come_out_of_the_log_as_postgresql_prints_them(tmp_path: Path) -> None:
    texts = [
        "1 year 2 mons -3 days +04:05:06.789",
        "00:00:00",
        "30 days",
        "1 mon",
        "-00:00:00.000001",
        "-178956970 years -8 mons",
    ]
    async with running_tables(tmp_path / "a") as sql:
        await sql.run("CREATE TABLE spans (k interval, id bigint, l interval[], PRIMARY KEY (k, id))")
        await sql.run("INSERT INTO spans VALUES (?, ?, ?)", [[text, id, [text, None]] for id, text in enumerate(texts)])
        await sql.run("INSERT INTO spans VALUES ('PT90M', 9, NULL)")
        events = await sql.events("spans")
        assert [event["new"]["k"] for event in events] == [*texts, "01:30:00"]
        assert [event["new"]["l"] for event in events] == [*([text, None] for text in texts), None]
        feed = "SELECT k, l FROM table_changes('spans') ORDER BY _commit_version, id"
        assert await sql.rows(feed) == [*((text, [text, None]) for text in texts), ("01:30:00", None)]
        look = "SELECT k, id, l FROM spans ORDER BY k, id"
        before = await sql.rows(look)
        assert [row[1] for row in before] == [5, 4, 1, 9, 2, 3, 0]
        assert await sql.rows("SELECT l FROM spans WHERE k = '720:00' AND id = 3") == [(["1 mon", None],)]
        tables = sql.tables
        await tables.close()
        sql.tables = await type(tables).open(_empty(tmp_path / "b"), sql.broker, sql.broker.snowflakes._clock, DEFAULT_LIMITS)
        assert await sql.rows(look) == before
        with pytest.raises(SqlError, match="292 years") as refused:
            await sql.run("INSERT INTO spans VALUES ('3000000 hours', 1, NULL)")
        assert refused.value.sqlstate == "0A000"


def _empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


@on_loop
async def test_a_dropped_table_made_again_is_a_new_one(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await given_items(sql)
        with pytest.raises(TableExistsError):
            await sql.run("CREATE TABLE shop.Items (id bigint PRIMARY KEY)")
        await sql.run("DROP TABLE shop.items")
        with pytest.raises(UnknownTableError):
            await sql.run("SELECT * FROM shop.items")
        with pytest.raises(UnknownTableError):
            await sql.run("DROP TABLE shop.items")
        await sql.run("CREATE TABLE shop.items (id text PRIMARY KEY)")
        await sql.run("INSERT INTO shop.items VALUES ('one')")
        assert [event["new"] for event in await sql.events("shop.items")] == [{"id": "one"}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CREATE TABLE t (id bigint)", "PRIMARY KEY"),
        ("CREATE TABLE t (id bigint, PRIMARY KEY (nope))", "nope"),
        ("CREATE TABLE t (id bigint PRIMARY KEY, ID text)", "column 'id' is defined twice"),
        ('CREATE TABLE t (id bigint PRIMARY KEY, "ID" text)', "two columns 'ID'"),
        ('CREATE TABLE t ("a""b" bigint PRIMARY KEY)', "without quotes"),
        ("CREATE TABLE t (id json PRIMARY KEY)", "can't be part of a primary key"),
        ("CREATE TABLE t (id bigint PRIMARY KEY, _change_type text)", "change feed"),
        ("CREATE TABLE t (id bigint PRIMARY KEY, n integer DEFAULT 'x')", 'invalid input syntax for type integer: "x"'),
        ("CREATE TABLE _changes.t (id bigint PRIMARY KEY)", "reserved"),
        ("CREATE TABLE system.t (id bigint PRIMARY KEY)", "reserved"),
    ],
)
@on_loop
async def test_a_table_that_can_not_be_is_refused(text: str, said: str, tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        with pytest.raises(TailraceError, match=said):
            await sql.run(text)
        assert list(sql.tables) == []


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("INSERT INTO shop.items (id, nope) VALUES (1, 2)", SqlError, 'column "nope" of relation "shop.items" does not exist'),
        ("INSERT INTO shop.items (id, ID) VALUES (1, 2)", SqlError, 'column "id" specified more than once'),
        ("INSERT INTO shop.items (id, name) VALUES (1)", SqlError, "more target columns than expressions"),
        ("INSERT INTO shop.items VALUES (1, 2, 3, 4)", SqlError, "more expressions than target columns"),
        ("INSERT INTO shop.items VALUES (7, 'a'), (8)", SqlError, "VALUES lists must all be the same length"),
        ("INSERT INTO shop.items SELECT 1, 'a', 2, 3", SqlError, "more expressions than target columns"),
        ("INSERT INTO shop.items SELECT 1", ConstraintError, "'name' can't be null"),
        ("INSERT INTO shop.items (name) VALUES ('x')", ConstraintError, "'id' can't be null"),
        ("INSERT INTO shop.items VALUES (1, NULL, 3)", ConstraintError, "'name' can't be null"),
        ("INSERT INTO shop.items VALUES (9, 'x', 1e9)", SqlError, "column 'price': numeric field overflow"),
        ("INSERT INTO shop.items VALUES (9, 'x', 100000 * 10000)", SqlError, "numeric field overflow"),
        ("UPDATE shop.items SET name = NULL", ConstraintError, "'name' can't be null"),
        ("UPDATE shop.items SET price = 'much'", SqlError, 'invalid input syntax for type numeric: "much"'),
        ("UPDATE shop.items SET nope = 1", SqlError, 'column "nope" of relation "shop.items" does not exist'),
        ("UPDATE shop.items SET price = 1 WHERE nope = 2", SqlError, 'column "nope" does not exist'),
        ("DELETE FROM shop.items USING other WHERE true", SqlError, "no table, topic or alias 'other'"),
        ("INSERT INTO shop.items VALUES (1, 'a', 2) ON CONFLICT (name) DO NOTHING", SqlError, "."),
        ("INSERT INTO shop.items VALUES (?, 'a', 2)", SqlError, "."),
    ],
)
@on_loop
async def test_a_wrong_write_says_why_and_changes_nothing(
    text: str, error: type[TailraceError], said: str, tmp_path: Path
) -> None:
    async with running_tables(tmp_path) as sql:
        await given_items(sql)
        before = await sql.rows("SELECT * FROM shop.items")
        with pytest.raises(error, match=said):
            await sql.run(text)
        assert await sql.rows("SELECT * FROM shop.items") == before
        assert len(await sql.events("shop.items")) == 2


@on_loop
async def test_a_change_that_is_too_large_for_the_log_is_refused_and_the_table_goes_on(tmp_path: Path) -> None:
    limits = msgspec.structs.replace(DEFAULT_LIMITS, frame_bytes=MIB + 64 * 1024, change_bytes=20_000)
    async with running_tables(tmp_path, limits=limits) as sql:
        await given_items(sql)
        with pytest.raises(LimitExceededError, match="change_bytes"):
            await sql.run("INSERT INTO shop.items VALUES (3, ?, 1)", ["x" * 20_000])
        with pytest.raises(LimitExceededError, match="change_bytes"):
            await sql.run("UPDATE shop.items SET name = ?", ["x" * 20_000])
        with pytest.raises(LimitExceededError, match="frame_bytes"):
            await sql.run("INSERT INTO shop.items (id, name) VALUES (?, ?)", [[id, "x" * 1000] for id in range(10, 110)])
        await sql.run("INSERT INTO shop.items (id, name) VALUES (?, ?)", [[id, "x" * 500] for id in range(10, 90)])
        with pytest.raises(LimitExceededError, match="frame_bytes"):
            await sql.run("UPDATE shop.items SET price = 3")
        assert len(await sql.events("shop.items")) == await sql.value("SELECT count(*) FROM shop.items") == 82


@on_loop
async def test_the_events_rebuild_the_table(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await given_items(sql)
        await sql.run("UPDATE shop.items SET id = id + 100")
        await sql.run("INSERT INTO shop.items (id, name) SELECT id - 100, name FROM shop.items")
        await sql.run("DELETE FROM shop.items WHERE id % 2 = 0")
        kept = {
            json.dumps({"id": id}): item(id, name, str(price))  # type: ignore[arg-type]
            for id, name, price in await sql.rows("SELECT * FROM shop.items")
        }
        assert replayed(await sql.events("shop.items")) == kept
