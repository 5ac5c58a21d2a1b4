"""SQL in service: the engine with the tables, routes and queries that it hands statements to, opened and closed together."""

from pathlib import Path

from tailrace.broker.broker import Broker
from tailrace.model.clock import Clock
from tailrace.model.limits import Limits
from tailrace.sql.engine import SqlEngine
from tailrace.sql.routes.statements import RouteStatements
from tailrace.sql.select.queries import Queries
from tailrace.sql.tables.tables import Tables


class Sql:
    """Opened with `Sql.open` once the broker has started, and closed before it."""

    @classmethod
    async def open(cls, folder: Path, broker: Broker, clock: Clock, limits: Limits) -> "Sql":
        """Open the tables in the folder and bring them up to the log."""
        return cls(broker, await Tables.open(folder, broker, clock, limits), limits)

    def __init__(self, broker: Broker, tables: Tables, limits: Limits) -> None:
        self.tables = tables
        self._routes = RouteStatements(broker, tables, limits)
        self._queries = Queries(broker, tables, limits)
        self.engine = SqlEngine(broker, tables, self._routes, self._queries, limits)

    async def close(self) -> None:
        """Stop queries, finish writes."""
        await self.engine.close()
        self._queries.close()
        self._routes.close()
        await self.tables.close()
