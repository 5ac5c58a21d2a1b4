"""`/api/routes`: which changes of which tables go to which topics.

A route is made by the SQL statement that it stands for, so both ways have the same checks.
"""

from typing import Annotated

import msgspec
from litestar import Controller, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromQuery, RawBody, SkipValidation
from msgspec import Meta

from tailrace.broker.broker import Broker
from tailrace.http.description import described
from tailrace.http.engine import Engine
from tailrace.http.messages import read_body
from tailrace.http.paging import DEFAULT_PAGE, PageSize, page
from tailrace.model.errors import InvalidRequestError
from tailrace.model.limits import Limits
from tailrace.model.names import check_topic_name
from tailrace.model.route import Operation, PayloadMode, Route, SnapshotState


class AddRoute(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    source_table: str
    operations: Annotated[list[Operation], Meta(min_length=1)]
    where: str | None = None
    """A condition in SQL on the columns of the table, and on `OLD.x` and `NEW.x`."""
    partition_by: list[str] = []
    """Expressions in SQL whose values choose the partition."""
    payload_mode: PayloadMode = "key"
    snapshot: bool = False
    """Whether the rows that are there come first."""


class RouteView(msgspec.Struct):
    id: int
    topic_name: str
    source_table: str
    operations: list[Operation]
    where: str | None
    partition_by: list[str]
    payload_mode: PayloadMode
    since: int
    """In force for changes behind this cursor."""
    snapshot: SnapshotState
    snapshot_rows: int
    """Rows that the snapshot has told so far."""


class RoutePage(msgspec.Struct):
    routes: list[RouteView]
    next: int | None


class RouteEndpoints(Controller):
    path = "/api/routes"
    tags = ("tables",)

    @get()
    async def all(
        self, broker: NamedDependency[Broker], after: FromQuery[int] = -1, limit: FromQuery[PageSize] = DEFAULT_PAGE
    ) -> RoutePage:
        """Routes in the order in which they were added."""
        later = (route for route in broker.routes if route.id > after)
        found, last = page(later, lambda route: str(route.id), "", limit)
        return RoutePage([_view(broker, route) for route in found], None if last is None else int(last))

    @post(status_code=200, opt=described(AddRoute))
    async def add(
        self,
        body: RawBody,
        broker: NamedDependency[Broker],
        engine: NamedDependency[SkipValidation[Engine]],
        limits: NamedDependency[Limits],
    ) -> RouteView:
        """Put a route in force; it is checked as ALTER TOPIC ... ADD SOURCE is."""
        asked = read_body(body, AddRoute)
        text = _statement(asked, limits)
        _check_alone(text, limits)
        (result,) = await engine.execute(text)
        return _view(broker, next(route for route in broker.routes if route.since == result.cursor))

    @delete()
    async def drop(self, broker: NamedDependency[Broker], topic: FromQuery[str], source_table: FromQuery[str]) -> None:
        """End all routes from a table to a topic."""
        await broker.routes.drop(topic, source_table)


def _statement(asked: AddRoute, limits: Limits) -> str:
    for name in (asked.topic, asked.source_table):
        check_topic_name(name, limits)
    text = f"ALTER TOPIC {asked.topic} ADD SOURCE {asked.source_table} ON {', '.join(asked.operations).upper()}"
    if asked.where is not None:
        text += f" WHERE ({asked.where}\n)"
    if asked.partition_by:
        text += f" PARTITION BY ({', '.join(asked.partition_by)}\n)"
    return f"{text} WITH (payload = '{asked.payload_mode}', snapshot = {str(asked.snapshot).lower()})"


def _check_alone(text: str, limits: Limits) -> None:
    """What came as a condition must not be the end of the statement and the beginning of another one."""
    # Loaded when the first route is made: the parser takes a good part of the time in which a server starts.
    from tailrace.sql.parse import parse

    if len(parse(text, limits)) != 1:
        raise InvalidRequestError("where and partition_by hold expressions, and no statements of their own")


def _view(broker: Broker, route: Route) -> RouteView:
    return RouteView(
        route.id,
        route.topic_name,
        route.table_name,
        list(route.operations),
        route.where,
        list(route.partition_by),
        route.payload,
        route.since,
        *broker.snapshots.progress(route),
    )
