"""A source with tables, as a capture would define them."""

from tailrace.broker.broker import Broker
from tailrace.model.ids import SourceId, TableId, TopicId
from tailrace.model.source import ALL_TABLES, Source, SourceTable
from tailrace.model.table import Column, ColumnType, Table

DRAFT = Source(
    id=SourceId(0),
    name="shop",
    url="postgresql://db/shop",
    tables=("public.*",),
    snapshot="initial",
    slot="slot",
    publication="publication",
    created_ms=0,
    wanted=ALL_TABLES,
)


async def define_source(broker: Broker, *names: str) -> tuple[Source, list[SourceTable]]:
    """Create the source `shop` with tables of these names."""
    source = await broker.sources.create(DRAFT)
    tables = []
    for number, name in enumerate(names):
        table = Table(
            id=TableId(0),
            name=f"shop.public.{name}",
            columns=(Column("id", ColumnType("integer"), nullable=False),),
            primary_key=("id",),
            changes=TopicId(0),
            created_ms=0,
        )
        draft = SourceTable(source=source.id, table=table, schema="public", relation=name, oid=100 + number, identity="default")
        tables.append(await broker.sources.define_table(source, draft))
    return source, tables
