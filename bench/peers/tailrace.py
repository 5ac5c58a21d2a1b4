"""Tailrace as its users run it: `tailrace serve`."""

import sys
from pathlib import Path

from bench.peers.greeting import answers_kafka
from bench.peers.process import ServerPeer, free_address
from tailrace.model.commit import Durability


class TailracePeer(ServerPeer):
    def __init__(self, folder: Path, durability: Durability) -> None:
        address = free_address()
        command = [sys.executable, "-m", "tailrace", "serve", "--data", str(folder / "data"), "--durability", durability]
        command += ["--kafka", str(address), "--http", "127.0.0.1:0"]
        super().__init__(f"Tailrace, `{durability}`", address, command, folder, answers_kafka)
