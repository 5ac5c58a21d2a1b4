"""A Spark session in a process of its own: its tasks and answers, as lines of JSON."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from bench.audit import AuditFailure
from bench.http.server import cpu_seconds_of
from bench.worker_process import Failed, say


class Side(msgspec.Struct, frozen=True):
    """How Spark reaches a server."""

    format: str
    options: Mapping[str, str]
    jars: tuple[str, ...] = ()


class ReadTopic(msgspec.Struct, frozen=True, tag=True):
    """Count the records of a topic and sum the sizes of their values."""

    topic: str


class WriteTopic(msgspec.Struct, frozen=True, tag=True):
    """Write rows with keys `0, 1, ...` and values of one size."""

    topic: str
    rows: int
    value_bytes: int


class RouteTopic(msgspec.Struct, frozen=True, tag=True):
    """Route change events whose row meets a condition to another topic, by a streaming query, until all are read."""

    source: str
    target: str
    condition: str
    rows_a_batch: int
    checkpoint: str


AnyTask = ReadTopic | WriteTopic | RouteTopic


class Found(msgspec.Struct, frozen=True, tag=True):
    seconds: float
    records: int = 0
    value_bytes: int = 0


class Batches(msgspec.Struct, frozen=True, tag=True):
    """The rows and seconds of each batch of a query."""

    rows: list[int]
    seconds: list[float]


Answer = Found | Batches | Failed


_ROOT = Path(__file__).resolve().parents[2]
_ROW = "struct<op:string,new:struct<id:bigint,body:string>>"


class SparkJob:
    """Runs this module as a child process, which is killed with its Java when it is closed."""

    def __init__(self, side: Side, said: Path) -> None:
        self._side = side
        with said.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.spark.job", msgspec.json.encode(side).decode()],
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
            )

    def __enter__(self) -> "SparkJob":
        return self

    def __exit__(self, *_: object) -> None:
        # If it has ended by itself, that is the failure to report.
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(self._process.pid).children(recursive=True)
            self._process.kill()
            for child in children:
                if child.is_running():
                    child.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def cpu_seconds(self) -> float:
        return cpu_seconds_of(self._process.pid)

    @property
    def worker_megabytes(self) -> float:
        """Return the memory of Python: Java always takes as much as it is allowed to."""
        found = 0
        for child in psutil.Process(self._process.pid).children(recursive=True):
            try:
                if child.name() != "java":
                    found = max(found, child.memory_info().rss)
            except psutil.NoSuchProcess:
                continue
        return found / 1e6

    def begin(self, task: AnyTask) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(task) + b"\n")
        self._process.stdin.flush()

    def receive(self) -> Answer:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AuditFailure(
                f"Spark with {self._side.format} ended with code {self._process.wait()} in the middle of its work"
            )
        answer: Answer = msgspec.json.decode(line, type=Answer)
        return answer

    def ask(self, task: AnyTask) -> Answer:
        self.begin(task)
        return self.receive()


class _Job:
    def __init__(self, side: Side) -> None:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        from pyspark.sql import SparkSession

        # The settings of `tailrace.pipeline.session`, as far as they matter to both.
        builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.sql.adaptive.enabled", "false")
        builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "50000")
        if side.jars:
            builder = builder.config("spark.jars", ",".join(side.jars))
        self._spark = builder.getOrCreate()
        self._spark.sparkContext.setLogLevel("ERROR")
        self._side = side

    def do(self, task: AnyTask) -> Answer:
        began = time.monotonic()
        match task:
            case ReadTopic():
                (row,) = self._read(task.topic).selectExpr("count(*)", "sum(length(value))").collect()
                return Found(time.monotonic() - began, *row)
            case WriteTopic():
                value = f"rpad(CAST(id AS STRING), {task.value_bytes}, 'x')"
                rows = self._spark.range(task.rows).selectExpr("CAST(id AS STRING) AS key", f"{value} AS value")
                writer = rows.write.format(self._side.format).mode("append")
                writer.options(**self._side.options, topic=task.topic).save()
                return Found(time.monotonic() - began)
            case RouteTopic():
                return self._route(task)

    def _read(self, topic: str):  # type: ignore[no-untyped-def]  # PySpark is imported in the child only
        reader = self._spark.read.format(self._side.format)
        return reader.options(**self._side.options, subscribe=topic, startingOffsets="earliest").load()

    def _route(self, task: RouteTopic) -> Batches:
        from pyspark.sql import functions as F

        stream = self._spark.readStream.format(self._side.format).options(
            **self._side.options,
            subscribe=task.source,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=str(task.rows_a_batch),
        )
        change = F.from_json(F.col("value").cast("string"), _ROW).alias("change")
        routed = (
            stream.load()
            .select("key", change)
            .where(f"change.op = 'insert' AND {task.condition}")
            .select("key", F.to_json("change.new").alias("value"))
        )
        query = (
            routed.writeStream.format(self._side.format)
            .options(**self._side.options, topic=task.target, checkpointLocation=task.checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        told = [each for each in query.recentProgress if each["numInputRows"]]
        return Batches(
            [each["numInputRows"] for each in told], [each["durationMs"]["triggerExecution"] / 1_000 for each in told]
        )


def _serve(side: Side) -> None:
    job = _Job(side)
    for line in sys.stdin.buffer:
        answer = job.do(msgspec.json.decode(line, type=AnyTask))
        say(answer)


if __name__ == "__main__":
    _serve(msgspec.json.decode(sys.argv[1], type=Side))
