"""Notices that a cluster gives the pipeline no executors: Spark waits for them without an end, and warns only in its log."""

import contextlib
import time

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_LOOK_SECONDS = 5.0
_NOTICE_SECONDS = 30.0


class ExecutorWatch:
    """Looks every few seconds whether an application on a cluster has executors."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._is_local = str(self._context.master).startswith("local")
        self._looked_at = self._seen_at = time.monotonic()
        self.has_notice = False

    @property
    def missing_seconds(self) -> float:
        return self._looked_at - self._seen_at

    def look(self) -> str | None:
        """Return what to do if there were no executors for a while."""
        now = time.monotonic()
        if not self._is_local and now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = now
            with contextlib.suppress(Py4JError, OSError, AttributeError):
                # The driver is one of them.
                if len(list(self._context._jsc.sc().statusTracker().getExecutorInfos())) > 1:
                    self._seen_at = now
        self.has_notice = self.missing_seconds >= _NOTICE_SECONDS
        if not self.has_notice:
            return None
        return (
            f"{self._context.master} gives this pipeline no executors, and changes wait for them. Check that its workers run,"
            " that they have cores and memory free (spark.cores.max, spark.executor.memory), and that they reach the driver at"
            f" {self._context.getConf().get('spark.driver.host')} (spark.driver.host)"
        )
