"""Texts of SQL that are too long to be parsed on the event loop: they are parsed in another process. See `parser_process`.

There is one such process, made when it is needed and ended when it was not needed for a while; it takes one text at a time. One
that takes too long over a text is ended, and so is one whose client has gone.
"""

import asyncio
import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence

from tailrace.model.errors import OverloadedError, QueryLimitError, SqlError
from tailrace.model.limits import KIB, Limits
from tailrace.model.table import Table
from tailrace.sql.parse import check_size, parse
from tailrace.sql.parser_worker import LENGTH, OUT_OF_TIME, ParseFailure, ParseRequest, ParseResult, TableRequest
from tailrace.sql.statements import Statement

_PROCESS = "tailrace.sql.parser_worker"
_IDLE_SECONDS = 60.0
_STARTING_SECONDS = 60.0


class ParserProcess:
    def __init__(self, find: Callable[[str], Table | None], limits: Limits) -> None:
        self._find = find
        self._limits = limits
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._idle: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Future[int]] = set()

    async def parse(self, text: str) -> Sequence[Statement]:
        """The statements of a text. Cancel the task to give up."""
        limits = self._limits
        if self._waiting >= limits.queued_texts:
            raise OverloadedError(
                f"{self._waiting} long texts of SQL wait to be parsed, as many as queued_texts allows; try again after a pause"
            )
        self._waiting += 1
        try:
            async with self._turn:
                answer = await self._asked(text)
        finally:
            self._waiting -= 1
        if isinstance(answer, ParseFailure):
            raise answer.error
        statements: list[Statement] = []
        for each in answer.statements:
            statements.append(pickle.loads(each))  # noqa: S301  from a process of our own
            await asyncio.sleep(0)
        return statements

    async def close(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._end()
        await asyncio.gather(*self._ending)

    async def _asked(self, text: str) -> ParseResult | ParseFailure:
        if self._idle is not None:
            self._idle.cancel()
        is_done = False
        try:
            process = await self._started()
            async with asyncio.timeout(self._limits.query_seconds):
                await self._send(process, ParseRequest(text, self._limits))
                while isinstance(answer := await self._received(process), TableRequest):
                    await self._send(process, self._find(answer.name))
            is_done = True
        except TimeoutError:
            raise QueryLimitError(
                f"the text was not parsed within query_seconds ({self._limits.query_seconds} s), because the machine is busy;"
                " send it again later, or in parts"
            ) from None
        except (EOFError, OSError) as error:
            raise await self._gone() from error
        finally:
            if is_done:
                self._idle = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._end)
            else:
                self._end()
        if not isinstance(answer, ParseResult | ParseFailure):
            raise SqlError(f"the text was answered by {type(answer).__name__}, which makes no sense")
        return answer

    async def _gone(self) -> SqlError:
        """Why the process has ended."""
        code = None if self._process is None else await self._process.wait()
        if code == -OUT_OF_TIME:
            return QueryLimitError(
                f"to parse the text takes longer than parse_seconds allows ({self._limits.parse_seconds} s); send it in parts,"
                " and values as parameters"
            )
        return SqlError("the text can't be parsed: the process that did it has ended; take the statement apart")

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None:
            pipe = asyncio.subprocess.PIPE
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", _PROCESS, str(self._limits.parse_seconds), stdin=pipe, stdout=pipe
            )
            # To start takes its time on a busy machine, which is not the text's fault.
            async with asyncio.timeout(_STARTING_SECONDS):
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
        return pickle.loads(await process.stdout.readexactly(length))  # noqa: S301  from a process of our own

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


_IN_PLACE = KIB
"""The longest text that is parsed on the event loop, in a few milliseconds."""
_LONGEST_KEPT = 4 * KIB


class StatementCache:
    """The newest so many texts, with what they mean."""

    def __init__(self, limits: Limits, long_texts: ParserProcess) -> None:
        self._limits = limits
        self._long_texts = long_texts
        self._known: OrderedDict[str, Sequence[Statement]] = OrderedDict()

    async def parse(self, text: str) -> Sequence[Statement]:
        known = self._known.get(text)
        if known is not None:
            self._known.move_to_end(text)
            return known
        if len(text) <= _IN_PLACE:
            statements: Sequence[Statement] = parse(text, self._limits)
        else:
            check_size(text, self._limits)
            statements = await self._long_texts.parse(text)
        if len(text) <= _LONGEST_KEPT:
            self._known[text] = statements
            if len(self._known) > self._limits.parsed_texts:
                self._known.popitem(last=False)
        return statements
