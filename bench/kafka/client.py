"""A Kafka client in a process of its own, so that it shares no lock with anybody. It speaks in lines of JSON.

As a program, it does what it is asked on stdin, one task after another, at the server whose address is its one argument.
"""

import gc
import subprocess
import sys
import time
from pathlib import Path

import msgspec
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.answers import say
from bench.audit import AuditFailure
from bench.kafka.consuming import Receiver, end_offsets
from bench.kafka.numbered import BadDelivery
from bench.kafka.producing import ANSWER_SECONDS, Sender
from bench.kafka.tasks import (
    Answer,
    AnyTask,
    CloseConnections,
    Consume,
    ConsumeSteadily,
    CreateTopic,
    Done,
    Failed,
    OpenConnections,
    Produce,
    ProduceEverywhere,
    ProduceOneByOne,
    ProduceSteadily,
    Task,
)
from bench.peers.contract import Peer

_ROOT = Path(__file__).resolve().parents[2]


class ClientProcess:
    """This module as a child: gone when it is closed."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer.name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.kafka.client", str(peer.address)],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def begin(self, task: Task) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(task) + b"\n")
        self._process.stdin.flush()

    def hear(self) -> Answer:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AuditFailure(f"{self._peer}: a client ended with code {self._process.wait()} in the middle of its work")
        answer: Answer = msgspec.json.decode(line, type=Answer)
        if isinstance(answer, Failed):
            raise AuditFailure(f"{self._peer}: {answer.why}")
        return answer

    def ask(self, task: Task) -> Answer:
        self.begin(task)
        return self.hear()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class _Client:
    def __init__(self, address: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": address})
        self._sender = Sender(address)
        self._receiver = Receiver(address, self._admin)

    def serve(self) -> None:
        for line in sys.stdin.buffer:
            task: AnyTask = msgspec.json.decode(line, type=AnyTask)
            try:
                say(self._do(task))
            except (BadDelivery, KafkaException, TimeoutError, BufferError) as error:
                say(Failed(f"{type(task).__name__} of {task.load.topic!r}: {error}"))
            gc.collect()

    def _do(self, task: AnyTask) -> Answer:
        load = task.load
        match task:
            case CreateTopic():
                return self._create(load.topic, load.partitions)
            case Produce():
                return self._sender.produce(load)
            case ProduceOneByOne():
                return self._sender.produce_one_by_one(load)
            case ProduceSteadily():
                return self._sender.produce_steadily(load, task.per_second)
            case OpenConnections():
                self._sender.open_connections(load)
                return Done()
            case ProduceEverywhere():
                return self._sender.produce_everywhere(load)
            case CloseConnections():
                self._sender.close_connections()
                return Done()
            case Consume():
                return self._receiver.consume(load, _say_ready)
            case ConsumeSteadily():
                return self._receiver.consume_steadily(load, _say_ready)

    def _create(self, topic: str, partitions: int) -> Done:
        # Batches up to this size are sent where large ones are asked for.
        wanted = NewTopic(topic, partitions, 1, config={"max.message.bytes": "10000000"})
        self._admin.create_topics([wanted])[topic].result(ANSWER_SECONDS)
        self._await_leaders(topic, partitions)
        return Done()

    def _await_leaders(self, topic: str, partitions: int) -> None:
        """Until every partition answers for its end: records sent to Kafka before that came out of order now and then."""
        places = [TopicPartition(topic, number) for number in range(partitions)]
        deadline = time.monotonic() + ANSWER_SECONDS
        while not (self._has_leaders(topic, partitions) and self._has_offsets(places)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not all of {partitions} partitions had a leader after {ANSWER_SECONDS:.0f} s")
            time.sleep(0.02)

    def _has_leaders(self, topic: str, partitions: int) -> bool:
        found = self._admin.list_topics(topic, ANSWER_SECONDS).topics[topic].partitions.values()
        return len(found) == partitions and all(each.error is None and each.leader >= 0 for each in found)

    def _has_offsets(self, places: list[TopicPartition]) -> bool:
        try:
            return len(end_offsets(self._admin, places)) == len(places)
        except KafkaException:
            return False


def _say_ready() -> None:
    say(Done())


if __name__ == "__main__":
    gc.disable()  # it would look at every record that is kept for the checking
    _Client(sys.argv[1]).serve()
