"""What is written to a connection with TLS waits here until the client takes it, and counts as unsent."""

import asyncio
import gc
import socket
import ssl
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tailrace.tls.paced import PacedTransport, paced
from tests.support.aio import on_loop, until
from tests.support.certificates import Authority

PIECE = 256 * 1024


class SlowConnection(asyncio.Transport):
    """Takes two writes, and no more until `take`."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[bytes] = []
        self.room = 2
        self.closed = self.aborted = self.reads = False
        self.adapter: Any = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == 1

    def write(self, data: Any) -> None:
        self.taken.append(bytes(data))
        self.room -= 1
        if self.room == 0:
            self.adapter.pause_writing()

    def take(self, room: int = 2) -> None:
        self.room = room
        self.adapter.resume_writing()

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol


class Listening(asyncio.Protocol):
    transport: PacedTransport

    def __init__(self) -> None:
        self.said: list[str] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.said.append(data.decode())

    def pause_writing(self) -> None:
        self.said.append("pause")

    def resume_writing(self) -> None:
        self.said.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.said.append("lost")


def connected(stall_seconds: float = 100.0) -> tuple[SlowConnection, Listening, PacedTransport]:
    connection, protocol = SlowConnection(), Listening()
    connection.adapter = paced(protocol, stall_seconds)
    connection.adapter.connection_made(connection)
    return connection, protocol, protocol.transport


def test_small_writes_go_at_once() -> None:
    connection, _, transport = connected()
    transport.write(b"answer")
    assert connection.taken == [b"answer"]
    assert transport.get_write_buffer_size() == 0


def test_small_parts_are_joined_and_large_ones_cut() -> None:
    connection, _, transport = connected()
    connection.room = 100
    large = bytes(range(256)) * 2048
    transport.writelines([b"head", b"", b"one", large, b"x" * 10, b"y" * 10])
    assert b"".join(connection.taken) == b"headone" + large + b"x" * 10 + b"y" * 10
    assert [len(piece) for piece in connection.taken] == [7, PIECE, PIECE, 20]


def test_what_the_client_does_not_take_counts_as_unsent_and_pauses_the_protocol() -> None:
    connection, protocol, transport = connected()
    transport.set_write_buffer_limits(high=PIECE)
    transport.write(b"a" * (5 * PIECE))
    assert len(connection.taken) == 2
    assert transport.get_write_buffer_size() == 3 * PIECE
    assert protocol.said == ["pause"]
    transport.write(b"b")
    connection.take()
    assert protocol.said == ["pause"]
    connection.take()
    assert protocol.said == ["pause", "resume"]
    assert b"".join(connection.taken) == b"a" * (5 * PIECE) + b"b"
    assert transport.get_write_buffer_size() == 0


def test_a_view_of_a_buffer_is_written_whole() -> None:
    connection, _, transport = connected()
    connection.room = 100
    data = bytearray(b"xy" * PIECE)
    transport.writelines([memoryview(data)[1:], memoryview(data)[:1]])
    assert b"".join(connection.taken) == bytes(data[1:] + data[:1])


@on_loop
async def test_a_close_waits_for_what_was_written() -> None:
    connection, _, transport = connected()
    transport.write(b"a" * (4 * PIECE))
    transport.close()
    assert transport.is_closing()
    assert not connection.closed
    transport.write(b"dropped")
    transport.resume_reading()
    assert not connection.reads
    connection.take()
    assert connection.closed
    assert not connection.aborted
    assert b"".join(connection.taken) == b"a" * (4 * PIECE)


@on_loop
async def test_a_close_does_not_wait_for_a_client_that_takes_nothing() -> None:
    connection, _, transport = connected(stall_seconds=0.02)
    transport.write(b"a" * (8 * PIECE))
    transport.close()
    connection.take()
    await until(lambda: connection.aborted)
    assert transport.get_write_buffer_size() == 0


def test_a_lost_connection_drops_what_waits() -> None:
    connection, protocol, transport = connected()
    transport.write(b"a" * (4 * PIECE))
    connection.adapter.connection_lost(None)
    assert transport.get_write_buffer_size() == 0
    assert transport.is_closing()
    assert protocol.said[-1] == "lost"


def test_another_protocol_takes_over() -> None:
    connection, protocol, transport = connected()
    other = Listening()
    transport.set_protocol(other)
    connection.adapter.data_received(b"hello")
    assert (protocol.said, other.said) == ([], ["hello"])


class WithBuffer(asyncio.BufferedProtocol):
    transport: asyncio.BaseTransport

    def __init__(self) -> None:
        self.buffer = bytearray(8)
        self.received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += nbytes


def test_a_protocol_with_buffers_keeps_them() -> None:
    protocol = WithBuffer()
    adapter: Any = paced(protocol, 1.0)
    # Otherwise event loops would call `data_received`.
    assert not isinstance(adapter, asyncio.Protocol)
    assert adapter.get_buffer(8) is protocol.buffer
    adapter.buffer_updated(3)
    assert protocol.received == 3


@pytest.mark.parametrize("make_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_a_closed_connection_is_freed_without_the_garbage_collector(
    tmp_path: Path, make_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    authority = Authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.server())
    trust = ssl.create_default_context(cafile=str(authority.file))

    open_ones: weakref.WeakSet[WithBuffer] = weakref.WeakSet()

    def make_protocol() -> asyncio.BaseProtocol:
        protocol = WithBuffer()
        open_ones.add(protocol)
        return paced(protocol, 1.0)

    async def open_and_close() -> None:
        ours, theirs = socket.socketpair()
        accepting = asyncio.get_running_loop().connect_accepted_socket(make_protocol, ours, ssl=context)
        client = asyncio.open_connection(sock=theirs, ssl=trust, server_hostname="localhost")
        (transport, _), (_, writer) = await asyncio.gather(accepting, client)
        writer.write(b"hello")
        await until(lambda: [each.received for each in open_ones] == [5])
        del accepting, transport
        writer.close()
        await until(lambda: not open_ones)

    gc.disable()
    try:
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(asyncio.wait_for(open_and_close(), 10))
    finally:
        gc.enable()


@pytest.mark.parametrize("data", [b"", bytearray(), memoryview(b"")])
def test_nothing_is_not_written(data: Any) -> None:
    connection, _, transport = connected()
    transport.write(data)
    transport.writelines([data])
    assert connection.taken == []
