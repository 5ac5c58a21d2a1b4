"""A connection to the server for threads, one request at a time. Written by hand, as its twin `_async/line.py`."""

import contextlib
import socket
import time
from typing import Self

from tailrace.client.exchange import Answer, AnswerReader, NotConnectedError
from tailrace.client.socket_options import READ_BYTES, has_something_to_read, wait_for_either_way


class Line:
    def __init__(self, connected: socket.socket) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._reader = AnswerReader()
        self._data = memoryview(bytearray(READ_BYTES))
        self._is_usable = True
        self.idle_since = time.monotonic()

    @classmethod
    def open(cls, host: str, port: int, seconds: float) -> Self:
        """`NotConnectedError` if there is no connection within this time."""
        try:
            return cls(socket.create_connection((host, port), seconds))
        except TimeoutError as error:
            raise NotConnectedError(f"no connection within {seconds} s") from error
        except (OSError, UnicodeError) as error:
            raise NotConnectedError(str(error)) from error

    def exchange(self, request: bytes, seconds: float) -> Answer:
        """The whole answer, within this time. After anything else than that the line can't be used again."""
        deadline = time.monotonic() + seconds
        self._is_usable = False
        self._socket.settimeout(seconds)
        rest = self._send(memoryview(request))
        answer: Answer | None = None
        while answer is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"there was no answer within {seconds} s")
            self._socket.settimeout(left)
            if rest and not wait_for_either_way(self._socket.fileno(), left):
                rest = self._send(rest)
            else:
                size = self._socket.recv_into(self._data)
                answer = self._reader.feed(self._data[:size]) if size else self._reader.feed_end()
        self._is_usable = not (rest or answer.is_last or self._reader.has_surplus)
        self.idle_since = time.monotonic()
        return answer

    @property
    def is_usable(self) -> bool:
        """Whether it can carry the next request: the last was answered, and nothing has come since, nor an end."""
        return self._is_usable and not has_something_to_read(self._socket.fileno())

    def close(self) -> None:
        self._is_usable = False
        # Whoever waits for an answer learns at once that none will come.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _send(self, data: memoryview) -> memoryview:
        """What is left to be sent."""
        try:
            return data[self._socket.send(data) :]
        except (BrokenPipeError, ConnectionResetError):
            # One that refuses a request may close before it has read all of it, and its answer says why.
            return data[:0]
