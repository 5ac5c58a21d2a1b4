"""A Kafka client in a process of its own.

As a program, it does what it is asked on stdin, one task after another, at the server whose address is its one argument.
"""

import gc
import sys
import time

import msgspec
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.answers import Failed, say
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
    OpenConnections,
    Produce,
    ProduceEverywhere,
    ProduceOneByOne,
    ProduceSteadily,
    Task,
)
from bench.peers.contract import Peer
from bench.worker_process import WorkerProcess


class ClientProcess(WorkerProcess[Task, Answer]):
    """This module as a child."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer.name, "bench.kafka.client", str(peer.address), answers=Answer)


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
