"""No server at all, as far as a client can tell: see `void_server`. What a client reaches here it reaches by itself."""

import sys
from pathlib import Path

from bench.peers.greeting import answers_kafka
from bench.peers.process import PeerProcess, free_address
from tailrace.model.address import Address
from tailrace.model.durability import Durability


class VoidPeer:
    def __init__(self, folder: Path, durability: Durability) -> None:
        self.name = "the client alone"
        self._address = free_address()
        self._process = PeerProcess([sys.executable, "-m", "bench.peers.void_server", str(self._address)], folder / "said")

    def start(self) -> float:
        return self._process.start(lambda: answers_kafka(self._address))

    def stop(self) -> None:
        self._process.stop()

    @property
    def address(self) -> Address:
        return self._address

    @property
    def pid(self) -> int:
        return self._process.pid
