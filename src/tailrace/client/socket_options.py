"""What both kinds of sockets have in common."""

from tailrace.model.limits import MIB

LARGEST_MESSAGE_BYTES = 64 * MIB
"""Of one message of a subscription, which holds many events."""
CLOSE_SECONDS = 2.0
"""How long a goodbye may take."""
