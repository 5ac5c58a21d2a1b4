"""A server's process: started, awaited and killed; and what all peers that are one process have in common."""

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.peers.contract import PeerFailure
from tailrace.model.address import Address
from tests.support.ports import free_port

_READY_SECONDS = 60.0
_LOOK_SECONDS = 0.005
_LAST_WORDS = 2_000


class PeerProcess:
    """One command. What it says goes to a file, whose end is shown if it fails."""

    def __init__(self, command: Sequence[str], said: Path) -> None:
        self._command = command
        self._said = said
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, is_ready: Callable[[], bool]) -> float:
        """Seconds until it was ready."""
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
    """A peer that is one process at an address of its own. What it is called and how it is started is its own affair."""

    def __init__(
        self, name: str, address: Address, command: Sequence[str], folder: Path, answers: Callable[[Address], bool]
    ) -> None:
        self.name = name
        self.address = address
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
    """An address of this machine on which nobody listens now."""
    return Address("127.0.0.1", free_port())
