"""The plan of many routes on a real Spark: each route's bits are its own."""

import msgspec
from pyspark.sql import SparkSession

from tailrace.model.ids import Cursor, RouteId, TableId, TopicId
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.route import DIALECT, Route, RouteRecord, RouteSql
from tailrace.model.table import Column, ColumnType, Table
from tailrace.pipeline.plan import FAILED, MATCHED, OPERATIONS, RoutingPlan, slots_of
from tailrace.pipeline.steps import change_schema
from tailrace.sql.routes.compile import compile_for_spark
from tests.support.route_cases import checked

ROUTES = 70
TABLE = 7
OLD_RECORD = rb"""{"action":"add","route":{"id":1,"topic":1,"topic_name":"t","table":7,"table_name":"t","changes":2,
"operations":["insert"],"where":"n / 2 = 2.5 AND NOT contains(name, 'x') AND j IS NOT NULL","payload":"key","sql":{
"row":"STRUCT<`id`: BIGINT, `n`: INT, `name`: STRING, `j`: STRING>",
"condition":"(((CAST(new.`n` AS DOUBLE) / nullif(CAST('2.0' AS DOUBLE), 0)) = CAST('2.5' AS DOUBLE)) AND (NOT contains(new.`name`, 'x')) AND (NOT (new.`j` IS NULL)))",
"failure":"((CAST(new.`n` AS DOUBLE) IS NOT NULL AND (CAST(new.`n` AS DOUBLE) / nullif(CAST('2.0' AS DOUBLE), 0)) IS NULL) AND NOT (((CAST(new.`n` AS DOUBLE) / nullif(CAST('2.0' AS DOUBLE), 0)) = CAST('2.5' AS DOUBLE)) IS FALSE OR (NOT contains(new.`name`, 'x')) IS FALSE OR (NOT (new.`j` IS NULL)) IS FALSE))",
"key":null},"since":10}}"""  # noqa: E501  as it was written
"""A route of the first dialect, in which `/` gave a double, as it is stored."""


def route(number: int, **given: object) -> Route:
    """Takes numbers that leave this remainder, and fails on those that are 100 times as large."""
    n = "CASE WHEN new IS NULL THEN old.`n` ELSE new.`n` END"
    values = {
        "id": RouteId(number),
        "topic": TopicId(number),
        "topic_name": f"t{number}",
        "table": TableId(TABLE),
        "table_name": "t",
        "changes": TopicId(1_000),
        "operations": ("insert", "delete"),
        "payload": "key",
        "sql": RouteSql(
            row="STRUCT<`n`: BIGINT>",
            condition=f"({n} % {ROUTES} = {number})",
            failure=f"({n} = {100 * number})",
            key=f"concat('[', {n}, ']')" if number == 3 else None,
        ),
    }
    return Route(**(values | given))  # type: ignore[arg-type]


def test_each_route_of_many_says_what_it_alone_would_say(spark: SparkSession) -> None:
    routes = [route(number) for number in range(1, ROUTES + 1)]
    routes[4] = route(5, since=Cursor(100))
    routes[5] = route(6, until=Cursor(100))
    routes[6] = route(7, snapshot=True)
    slots = slots_of(routes)
    old, new = (slots.tables[TABLE][image]["n"] for image in ("old", "new"))

    def row(op: str, n: int, *, table: int = TABLE, only: int | None = None, skip: str | None = None) -> tuple[object, ...]:
        cells: list[int | None] = [None, None]
        cells[old if op == "delete" else new] = n
        return (table, OPERATIONS.index(op), 50, only, skip, None, *cells)

    rows = {
        row("insert", 1): {1: MATCHED},
        row("delete", 2): {2: MATCHED},
        row("update", 1): {},
        row("insert", 1, table=8): {},
        row("insert", 5): {},
        row("insert", 6): {6: MATCHED},
        row("insert", 7): {7: MATCHED},
        row("insert", 7, skip=",7,"): {},
        row("insert", 7, skip=",17,"): {7: MATCHED},
        row("read", 7, only=7): {7: MATCHED},
        row("read", 8, only=8): {},
        row("insert", 33 + 700): {33: MATCHED},
        row("insert", 6_400): {64: FAILED, 30: MATCHED},
        row("insert", 69): {69: MATCHED},
        row("insert", 3): {3: MATCHED},
        (None, None, None, None, None, b"step", None, None): {},
    }
    plan = RoutingPlan(routes, slots)
    found = plan.apply(spark.createDataFrame(list(rows), change_schema(slots))).collect()
    for said, wanted in zip(found, rows.values(), strict=True):
        bits = {route.id: said[where.word] >> where.shift & 3 for route, where in zip(routes, plan.bits, strict=True)}
        assert {id: each for id, each in bits.items() if each} == wanted
    assert [said.key_2 for said in found if said.key_2] == ["[3]"]
    assert [said.step is not None for said in found] == [False] * (len(rows) - 1) + [True]


def test_a_stored_route_means_what_it_meant_beside_a_new_one(spark: SparkSession) -> None:
    stored = msgspec.json.decode(OLD_RECORD, type=RouteRecord).route
    assert stored.dialect == 1
    columns = {"id": "bigint", "n": "integer", "name": "text", "j": "json"}
    table = Table(
        id=TableId(TABLE),
        name="t",
        columns=tuple(Column(name, ColumnType(kind)) for name, kind in columns.items()),  # type: ignore[arg-type]
        primary_key=("id",),
        changes=TopicId(2),
        created_ms=0,
    )
    text = "n / 2 = 2 AND j ->> 'type' = 'x'"
    compiled = compile_for_spark(checked(text, operations=("insert",), table=table), table, DEFAULT_LIMITS)
    made = msgspec.structs.replace(stored, id=RouteId(2), where=text, dialect=DIALECT, sql=compiled)
    routes = [stored, made]
    slots = slots_of(routes)
    places = slots.tables[TABLE]["new"]
    cells = {"n": 5, "name": "abc", "j": '{"type":"x"}'}
    row: list[object] = [None] * len(slots.kinds)
    for name, place in places.items():
        row[place] = cells[name]
    plan = RoutingPlan(routes, slots)
    frame = spark.createDataFrame([(TABLE, 0, 50, None, None, None, *row)], change_schema(slots))
    (said,) = plan.apply(frame).collect()
    assert [said[where.word] >> where.shift & 3 for where in plan.bits] == [MATCHED, MATCHED]
    for cell in ('{"type":"y"}', '"x"', '{"type":{"a":1}}'):
        row[places["j"]] = cell
        (said,) = plan.apply(spark.createDataFrame([(TABLE, 0, 50, None, None, None, *row)], change_schema(slots))).collect()
        assert said[plan.bits[1].word] >> plan.bits[1].shift & 3 == 0
