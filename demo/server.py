"""The processes of the demo, requests to the server, and three ways to read a topic: Kafka, HTTP and SQL."""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import Consumer, TopicPartition

from tailrace.model.parent_process import ENDS_WITH_PARENT

WAIT_SECONDS = 300.0
"""Spark starts in ten seconds on an idle machine, and in minutes on a busy one."""


class Unanswered(Exception):
    """The server was gone before it answered, so the request may have taken effect."""


class DemoApi:
    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=30)

    def sql(self, text: str, params: list[object] | None = None) -> list[list[Any]]:
        """Run statements and return the rows of the last one."""
        answer = self.post("/api/sql", {"sql": text, "params": params or []})
        rows: list[list[Any]] = answer["results"][-1]["rows"] if "results" in answer else answer["rows"]
        return rows

    def post(self, path: str, body: object) -> Any:
        try:
            response = self._client.post(path, json=body)
        except httpx.TransportError as error:
            raise Unanswered from error
        if response.is_error:
            raise SystemExit(f"{path} refused {body}: {response.text}")
        return response.json()


class PipelineProcess:
    """Runs `tailrace pipeline` in a process of its own. It survives the server, and waits for it."""

    def __init__(self, url: str, log: Path) -> None:
        self._log = log.open("w")
        command = [sys.executable, "-m", "tailrace", "pipeline", "--server", url]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **ENDS_WITH_PARENT},
        )

    def __enter__(self) -> "PipelineProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._log.close()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def check(self) -> None:
        if self._process.poll() is not None:
            raise SystemExit(f"the pipeline ended: {Path(self._log.name).read_text()[-2000:]}")

    def stop(self) -> int:
        """Stop the process, if it still runs, and return its exit code."""
        self._process.terminate()
        try:
            return self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def wait_until(holds: Callable[[], bool], pipeline: PipelineProcess) -> bool:
    """Return whether the condition became true in time."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        if holds():
            return True
        pipeline.check()
        time.sleep(0.2)
    return False


_PAGE = 200


def read_by_kafka(address: str, topic: str, partitions: int) -> Counter[str]:
    """Return how often each message id occurs, as a Kafka client sees it."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "demo", "enable.auto.commit": False})
    found: Counter[str] = Counter()
    try:
        for number in range(partitions):
            partition = TopicPartition(topic, number, 0)
            _, end = consumer.get_watermark_offsets(partition, timeout=30)
            consumer.assign([partition])
            left = end
            while left:
                messages = consumer.consume(min(left, _PAGE), 30)
                found.update(dict(message.headers())["message_id"].decode() for message in messages)
                left -= len(messages)
    finally:
        consumer.close()
    return found


def routing_delays(api: DemoApi, address: str, topic: str, insert: str, ids: Iterable[int]) -> list[float]:
    """Insert rows one by one, and return how long each took from its acknowledgement to its message at a Kafka client."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "delays", "enable.auto.commit": False})
    delays = []
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        consumer.assign([TopicPartition(topic, 0, end)])
        for id in ids:
            api.sql(insert, [id])
            acknowledged = time.monotonic()
            message = consumer.poll(WAIT_SECONDS)
            if message is None or message.error() is not None:
                raise SystemExit(f"the change of row {id} was not routed: {message and message.error()}")
            delays.append(max(0.0, time.monotonic() - acknowledged))
    finally:
        consumer.close()
    return delays


class HttpGroup:
    """A consumer group over HTTP, which acknowledges what it has read and continues after it."""

    def __init__(self, topic: str, group: str) -> None:
        self._topic = topic
        self._group = group
        self.read: Counter[str] = Counter()
        self.resumed_at: list[int] = []

    def read_up(self, api: DemoApi, most: int) -> int:
        """Read and acknowledge until there is nothing more, or `most` messages. Returns how many there were."""
        count = 0
        question = {"topic": self._topic, "group_id": self._group, "start": "earliest", "partition_id": 0}
        while count < most:
            answer = api.post("/api/topics/consume", {**question, "limit": min(_PAGE, most - count)})
            messages = answer["messages"]
            if not messages:
                break
            if not count:
                self.resumed_at.append(messages[0]["offset"])
            self.read.update(message["message_id"] for message in messages)
            api.post(
                "/api/topics/ack",
                {"topic": self._topic, "group_id": self._group, "partition_id": 0, "upto_offset": messages[-1]["offset"]},
            )
            count += len(messages)
        return count
