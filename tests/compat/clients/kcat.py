"""kcat: each verb is one run of the command."""

import itertools
import json
import re
import subprocess
from typing import Any, ClassVar

from tests.compat.contract import MISSING, NOT_KAFKA, Bounds, Client, Codec, Headers, Incoming, Outgoing, Start, Unsupported
from tests.compat.login import login_of

SECONDS = 60.0
KEY_END, RECORD_END = b"\x01", b"\x02"
HEAD = re.compile(rb"(\d+) (\d+) (-?\d+) (-?\d+) (-?\d+) (.*)\n")
FORMAT = "%p %o %T %K %S %h\\n%k%s"
EARLIEST, LATEST = -2, -1


class CommandFailed(Exception):
    """What kcat wrote to stderr."""


class Adapter(Client):
    _codes: ClassVar[dict[str, int]] = {
        "Message size too large": 10,
        "Unknown topic or partition": 3,
        "Topic authorization failed": 29,
        "Authentication failure": 58,
    }

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        login = login_of()
        settings = {} if login is None else {**login.rdkafka(), "message.timeout.ms": "20000"}
        self._security = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]

    @classmethod
    def version(cls) -> str:
        found = re.search(
            r"Version (\S+).*(librdkafka \S+)", subprocess.run(["kcat", "-V"], capture_output=True, text=True).stdout
        )
        return f"{found[1]} ({found[2]})" if found else "unknown"

    def code_of(self, error: Exception) -> int:
        return next((code for words, code in self._codes.items() if words in str(error)), NOT_KAFKA)

    def produce(self, topic: str, records: list[Outgoing], codec: Codec = "none", max_bytes: int | None = None) -> None:
        limit = [] if max_bytes is None else ["-X", f"message.max.bytes={max_bytes}"]
        self._produce(topic, records, "-z", codec, *limit)

    def produce_idempotent(self, topic: str, records: list[Outgoing]) -> None:
        self._produce(topic, records, "-X", "enable.idempotence=true")

    def read(self, topic: str, partition: int, start: Start, count: int, committed_only: bool = False) -> list[Incoming]:
        place = {"offset": str(start.value), "time": f"s@{start.value}"}.get(start.at, start.at)
        level = "read_committed" if committed_only else "read_uncommitted"
        where = ["-t", topic, "-p", str(partition), "-o", place, "-X", f"isolation.level={level}"]
        return _parse(self._run("-C", *where, "-c", str(count), "-q", "-f", FORMAT))

    def position(self, topic: str, partition: int, start: Start) -> int:
        raise Unsupported("it does not tell its position")

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int:
        return self._query(topic, partition, timestamp_ms)

    def consume(self, group: str, topic: str, count: int) -> list[Incoming]:
        settings = ["-X", "auto.offset.reset=earliest"]
        return _parse(self._run(*settings, "-c", str(count), "-q", "-f", FORMAT, "-G", group, topic))

    def join(
        self, group: str, topic: str, session_ms: int = 10_000, hand_over: bool = False, instance_id: str | None = None
    ) -> None:
        raise Unsupported("it commits by itself when it ends, and can not be told when")

    def topics(self) -> list[str]:
        return sorted(each["topic"] for each in self._metadata()["topics"])

    def partitions(self, topic: str) -> int:
        (found,) = [each for each in self._metadata()["topics"] if each["topic"] == topic]
        return len(found["partitions"])

    def bounds(self, topic: str, partition: int) -> Bounds:
        return Bounds(self._query(topic, partition, EARLIEST), self._query(topic, partition, LATEST))

    def brokers(self) -> int:
        return len(self._metadata()["brokers"])

    def open_transactions(self, transactional_id: str) -> None:
        raise Unsupported("it makes one transaction a run, and always commits it")

    def _run(self, *args: str, given: bytes | None = None) -> bytes:
        command = ["kcat", "-b", self.bootstrap, *self._security, *args]
        done = subprocess.run(command, input=given, capture_output=True, timeout=SECONDS)
        if done.returncode != 0 or b"Delivery failed" in done.stderr:
            raise CommandFailed(done.stderr.decode())
        return done.stdout

    def _produce(self, topic: str, records: list[Outgoing], *args: str) -> None:
        for (partition, headers), alike in itertools.groupby(records, lambda each: (each.partition, each.headers)):
            same = list(alike)
            flags = [part for name, value in headers for part in ("-H", _argument(name, value))]
            if partition is not None:
                flags += ["-p", str(partition)]
            if any(each.value is None for each in same):
                flags.append("-Z")
            ends = ["-K", f"\\x{KEY_END.hex()}", "-D", f"\\x{RECORD_END.hex()}"]
            self._run("-P", "-t", topic, *ends, *flags, *args, given=RECORD_END.join(map(_line, same)))

    def _metadata(self) -> Any:
        return json.loads(self._run("-L", "-J"))

    def _query(self, topic: str, partition: int, spec: int) -> int:
        found = re.search(rb"offset (-?\d+)", self._run("-Q", "-t", f"{topic}:{partition}:{spec}"))
        assert found is not None
        offset = int(found[1])
        return offset if offset >= 0 else MISSING


def _argument(name: str, value: bytes | None) -> str:
    if value is None or not value.isascii() or b"\0" in value:
        raise Unsupported("headers come from its command line: text only")
    return f"{name}={value.decode()}"


def _line(record: Outgoing) -> bytes:
    if record.timestamp_ms is not None:
        raise Unsupported("it can not set timestamps")
    parts = [each for each in (record.key, record.value) if each is not None]
    if any(end in part for part in parts for end in (KEY_END, RECORD_END)):
        raise Unsupported("it splits its input at a delimiter, so records can not hold any bytes")
    return (record.value or b"") if record.key is None else record.key + KEY_END + (record.value or b"")


def _parse(output: bytes) -> list[Incoming]:
    found: list[Incoming] = []
    at = 0
    while (head := HEAD.match(output, at)) is not None:
        partition, offset, timestamp_ms, key_size, value_size = (int(head[number]) for number in range(1, 6))
        at = head.end() + max(key_size, 0)
        key = None if key_size < 0 else output[head.end() : at]
        value = None if value_size < 0 else output[at : at + value_size]
        at += max(value_size, 0)
        found.append(Incoming(partition, offset, timestamp_ms, key, value, _headers(head[6])))
    return found


def _headers(text: bytes) -> Headers:
    pairs = (pair.partition(b"=") for pair in text.split(b",") if pair)
    return [(name.decode(), value) for name, _, value in pairs]
