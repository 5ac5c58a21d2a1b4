"""What a benchmark sees of a server, Tailrace or another.

A peer is made for a folder and for one promise, and can be started once. How it is asked is not said here: whoever measures
several peers takes such as speak the same protocol.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tailrace.model.address import Address
from tailrace.model.commit import Durability


class Peer(Protocol):
    name: str
    """What the page calls it, with what sets it apart: version, settings."""

    def start(self) -> float:
        """Seconds from the start of the process until it took a request and answered it."""

    def stop(self) -> None:
        """End it at once; what it wrote is thrown away. Does nothing if it does not run."""

    @property
    def address(self) -> Address:
        """Where clients begin."""

    @property
    def pid(self) -> int: ...


MakePeer = Callable[[Path, Durability], Peer]
"""A peer on an empty folder. `fsync`: what it acknowledges is on the disk; `relaxed`: it is written, and synced when the
product finds it right."""


class PeerFailure(Exception):
    """A server that is to be measured did not start."""
