"""No server at all, as far as a client can tell: see `void_server`. What a client reaches here it reaches by itself."""

import sys
from pathlib import Path

from bench.peers.greeting import answers_kafka
from bench.peers.process import ServerPeer, free_address
from tailrace.model.commit import Durability


class VoidPeer(ServerPeer):
    def __init__(self, folder: Path, durability: Durability) -> None:
        address = free_address()
        command = [sys.executable, "-m", "bench.peers.void_server", str(address)]
        super().__init__("the client alone", address, command, folder, answers_kafka)
