"""CREATE, ALTER, TRUNCATE and DROP TABLE, indexes and types, as calls of `sql.tables`."""

from tailrace.broker.broker import Broker
from tailrace.broker.security.principals import current_principal
from tailrace.model.errors import SqlError, UnknownTableError
from tailrace.model.names import without_public
from tailrace.model.security import Operation
from tailrace.model.suggestions import did_you_mean
from tailrace.model.table import Table
from tailrace.sql.grammar.columns import is_known_type
from tailrace.sql.privileges import refusal, visible_tables
from tailrace.sql.results import Result
from tailrace.sql.statements import (
    AlterTableStatement,
    AlterTypeStatement,
    CreateIndexStatement,
    CreateTableStatement,
    CreateTypeStatement,
    DropIndexStatement,
    DropTableStatement,
    DropTypeStatement,
    Statement,
    TruncateStatement,
)
from tailrace.sql.tables.tables import Tables

_WRONG_OBJECT = "42809"


class TableHandler:
    """Creates, alters, empties and drops tables."""

    def __init__(self, broker: Broker, tables: Tables) -> None:
        self._broker = broker
        self._tables = tables

    async def create(self, asked: CreateTableStatement) -> Result:
        if asked.if_not_exists and self._broker.tables.find(asked.name) is not None:
            return Result(status="CREATE TABLE, which exists")
        await self._tables.create(asked)
        return Result(status="CREATE TABLE")

    async def drop(self, asked: DropTableStatement) -> Result:
        known = []
        for name in asked.names:
            table = self._broker.tables.find(name)
            if table is None and (not asked.if_exists or self._broker.views.find(name) is not None):
                raise self._no_table(name, asked, "DROP VIEW", "DROP TOPIC")
            if table is not None and table not in known:
                known.append(table)
        for table in known:
            await self._tables.drop(table.name, cascade=asked.cascade)
        return Result(status="DROP TABLE" if known else "DROP TABLE, which does not exist")

    async def alter(self, asked: AlterTableStatement) -> Result:
        if self._broker.tables.find(asked.name) is None:
            if asked.if_exists and self._broker.views.find(asked.name) is None:
                return Result(status="ALTER TABLE, which does not exist")
            raise self._no_table(asked.name, asked, "CREATE OR REPLACE VIEW", "ALTER TOPIC")
        await self._tables.alter(asked)
        return Result(status="ALTER TABLE")

    async def truncate(self, asked: TruncateStatement) -> Result:
        self.check_truncate(asked)
        (result,) = await self._tables.write([asked])
        return result

    def check_truncate(self, asked: Statement) -> None:
        """Raise if TRUNCATE names something that is not a table."""
        for name in asked.names if isinstance(asked, TruncateStatement) else ():
            if self._broker.tables.find(name) is None:
                raise self._no_table(name, asked, "TRUNCATE with its tables", "CLEAR TOPIC")

    async def create_index(self, asked: CreateIndexStatement) -> Result:
        made = await self._tables.create_index(asked)
        return Result(status="CREATE INDEX, which exists" if made is None else "CREATE INDEX")

    async def drop_index(self, asked: DropIndexStatement) -> Result:
        found = []
        for name in asked.names:
            index = self._tables.find_index(name, self._is_visible) or self._tables.find_index(
                without_public(name), self._is_visible
            )
            if index is not None:
                self._require("alter", index[0].name, asked)
                found.append(index)
                continue
            # Indexes share the names of tables.
            self._require("describe", name, asked)
            if not asked.if_exists:
                raise SqlError(f"index {name!r} does not exist", asked.line, asked.column, sqlstate="42704")
        for table, known in found:
            await self._tables.drop_index(table, known)
        return Result(status="DROP INDEX" if found else "DROP INDEX, which does not exist")

    def _is_visible(self, table: Table) -> bool:
        return self._broker.permissions.may("describe", "table", table.name)

    def _require(self, operation: Operation, table: str, asked: DropIndexStatement) -> None:
        if not self._broker.permissions.may(operation, "table", table):
            raise refusal(current_principal().name, operation, table, (asked.line, asked.column))

    async def create_type(self, asked: CreateTypeStatement) -> Result:
        if is_known_type(without_public(asked.name)):
            raise SqlError(f"type {asked.name!r} already exists", asked.line, asked.column, sqlstate="42710")
        await self._broker.tables.types.create(asked.name, asked.labels)
        return Result(status="CREATE TYPE")

    async def alter_type(self, asked: AlterTypeStatement) -> Result:
        is_new = await self._tables.add_label(asked)
        return Result(status="ALTER TYPE" if is_new else "ALTER TYPE, which has the label")

    async def drop_type(self, asked: DropTypeStatement) -> Result:
        types = self._broker.tables.types
        known = [name for name in asked.names if not asked.if_exists or types.find(name) is not None]
        for name in known:
            types.get(name)
        for name in known:
            await self._tables.drop_type(name)
        return Result(status="DROP TYPE" if known else "DROP TYPE, which does not exist")

    def _no_table(self, name: str, asked: Statement, for_views: str, for_topics: str) -> SqlError:
        """Return the error for a name that is not that of a table, with the statement to use instead."""
        place = asked.line, asked.column
        if self._broker.views.find(name) is not None:
            return SqlError(f"{name!r} is a view, not a table; use {for_views}", *place, sqlstate=_WRONG_OBJECT)
        if self._broker.topics.find(name) is not None:
            return UnknownTableError(f"{name!r} is a topic, not a table; use {for_topics}")
        hint = did_you_mean(name, visible_tables(self._broker))
        return UnknownTableError(f"there is no table {name!r}{hint}", *place)
