"""Writes that do not fit into a frame: once, and all of it or nothing, wherever the server dies."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tailrace.model.errors import ServerUnreachableError
from tailrace.model.ids import TopicId
from tailrace.model.killpoint import EXIT_CODE, LARGE_WRITE_KILLPOINTS
from tailrace.model.record import Record
from tailrace.pipeline.connection import ServerAddress, ServerConnection
from tailrace.pipeline.staging import StagedTask, Stager, write
from tailrace.wire.records import encode_batch
from tailrace.wire.staged_chunks import StagedBatch
from tests.support.api import Api
from tests.support.server import ServerProcess

FRAME_BYTES = 65_536
LIMITS = f"[limits]\nframe_bytes = {FRAME_BYTES}\nbatch_bytes = 16384\ngroup_commit_bytes = 32768\n"
ROWS = [b"%04d" % number * 250 for number in range(300)]
"""Nearly five frames."""
NOW_MS = 1_700_000_000_000


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "tailrace.toml"
    path.write_text(LIMITS)
    return path


@pytest.fixture
def server(tmp_path: Path, config: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", "--config", str(config)) as server:
        yield server


def stage(connection: ServerConnection, name: str, values: Iterable[bytes]) -> list[StagedTask]:
    stager = Stager(connection, "query-7", name)
    topic_id = TopicId(connection.offsets(["t"]).topic_ids["t"])
    for value in values:
        stager.add([StagedBatch(topic_id, "t", 0, encode_batch([Record(None, value, (), NOW_MS)]))], 1)
    return [stager.finish()]


def values_in(server: ServerProcess, topic: str = "t") -> list[bytes]:
    rows = Api(server.url).sql(f"SELECT value FROM {topic} ORDER BY cursor")
    return [str(value).encode() for (value,) in rows]


def test_a_large_write_is_done_once_although_the_server_dies_at_every_step_of_it(tmp_path: Path, config: Path) -> None:
    def server(killpoint: str = "") -> ServerProcess:
        environment = {"TAILRACE_KILLPOINT": killpoint} if killpoint else None
        return ServerProcess(tmp_path / "data", "--config", str(config), environment=environment)

    def killed_while_it_writes(running: ServerProcess, name: str, values: Iterable[bytes]) -> None:
        with ServerConnection(ServerAddress(running.url), 0.5) as connection:
            tasks = stage(connection, name, values)
            with pytest.raises(ServerUnreachableError):
                write(connection, "query-7", tasks, "batch", 0)
        assert running.wait() == EXIT_CODE

    kept, decided, between, done = LARGE_WRITE_KILLPOINTS
    with server(kept) as running:
        Api(running.url).create_topic("t")
        killed_while_it_writes(running, "first", ROWS)
    with server(decided) as running:
        assert values_in(running) == []
        killed_while_it_writes(running, "second", ROWS[::-1])
    for point in (f"{between}:3", done):
        # Nobody asks for it any more: the server goes on by itself, and dies again.
        running = server(point)
        running.launch()
        assert running.wait() == EXIT_CODE
    with server() as running, ServerConnection(ServerAddress(running.url)) as connection:
        assert values_in(running) == ROWS[::-1]
        write(connection, "query-7", stage(connection, "third", ROWS), "batch", 0)
        write(connection, "query-7", stage(connection, "fourth", [b"later"]), "batch", 1)
        assert values_in(running) == [*ROWS[::-1], b"later"]
        assert not list((tmp_path / "data" / "staging").iterdir())


def test_spark_writes_and_streams_what_does_not_fit_into_a_frame(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    api = Api(server.url)
    for topic in ("t", "copy"):
        api.create_topic(topic, 2)
    count = 4_000
    key = F.col("id").cast("string")
    rows = spark.range(0, count, 1, 2).select(key.alias("key"), F.rpad(key, 100, "x").alias("value"))
    rows.write.format("tailrace").option("server", server.url).option("topic", "t").mode("append").save()
    stream = spark.readStream.format("tailrace").option("server", server.url).option("subscribe", "t")
    sink = stream.option("startingOffsets", "earliest").load().select("key", "value").writeStream.format("tailrace")
    sink = sink.option("server", server.url).option("topic", "copy").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = sink.trigger(availableNow=True).start()
    assert query.awaitTermination(200)
    assert query.exception() is None
    wanted = [[str(number), str(number).ljust(100, "x")] for number in range(count)]
    for topic in ("t", "copy"):
        found = api.sql(f"SELECT key, value FROM {topic}")
        assert sorted(found, key=lambda row: int(row[0])) == wanted
