"""Faults between clients and the server, by a proxy in front of each of its ports: cuts, delays, silence, refusals."""

import random
import socket
import time
from contextlib import ExitStack, suppress

from chaos.testbed import Testbed
from tests.support.proxy import FaultyProxy

DELAY_SECONDS = (0.01, 0.25)
SILENT_SECONDS = (1.0, 4.0)


def cut(stage: Testbed, choice: random.Random) -> None:
    """All connections are reset, a few times in a row."""
    times = choice.randint(1, 4)
    with stage.fault("cut", f"{times} times"):
        for _ in range(times):
            for network in _some(stage, choice):
                network.reset_connections()
            time.sleep(choice.uniform(0.02, 0.4))


def delay(stage: Testbed, choice: random.Random) -> None:
    seconds = choice.uniform(*DELAY_SECONDS)
    with stage.fault("delay", f"{seconds * 1000:.0f} ms"):
        networks = _some(stage, choice)
        for network in networks:
            network.delay_seconds = seconds
        time.sleep(choice.uniform(2, 5))
        for network in networks:
            network.delay_seconds = 0


def half_open(stage: Testbed, choice: random.Random) -> None:
    """Connections stay open and nothing comes through, as after a pulled cable; then they break."""
    seconds = choice.uniform(*SILENT_SECONDS)
    with stage.fault("half-open", f"{seconds:.1f} s"):
        networks = _some(stage, choice)
        for network in networks:
            network.is_silent = True
        time.sleep(seconds)
        for network in networks:
            network.is_silent = False
            network.reset_connections()


def refuse(stage: Testbed, choice: random.Random) -> None:
    """Connections break, and for a while there are no new ones."""
    with stage.fault("refuse"):
        networks = _some(stage, choice)
        for network in networks:
            network.refuses = True
            network.reset_connections()
        time.sleep(choice.uniform(0.5, 3))
        for network in networks:
            network.refuses = False


def _some(stage: Testbed, choice: random.Random) -> list[FaultyProxy]:
    both = [stage.kafka_network, stage.http_network]
    return both if choice.random() < 0.5 else [choice.choice(both)]


IDLE_CONNECTIONS = 60
_ASKS_FOR_TOPICS = b"\x00\x00\x00\x14\x00\x03\x00\x01\x00\x00\x00\x01\x00\x06chaos!\xff\xff\xff\xff"
"""A Metadata request of version 1 for all topics: its answer is much longer than itself."""


def hostile(stage: Testbed, choice: random.Random) -> None:
    """Garbage, foreign protocols and lengths that lie, on both ports."""
    with stage.fault("hostile"):
        for _ in range(choice.randint(10, 30)):
            with suppress(OSError), _connection(stage, choice) as client:
                client.sendall(_garbage(choice))
                client.settimeout(0.1)
                client.recv(1000)


def slow_client(stage: Testbed, choice: random.Random) -> None:
    """Asks and asks, and takes a byte at a time."""
    with stage.fault("slow-client"), ExitStack() as stack:
        clients = []
        for _ in range(5):
            with suppress(OSError):
                client = stack.enter_context(socket.create_connection(_address(stage.server.kafka), 1))
                client.settimeout(0.05)
                clients.append(client)
        until = time.monotonic() + choice.uniform(2, 5)
        while time.monotonic() < until:
            for client in clients:
                with suppress(OSError):
                    client.sendall(_ASKS_FOR_TOPICS * 50)
                    client.recv(1)
            time.sleep(0.05)


def idle(stage: Testbed, choice: random.Random) -> None:
    """Many connections on which nothing is said."""
    with stage.fault("idle", f"{IDLE_CONNECTIONS} connections"), ExitStack() as stack:
        for _ in range(IDLE_CONNECTIONS):
            with suppress(OSError):
                stack.enter_context(_connection(stage, choice))
            time.sleep(0.01)
        time.sleep(choice.uniform(1, 4))


def _connection(stage: Testbed, choice: random.Random) -> socket.socket:
    return socket.create_connection(_address(choice.choice((stage.server.kafka, stage.server.http))), 1)


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
