"""SQL is loaded when it is needed, once, and not before."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.model.errors import StoreClosedError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.sql.lazy_engine import LazySqlEngine
from tailrace.store.memory import MemoryStore
from tests.support.brokers import running_broker
from tests.support.clocks import ManualClock

pytestmark = pytest.mark.anyio


def test_to_import_the_server_loads_no_parser() -> None:
    listeners = "tailrace.server, tailrace.http.app, tailrace.kafka.apis, tailrace.sql.lazy_engine"
    code = f"import sys, {listeners}; sys.exit('pgparse' in sys.modules or 'duckdb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_the_first_statements_open_sql_once_for_all(tmp_path: Path) -> None:
    async with running_broker(None, ManualClock(), DEFAULT_LIMITS) as broker:
        sql = await LazySqlEngine.open(tmp_path, broker, ManualClock(), DEFAULT_LIMITS)
        assert not sql.is_loaded
        answers = await asyncio.gather(*(sql.execute(f"CREATE TOPIC t{number} PARTITIONS 1") for number in range(5)))
        assert sql.is_loaded
        assert len(answers) == 5
        assert {live.topic.name for live in broker.topics} >= {f"t{number}" for number in range(5)}
        await sql.close()


async def test_a_folder_with_tables_is_opened_at_the_start(tmp_path: Path) -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_broker(store, clock, DEFAULT_LIMITS) as broker:
        sql = await LazySqlEngine.open(tmp_path, broker, clock, DEFAULT_LIMITS)
        await sql.execute("CREATE TABLE chat.messages (id INT PRIMARY KEY)")
        await sql.close()
        again = await LazySqlEngine.open(tmp_path, broker, clock, DEFAULT_LIMITS)
        assert again.is_loaded
        await again.close()


async def test_a_client_that_leaves_does_not_end_the_opening_for_others(tmp_path: Path) -> None:
    async with running_broker(None, ManualClock(), DEFAULT_LIMITS) as broker:
        sql = await LazySqlEngine.open(tmp_path, broker, ManualClock(), DEFAULT_LIMITS)
        first = asyncio.create_task(sql.execute("CREATE TOPIC a PARTITIONS 1"))
        second = asyncio.create_task(sql.execute("CREATE TOPIC b PARTITIONS 1"))
        await asyncio.sleep(0)
        first.cancel()
        assert len(await second) == 1
        await sql.close()


async def test_what_is_closed_runs_nothing(tmp_path: Path) -> None:
    async with running_broker(None, ManualClock(), DEFAULT_LIMITS) as broker:
        sql = await LazySqlEngine.open(tmp_path, broker, ManualClock(), DEFAULT_LIMITS)
        await sql.close()
        with pytest.raises(StoreClosedError):
            await sql.execute("SHOW TOPICS")
