"""A consumer in a process of its own, so that it can be killed and stopped like one. `tests.support.consumers` runs it.

Its first line of input is its configuration; it writes what happens to it as JSON, one event a line. The word `commit` on its
input makes it commit what it has read; the end of its input makes it leave.
"""

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Any

Emit = Callable[[str, Any], None]
Commands = SimpleQueue[str]
POLL_SECONDS = 0.05
_MOST_HEARTBEAT_MS = 400
"""A member learns by a heartbeat that its group shares out anew, so it asks often, however long its session."""


def main() -> None:
    told = json.loads(sys.stdin.readline())
    lock = threading.Lock()

    def emit(event: str, value: Any) -> None:
        with lock:
            print(json.dumps([event, value]), flush=True)

    commands: Commands = SimpleQueue()
    threading.Thread(target=_read_commands, args=(commands,), daemon=True).start()
    run = {"confluent": _confluent, "kafka-python": _kafka_python, "aiokafka": _aiokafka}[told["client"]]
    run(told, emit, commands)


def _read_commands(commands: Commands) -> None:
    for line in sys.stdin:
        commands.put(line.strip())
    commands.put("leave")


def _next_command(commands: Commands) -> str | None:
    try:
        return commands.get_nowait()
    except Empty:
        return None


def _confluent(told: dict[str, Any], emit: Emit, commands: Commands) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    session_ms = told["session_ms"]
    session = {} if session_ms is None else _session(session_ms)
    consumer = Consumer(
        {
            "bootstrap.servers": told["bootstrap"],
            "group.id": told["group"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **session,
            **told["settings"],
        }
    )
    read: dict[int, int] = {}

    def assigned(_: Any, partitions: Iterable[Any]) -> None:
        emit("assigned", sorted(each.partition for each in partitions))

    def revoked(_: Any, partitions: Iterable[Any]) -> None:
        emit("revoked", sorted(each.partition for each in partitions))

    consumer.subscribe(told["topics"], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    while (command := _next_command(commands)) != "leave":
        if command == "commit":
            try:
                reached = [TopicPartition(told["topics"][0], partition, offset) for partition, offset in read.items()]
                consumer.commit(offsets=reached, asynchronous=False)
                emit("committed", read)
            except KafkaException as error:
                emit("commit failed", error.args[0].name())
        message = consumer.poll(POLL_SECONDS)
        if message is None:
            continue
        if message.error():
            if message.error().code() != KafkaError._PARTITION_EOF:
                emit("error", message.error().name())
            continue
        read[message.partition()] = message.offset() + 1
        emit("record", [message.partition(), message.offset(), message.value().decode()])
    consumer.close()
    emit("left", None)


def _kafka_python(told: dict[str, Any], emit: Emit, commands: Commands) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):
        def on_partitions_assigned(self, partitions: Iterable[Any]) -> None:
            emit("assigned", sorted(each.partition for each in partitions))

        def on_partitions_revoked(self, partitions: Iterable[Any]) -> None:
            emit("revoked", sorted(each.partition for each in partitions))

    consumer = KafkaConsumer(
        bootstrap_servers=told["bootstrap"],
        group_id=told["group"],
        session_timeout_ms=told["session_ms"],
        heartbeat_interval_ms=_heartbeat_ms(told["session_ms"]),
        max_poll_interval_ms=60_000,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **told["settings"],
    )
    consumer.subscribe(told["topics"], listener=Listener())
    while (command := _next_command(commands)) != "leave":
        if command == "commit":
            try:
                consumer.commit()
                emit("committed", None)
            except KafkaError as error:
                emit("commit failed", type(error).__name__)
        for records in consumer.poll(timeout_ms=int(POLL_SECONDS * 1000)).values():
            for record in records:
                emit("record", [record.partition, record.offset, record.value.decode()])
    consumer.close()
    emit("left", None)


def _aiokafka(told: dict[str, Any], emit: Emit, commands: Commands) -> None:
    asyncio.run(_run_aiokafka(told, emit, commands))


async def _run_aiokafka(told: dict[str, Any], emit: Emit, commands: Commands) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            emit("assigned", sorted(each.partition for each in assigned))

        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            emit("revoked", sorted(each.partition for each in revoked))

    consumer = AIOKafkaConsumer(
        bootstrap_servers=told["bootstrap"],
        group_id=told["group"],
        session_timeout_ms=told["session_ms"],
        heartbeat_interval_ms=_heartbeat_ms(told["session_ms"]),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **told["settings"],
    )
    consumer.subscribe(told["topics"], listener=Listener())
    await consumer.start()
    while (command := _next_command(commands)) != "leave":
        if command == "commit":
            try:
                await consumer.commit()
                emit("committed", None)
            except KafkaError as error:
                emit("commit failed", type(error).__name__)
        for records in (await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))).values():
            for record in records:
                emit("record", [record.partition, record.offset, record.value.decode()])
    await consumer.stop()
    emit("left", None)


def _session(session_ms: int) -> dict[str, int]:
    return {"session.timeout.ms": session_ms, "heartbeat.interval.ms": _heartbeat_ms(session_ms)}


def _heartbeat_ms(session_ms: int) -> int:
    return min(session_ms // 5, _MOST_HEARTBEAT_MS)


if __name__ == "__main__":
    main()
