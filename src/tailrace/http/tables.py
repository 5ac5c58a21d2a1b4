"""`GET /api/tables`: which tables there are. They are made, written, read and dropped in SQL."""

import msgspec
from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromQuery

from tailrace.broker.broker import Broker
from tailrace.http.paging import DEFAULT_PAGE, PageSize, page
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


@get("/api/tables", tags=["tables"])
async def tables(
    broker: NamedDependency[Broker], after: FromQuery[str] = "", limit: FromQuery[PageSize] = DEFAULT_PAGE
) -> TablePage:
    """Tables by name."""
    found, last = page(broker.tables, lambda table: table.name, after, limit)
    return TablePage([_table(table) for table in found], last)


def _table(table: Table) -> TableView:
    return TableView(
        table.name,
        [ColumnView(column.name, str(column.type), column.nullable, column.default) for column in table.columns],
        list(table.primary_key),
        CHANGES_PREFIX + table.name,
        table.created_ms,
    )
