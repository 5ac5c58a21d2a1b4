"""Turns texts into statements: cached ones are looked up, short ones parsed on the event loop, long ones in another process.

There is at most one parser process. It is started when it is needed, parses one text at a time and ends when it is idle for a
while. It is killed when a text takes too long or its client has gone. See `parser_worker`.
"""

import asyncio
import pickle
import sys
from collections import OrderedDict
from collections.abc import Sequence

from tailrace.model.errors import OverloadedError, QueryLimitError, SqlError
from tailrace.model.limits import KIB, Limits
from tailrace.sql.parse import check_size, may_be_kept, parse
from tailrace.sql.parser_worker import LENGTH, OUT_OF_TIME, ParseFailure, ParseRequest, ParseResult
from tailrace.sql.statements import Statement

_MODULE = "tailrace.sql.parser_worker"
_IDLE_SECONDS = 60.0
_START_SECONDS = 60.0
_INLINE_CHARACTERS = KIB
"""The longest text that is parsed on the event loop, which takes a few milliseconds."""
_CACHED_CHARACTERS = 4 * KIB


class StatementCache:
    """The statements of the `parsed_texts` most recently used texts, but for those that may have a password."""

    def __init__(self, limits: Limits, process: "ParserProcess") -> None:
        self._limits = limits
        self._process = process
        self._known: OrderedDict[str, Sequence[Statement]] = OrderedDict()

    def find(self, text: str) -> Sequence[Statement] | None:
        """Return the statements of a text that was parsed before."""
        known = self._known.get(text)
        if known is not None:
            self._known.move_to_end(text)
        return known

    async def parse(self, text: str) -> Sequence[Statement]:
        """Return the statements of a text. Callers of the same text share them."""
        known = self.find(text)
        if known is not None:
            return known
        if len(text) <= _INLINE_CHARACTERS:
            statements: Sequence[Statement] = parse(text, self._limits)
        else:
            check_size(text, self._limits)
            statements = await self._process.parse(text)
        if len(text) <= _CACHED_CHARACTERS and all(map(may_be_kept, statements)):
            self._known[text] = statements
            if len(self._known) > self._limits.parsed_texts:
                self._known.popitem(last=False)
        return statements


class ParserProcess:
    """Parses texts in a process of their own, which is started on demand."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._idle: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Future[int]] = set()

    async def parse(self, text: str) -> Sequence[Statement]:
        """Return the statements of a text. Cancel the task to give up."""
        limits = self._limits
        if self._waiting >= limits.queued_texts:
            raise OverloadedError(
                f"{self._waiting} long SQL texts are waiting to be parsed, as many as queued_texts allows; try again later"
            )
        self._waiting += 1
        try:
            async with self._turn:
                response = await self._request(text)
        finally:
            self._waiting -= 1
        if isinstance(response, ParseFailure):
            raise response.error
        statements: list[Statement] = []
        for pickled in response.statements:
            statements.append(pickle.loads(pickled))  # noqa: S301  sent by our own process
            await asyncio.sleep(0)
        return statements

    async def close(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._end()
        await asyncio.gather(*self._ending)

    async def _request(self, text: str) -> ParseResult | ParseFailure:
        if self._idle is not None:
            self._idle.cancel()
        is_done = False
        try:
            process = await self._started()
            async with asyncio.timeout(self._limits.query_seconds):
                await self._send(process, ParseRequest(text, self._limits))
                response = await self._received(process)
            is_done = True
        except TimeoutError:
            raise QueryLimitError(
                f"the text was not parsed within query_seconds ({self._limits.query_seconds} s) because the machine is busy;"
                " send it again later or in smaller parts"
            ) from None
        except (EOFError, OSError) as error:
            raise await self._gone() from error
        finally:
            if is_done:
                self._idle = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._end)
            else:
                self._end()
        if not isinstance(response, ParseResult | ParseFailure):
            raise SqlError(f"the parser process sent an unexpected {type(response).__name__}; send the text again")
        return response

    async def _gone(self) -> SqlError:
        """Return the error that says why the process has ended."""
        code = None if self._process is None else await self._process.wait()
        if code == -OUT_OF_TIME:
            return QueryLimitError(
                f"parsing the text took longer than parse_seconds allows ({self._limits.parse_seconds} s); send it in smaller"
                " parts, and values as parameters"
            )
        return SqlError("the parser process ended while it parsed the text; split the statement into smaller ones")

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None:
            pipe = asyncio.subprocess.PIPE
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", _MODULE, str(self._limits.parse_seconds), stdin=pipe, stdout=pipe
            )
            # Starting is slow on a busy machine; it does not count against the time limit of the text.
            async with asyncio.timeout(_START_SECONDS):
                await self._received(self._process)
        return self._process

    async def _send(self, process: asyncio.subprocess.Process, value: object) -> None:
        if process.stdin is None:
            raise EOFError
        data = pickle.dumps(value)
        process.stdin.write(LENGTH.pack(len(data)) + data)
        await process.stdin.drain()

    async def _received(self, process: asyncio.subprocess.Process) -> object:
        if process.stdout is None:
            raise EOFError
        (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
        return pickle.loads(await process.stdout.readexactly(length))  # noqa: S301  sent by our own process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            if process.stdin is not None:
                process.stdin.close()
            ending = asyncio.ensure_future(process.wait())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
