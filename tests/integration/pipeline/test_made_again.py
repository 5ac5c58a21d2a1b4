"""A table or topic that is made again under its name is another one: nothing that was meant for the first reaches it.

The drop comes in the middle of a batch: before its routes are asked for, before its tasks read, and before its publish.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.pipeline import router as router_module
from tests.integration.pipeline.conftest import RunOnce
from tests.support.routed_tables import RoutedTables

MOMENTS = ("route.asked", "route.before", "route.staged")

AtMoment = Callable[[Callable[[], None]], None]


@pytest.fixture(params=MOMENTS)
def at_moment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AtMoment:
    """Lets something be done once, at this moment of the next batch."""

    def do(action: Callable[[], None]) -> None:
        waiting = [action]

        def passing(name: str) -> None:
            if name == request.param and waiting:
                waiting.pop()()

        asked = router_module._fetch_routes
        batches = 0

        def routes(connection: Any) -> Any:
            # A query asks once before its first batch, to know what to read.
            nonlocal batches
            batches += 1
            if batches > 1:
                passing("route.asked")
            return asked(connection)

        monkeypatch.setattr(router_module, "killpoint", passing)
        monkeypatch.setattr(router_module, "_fetch_routes", routes)

    return do


def values(tables: RoutedTables, topic: str) -> list[dict[str, object]]:
    return [json.loads(each.message.value) for each in tables.records(topic)]


def test_what_is_made_again_under_a_name_gets_nothing_that_was_meant_for_the_first(
    tables: RoutedTables, route_once: RunOnce, at_moment: AtMoment
) -> None:
    """Two tables are made again, with a narrower route and with an equal one; a topic; and one whose route fails."""
    sql = tables.api.sql

    def make_table(name: str) -> None:
        sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, v TEXT)")

    def route(topic: str, table: str, rest: str) -> None:
        sql(f"ALTER TOPIC {topic} ADD SOURCE {table} ON INSERT {rest}")

    for topic in ("of_narrow", "of_equal", "again", "kept", "failing", "failing.dead_letters", "kept_failing"):
        sql(f"CREATE TOPIC {topic}")
    for table in ("narrow", "equal", "rows"):
        make_table(f"zz.{table}")
    route("of_narrow", "zz.narrow", "WITH (payload = 'full')")
    route("of_equal", "zz.equal", "WITH (payload = 'full')")
    for topic in ("again", "kept"):
        route(topic, "zz.rows", "WITH (payload = 'key')")
    for topic in ("failing", "kept_failing"):
        route(topic, "zz.rows", "WHERE 10 / (id - 1) > 0 AND id < 2 WITH (payload = 'key')")
    for table in ("narrow", "equal", "rows"):
        sql(f"INSERT INTO zz.{table} VALUES (1, 'first')")

    def make_again() -> None:
        for table in ("narrow", "equal"):
            sql(f"DROP TABLE zz.{table} CASCADE")
            make_table(f"zz.{table}")
        route("of_narrow", "zz.narrow", "WHERE v = 'public' WITH (payload = 'key')")
        route("of_equal", "zz.equal", "WITH (payload = 'full')")
        for topic in ("again", "failing", "failing.dead_letters"):
            sql(f"DROP TOPIC {topic} CASCADE")
            sql(f"CREATE TOPIC {topic}")
        route("again", "zz.rows", "WITH (payload = 'key')")
        for table in ("narrow", "equal"):
            sql(f"INSERT INTO zz.{table} VALUES (1, 'secret'), (2, 'public')")
        sql("INSERT INTO zz.rows VALUES (2, 'second')")

    at_moment(make_again)
    route_once()
    route_once()
    assert values(tables, "of_narrow") == [{"id": 2}]
    assert values(tables, "of_equal") == [{"id": 1, "v": "secret"}, {"id": 2, "v": "public"}]
    assert values(tables, "again") == [{"id": 2}]
    assert values(tables, "kept") == [{"id": 1}, {"id": 2}]
    assert values(tables, "failing.dead_letters") == []
    assert [letter["topic"] for letter in values(tables, "kept_failing.dead_letters")] == ["kept_failing"]
