"""A process that runs CREATE TABLE AS, to be killed while it does: `python -m tests.chaos.table_filler folder`."""

import asyncio
import sys
from pathlib import Path

from tailrace.broker.broker import Broker
from tailrace.model.clock import SystemClock
from tailrace.model.limits import Limits
from tailrace.sql.engine import StatementEngine
from tailrace.sql.handlers import create_table_as
from tailrace.store.embedded import EmbeddedStore

LIMITS = Limits(min_free_bytes=0)
ROWS = 2_000
CREATE = f"CREATE TABLE filled (PRIMARY KEY (id)) AS SELECT g AS id FROM generate_series(1, {ROWS}) AS g"


async def fill(folder: Path) -> None:
    store = EmbeddedStore.open(folder, limits=LIMITS)
    broker = Broker(store, SystemClock(), LIMITS)
    await broker.start()
    engine = await StatementEngine.open(folder, broker, SystemClock(), LIMITS)
    await engine.execute("CREATE TABLE other (id INTEGER PRIMARY KEY); INSERT INTO other VALUES (1)")
    await engine.execute("CREATE VIEW seen AS SELECT id FROM other; CREATE VIEW gone AS SELECT 1 AS one; DROP VIEW gone")
    create_table_as._CHUNK_ROWS = 500
    await engine.execute(CREATE)


if __name__ == "__main__":
    asyncio.run(fill(Path(sys.argv[1])))
