"""SELECT over a topic: what its columns hold, and that SQL does with them what users expect."""

from datetime import UTC, datetime

import pytest

from tailrace.broker.broker import Broker
from tailrace.model.errors import SqlError, UnknownTableError
from tailrace.model.limits import Limits
from tailrace.model.record import Message
from tests.support.aio import on_loop
from tests.support.brokers import append, raw
from tests.support.queries import asking
from tests.support.transactions import TOPIC, started

NOON_MS = 1_699_963_200_000
NOON = datetime(2023, 11, 14, 12, tzinfo=UTC)
COLUMNS = ["partition", "offset", "cursor", "timestamp", "key", "value", "headers", "source_table", "op", "payload_mode"]


def order(number: int, partition: int = 0) -> Message:
    return Message(
        "app.orders",
        b'{"id":%d,"customer":{"name":"c%d"},"amount":%d.50}' % (number, number % 2, number),
        key=b"k%d" % number,
        partition=partition,
        timestamp=NOON_MS + number,
        message_id=f"m{number}",
    )


async def with_orders(broker: Broker, count: int = 4) -> None:
    await broker.topics.create("app.orders", 2, alias="orders")
    for number in range(count):
        await broker.publisher.publish([order(number, number % 2)])


@on_loop
async def test_a_record_is_a_row() -> None:
    async with asking() as sql:
        await sql.broker.topics.create("app.orders")
        headers = [("source_table", b"chat.messages"), ("op", b"insert"), ("payload_mode", b"full"), ("trace", b"t1")]
        message = Message("app.orders", b"text", key=b"k", headers=headers, timestamp=NOON_MS, message_id="m1")
        await sql.broker.publisher.publish([message])
        found = await sql.result("SELECT * FROM app.orders")
        assert [column.name for column in found.columns] == [*COLUMNS, "message_id"]
        shown = {"source_table": "chat.messages", "op": "insert", "payload_mode": "full", "trace": "t1", "message_id": "m1"}
        assert found.rows == [(0, 0, 0, NOON, "k", "text", shown, "chat.messages", "insert", "full", "m1")]
        assert [str(column.type) for column in found.columns] == [
            *("integer", "bigint", "bigint", "timestamp", "text", "text", "json"),
            *("text", "text", "text", "text"),
        ]


@pytest.mark.parametrize("name", ["app.orders", "orders", '"app"."orders"'])
@on_loop
async def test_a_topic_is_found_by_name_and_alias(name: str) -> None:
    async with asking() as sql:
        await with_orders(sql.broker)
        assert await sql.column(f"SELECT key FROM {name} ORDER BY cursor") == ["k0", "k1", "k2", "k3"]


@on_loop
async def test_columns_can_be_named_with_their_topic() -> None:
    async with asking() as sql:
        await with_orders(sql.broker, 1)
        assert await sql.rows("SELECT app.orders.key, orders.key, O.key FROM app.orders, app.orders AS o") == [
            ("k0", "k0", "k0")
        ]


@on_loop
async def test_json_is_reached_by_name_and_path() -> None:
    async with asking() as sql:
        await with_orders(sql.broker, 2)
        text = """SELECT value ->> 'id', value #>> '{customer,name}', value -> 'customer' ->> 'name', value -> 'customer',
            (value ->> 'amount')::decimal(10, 2) * 2 FROM orders WHERE value ->> 'id' = '1'"""
        ((by_name, by_path, nested, whole, doubled),) = await sql.rows(text)
        assert (by_name, by_path, nested, whole, str(doubled)) == ("1", "c1", "c1", {"name": "c1"}, "3.00")


@on_loop
async def test_what_is_no_json_gives_null_and_fails_nothing() -> None:
    async with asking() as sql:
        await sql.broker.topics.create("app.orders")
        values = [b'{"id":1}', b"plain", b"\xff\x00", None, b'{"id":', b"[1,2]"]
        await sql.broker.publisher.publish([Message("app.orders", value) for value in values])
        assert await sql.column("SELECT value ->> 'id' FROM app.orders ORDER BY cursor") == ["1", None, None, None, None, None]
        assert await sql.value("SELECT count(*) FROM app.orders WHERE (value ->> 'id')::int = 1") == 1


