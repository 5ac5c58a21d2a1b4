"""SQL over a broker in memory, with tables in a temporary folder."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tailrace.broker.broker import Broker
from tailrace.broker.security.principals import act_as, stop_acting
from tailrace.broker.security.settings import DEFAULT_SECURITY_SETTINGS, SecuritySettings
from tailrace.model.clock import Clock
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.security import Principal
from tailrace.sql.engine import StatementEngine
from tailrace.sql.parameters import NO_PARAMETERS, Parameters
from tailrace.sql.results import Result
from tailrace.store.contract import Store
from tests.support.brokers import running_broker
from tests.support.clocks import ManualClock


class SqlClient:
    """Runs statements and gives what tests look at."""

    def __init__(self, sql: StatementEngine, broker: Broker) -> None:
        self.broker = broker
        self.engine = sql

    async def run(self, text: str, params: Parameters = NO_PARAMETERS) -> Result:
        """The result of the last statement."""
        return (await self.engine.execute(text, params))[-1]

    async def rows(self, text: str, params: Parameters = NO_PARAMETERS) -> list[tuple[object, ...]]:
        return [tuple(row) for row in (await self.run(text, params)).rows]

    async def dicts(self, text: str, params: Parameters = NO_PARAMETERS) -> list[dict[str, object]]:
        result = await self.run(text, params)
        names = [column.name for column in result.columns]
        return [dict(zip(names, row, strict=True)) for row in result.rows]


AUTHENTICATED = SecuritySettings(authentication="required")


@contextmanager
def acting_as(name: str, *roles: str) -> Iterator[None]:
    """Let statements be run by a principal, and not by the server."""
    token = act_as(Principal(name, "127.0.0.1", roles))
    try:
        yield
    finally:
        stop_acting(token)


@asynccontextmanager
async def running_sql(
    *,
    store: Store | None = None,
    clock: Clock | None = None,
    limits: Limits = DEFAULT_LIMITS,
    security: SecuritySettings = DEFAULT_SECURITY_SETTINGS,
) -> AsyncIterator[SqlClient]:
    clock = clock or ManualClock()
    with tempfile.TemporaryDirectory() as folder:
        async with running_broker(store, clock, limits, security=security) as broker:
            sql = await StatementEngine.open(Path(folder), broker, clock, limits)
            try:
                yield SqlClient(sql, broker)
            finally:
                await sql.close()
