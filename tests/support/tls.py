"""TLS before a server that does not speak it: a certificate that nobody knows, and a front that has it."""

import asyncio
import ssl
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

_LAST_TURNS = 3
_PIECE_BYTES = 1 << 16


def make_certificate(folder: Path) -> Path:
    """A certificate for 127.0.0.1 that is its own authority, and its key, in one file."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    what = ("-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    whose = ("-subj", "/CN=tailrace test", "-addext", "subjectAltName=IP:127.0.0.1")
    subprocess.run(
        ["openssl", "req", *what, *whose, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True
    )
    with certificate.open("a") as both:
        both.write(key.read_text())
    return certificate


class TlsFront:
    """`with TlsFront(server.url, certificate) as front:` runs it in a thread of its own; clients are given `front.url`."""

    def __init__(self, url: str, certificate: Path) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        self._identity = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._identity.load_cert_chain(certificate)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._is_listening = threading.Event()
        self.port = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def __enter__(self) -> "TlsFront":
        self._thread.start()
        assert self._is_listening.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._listening.cancel)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._listening = self._loop.create_task(self._listen())
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._listening)
        self._loop.run_until_complete(_end_handshakes())

    async def _listen(self) -> None:
        # A client that refuses the certificate is what some tests are about; it is no news.
        self._loop.set_exception_handler(lambda *_: None)
        async with asyncio.TaskGroup() as connections:

            def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                connections.create_task(self._connect(reader, writer))

            listening = await asyncio.start_server(welcome, "127.0.0.1", 0, ssl=self._identity)
            self.port = listening.sockets[0].getsockname()[1]
            self._is_listening.set()
            await listening.serve_forever()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_connection(self._host, self._port)
        ways = [
            asyncio.ensure_future(_pass_on(reader, behind_writer)),
            asyncio.ensure_future(_pass_on(behind_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for end in (writer, behind_writer):
                end.transport.abort()
            # The loop may be about to end, and would leave sockets open that are still being closed.
            await asyncio.gather(writer.wait_closed(), behind_writer.wait_closed(), *ways, return_exceptions=True)


async def _end_handshakes() -> None:
    """End what is left: connections whose handshakes are not done, which nobody else knows of."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    # What they have closed is gone in the next turns.
    for _ in range(_LAST_TURNS):
        await asyncio.sleep(0)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(_PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