@on_loop
async def test_bytes_are_shown_in_hexadecimal_and_given_as_they_are_when_named() -> None:
    async with asking() as sql:
        await sql.broker.topics.create("app.orders")
        await sql.broker.publisher.publish([Message("app.orders", b"\x00\xff", key=b"\xfe"), Message("app.orders", None)])
        assert await sql.rows("SELECT key, value, key_bytes, value_bytes FROM app.orders ORDER BY cursor") == [
            ("\\xfe", "\\x00ff", b"\xfe", b"\x00\xff"),
            (None, None, None, None),
        ]
        assert await sql.value('SELECT "offset" FROM app.orders WHERE value_bytes = ?', [b"\x00\xff"]) == 0


@on_loop
async def test_headers_are_json() -> None:
    async with asking() as sql:
        await sql.broker.topics.create("app.orders")
        headers = [("trace", b'quo"te\n'), ("raw", b"\xff"), ("none", None)]
        await sql.broker.publisher.publish([Message("app.orders", b"v", headers=headers, message_id="m")])
        assert await sql.rows("SELECT headers ->> 'trace', headers, op FROM app.orders") == [
            ('quo"te\n', {"trace": 'quo"te\n', "raw": "\\xff", "none": None, "message_id": "m"}, None)
        ]


@on_loop
async def test_parameters_are_values_whatever_they_hold() -> None:
    async with asking() as sql:
        await with_orders(sql.broker)
        assert await sql.column('SELECT "offset" FROM orders WHERE key = ? AND partition = ?', ["k3", 1]) == [1]
        hostile = "k3' OR '1'='1"
        assert await sql.column('SELECT "offset" FROM orders WHERE key = :key', {"key": hostile}) == []
        assert await sql.rows("SELECT :a, :b, :c, :d", {"a": hostile, "b": None, "c": [1, 2], "d": "nul\0"}) == [
            (hostile, None, [1, 2], "nul\0")
        ]
        assert await sql.column("SELECT key FROM orders WHERE timestamp >= ? ORDER BY 1", [NOON.replace(microsecond=2000)]) == [
            "k2",
            "k3",
        ]
        assert await sql.column("SELECT key FROM orders WHERE timestamp = ?", ["2023-11-14 12:00:00.001"]) == ["k1"]


@on_loop
async def test_windows_aggregates_ctes_and_set_operations_work() -> None:
    async with asking() as sql:
        await with_orders(sql.broker)
        assert await sql.rows(
            """WITH amounts AS (SELECT partition AS p, (value ->> 'amount')::double AS amount FROM orders)
            SELECT p, count(*), sum(amount), max(amount) FROM amounts GROUP BY p HAVING sum(amount) > 1 ORDER BY p"""
        ) == [(0, 2, 3.0, 2.5), (1, 2, 5.0, 3.5)]
        assert await sql.rows(
            'SELECT key, row_number() OVER (PARTITION BY partition ORDER BY "offset" DESC) FROM orders ORDER BY key'
        ) == [("k0", 2), ("k1", 2), ("k2", 1), ("k3", 1)]
        assert await sql.column("SELECT key FROM orders WHERE partition = 0 UNION SELECT 'other' ORDER BY 1") == [
            "k0",
            "k2",
            "other",
        ]


@on_loop
async def test_a_topic_can_be_joined_with_itself() -> None:
    async with asking() as sql:
        await with_orders(sql.broker)
        assert await sql.rows(
            "SELECT a.key, b.key FROM orders a JOIN orders b ON a.cursor + 1 = b.cursor WHERE a.partition = 0 ORDER BY 1"
        ) == [("k0", "k1"), ("k2", "k3")]
        assert await sql.rows(
            "WITH o AS (SELECT * FROM orders) SELECT count(*), (SELECT count(*) FROM o) FROM o x JOIN o y ON x.key = y.key"
        ) == [(4, 4)]


