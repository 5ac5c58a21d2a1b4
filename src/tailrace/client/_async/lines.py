"""Connections to one server, opened when they are needed and kept for the next request."""

import time
from collections.abc import Callable

from tailrace.client._async.line import AsyncLine
from tailrace.client.exchange import Address, Answer, Request, encode_request
from tailrace.model.errors import ClientClosedError

_MOST_IDLE = 8
_IDLE_SECONDS = 5.0
"""How long one is kept without a request: well below what servers and what stands between allow."""


class AsyncLines:
    """As many as there are requests at a time."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[AsyncLine] = []
        """The last used is the next."""
        self._open: set[AsyncLine] = set()
        self._is_closed = False

    async def exchange(self, request: Request, seconds: float, check: Callable[[Answer], None]) -> Answer:
        """The answer, within this time. If `check` does not like it, the connection is closed."""
        line = self._take() or await self._connect(seconds)
        is_good = False
        try:
            answer = await line.exchange(encode_request(request, self._address), seconds)
            check(answer)
            is_good = not answer.is_last
        finally:
            if is_good and not self._is_closed and len(self._idle) < _MOST_IDLE:
                self._idle.append(line)
            else:
                self._drop(line)
        return answer

    async def close(self) -> None:
        self._is_closed = True
        for line in list(self._open):
            self._drop(line)

    def _take(self) -> AsyncLine | None:
        while self._idle:
            try:
                line = self._idle.pop()
            except IndexError:
                break  # another thread was quicker
            if time.monotonic() - line.idle_since < _IDLE_SECONDS and line.is_usable:
                return line
            self._drop(line)
        return None

    async def _connect(self, seconds: float) -> AsyncLine:
        if self._is_closed:
            raise ClientClosedError(f"the connection to {self._address.host} is closed")
        line = await AsyncLine.open(self._address.host, self._address.port, seconds)
        self._open.add(line)
        return line

    def _drop(self, line: AsyncLine) -> None:
        self._open.discard(line)
        line.close()
