"""Few open files and many connections: connections are rejected, and the store never lacks a file."""

import contextlib
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

from tests.integration.topics import consume, create, publish
from tests.support.eventually import eventually
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

FILES = 256
CONNECTIONS = 600


class FewFiles(ServerProcess):
    """A server that may have few open files, whatever it asks for."""

    @property
    def command(self) -> list[str]:
        return ["prlimit", f"--nofile={FILES}:{FILES}", *super().command]


def knock(address: str, count: int) -> list[socket.socket]:
    """Connections that are opened as fast as they can be, and kept."""
    host, _, port = address.rpartition(":")
    held = []
    for _ in range(count):
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex((host, int(port)))
        held.append(connection)
    return held


def test_many_connections_take_no_file_from_the_store(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4 * CONNECTIONS), hard))
    config = tmp_path / "tailrace.toml"
    config.write_text("[limits]\nnew_connections_per_second = 100000\n")
    with FewFiles(tmp_path / "data", "--config", str(config)) as server, httpx.Client(base_url=server.url, timeout=5) as client:
        assert f"the limit of open files is {FILES}" in server.stderr
        create(server.url, "orders")
        client.get("/health")  # this one is connected before the others
        acked = 0
        with contextlib.ExitStack() as held:
            for address in 2 * (server.url.removeprefix("http://"), server.kafka):
                for connection in knock(address, CONNECTIONS):
                    held.callback(connection.close)
                for _ in range(20):
                    message = {"topic": "orders", "value": acked}
                    answer = client.post("/api/topics/publish", json={"messages": [message]})
                    assert answer.status_code == 200, answer.text
                    acked += 1
        eventually(lambda: _is_served(server), "there is room again", PATIENCE_SECONDS)
        assert publish(server.url, "orders", acked) == [acked]
        assert consume(server.url, "orders") == list(range(acked + 1))
        assert server.terminate() == 0, server.stderr
    with ServerProcess(tmp_path / "data") as server:
        assert consume(server.url, "orders") == list(range(acked + 1))


def test_a_limit_that_no_server_can_work_with_gets_one_clear_line(tmp_path: Path) -> None:
    command = ["prlimit", "--nofile=64:64", sys.executable, "-m", "tailrace", "serve", "--data", str(tmp_path / "data")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("tailrace: the limit of open files is 64, and a server needs at least 128")
    assert not (tmp_path / "data").exists()


def test_the_soft_limit_is_raised_to_what_is_needed(tmp_path: Path) -> None:
    class SoftlyLimited(ServerProcess):
        @property
        def command(self) -> list[str]:
            return ["prlimit", "--nofile=256:20000", *super().command]

    with SoftlyLimited(tmp_path / "data") as server:
        limits = Path(f"/proc/{server.pid}/limits").read_text()
        (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
        assert int(line.split()[3]) > 10_000
        assert server.stderr == ""


def _is_served(server: ServerProcess) -> bool:
    try:
        return httpx.get(f"{server.url}/health", timeout=5).status_code == 200
    except httpx.TransportError:
        time.sleep(0.1)
        return False
