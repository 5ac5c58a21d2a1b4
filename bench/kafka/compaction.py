"""Compaction of a topic, and what it does to those who produce meanwhile."""

import os
import random
import re
import statistics
import threading
import time
from array import array
from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from httpx import get

from bench.audit import AuditFailure
from bench.figures import Bar, Figure, Section, take_turns
from bench.http.server import HttpServer, serving
from bench.kafka.comparison import samples
from bench.peers.servers import PeerFailure
from bench.workspace import Workspace, settle_disk

_RECORD_BYTES = 1_000
_LIVE_SHARE = 10
"""One record in so many is the last of its key."""
_PER_SECOND = 500
_NUMBER_BYTES = 8
_POOL_BYTES = 1 << 20
_CONFIG = """
[broker]
compaction_interval_seconds = 1
compaction_roll_seconds = 1
"""
_LEAST_MEGABYTES = 100
_MOST_TIMES = 2
_WITHIN_SECONDS = 900.0
_LOOK_SECONDS = 0.1
_METRICS_SECONDS = 1.0
"""How often the server is asked for its metrics, before and meanwhile: to render them takes it some milliseconds."""
_LEAST_DELAYS = 100
_ROLLED_SECONDS = 2.0
"""After this the segment that is written to may be closed for a compaction (`compaction_roll_seconds`)."""
_MOST_READ = 3
_ANSWER_SECONDS = 60.0


class _Compacted(NamedTuple):
    megabytes_per_second: float
    p99_before: float
    """In milliseconds."""
    p99_meanwhile: float


def run(workspace: Workspace) -> Section:
    scale = workspace.scale.kafka
    records = scale.compacted_bytes // _RECORD_BYTES
    with serving(workspace, config=_CONFIG) as server:
        workspace.say(f"compaction of {records:,} records")
        turns = iter(range(scale.compactions + 1))
        found = take_turns(
            {"": lambda work: _compact(server, f"compacted-{next(turns)}", work, scale.steady_seconds)},
            records,
            scale.compactions,
        )[""]
        name = server.name
    meanwhile = [each.p99_meanwhile for each in found]
    before = [each.p99_before for each in found]
    return Section(
        title="Compaction",
        text=f"A topic of {records:,} records of {_RECORD_BYTES:,} B, one in {_LIVE_SHARE} of which is the last of its key,"
        " becomes compacted; the rate is that of all its bytes over the time of the compaction. Beside it a producer sends"
        f" {_PER_SECOND} records a second to another topic, each by itself and synced; the time until each is acknowledged is"
        " compared with that before the compaction. Afterwards the last record of each key is there, and few others.",
        figures=[
            Figure(
                name="compaction",
                ours=samples(each.megabytes_per_second for each in found),
                unit="MB/s",
                bar=Bar("at least", _LEAST_MEGABYTES),
            ),
            Figure(
                name="p99 of produces meanwhile",
                ours=samples(meanwhile),
                unit="ms",
                peer=f"{name}, before",
                peers=samples(before),
                bar=Bar("at most", _MOST_TIMES),
            ),
        ],
    )


def _compact(server: HttpServer, topic: str, records: int, quiet_seconds: float) -> _Compacted:
    server.create_topic(topic)
    last = _fill(server, topic, records)
    settle_disk()
    # The first statement loads SQL, which is no part of a compaction.
    server.sql("SHOW TOPICS")
    delays = _Delays(server, f"{topic}-beside")
    with delays:
        done, _ = _compactions(server)

        def look_until(is_over: Callable[[], bool]) -> None:
            while not is_over():
                time.sleep(_METRICS_SECONDS)
                _compactions(server)

        quiet_until = time.monotonic() + max(_ROLLED_SECONDS, quiet_seconds)
        before = delays.p99_of(lambda: look_until(lambda: time.monotonic() > quiet_until))
        server.sql(f'ALTER TOPIC "{topic}" SET (compact = true, min_dirty_percent = 0)')
        deadline = time.monotonic() + _WITHIN_SECONDS

        def is_compacted() -> bool:
            if time.monotonic() > deadline:
                raise PeerFailure(f"{topic} was not compacted after {_WITHIN_SECONDS:.0f} s")
            return _compactions(server)[0] > done

        seconds = _compactions(server)[1]
        meanwhile = delays.p99_of(lambda: look_until(is_compacted))
        seconds = _compactions(server)[1] - seconds
    _check(server, topic, last)
    server.sql(f'DROP TOPIC "{topic}"')
    return _Compacted(records * _RECORD_BYTES / 1e6 / seconds, before, meanwhile)


