"""Profiles of the hot paths: py-spy samples a hundred times a second which thread holds Python's lock.

What runs without the lock, such as writes, syncs and waits, is not counted, because waiting threads look like working ones.
"""

import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

from bench.figures import Profile, Section, Share
from bench.http.client import HttpClient
from bench.http.server import HttpServer, KafkaListener, serving
from bench.http.tasks import ConsumeMessages, InsertRows, PublishMessages
from bench.kafka.client import ClientProcess
from bench.kafka.tasks import Consume, CreateTopic, Load, Produce
from bench.peers.kafka import NotObtainable
from bench.peers.servers import PeerFailure
from bench.spark.router import load_changes, routing
from bench.workspace import Workspace

_PER_SECOND = 100
_SAMPLER_SECONDS = 30
_MOST_FUNCTIONS = 15
_LEAST_SHARE = 0.01
_WAITING = {("manager", "daemon.py")}
"""Spark's daemons wait here for the next worker to fork; py-spy takes them for busy."""


class Watched(NamedTuple):
    """A process that is sampled."""

    pid: int
    has_workers: bool = False
    """Whether its child processes are sampled too."""


def sample(name: str, beside: str, watched: Watched, seconds: float, folder: Path, work: Callable[[], object]) -> Profile:
    """Repeat the work until it was sampled for this many seconds."""
    out = folder / "samples"
    command = [py_spy(), "record", "--format", "raw", "--function", "--output", str(out), "--rate", str(_PER_SECOND)]
    command.append("--gil")
    command += ["--duration", f"{seconds:.0f}", "--pid", str(watched.pid), *(["--subprocesses"] if watched.has_workers else [])]
    spy = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        while spy.poll() is None:
            work()
        _, said = spy.communicate(timeout=_SAMPLER_SECONDS)
    finally:
        spy.kill()
        spy.wait()
    if spy.returncode != 0 or not out.exists():
        raise PeerFailure(f"py-spy could not sample {name}: {said.strip()[-500:]}")
    return profile_of(name, beside, out.read_text(), round(seconds * _PER_SECOND))


def py_spy() -> str:
    found = Path(sys.executable).with_name("py-spy")
    program = str(found) if found.exists() else shutil.which("py-spy")
    if program is None:
        raise NotObtainable("py-spy is not installed; `pip install py-spy` brings it")
    return program


def profile_of(name: str, beside: str, stacks: str, looks: int) -> Profile:
    """Summarise stacks as py-spy writes them: frames separated by `;`, outermost first, and a count."""
    functions: Counter[str] = Counter()
    rooms: Counter[str] = Counter()
    for line in stacks.splitlines():
        stack, _, times = line.rpartition(" ")
        function, file = _read_frame(stack.rpartition(";")[2])
        if (function, file) in _WAITING:
            continue
        functions[f"{function} ({file})"] += int(times)
        rooms[_room(file)] += int(times)
    total = functions.total()
    return Profile(
        name=name,
        beside=beside,
        looks=looks,
        samples=total,
        rooms=_shares(rooms, total),
        functions=_shares(functions, total)[:_MOST_FUNCTIONS],
    )


def _shares(counted: "Counter[str]", total: int) -> list[Share]:
    return [Share(name, times / total) for name, times in counted.most_common() if times >= _LEAST_SHARE * total]


def _read_frame(frame: str) -> tuple[str, str]:
    """Split `name (path:line)` into the name and the path."""
    function, _, place = frame.rpartition(" (")
    return function or frame, place.rstrip(")").partition(":")[0]


def _room(file: str) -> str:
    """Return the package of Tailrace, or the package or module of others."""
    parts = Path(file).with_suffix("").parts
    if "tailrace" in parts:
        inside = parts[parts.index("tailrace") + 1 :]
        return f"tailrace.{inside[0]}" if inside else "tailrace"
    return parts[0] if parts else "unknown"


_RECORD_BYTES = 1_000
_TABLE = "bench.sampled"
_TOPIC = "bench.sampled_topic"
_ROUTER_CHANGES_A_SECOND = 60_000
"""Enough changes to keep the router busy while it is sampled."""
_ROUTER_WARM_UP_SECONDS = 8
_LOOK_SECONDS = 0.1
_PATIENCE_SECONDS = 240
_WARM_SHARE = 0.2


