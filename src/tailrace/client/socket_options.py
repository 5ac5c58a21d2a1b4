"""What both kinds of sockets have in common."""

from select import POLLIN, poll

from tailrace.model.limits import MIB

LARGEST_MESSAGE_BYTES = 64 * MIB
"""Of one message of a subscription, which holds many events."""
CLOSE_SECONDS = 2.0
"""How long a goodbye may take."""


def has_something_to_read(descriptor: int) -> bool:
    """Whether something has come by a socket, or its end, and is not taken yet."""
    looking = poll()
    looking.register(descriptor, POLLIN)
    return bool(looking.poll(0))
