"""`GET /api/tables` and `GET /api/views` list tables and views, which are created and used in SQL, and
`POST /api/tables/{name}/rows` copies rows into a table; `/api/routes` adds, lists and drops routes.

A route is added by the SQL statement that it stands for, so both ways have the same checks.
"""

from typing import Any

from litestar import Controller, Request, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, RawBody, SkipValidation

from tailrace.api.tables import (
    AddRouteBody,
    ColumnView,
    CopyErrorPolicy,
    CopyRowsResponse,
    RejectedRowView,
    RoutePage,
    RouteView,
    TablePage,
    TableView,
    ViewColumnView,
    ViewEntry,
    ViewPage,
)
from tailrace.broker.broker import Broker
from tailrace.broker.tables.views import type_name
from tailrace.http.disconnect import while_connected
from tailrace.http.openapi import describe_endpoint
from tailrace.http.requests import DEFAULT_PAGE, PageSize, page, read_body
from tailrace.http.row_encoders import ARROW_TYPE
from tailrace.http.statements import SqlExecutor
from tailrace.model.errors import InvalidRequestError
from tailrace.model.limits import Limits
from tailrace.model.names import check_relation_name, check_topic_name
from tailrace.model.route import Route
from tailrace.model.table import Table


@get("/api/tables", tags=["tables"])
async def tables(
    broker: NamedDependency[Broker], after: FromQuery[str] = "", limit: FromQuery[PageSize] = DEFAULT_PAGE
) -> TablePage:
    """List tables by name."""
    visible = (table for table in broker.tables if broker.permissions.may("describe", "table", table.name))
    found, last = page(visible, lambda table: table.name, after, limit)
    return TablePage([_table_view(table, broker.tables.changes_topic(table)) for table in found], last)


@get("/api/views", tags=["tables"])
async def views(
    broker: NamedDependency[Broker], after: FromQuery[str] = "", limit: FromQuery[PageSize] = DEFAULT_PAGE
) -> ViewPage:
    """List views by name."""
    visible = (view for view in broker.views if broker.permissions.may("describe", "table", view.name))
    found, last = page(visible, lambda view: view.name, after, limit)
    entries = [
        ViewEntry(
            view.name,
            [ViewColumnView(column.name, type_name(column)) for column in view.columns],
            view.text,
            view.created_ms,
        )
        for view in found
    ]
    return ViewPage(entries, last)


@post("/api/tables/{name:str}/rows", status_code=200, tags=["tables"], opt=describe_endpoint(content_type=ARROW_TYPE))
async def copy_rows(
    request: Request[Any, Any, Any],
    name: FromPath[str],
    body: RawBody,
    engine: NamedDependency[SkipValidation[SqlExecutor]],
    on_error: FromQuery[CopyErrorPolicy] = "stop",
) -> CopyRowsResponse:
    """Insert rows into a table, in one transaction."""
    copied = await while_connected(request.receive, engine.copy_rows(name, body, skip=on_error == "skip"))
    return CopyRowsResponse(copied.rows, copied.cursor, [RejectedRowView(*rejected) for rejected in copied.rejected])


def _table_view(table: Table, changes_topic: str) -> TableView:
    return TableView(
        table.name,
        [ColumnView(column.name, str(column.type), column.nullable, column.default) for column in table.columns],
        list(table.primary_key),
        changes_topic,
        table.created_ms,
        table.schema_version,
    )


class RouteEndpoints(Controller):
    path = "/api/routes"
    tags = ("tables",)

    @get()
    async def all(
        self, broker: NamedDependency[Broker], after: FromQuery[int] = -1, limit: FromQuery[PageSize] = DEFAULT_PAGE
    ) -> RoutePage:
        """List routes in the order in which they were added."""
        later = (route for route in broker.routes if route.id > after and broker.topics.may("describe", route.topic_name))
        found, last = page(later, lambda route: str(route.id), "", limit)
        return RoutePage([_route_view(broker, route) for route in found], None if last is None else int(last))

    @post(status_code=200, opt=describe_endpoint(AddRouteBody))
    async def add(
        self,
        body: RawBody,
        broker: NamedDependency[Broker],
        engine: NamedDependency[SkipValidation[SqlExecutor]],
        limits: NamedDependency[Limits],
    ) -> RouteView:
        """Add a route, as ALTER TOPIC ... ADD SOURCE does."""
        parsed = read_body(body, AddRouteBody)
        text = _statement(parsed, limits)
        _check_one_statement(text, limits)
        (result,) = await engine.execute(text)
        return _route_view(broker, next(route for route in broker.routes if route.since == result.cursor))

    @delete()
    async def drop(self, broker: NamedDependency[Broker], topic: FromQuery[str], source_table: FromQuery[str]) -> None:
        """Drop all routes from a table to a topic."""
        await broker.routes.drop(topic, source_table)


def _statement(parsed: AddRouteBody, limits: Limits) -> str:
    check_topic_name(parsed.topic, limits)
    check_relation_name(parsed.source_table, limits)
    table = ".".join(f'"{part}"' for part in parsed.source_table.split("."))
    text = f"ALTER TOPIC {parsed.topic} ADD SOURCE {table} ON {', '.join(parsed.operations).upper()}"
    if parsed.where is not None:
        text += f" WHERE ({parsed.where}\n)"
    if parsed.partition_by:
        text += f" PARTITION BY ({', '.join(parsed.partition_by)}\n)"
    return f"{text} WITH (payload = '{parsed.payload_mode}', snapshot = {str(parsed.snapshot).lower()})"


def _check_one_statement(text: str, limits: Limits) -> None:
    """Check that an expression does not end the statement and begin another one."""
    # Loaded with the first route: the parser takes a good part of the start of a server.
    from tailrace.sql.parse import parse

    if len(parse(text, limits)) != 1:
        raise InvalidRequestError("where and partition_by must be expressions, not statements")


def _route_view(broker: Broker, route: Route) -> RouteView:
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
