"""Memory as ten times as much is processed: a topic by the Spark source, and table changes by the router."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import psutil

from bench.audit import AuditFailure
from bench.figures import Bar, Figure, Samples, Section
from bench.http.server import HttpServer, load_topic, serving
from bench.spark.job import Found, ReadTopic, Side, SparkJob
from bench.spark.router import routing
from bench.workspace import Workspace

_SHARE = 10
_VALUE_BYTES = 400
_ROWS = 4_000
_BODY_BYTES = 4_000
_ROWS_A_STATEMENT = 100
_EVERY = 100
"""Only one of this many changes is routed, because reading is what is measured."""
_CHANGES_A_BATCH = 200_000
_MOST_GROWTH = 1.25
_LOOK_SECONDS = 0.2
_PATIENCE_SECONDS = 900.0


class Peaks(NamedTuple):
    """The highest values, in MB."""

    server: float = 0.0
    driver: float = 0.0
    worker: float = 0.0
    """The largest of Spark's Python workers."""
    java: float = 0.0

    def or_more(self, other: "Peaks") -> "Peaks":
        return Peaks(*map(max, self, other))


class _Grown(NamedTuple):
    """The peaks for a part and for everything."""

    part: Peaks
    whole: Peaks


def run(workspace: Workspace) -> Section:
    size = workspace.scale.spark.large_bytes
    grown = {"source": _by_source(workspace, size), "router": _by_router(workspace, size)}
    gigabytes = f"{size / 1e9:.1f} GB", f"{size / _SHARE / 1e9:.1f} GB"

    def figures(way: str) -> Iterator[Figure]:
        part, whole = grown[way]
        for name in ("server", "driver", "worker"):
            yield Figure(
                name=f"{way}: {name}, {gigabytes[0]}",
                ours=Samples((getattr(whole, name),)),
                unit="MB",
                peer=gigabytes[1],
                peers=Samples((getattr(part, name),)),
                bar=Bar("at most", _MOST_GROWTH),
            )

    return Section(
        title="The pipeline: memory",
        text="The most memory (RSS) that the server, Python's part of Spark's driver and the largest of its Python workers had"
        f" while a topic of {gigabytes[1]} and then one of {gigabytes[0]} was read whole by the Spark source, and while so"
        f" many bytes of changes, of rows of {_BODY_BYTES} B, went through `tailrace pipeline` to a route that takes every"
        f" {_EVERY}th. Looked at every {_LOOK_SECONDS} s.",
        figures=[*figures("source"), *figures("router")],
        remarks=[
            f"Java, which takes what it is allowed to, {way}: {part.java:.0f} MB, then {whole.java:.0f} MB."
            for way, (part, whole) in grown.items()
        ],
    )


def _by_source(workspace: Workspace, size: int) -> _Grown:
    found = []
    with (
        serving(workspace, "relaxed") as server,
        SparkJob(Side("tailrace", {"server": server.url}), workspace.root / "spark") as job,
    ):
        for number, wanted in enumerate((size // _SHARE, size)):
            workspace.say(f"memory, source: {wanted / 1e9:.1f} GB")
            topic = f"bench.large_{number}"
            # Values have half of these bytes on average.
            loaded = load_topic(server, topic, 2 * wanted // _VALUE_BYTES, _VALUE_BYTES)
            with _watching(server, job.pid) as seen:
                read = job.ask(ReadTopic(topic))
            if not isinstance(read, Found) or (read.records, read.value_bytes) != loaded:
                raise AuditFailure(f"Spark read {read} where {loaded} were written")
            found.append(seen.peaks)
    return _Grown(*found)


def _by_router(workspace: Workspace, size: int) -> _Grown:
    found = []
    with serving(workspace, "relaxed") as server:
        for number, wanted in enumerate((size // _SHARE, size)):
            workspace.say(f"memory, router: {wanted / 1e9:.1f} GB")
            name = f"bench.wide_{number}"
            topic, routed = _load_updates(server, name, wanted)
            with (
                routing(server, _CHANGES_A_BATCH, workspace.root / "pipeline") as router,
                _watching(server, router.pid) as seen,
            ):
                for _ in server.await_records([topic], routed, _PATIENCE_SECONDS):
                    pass
            found.append(seen.peaks)
    return _Grown(*found)


def _load_updates(server: HttpServer, name: str, size: int) -> tuple[str, int]:
    """Create a table whose changes have at least this many bytes, and a topic that gets some; return how many."""
    topic = f"{name}_routed"
    server.sql(f"CREATE TABLE {name} (id BIGINT, turn BIGINT, body TEXT, PRIMARY KEY (id))")
    server.create_topic(topic)
    for first in range(0, _ROWS, _ROWS_A_STATEMENT):
        rows = ", ".join(f"({first + number}, 0, ?)" for number in range(_ROWS_A_STATEMENT))
        server.sql(f"INSERT INTO {name} (id, turn, body) VALUES {rows}", ["x" * _BODY_BYTES] * _ROWS_A_STATEMENT)
    server.sql(f"ALTER TOPIC {topic} ADD SOURCE {name} ON UPDATE WHERE (id % {_EVERY} = 0) WITH (payload = 'key')")
    # Each change holds the row before and after.
    turns = -(-size // (2 * _ROWS * _BODY_BYTES))
    for _ in range(turns):
        server.sql(f"UPDATE {name} SET turn = turn + 1")
    return topic, turns * (_ROWS // _EVERY)


class _Seen:
    peaks = Peaks()


@contextmanager
def _watching(server: HttpServer, driver: int) -> Iterator[_Seen]:
    seen = _Seen()
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_SECONDS):
            seen.peaks = seen.peaks.or_more(_now(server, driver))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def _now(server: HttpServer, driver: int) -> Peaks:
    root = psutil.Process(driver)
    worker = java = 0.0
    for child in root.children(recursive=True):
        try:
            size, name = child.memory_info().rss / 1e6, child.name()
        except psutil.NoSuchProcess:
            continue
        if name == "java":
            java = max(java, size)
        else:
            worker = max(worker, size)
    return Peaks(server.memory_megabytes, root.memory_info().rss / 1e6, worker, java)
