"""Processes that run DuckDB, which tests share because one takes a second to start."""

import atexit
from functools import cache

from tailrace.model.limits import Limits
from tailrace.sql.select.workers import WorkerPool


@cache
def workers_for(limits: Limits) -> WorkerPool:
    """Shared by all tests with these limits."""
    workers = WorkerPool(limits)
    atexit.register(workers.close)
    return workers