def run(workspace: Workspace) -> Section:
    """Profile the server."""
    py_spy()
    return _section([*_of_kafka(workspace), *_of_http(workspace)])


def run_router(workspace: Workspace) -> Section:
    """Profile the pipeline's driver and its workers."""
    py_spy()
    return _section([_of_router(workspace)])


def _section(profiles: Sequence[Profile]) -> Section:
    """Make a section that the page does not show on its own: each profile stands beside the figures that it explains."""
    return Section(title="Profiles", text="", figures=[], profiles=profiles)


def _of_kafka(workspace: Workspace) -> Iterator[Profile]:
    topics = (f"sampled-{number}" for number in count())
    with serving(workspace, "relaxed") as server, _kafka_client(server) as client:

        def produced() -> Load:
            load = Load(topic=next(topics), records=workspace.scale.kafka.records(_RECORD_BYTES), record_bytes=_RECORD_BYTES)
            client.ask(CreateTopic(load))
            client.ask(Produce(load))
            return load

        yield _sampled(workspace, "produce, Kafka, 1 KB, `relaxed`", "kafka", server, produced)
        load = produced()

        def consume() -> None:
            client.ask(Consume(load))
            client.receive()

        yield _sampled(workspace, "fetch, Kafka, 1 KB", "kafka", server, consume)


def _of_http(workspace: Workspace) -> Iterator[Profile]:
    scale = workspace.scale.http
    with serving(workspace) as server, HttpClient(server) as client:
        server.sql(f"CREATE TABLE {_TABLE} (id BIGINT, body TEXT, PRIMARY KEY (id))")
        server.create_topic(_TOPIC)
        ids = count(step=scale.single_rows)
        numbers = count(step=scale.messages)

        def insert() -> None:
            first = next(ids)
            client.ask(
                InsertRows(
                    table=_TABLE, first_id=first, rows=scale.single_rows, rows_a_request=1, body_bytes=100, connections=32
                )
            )

        yield _sampled(workspace, "SQL INSERT of one row, 32 clients", "sql-writing", server, insert)

        def publish() -> int:
            first = next(numbers)
            client.ask(
                PublishMessages(
                    topic=_TOPIC, first=first, messages=scale.messages, messages_a_request=100, body_bytes=100, connections=4
                )
            )
            return first + scale.messages

        yield _sampled(workspace, "HTTP publish, 100 messages a request", "http", server, publish)
        there = publish()
        yield _sampled(
            workspace,
            "HTTP consume, 1,000 messages a request",
            "http",
            server,
            lambda: client.ask(ConsumeMessages(topic=_TOPIC, messages=there, messages_a_request=1_000)),
        )


def _of_router(workspace: Workspace) -> Profile:
    seconds = workspace.scale.sampled_seconds
    changes = round(_ROUTER_CHANGES_A_SECOND * (seconds + _ROUTER_WARM_UP_SECONDS))
    workspace.say(f"{changes:,} changes for a router that is sampled")
    with serving(workspace, "relaxed") as server, workspace.folder() as folder:
        table = load_changes(server, "bench.routed_sampled", 1, changes)
        with routing(server, workspace.scale.growth.routed_a_batch, folder / "said") as router:
            workspace.say("sampled: the router's Python, once it is warm")
            for _ in server.await_records(table.topics, round(_WARM_SHARE * table.routed), _PATIENCE_SECONDS):
                pass
            return sample(
                "the router's Python, one route",
                "pipeline",
                Watched(router.pid, has_workers=True),
                seconds,
                folder,
                lambda: time.sleep(_LOOK_SECONDS),
            )


def _sampled(workspace: Workspace, name: str, beside: str, server: HttpServer, work: Callable[[], object]) -> Profile:
    """Sample the work after one warm-up turn."""
    workspace.say(f"sampled: {name}")
    work()
    with workspace.folder() as folder:
        return sample(name, beside, Watched(server.pid), workspace.scale.sampled_seconds, folder, work)


@contextmanager
def _kafka_client(server: HttpServer) -> Iterator[ClientProcess]:
    client = ClientProcess(KafkaListener(server))
    try:
        yield client
    finally:
        client.close()
