"""Kafka Connect as one process, which is asked over its HTTP interface.

Records are JSON without schemas. The jars of a connector are on the class path.
"""

import http.client
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.peers.kafka import JVM
from bench.peers.servers import PeerFailure, PeerProcess, free_address

_MAINS = "org.apache.kafka.connect.cli."
_HEAP = ("-Xms256M", "-Xmx2G")
"""As Kafka's script for Connect has it."""
_ANSWER_SECONDS = 30.0
_CHANGE_SECONDS = 60.0
_LOOK_SECONDS = 0.01


class ConnectPeer:
    """A worker of Connect without connectors at first."""

    def __init__(self, main: str, jars: Sequence[Path], folder: Path, settings: Mapping[str, object]) -> None:
        """`main` is `ConnectStandalone` or `ConnectDistributed`."""
        self._address = free_address()
        file = folder / "connect.properties"
        given = {**_SETTINGS, "listeners": f"http://{self._address}", **settings}
        file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        path = ":".join(f"{each}/*" for each in jars)
        self._process = PeerProcess(["java", *_HEAP, *JVM, "-cp", path, _MAINS + main, str(file)], folder / "connect.said")

    def start(self) -> None:
        self._process.start(self._is_ready)

    def stop(self) -> None:
        self._process.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    def create(self, connector: str, settings: Mapping[str, str]) -> None:
        """Create a connector, or change it; its task may not run yet on return."""
        self._ask("PUT", f"/connectors/{connector}/config", settings)

    def pause(self, connector: str) -> None:
        """Stop the task, which closes its connections, and keep its position."""
        self._ask("PUT", f"/connectors/{connector}/stop")
        self._await_state(connector, "STOPPED", tasks=0)

    def resume(self, connector: str) -> None:
        self._ask("PUT", f"/connectors/{connector}/resume")

    def remove(self, connector: str) -> None:
        self._ask("DELETE", f"/connectors/{connector}")

    def offsets(self, connector: str) -> list[dict[str, Any]]:
        """Return how far a connector has come, for each partition of its source or its topics."""
        found: list[dict[str, Any]] = self._ask("GET", f"/connectors/{connector}/offsets")["offsets"]
        return found

    def reset_offsets(self, connector: str) -> None:
        """Have a connector begin anew; it must be paused."""
        self._ask("DELETE", f"/connectors/{connector}/offsets")

    def await_task(self, connector: str) -> None:
        """Wait until the task runs."""
        self._await_state(connector, "RUNNING", tasks=1)

    def check(self) -> None:
        """Raise if a connector or a task has failed."""
        for connector in self._ask("GET", "/connectors"):
            _check(self._ask("GET", f"/connectors/{connector}/status"))

    def _await_state(self, connector: str, state: str, tasks: int) -> None:
        deadline = time.monotonic() + _CHANGE_SECONDS
        while True:
            found = self._ask("GET", f"/connectors/{connector}/status")
            states = [found["connector"]["state"], *(task["state"] for task in found["tasks"])]
            if states == [state] * (1 + tasks):
                return
            _check(found)
            if time.monotonic() > deadline:
                raise PeerFailure(f"the connector was {states} after {_CHANGE_SECONDS:.0f} s, and not {state}")
            time.sleep(_LOOK_SECONDS)

    def _is_ready(self) -> bool:
        try:
            self._ask("GET", "/connectors")
        except (OSError, http.client.HTTPException, PeerFailure):
            return False
        return True

    def _ask(self, method: str, path: str, question: object = None) -> Any:
        deadline = time.monotonic() + _ANSWER_SECONDS
        while True:
            connection = http.client.HTTPConnection(*self._address, timeout=_ANSWER_SECONDS)
            try:
                body = None if question is None else json.dumps(question)
                connection.request(method, path, body, {"content-type": "application/json"})
                answer = connection.getresponse()
                said = answer.read()
            finally:
                connection.close()
            # A connector that was created this moment has no status yet.
            if answer.status == http.client.NOT_FOUND and path.endswith("/status") and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
                continue
            if answer.status >= http.client.MULTIPLE_CHOICES:
                raise PeerFailure(f"{method} {path} was answered with {answer.status}: {said[:500]!r}")
            return json.loads(said) if said else None


def _check(status: Any) -> None:
    for one in (status["connector"], *status["tasks"]):
        if one["state"] == "FAILED":
            raise PeerFailure(f"a connector failed: {one.get('trace', '')[:1_000]}")


_SETTINGS = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "offset.flush.interval.ms": 1_000,
    # The jars are on the class path already.
    "plugin.discovery": "service_load",
}