def _fill(server: HttpServer, topic: str, records: int) -> "array[int]":
    """Send records with random keys, and return the number of the last one of each key."""
    keys = max(1, records // _LIVE_SHARE)
    last = array("q", [-1]) * keys
    pool = os.urandom(_POOL_BYTES + _RECORD_BYTES)
    choice = random.Random(records)
    producer = Producer(
        {
            "bootstrap.servers": str(server.kafka),
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 200_000,
        }
    )
    for number in range(records):
        key = choice.randrange(keys)
        last[key] = number
        start = choice.randrange(_POOL_BYTES)
        value = number.to_bytes(_NUMBER_BYTES) + pool[start : start + _RECORD_BYTES - _NUMBER_BYTES]
        while True:
            try:
                producer.produce(topic, value, b"%d" % key)
                break
            except BufferError:
                producer.poll(0.05)
        if not number % 1_000:
            producer.poll(0)
        if number == records - 2:
            # The newest batch of a partition is not compacted: it gets the last record alone.
            producer.flush(_ANSWER_SECONDS)
    if producer.flush(_ANSWER_SECONDS):
        raise PeerFailure(f"not all records of {topic} were taken")
    return last


class _Delays:
    """Sends records at a steady rate, in a thread, and notes how long each takes until it is acknowledged."""

    def __init__(self, server: HttpServer, topic: str) -> None:
        server.create_topic(topic)
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": str(server.kafka), "linger.ms": 0, "acks": "all"})
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._seconds: list[float] = []
        self._failed = 0

    def __enter__(self) -> "_Delays":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._producer.flush(_ANSWER_SECONDS)

    def p99_of(self, work: Callable[[], None]) -> float:
        """Return the 99th percentile, in milliseconds, of what was sent and acknowledged during the work.

        Where the work is short, records that come right after it are counted too.
        """
        first = len(self._seconds)
        work()
        deadline = time.monotonic() + _ANSWER_SECONDS
        while len(self._seconds) < first + _LEAST_DELAYS and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        found = self._seconds[first:]
        if self._failed or len(found) < _LEAST_DELAYS:
            raise AuditFailure(f"{len(found)} records were acknowledged beside the work, and {self._failed} failed")
        return statistics.quantiles(found, n=100)[98] * 1_000

    def _run(self) -> None:
        value = bytes(_RECORD_BYTES)
        due = time.perf_counter()
        while not self._ended.is_set():
            due += 1 / _PER_SECOND
            began = time.perf_counter()

            def acknowledged(error: object, _: Message, began: float = began) -> None:
                self._failed += error is not None
                self._seconds.append(time.perf_counter() - began)

            self._producer.produce(self._topic, value, on_delivery=acknowledged)
            # Answers are taken as they come.
            while (left := due - time.perf_counter()) > 0:
                self._producer.poll(left)


def _compactions(server: HttpServer) -> tuple[int, float]:
    """Return how many compactions there were, and how long they took together."""
    text = get(f"{server.url}/metrics", timeout=_ANSWER_SECONDS).text
    count, seconds = (
        re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        for name in ("tailrace_compaction_seconds_count", "tailrace_compaction_seconds_sum")
    )
    if count is None or seconds is None:
        raise AuditFailure("the server does not count its compactions")
    return int(float(count[1])), float(seconds[1])


def _check(server: HttpServer, topic: str, last: "array[int]") -> None:
    """Read the topic and check that its last records are those that were sent last."""
    settings = {
        "bootstrap.servers": str(server.kafka),
        "group.id": "bench",
        "enable.auto.commit": False,
        "fetch.queue.backoff.ms": 1,
    }
    consumer = Consumer(settings)
    place = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(place, _ANSWER_SECONDS)
    consumer.assign([place])
    found: dict[int, int] = {}
    read = 0
    offset = -1
    deadline = time.monotonic() + _ANSWER_SECONDS
    while offset < end - 1:
        messages = consumer.consume(10_000, _LOOK_SECONDS)
        if messages:
            deadline = time.monotonic() + _ANSWER_SECONDS
        elif time.monotonic() > deadline:
            raise AuditFailure(f"{topic} was read up to {offset} of {end}")
        for message in messages:
            offset = message.offset()
            found[int(message.key())] = int.from_bytes(message.value()[:_NUMBER_BYTES])
            read += 1
    consumer.close()
    if found != {key: number for key, number in enumerate(last) if number >= 0}:
        raise AuditFailure(f"a key of {topic} has another last record than was sent")
    # What was in the segment that was written to, and the newest batch, are not compacted.
    if read > len(found) * _MOST_READ:
        raise AuditFailure(f"{topic} has {read} records of {len(found)} keys after its compaction")
