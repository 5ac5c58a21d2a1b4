"""Ports for servers that are started later, or more than once on the same one."""

import random
import socket

_CHOICE = range(12_000, 30_000)
"""Below those that the system gives to whoever asks for any: what nobody asks for by number stays free until it is used."""


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens."""
    chance = random.SystemRandom()
    while True:
        port = chance.choice(_CHOICE)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