@on_loop
async def test_a_whole_row_and_renamed_columns_are_complete() -> None:
    async with asking() as sql:
        await with_orders(sql.broker, 1)
        row = await sql.value("SELECT to_jsonb(o) FROM orders o")
        assert isinstance(row, dict) and row.keys() == {*COLUMNS, "message_id"} and row["key"] == "k0"
        assert await sql.rows("SELECT c, a FROM orders AS o(a, b, c) WHERE b = 0") == [(0, 0)]


@on_loop
async def test_dates_and_integer_division_are_as_in_postgresql() -> None:
    async with asking() as sql:
        await with_orders(sql.broker, 1)
        assert await sql.rows(
            "SELECT 7 / 2, date_trunc('day', timestamp), timestamp + interval '1 hour' > timestamp FROM orders"
        ) == [(3, datetime(2023, 11, 14, tzinfo=UTC), True)]


@on_loop
async def test_records_of_open_and_aborted_transactions_are_not_seen() -> None:
    async with asking() as sql:
        await sql.broker.topics.create(TOPIC, 2)
        gone = await started(sql.broker, "gone")
        await gone.write(0, b"aborted")
        await gone.abort()
        await append(sql.broker, raw(TOPIC, 0, b"plain"))
        still = await started(sql.broker, "still")
        await still.write(0, b"open")
        assert await sql.rows('SELECT "offset", value FROM t') == [(2, "plain")]
        assert await sql.value("SELECT count(*) FROM t") == 1
        await still.commit()
        assert await sql.column("SELECT value FROM t ORDER BY cursor") == ["plain", "open"]


@on_loop
async def test_records_that_are_decoded_ahead_come_in_the_order_of_the_log() -> None:
    async with asking() as sql:
        await sql.broker.topics.create("t", 3)
        for partition in range(3):
            for first in range(0, 400, 20):
                values = [b'{"n":%d,"p":"%s"}' % (number, b"p" * 15_000) for number in range(first, first + 20)]
                await append(sql.broker, raw("t", partition, *values))
        expected = [(partition, number, number) for partition in range(3) for number in range(400)]
        assert await sql.rows("""SELECT "partition", "offset", (value ->> 'n')::int FROM t""") == expected
        assert await sql.rows("""SELECT "partition", "offset", (value ->> 'n')::int FROM t LIMIT 700""") == expected[:700]
        assert await sql.value('SELECT count(*) FROM t a JOIN t b USING (partition, "offset", value)') == 1_200


@on_loop
async def test_more_rows_than_the_limit_are_cut_off_and_that_is_told() -> None:
    async with asking(limits=Limits(query_rows=3)) as sql:
        await with_orders(sql.broker)
        cut = await sql.result("SELECT key FROM orders ORDER BY key")
        assert (cut.rows, cut.truncated) == ([("k0",), ("k1",), ("k2",)], True)
        for text in ("SELECT key FROM orders ORDER BY key LIMIT 3", "SELECT key FROM orders WHERE key <> 'k3' ORDER BY 1"):
            whole = await sql.result(text)
            assert (whole.rows, whole.truncated) == ([("k0",), ("k1",), ("k2",)], False)
        assert (await sql.result("SELECT key FROM orders LIMIT 2 + 2")).truncated


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("SELECT nope FROM orders", SqlError, 'line 1, column 8: column "nope" does not exist'),
        ("SELECT key\n  FROM orders\n WHERE nope > 1", SqlError, 'line 3, column 8: column "nope" does not exist'),
        ("SELECT * FROM app.nothing", UnknownTableError, "line 1, column 15: there is no table, topic or alias 'app.nothing'"),
        ("SELECT sum(key) FROM orders", SqlError, "sum"),
        ("SELECT key::int FROM orders", SqlError, "k0"),
    ],
)
@on_loop
async def test_an_error_says_what_and_where(text: str, error: type[Exception], said: str) -> None:
    async with asking() as sql:
        await with_orders(sql.broker)
        with pytest.raises(error, match=said):
            await sql.rows(text)
        assert await sql.value("SELECT count(*) FROM orders") == 4
