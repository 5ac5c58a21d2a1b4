"""A faulty network between a client and a server: a proxy that delays, cuts, resets, doubles or goes silent on command."""

import asyncio
import re
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tests.support.patience import PATIENCE_SECONDS

T = TypeVar("T")

_PIECE_BYTES = 1 << 16
_FIRST_TURNS = 3
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbusy"
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class FaultyProxy:
    """`with FaultyProxy(server.url) as proxy:` runs it in a thread of its own; clients are given `proxy.url`.

    What happens to bytes is said by attributes, which may be changed at any time:

    - `delay_seconds`: each piece waits so long, in both directions
    - `is_silent`: pieces are swallowed, and connections stay open: half-open, as after a pulled cable
    - `hangs`: requests for which this is true, by their first bytes, get no answer, and their connections stay open
    - `cut_answers`: how many of the next answers are lost: the request arrives, then the connection is reset
    - `busy_answers`: how many of the next answers are 503 instead, as of a gateway that lost patience
    - `double_requests`: how many of the next requests are passed on twice, whole
    - `double_pieces`, `double_answers`: how many of the next pieces are passed on twice, to the server and to the client
    - `refuses`: new connections are closed at once
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self.url = ""
        self.delay_seconds = 0.0
        self.is_silent = False
        self.refuses = False
        self.hangs: Callable[[bytes], bool] = lambda _: False
        self.cut_answers = 0
        self.busy_answers = 0
        self.double_requests = 0
        self.double_pieces = 0
        self.double_answers = 0
        self.cut_only: Callable[[bytes], bool] = lambda _: True
        """Which requests lose their answers, by their first bytes."""
        self.connections = 0
        self._made: list[asyncio.StreamWriter] = []
        """Those of all connections: one that is closed stays open as long as nobody takes what was written to it."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "FaultyProxy":
        self._thread.start()
        port = self._run(self._listen())
        self.url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def reset_connections(self) -> None:
        """Break all connections now, as a crash of something in between would."""

        async def reset() -> None:
            self._reset_all()

        self._run(reset())

    def point_at(self, url: str) -> None:
        """The server has another address now."""
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _close(self) -> None:
        self._server.close()
        # A task that is cancelled before its first step would leave a connection open that was accepted in this moment.
        for _ in range(_FIRST_TURNS):
            await asyncio.sleep(0)
        self._reset_all()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._reset_all()
        # Connections that were reset are closed in the next turns.
        for _ in range(_FIRST_TURNS):
            await asyncio.sleep(0)

    def _reset_all(self) -> None:
        for writer in self._made:
            _reset(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._made.append(writer)
        if self.refuses:
            _reset(writer)
            return
        try:
            to_server, from_here = await asyncio.open_connection(self._host, self._port)
        except OSError:
            _reset(writer)
            return
        self._made.append(from_here)
        requests: list[bytes] = []
        both = [
            asyncio.ensure_future(self._pass_on(reader, from_here, requests, is_answer=False)),
            asyncio.ensure_future(self._pass_on(to_server, writer, requests, is_answer=True)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            for each in (writer, from_here):
                each.close()

    def _times(self, is_answer: bool) -> int:
        if is_answer and self.double_answers:
            self.double_answers -= 1
            return 2
        if not is_answer and self.double_pieces:
            self.double_pieces -= 1
            return 2
        return 1

    async def _pass_on(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, requests: list[bytes], *, is_answer: bool
    ) -> None:
        with suppress(OSError):
            while piece := await source.read(_PIECE_BYTES):
                if self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                if not is_answer and piece[:4] in (b"POST", b"GET "):
                    requests[:] = [piece[:200]]
                if is_answer and requests and self.hangs(requests[0]):
                    continue
                if is_answer and self.cut_answers and requests and self.cut_only(requests[0]):
                    self.cut_answers -= 1
                    _reset(target)
                    return
                if is_answer and self.busy_answers:
                    self.busy_answers -= 1
                    target.write(_BUSY)
                    await target.drain()
                    return
                if not is_answer and self.double_requests:
                    self.double_requests -= 1
                    piece = 2 * await _rest_of_request(piece, source)
                if not self.is_silent:
                    target.write(piece * self._times(is_answer))
                    await target.drain()


async def _rest_of_request(piece: bytes, source: asyncio.StreamReader) -> bytes:
    """Of a request whose head is in this piece, all of it."""
    head, _, body = piece.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    missing = int(length[1]) - len(body) if length else 0
    return piece + (await source.readexactly(missing) if missing > 0 else b"")


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    if raw is not None:
        with suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
