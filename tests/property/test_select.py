"""Whatever the conditions of a query are, bounds on what is read never change what it finds."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.commit import Append, Changes
from tailrace.model.ids import PartitionId
from tailrace.model.record import Record
from tailrace.store.memory import MemoryStore
from tailrace.wire.records import encode_batch
from tests.support.queries import asking

START_MS = 1_700_000_000_000


class Row(NamedTuple):
    partition: int
    offset: int
    cursor: int
    timestamp: int


class Condition(NamedTuple):
    sql: str
    holds: Callable[[Row], bool]


def named(column: str) -> str:
    return f'"{column}"'


def compared(column: str, sign: str, bound: int, flipped: bool) -> Condition:
    shown = shown_of(column, bound)
    sides = {"<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__", "=": "__eq__"}
    mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}[sign]
    sql = f"{shown} {mirrored} {named(column)}" if flipped else f"{named(column)} {sign} {shown}"
    return Condition(sql, lambda row: bool(getattr(getattr(row, column), sides[sign])(bound)))


def shown_of(column: str, bound: int) -> str:
    if column != "timestamp":
        return str(bound)
    return f"'{datetime.fromtimestamp(bound / 1000, UTC).replace(tzinfo=None).isoformat()}'"


def between(column: str, low: int, high: int) -> Condition:
    sql = f"{named(column)} BETWEEN {shown_of(column, low)} AND {shown_of(column, high)}"
    return Condition(sql, lambda row: low <= getattr(row, column) <= high)


def among(column: str, bounds: Sequence[int]) -> Condition:
    shown = ", ".join(shown_of(column, bound) for bound in bounds)
    return Condition(f"{named(column)} IN ({shown})", lambda row: getattr(row, column) in bounds)


def either(left: Condition, right: Condition) -> Condition:
    return Condition(f"({left.sql} OR {right.sql})", lambda row: left.holds(row) or right.holds(row))


def negated(inner: Condition) -> Condition:
    return Condition(f"NOT ({inner.sql})", lambda row: not inner.holds(row))


def bounds_of(column: str) -> st.SearchStrategy[int]:
    return st.integers(START_MS - 3, START_MS + 25) if column == "timestamp" else st.integers(-2, 30)


columns = st.sampled_from(["partition", "offset", "cursor", "timestamp"])
simple = columns.flatmap(
    lambda column: st.one_of(
        st.builds(compared, st.just(column), st.sampled_from(["<", "<=", ">", ">=", "="]), bounds_of(column), st.booleans()),
        st.builds(between, st.just(column), bounds_of(column), bounds_of(column)),
        st.builds(among, st.just(column), st.lists(bounds_of(column), min_size=1, max_size=3)),
    )
)
any_condition = st.one_of(simple, simple, simple, st.builds(either, simple, simple), simple.map(negated))
batches = st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 20), min_size=1, max_size=4)), max_size=8)


@settings(max_examples=25, deadline=None)
@given(batches, st.lists(st.lists(any_condition, min_size=1, max_size=3), min_size=1, max_size=6))
def test_conditions_find_just_the_rows_that_they_describe(
    sent: list[tuple[int, list[int]]], asked: list[list[Condition]]
) -> None:
    async def check() -> None:
        store = MemoryStore()
        async with asking(store) as sql:
            topic = await sql.broker.topics.create("t", 3)
            rows: list[Row] = []
            ends = [0, 0, 0]
            for partition, times in sent:
                batch = encode_batch([Record(None, b"v", (), START_MS + time) for time in times])
                newest = START_MS + max(times)
                store.commit(Changes(appends=(Append(PartitionId(topic.id, partition), batch, len(times), newest),)))
                for time in times:
                    rows.append(Row(partition, ends[partition], len(rows), START_MS + time))
                    ends[partition] += 1
            for conditions in asked:
                where = " AND ".join(condition.sql for condition in conditions)
                expected = [row.cursor for row in rows if all(condition.holds(row) for condition in conditions)]
                assert await sql.column(f"SELECT cursor FROM t WHERE {where} ORDER BY 1") == expected, where

    asyncio.run(check())
