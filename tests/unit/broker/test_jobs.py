import asyncio
import logging

import pytest

from tailrace.broker.jobs import BackgroundJob, BackgroundJobs
from tests.support.aio import on_loop, until


@on_loop
async def test_a_job_runs_again_and_again() -> None:
    runs = 0

    async def count() -> None:
        nonlocal runs
        runs += 1

    jobs = BackgroundJobs((BackgroundJob("count", 0, count),))
    jobs.start()
    await until(lambda: runs >= 3)
    await jobs.close()
    assert jobs.runs["count"] in (runs, runs - 1)


@on_loop
async def test_a_job_that_fails_is_logged_counted_and_run_again(caplog: pytest.LogCaptureFixture) -> None:
    other_runs = 0

    async def fail() -> None:
        raise ZeroDivisionError

    async def other() -> None:
        nonlocal other_runs
        other_runs += 1

    jobs = BackgroundJobs((BackgroundJob("fail", 0, fail), BackgroundJob("other", 0, other)))
    with caplog.at_level(logging.ERROR):
        jobs.start()
        await until(lambda: jobs.failures["fail"] >= 2 and other_runs >= 2)
        await jobs.close()
    assert "background job fail failed" in caplog.messages[0]
    assert jobs.runs["fail"] == 0


@on_loop
async def test_closing_stops_a_job_in_the_middle() -> None:
    started = asyncio.Event()

    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    jobs = BackgroundJobs((BackgroundJob("hang", 0, hang),))
    jobs.start()
    await started.wait()
    await jobs.close()
    assert jobs.runs["hang"] == 0


@on_loop
async def test_closing_before_the_start_is_nothing() -> None:
    await BackgroundJobs(()).close()
