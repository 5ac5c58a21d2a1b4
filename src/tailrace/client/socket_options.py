"""What both kinds of sockets have in common."""

from select import POLLIN, POLLOUT, poll

from tailrace.model.limits import KIB, MIB

LARGEST_MESSAGE_BYTES = 64 * MIB
"""Of one message of a subscription, which holds many events."""
READ_BYTES = 128 * KIB
"""Taken from a connection at once, at most."""
CLOSE_SECONDS = 2.0
"""How long a goodbye may take."""


def has_something_to_read(descriptor: int) -> bool:
    """Whether something has come by a socket, or its end, and is not taken yet."""
    looking = poll()
    looking.register(descriptor, POLLIN)
    return bool(looking.poll(0))


def wait_for_either_way(descriptor: int, seconds: float) -> bool:
    """Whether there is something to read; if not, there is room to write or the time is over."""
    looking = poll()
    looking.register(descriptor, POLLIN | POLLOUT)
    return any(happened & ~POLLOUT for _, happened in looking.poll(seconds * 1000))
