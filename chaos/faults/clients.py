"""Clients that behave badly: they send garbage, take nothing, or sit idle. They go straight to the server's ports."""

import random
import socket
import time
from contextlib import ExitStack, suppress

from chaos.stage import Stage

IDLE_CONNECTIONS = 60
_ASKS_FOR_TOPICS = b"\x00\x00\x00\x14\x00\x03\x00\x01\x00\x00\x00\x01\x00\x06chaos!\xff\xff\xff\xff"
"""A Metadata request of version 1 for all topics: its answer is much longer than itself."""


def hostile(stage: Stage, choice: random.Random) -> None:
    """Garbage, foreign protocols and lengths that lie, on both ports."""
    with stage.fault("hostile"):
        for _ in range(choice.randint(10, 30)):
            with suppress(OSError), _connection(stage, choice) as client:
                client.sendall(_garbage(choice))
                client.settimeout(0.1)
                client.recv(1000)


def slow_client(stage: Stage, choice: random.Random) -> None:
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


def idle(stage: Stage, choice: random.Random) -> None:
    """Many connections on which nothing is said."""
    with stage.fault("idle", f"{IDLE_CONNECTIONS} connections"), ExitStack() as stack:
        for _ in range(IDLE_CONNECTIONS):
            with suppress(OSError):
                stack.enter_context(_connection(stage, choice))
            time.sleep(0.01)
        time.sleep(choice.uniform(1, 4))


def _connection(stage: Stage, choice: random.Random) -> socket.socket:
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
