"""Faults between clients and the server, by a proxy in front of each of its ports: cuts, delays, silence, refusals."""

import random
import socket
import time
from contextlib import ExitStack, suppress

from chaos.testbed import Testbed
from tests.support.proxy import FaultyProxy

DELAY_SECONDS = (0.01, 0.25)
SILENT_SECONDS = (1.0, 4.0)


def cut(testbed: Testbed, choice: random.Random) -> None:
    """All connections are reset, a few times in a row."""
    times = choice.randint(1, 4)
    with testbed.fault("cut", f"{times} times"):
        for _ in range(times):
            for network in _some(testbed, choice):
                network.reset_connections()
            time.sleep(choice.uniform(0.02, 0.4))


def delay(testbed: Testbed, choice: random.Random) -> None:
    seconds = choice.uniform(*DELAY_SECONDS)
    with testbed.fault("delay", f"{seconds * 1000:.0f} ms"):
        networks = _some(testbed, choice)
        for network in networks:
            network.delay_seconds = seconds
        time.sleep(choice.uniform(2, 5))
        for network in networks:
            network.delay_seconds = 0


def half_open(testbed: Testbed, choice: random.Random) -> None:
    """Connections stay open and nothing comes through, as after a pulled cable; then they break."""
    seconds = choice.uniform(*SILENT_SECONDS)
    with testbed.fault("half-open", f"{seconds:.1f} s"):
        networks = _some(testbed, choice)
        for network in networks:
            network.is_silent = True
        time.sleep(seconds)
        for network in networks:
            network.is_silent = False
            network.reset_connections()


def refuse(testbed: Testbed, choice: random.Random) -> None:
    """Connections break, and for a while there are no new ones."""
    with testbed.fault("refuse"):
        networks = _some(testbed, choice)
        for network in networks:
            network.refuses = True
            network.reset_connections()
        time.sleep(choice.uniform(0.5, 3))
        for network in networks:
            network.refuses = False


def database_cut(testbed: Testbed, choice: random.Random) -> None:
    """Between a database and its capture, connections are reset or say nothing for a while, and then break."""
    network = testbed.database.network
    seconds = choice.choice((0.0, choice.uniform(*SILENT_SECONDS)))
    with testbed.fault("database-cut", f"silent for {seconds:.1f} s" if seconds else ""):
        network.is_silent = bool(seconds)
        time.sleep(seconds)
        network.is_silent = False
        network.reset_connections()
        time.sleep(choice.uniform(0.5, 4))


def copy_cut(testbed: Testbed, choice: random.Random) -> None:
    """Between a Kafka and what copies to it, connections are reset or say nothing for a while, and then break."""
    network = testbed.other_kafka.network
    seconds = choice.choice((0.0, choice.uniform(*SILENT_SECONDS)))
    with testbed.fault("kafka-cut", f"silent for {seconds:.1f} s" if seconds else ""):
        network.is_silent = bool(seconds)
        time.sleep(seconds)
        network.is_silent = False
        network.reset_connections()
        time.sleep(choice.uniform(0.5, 4))


def _some(testbed: Testbed, choice: random.Random) -> list[FaultyProxy]:
    both = [testbed.kafka_network, testbed.http_network]
    return both if choice.random() < 0.5 else [choice.choice(both)]


IDLE_CONNECTIONS = 60
_ASKS_FOR_TOPICS = b"\x00\x00\x00\x14\x00\x03\x00\x01\x00\x00\x00\x01\x00\x06chaos!\xff\xff\xff\xff"
"""A Metadata request of version 1 for all topics, whose response is much longer."""


def hostile(testbed: Testbed, choice: random.Random) -> None:
    """Clients send garbage, foreign protocols and wrong lengths to both ports."""
    with testbed.fault("hostile"):
        for _ in range(choice.randint(10, 30)):
            with suppress(OSError), _connection(testbed, choice) as client:
                client.sendall(_garbage(choice))
                client.settimeout(0.1)
                client.recv(1000)


def slow_client(testbed: Testbed, choice: random.Random) -> None:
    """A client sends many requests and reads the responses byte by byte."""
    with testbed.fault("slow-client"), ExitStack() as stack:
        clients = []
        for _ in range(5):
            with suppress(OSError):
                client = stack.enter_context(socket.create_connection(_address(testbed.server.kafka), 1))
                client.settimeout(0.05)
                clients.append(client)
        until = time.monotonic() + choice.uniform(2, 5)
        while time.monotonic() < until:
            for client in clients:
                with suppress(OSError):
                    client.sendall(_ASKS_FOR_TOPICS * 50)
                    client.recv(1)
            time.sleep(0.05)


def idle(testbed: Testbed, choice: random.Random) -> None:
    """Many connections are open on which nothing is sent."""
    with testbed.fault("idle", f"{IDLE_CONNECTIONS} connections"), ExitStack() as stack:
        for _ in range(IDLE_CONNECTIONS):
            with suppress(OSError):
                stack.enter_context(_connection(testbed, choice))
            time.sleep(0.01)
        time.sleep(choice.uniform(1, 4))


def _connection(testbed: Testbed, choice: random.Random) -> socket.socket:
    return socket.create_connection(_address(choice.choice((testbed.server.kafka, testbed.server.http))), 1)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def _garbage(choice: random.Random) -> bytes:
    noise = choice.randbytes(choice.randint(1, 2000))
    return choice.choice(
        (
            noise,
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + noise,
            b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
            b"\x7f\xff\xff\xff" + noise,
            b"\x00\x00\x00\x10" + noise[:12],
            len(noise).to_bytes(4, "big") + b"\x00\x00\x00\x09" + noise,
            b"POST /api/topics/publish HTTP/1.1\r\nhost: localhost\r\ncontent-length: 999999999999\r\n\r\n" + noise,
        )
    )
