"""ALTER PIPELINE and SHOW PIPELINES, and what `system.pipelines` says of both modes."""

import pytest

from tailrace.model.errors import InvalidRequestError, SqlError, UnsupportedSqlError
from tailrace.model.pipeline import PipelineReport
from tests.support.aio import on_loop
from tests.support.sql import running_sql


@on_loop
async def test_the_latency_is_set_and_shown() -> None:
    async with running_sql() as sql:
        assert await sql.rows("SHOW PIPELINES") == []
        assert (await sql.run("ALTER PIPELINE router SET (latency = 'realtime')")).status == "ALTER PIPELINE"
        assert await sql.rows("SHOW PIPELINES") == [("router", "stopped", "realtime", "micro-batch", 0, None)]
        await sql.run("ALTER PIPELINE router SET (latency = ?)", ["batch"])
        assert await sql.rows("SELECT latency FROM system.pipelines") == [("batch",)]


@on_loop
async def test_the_mode_is_what_the_router_reports_and_real_time_has_no_batch() -> None:
    async with running_sql() as sql:
        pipelines = sql.broker.pipelines
        epoch = (await pipelines.lease("router", "first")).epoch
        seen = "SELECT state, mode, latency, batch, rows FROM system.pipelines"
        pipelines.report("router", epoch, PipelineReport(mode="real-time", batches=3, rows=10))
        assert await sql.rows(seen) == [("running", "real-time", "batch", None, 10)]
        pipelines.report("router", epoch, PipelineReport(batch=0, batches=4, rows=12))
        assert await sql.rows(seen) == [("running", "micro-batch", "batch", 0, 12)]


@on_loop
async def test_what_can_not_be_set_is_rejected() -> None:
    async with running_sql() as sql:
        with pytest.raises(InvalidRequestError, match="pipeline 'nightly' has no latency"):
            await sql.run("ALTER PIPELINE nightly SET (latency = 'realtime')")
        with pytest.raises(SqlError, match="option 'latency' can't be 'soon'; it must be 'batch' or 'realtime'"):
            await sql.run("ALTER PIPELINE router SET (latency = ?)", ["soon"])
        with pytest.raises(UnsupportedSqlError, match="can be part of a transaction"):
            await sql.run("BEGIN; ALTER PIPELINE router SET (latency = 'realtime'); COMMIT")
        assert await sql.rows("SHOW PIPELINES") == []
