"""Debezium as a capture: its connector in Kafka Connect, and the Kafka that it writes to."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.capture.orders import PUBLICATION, Orders
from bench.peers.connect import ConnectPeer
from bench.peers.debezium import NAME, TUNED, connector_settings, debezium_peer
from bench.peers.kafka import KafkaPeer
from bench.workspace import Workspace

_STREAM = "debezium"


class _Row(msgspec.Struct):
    change: int


class _Event(msgspec.Struct):
    after: _Row


_DECODER = msgspec.json.Decoder(_Event)


class DebeziumCapture:
    def __init__(self, connect: ConnectPeer, kafka: KafkaPeer, orders: Orders) -> None:
        self.name = NAME
        self.kafka = kafka.address
        self.topic = f"{_STREAM}.public.orders"
        self._connect = connect
        self._broker = kafka
        self._orders = orders

    def prepare(self) -> None:
        """Create the slot and a connector that does not run yet."""
        self._orders.create_slot(_STREAM)
        # Without a position of its own it begins with that of the slot.
        self._connect.create(_STREAM, connector_settings(self._orders.address, _STREAM, PUBLICATION, _STREAM, "no_data"))
        self._connect.await_task(_STREAM)
        self._connect.pause(_STREAM)

    @property
    def remarks(self) -> Sequence[str]:
        changed = ", ".join(f"`{name}={value}`" for name, value in TUNED.items())
        return [f"Set for Debezium, beside JSON without schemas and numbers as text: {changed}."]

    def start(self) -> None:
        self._connect.resume(_STREAM)

    def stop(self) -> None:
        self._connect.pause(_STREAM)

    def begin_snapshot(self, number: int) -> str:
        name = _snapshot(number)
        self._connect.create(name, connector_settings(self._orders.address, name, PUBLICATION, name, "initial"))
        return f"{name}.public.orders"

    def end_snapshot(self, number: int) -> None:
        self._connect.pause(_snapshot(number))
        self._connect.remove(_snapshot(number))
        self._orders.drop_slot(_snapshot(number))

    def check(self) -> None:
        self._connect.check()

    def read_change(self, value: bytes) -> int:
        return _DECODER.decode(value).after.change

    @property
    def pids(self) -> Mapping[str, int]:
        return {"Kafka Connect": self._connect.pid, "Kafka": self._broker.pid}


@contextmanager
def debezium_capture(kafka_jars: Path, jars: Path, workspace: Workspace, orders: Orders) -> Iterator[DebeziumCapture]:
    """Run Kafka and Connect, each on a folder of its own."""
    with workspace.folder() as folder:
        broker_folder = folder / "kafka"
        broker_folder.mkdir()
        kafka = KafkaPeer(kafka_jars, broker_folder, "relaxed")
        connect = debezium_peer(jars, folder, kafka.address)
        try:
            kafka.start()
            connect.start()
            yield DebeziumCapture(connect, kafka, orders)
        finally:
            connect.stop()
            kafka.stop()


def _snapshot(number: int) -> str:
    return f"snapshot_{number}"
