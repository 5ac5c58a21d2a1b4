"""Servers as benchmarks see them: the interface of a peer, its process, and `tailrace serve` as one.

A peer has a folder and a durability, and can be started once. How it is used depends on its protocol.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import Protocol

from tailrace.model.address import Address
from tailrace.model.commit import Durability
from tailrace.wire.message_codec import MessageCodec, MessageSource
from tailrace.wire.messages.cluster import METADATA_API, MetadataRequest, MetadataResponse
from tests.support.ports import free_port

ClientSettings = Mapping[str, str]
"""What librdkafka needs to know of a server, by its names of settings."""


class Peer(Protocol):
    name: str
    """The name on the page, with version and settings that matter."""
    client_settings: ClientSettings
    """How Kafka clients log in, if they have to."""

    def start(self) -> float:
        """Start the process and return the seconds until it answered a request."""

    def stop(self) -> None:
        """Kill the process, if it runs."""

    @property
    def address(self) -> Address:
        """The address for clients."""

    @property
    def pid(self) -> int: ...


MakePeer = Callable[[Path, Durability], Peer]
"""Makes a peer on an empty folder. With `fsync`, acknowledged data is on the disk; with `relaxed`, it is written, and synced
when the product decides."""


class PeerFailure(Exception):
    """A server did not start."""


_READY_SECONDS = 60.0
_LOOK_SECONDS = 0.005
_LAST_WORDS = 2_000


class PeerProcess:
    """A process of one command. Its output goes to a file, whose end is shown if it fails."""

    def __init__(self, command: Sequence[str], said: Path) -> None:
        self._command = command
        self._said = said
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, is_ready: Callable[[], bool]) -> float:
        """Start it and return the seconds until it was ready."""
        with self._said.open("wb") as said:
            began = time.perf_counter()
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
        while not is_ready():
            if self._process.poll() is not None:
                raise PeerFailure(f"{self._command[0]} ended with code {self._process.returncode}: {self._last_words()}")
            if time.perf_counter() - began > _READY_SECONDS:
                self.stop()
                raise PeerFailure(f"{self._command[0]} was not ready after {_READY_SECONDS:.0f} s: {self._last_words()}")
            time.sleep(_LOOK_SECONDS)
        return time.perf_counter() - began

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise PeerFailure(f"{self._command[0]} does not run")
        return self._process.pid

    def _last_words(self) -> str:
        return self._said.read_text(errors="replace")[-_LAST_WORDS:].strip() or "it said nothing"


class ServerPeer:
    """A peer that is one process with its own address. Subclasses say its name and its command."""

    def __init__(
        self, name: str, address: Address, command: Sequence[str], folder: Path, answers: Callable[[Address], bool]
    ) -> None:
        self.name = name
        self.address = address
        self.client_settings: ClientSettings = {}
        self._process = PeerProcess(command, folder / "said")
        self._answers = answers

    def start(self) -> float:
        return self._process.start(lambda: self._answers(self.address))

    def stop(self) -> None:
        self._process.stop()

    @property
    def pid(self) -> int:
        return self._process.pid


def free_address() -> Address:
    """Return an address of this machine on which nothing listens."""
    return Address("127.0.0.1", free_port())


_VERSION = 8
"""A version that every server supports, and the last with a simple header."""
_HEAD = Struct(">ihhih")
_SIZE_BYTES = 4
_CORRELATION_BYTES = 4
_PATIENCE_SECONDS = 5.0


def answers_kafka(address: Address) -> bool:
    """Return whether the server answers a metadata request with at least one broker."""
    try:
        with socket.create_connection(address, timeout=_PATIENCE_SECONDS) as connection:
            connection.sendall(_question())
            size = int.from_bytes(_receive(connection, _SIZE_BYTES), "big")
            answer = _receive(connection, size)
    except OSError:
        return False
    response = MessageCodec().read(MetadataResponse, _VERSION, False, MessageSource(answer, _CORRELATION_BYTES))
    return bool(response.brokers)


def _question() -> bytes:
    body = bytearray()
    MessageCodec().write(MetadataRequest(topics=()), _VERSION, False, body)
    head = _HEAD.pack(_HEAD.size - _SIZE_BYTES + len(body), METADATA_API.key, _VERSION, 1, -1)
    return head + body


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        more = connection.recv(size - len(received))
        if not more:
            raise ConnectionError("closed before it answered")
        received += more
    return bytes(received)


class TailracePeer(ServerPeer):
    def __init__(
        self,
        folder: Path,
        durability: Durability,
        config: str = "",
        answers: Callable[[Address], bool] = answers_kafka,
    ) -> None:
        """`config` is the content of a configuration file."""
        address = free_address()
        command = [sys.executable, "-m", "tailrace", "serve", "--data", str(folder / "data"), "--durability", durability]
        command += ["--kafka", str(address), "--http", "127.0.0.1:0"]
        if config:
            file = folder / "tailrace.toml"
            file.write_text(config)
            command += ["--config", str(file)]
        super().__init__(f"Tailrace, `{durability}`", address, command, folder, answers)


class VoidPeer(ServerPeer):
    def __init__(self, folder: Path, durability: Durability) -> None:
        address = free_address()
        command = [sys.executable, "-m", "bench.peers.void_server", str(address)]
        super().__init__("the client alone", address, command, folder, answers_kafka)
