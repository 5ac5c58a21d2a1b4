"""Tailrace as its users run it: `tailrace serve`."""

import sys
from pathlib import Path

from bench.peers.greeting import answers_kafka
from bench.peers.process import PeerProcess, free_address
from tailrace.model.address import Address
from tailrace.model.durability import Durability


class TailracePeer:
    def __init__(self, folder: Path, durability: Durability) -> None:
        self.name = f"Tailrace, `{durability}`"
        self._address = free_address()
        command = [sys.executable, "-m", "tailrace", "serve", "--data", str(folder / "data"), "--durability", durability]
        command += ["--kafka", str(self._address), "--http", "127.0.0.1:0"]
        self._process = PeerProcess(command, folder / "said")

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
