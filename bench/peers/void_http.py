"""An HTTP server that does nothing, as a program, to measure what the SDK can do by itself.

It answers every request with the same row; with `--sync` it first writes as many bytes as a change event has to a file, and
syncs that. One thread serves one connection at a time, so it is meant for one client.
"""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_BODY = b'{"columns":[{"name":"id","type":"bigint"},{"name":"k","type":"integer"}],"rows":[[1,2]],"status":"SELECT 1"}'
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % len(_BODY)
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_NAME = re.compile(rb"\r\n(tailrace-request: [^\r]*)\r\n", re.IGNORECASE)
_EVENT = b"x" * 300
_FILE_BYTES = 1 << 26


@contextmanager
def void_http(folder: Path, *, is_synced: bool = False) -> Iterator[str]:
    """Run the server and return its address."""
    command = [sys.executable, "-m", "bench.peers.void_http", str(folder / "void"), *(["--sync"] if is_synced else [])]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def _serve(path: str, *, is_synced: bool) -> None:
    file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    os.posix_fallocate(file, 0, _FILE_BYTES)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection:
                while request := _request(connection):
                    if is_synced:
                        os.write(file, _EVENT)
                        os.fdatasync(file)
                    name = _NAME.search(request)
                    connection.sendall(b"%b%b\r\n\r\n%b" % (_HEAD, name[1] if name else b"x: x", _BODY))


def _request(connection: socket.socket) -> bytes:
    data = b""
    while True:
        head, end, body = data.partition(b"\r\n\r\n")
        if end:
            length = _LENGTH.search(head)
            if len(body) >= (int(length[1]) if length else 0):
                return head + b"\r\n"
        part = connection.recv(1 << 16)
        if not part:
            return b""
        data += part


if __name__ == "__main__":
    _serve(sys.argv[1], is_synced="--sync" in sys.argv)
