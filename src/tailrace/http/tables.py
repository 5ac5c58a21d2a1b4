"""`/api/tables` and `/api/routes`: what there is. Both are made and dropped in SQL."""

import msgspec
from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromQuery

from tailrace.broker.broker import Broker
from tailrace.http.paging import DEFAULT_PAGE, PageSize, page
from tailrace.model.route import Operation, Payload, Route
from tailrace.model.table import CHANGES_PREFIX, Table


class ColumnView(msgspec.Struct):
    name: str
    type: str
    nullable: bool
    default: str | None


class TableView(msgspec.Struct):
    name: str
    columns: list[ColumnView]
    primary_key: list[str]
    changes: str
    """The topic that holds every change of the table."""
    created_ms: int


class TablePage(msgspec.Struct):
    tables: list[TableView]
    next: str | None


class RouteView(msgspec.Struct):
    id: int
    topic_name: str
    source_table: str
    operations: list[Operation]
    where: str | None
    partition_by: list[str]
    payload_mode: Payload
    since: int
    """In force for changes behind this cursor."""


class RoutePage(msgspec.Struct):
    routes: list[RouteView]
    next: int | None


@get("/api/tables", tags=["tables"])
async def tables(
    broker: NamedDependency[Broker], after: FromQuery[str] = "", limit: FromQuery[PageSize] = DEFAULT_PAGE
) -> TablePage:
    """Tables by name."""
    found, last = page(broker.tables, lambda table: table.name, after, limit)
    return TablePage([_table(table) for table in found], last)


@get("/api/routes", tags=["tables"])
async def routes(
    broker: NamedDependency[Broker], after: FromQuery[int] = -1, limit: FromQuery[PageSize] = DEFAULT_PAGE
) -> RoutePage:
    """Routes from tables to topics, in the order in which they were added."""
    later = (route for route in broker.routes if route.id > after)
    found, last = page(later, lambda route: str(route.id), "", limit)
    return RoutePage([_route(route) for route in found], None if last is None else int(last))


def _table(table: Table) -> TableView:
    return TableView(
        table.name,
        [ColumnView(column.name, str(column.type), column.nullable, column.default) for column in table.columns],
        list(table.primary_key),
        CHANGES_PREFIX + table.name,
        table.created_ms,
    )


def _route(route: Route) -> RouteView:
    return RouteView(
        route.id,
        route.topic_name,
        route.table_name,
        list(route.operations),
        route.where,
        list(route.partition_by),
        route.payload,
        route.since,
    )
