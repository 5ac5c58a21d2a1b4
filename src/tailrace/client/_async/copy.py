"""COPY: rows of files into tables, and rows of tables and queries into files, of any size in little memory.

Rows go to the server in chunks, one after the other: each is one transaction and one frame of the log. While the server writes
one chunk, the next is read. Rows come from the server as a stream of Arrow.
"""

import io
import re
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from os import PathLike
from typing import Any, BinaryIO, Literal
from urllib.parse import quote

import msgspec

from tailrace.api.sql import SqlResponse
from tailrace.api.tables import CopyRowsResponse
from tailrace.client._async.concurrency import AsyncReadAhead, pause, run_blocking
from tailrace.client._async.transport import AsyncTransport
from tailrace.client.copying.csv_reader import CsvFormat, InvalidRow
from tailrace.client.copying.rejects import RejectFile
from tailrace.client.copying.sources import CopyChunk, CopySource, FileFormat, Header, open_source
from tailrace.client.copying.targets import ArrowDecoder, CopyTarget
from tailrace.client.retry import Attempts
from tailrace.client.values import CopyProgress, CopyResult, RejectedRow
from tailrace.model.errors import (
    ConnectionLostError,
    CopyStoppedError,
    InvalidRowError,
    LimitExceededError,
    QueryLimitError,
    TailraceError,
)
from tailrace.wire.arrow_stream import InvalidStreamError

_ARROW = "application/vnd.apache.arrow.stream"
_SQL_SECONDS = 60.0
_IDLE_SECONDS = 600.0
_WRITE_BYTES = 1024 * 1024
_QUERY = re.compile(r"\s*(?:\(|--|/\*|(?:select|with|values|table|from)\b\s*\S)", re.IGNORECASE)

FilePath = str | PathLike[str]


class AsyncTableCopy:
    """Copies through one transport, which the caller closes."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def copy_into(
        self,
        table: str,
        source: "FilePath | BinaryIO | Any",
        *,
        columns: Sequence[str] | None = None,
        format: FileFormat | None = None,
        header: Header = True,
        csv: CsvFormat | None = None,
        on_error: Literal["stop", "skip"] = "stop",
        reject_file: "FilePath | BinaryIO | None" = None,
        start_line: int = 1,
        on_progress: Callable[[CopyProgress], None] | None = None,
        on_rejected: Callable[[RejectedRow], None] | None = None,
    ) -> CopyResult:
        known = await self._columns(table)
        opened = await run_blocking(
            open_source,
            source,
            known,
            columns=columns,
            format=format,
            header=header,
            csv=csv or CsvFormat(),
            start_line=start_line,
        )
        rejects = RejectFile(reject_file, opened.header_line, on_rejected)
        run = _CopyRun(self._transport, table, opened, rejects, on_error == "skip", on_progress)
        chunks: AsyncReadAhead[CopyChunk] = AsyncReadAhead(opened.chunks())
        try:
            while (chunk := await chunks.get()) is not None:
                await run.send(chunk)
        finally:
            if await chunks.close():
                opened.close()
            rejects.close()
        return run.result()

    async def copy_out(
        self,
        source: str,
        target: "FilePath | BinaryIO",
        *,
        params: "Sequence[Any] | dict[str, Any]" = (),
        columns: Sequence[str] | None = None,
        format: FileFormat | None = None,
        header: bool = True,
        csv: CsvFormat | None = None,
        on_progress: Callable[[CopyProgress], None] | None = None,
    ) -> CopyResult:
        body = msgspec.json.encode({"sql": _query_of(source, columns), "params": params or []})
        stream = self._transport.stream("POST", "/api/sql", body, headers={"accept": _ARROW}, idle_seconds=_IDLE_SECONDS)
        decoder = ArrowDecoder()
        rows = 0
        async with AsyncExitStack() as stack:
            # The answer begins before the file is opened, so a wrong query leaves none.
            parts = await stack.enter_async_context(stream)
            written = await run_blocking(CopyTarget, target, format=format, header=header, csv=csv or CsvFormat())
            try:
                batches: list[Any] = []
                async for data in parts:
                    is_first = decoder.schema is None
                    batches += _decoded(decoder, data)
                    if is_first and decoder.schema is not None:
                        await run_blocking(written.begin, decoder.schema)
                    if sum(batch.nbytes for batch in batches) >= _WRITE_BYTES:
                        await run_blocking(written.write, batches)
                        rows += sum(batch.num_rows for batch in batches)
                        batches = []
                        if on_progress is not None:
                            on_progress(CopyProgress(rows=rows, bytes=written.written_bytes))
                if not decoder.is_complete:
                    raise ConnectionLostError("the answer ended before its last row; the file is not complete")
                await run_blocking(written.write, batches)
                rows += sum(batch.num_rows for batch in batches)
                await run_blocking(written.finish)
            except BaseException:
                written.discard()
                raise
        if on_progress is not None:
            on_progress(CopyProgress(rows=rows, bytes=written.written_bytes))
        return CopyResult(rows=rows, bytes=written.written_bytes)

    async def _columns(self, table: str) -> list[str]:
        text = f"SELECT * FROM {quoted_name(table)} LIMIT 0"  # noqa: S608  quoted name
        answer = await self._transport.ask("/api/sql", {"sql": text}, SqlResponse, wait_seconds=_SQL_SECONDS)
        return [column.name for column in answer.columns]


class _CopyRun:
    """Sends the chunks of one source, and knows what is in the table."""

    def __init__(
        self,
        transport: AsyncTransport,
        table: str,
        source: CopySource,
        rejects: RejectFile,
        skip: bool,
        on_progress: Callable[[CopyProgress], None] | None,
    ) -> None:
        self._transport = transport
        self._path = f"/api/tables/{quote(table, safe='')}/rows?on_error={'skip' if skip else 'stop'}"
        self._source = source
        self._rejects = rejects
        self._skip = skip
        self._on_progress = on_progress or (lambda progress: None)
        self._progress = CopyProgress(total_bytes=source.total_bytes)
        self._cursor: int | None = None

    def result(self) -> CopyResult:
        progress = self._progress
        return CopyResult(rows=progress.rows, rejected=progress.rejected, bytes=progress.bytes, cursor=self._cursor)

    async def send(self, chunk: CopyChunk) -> None:
        """Insert a chunk as one transaction, or as several if it is too large for the server."""
        if chunk.invalid and not self._skip:
            await self._stop_at(_place(self._source.name, chunk.invalid[0]), chunk)
        # Told before it is sent, for a caller that interrupts.
        self._advance(next_line=chunk.first_line, pending_line=chunk.next_line - 1)
        try:
            answer = await self._insert(chunk) if chunk.lines else CopyRowsResponse(0, None, [])
        except InvalidRowError as error:
            found = RejectedRow(
                self._source.name, chunk.lines[error.row], error.column_name, error.value, error.reason, error.sqlstate
            )
            await self._stop_at(found, chunk, error)
            return
        except (LimitExceededError, QueryLimitError) as error:
            if len(chunk.lines) < 2:
                raise self._failed(error, chunk) from error
            for half in chunk.halves():
                await self.send(half)
            return
        except TailraceError as error:
            raise self._failed(error, chunk) from error
        rejected = self._rejected(chunk, answer)
        for place, raw in rejected:
            self._rejects.add(place, raw)
        if self._cursor is None:
            self._cursor = answer.cursor
        done = self._progress
        self._advance(
            rows=done.rows + answer.rows,
            rejected=done.rejected + len(rejected),
            bytes=chunk.read_bytes,
            next_line=chunk.next_line,
            pending_line=None,
        )

    async def _stop_at(self, row: RejectedRow, chunk: CopyChunk, error: InvalidRowError | None = None) -> None:
        """Insert the rows before one that can't be stored, and raise."""
        before = chunk.before(row.line)
        if before.lines:
            await self.send(before)
        raise self._stopped(row) from error

    async def _insert(self, chunk: CopyChunk) -> CopyRowsResponse:
        """Send a chunk, again and again while the server certainly has not taken it."""
        body = await run_blocking(_encoded, chunk)
        attempts = Attempts(self._transport.config)
        while True:
            try:
                response = await self._transport.send_once(
                    "POST", self._path, body, content_type=_ARROW, wait_seconds=_SQL_SECONDS
                )
                return msgspec.json.decode(response, type=CopyRowsResponse)
            except TailraceError as error:
                seconds = attempts.pause_after(error)
                if seconds is None or error.outcome == "unknown":
                    raise
            await pause(seconds)

    def _rejected(self, chunk: CopyChunk, answer: CopyRowsResponse) -> list[tuple[RejectedRow, bytes]]:
        name = self._source.name
        found = [(_place(name, invalid), invalid.raw) for invalid in chunk.invalid]
        for row in answer.rejected:
            place = RejectedRow(name, chunk.lines[row.row], row.column, row.value, row.reason, row.sqlstate)
            found.append((place, chunk.raw[row.row]))
        return sorted(found, key=lambda pair: pair[0].line)

    def _advance(self, **changes: Any) -> None:
        self._progress = msgspec.structs.replace(self._progress, **changes)
        self._on_progress(self._progress)

    def _stopped(self, row: RejectedRow) -> CopyStoppedError:
        unit = self._source.unit
        place = f"{self._source.name}, {unit} {row.line:,}"
        if row.column is not None:
            place += f", column {row.column}"
        rows = self._progress.rows
        return CopyStoppedError(
            f"{place}: {row.reason}; {rows:,} rows are in, all before this {unit}",
            reason=f"{place}: {row.reason}",
            line=row.line,
            column_name=row.column,
            value=row.value,
            rows=rows,
            next_line=row.line,
        )

    def _failed(self, error: TailraceError, chunk: CopyChunk) -> CopyStoppedError:
        is_unknown = error.outcome == "unknown"
        last = chunk.next_line - 1
        unit = self._source.unit
        state = f"{self._progress.rows:,} rows are in, "
        if is_unknown:
            state += f"and {unit}s {chunk.first_line:,} to {last:,} may be, all or none of them"
        else:
            state += f"and nothing from {unit} {chunk.first_line:,} on"
        stopped = CopyStoppedError(
            f"{error}; {state}",
            reason=str(error),
            rows=self._progress.rows,
            next_line=chunk.first_line,
            unknown_until=last if is_unknown else None,
        )
        stopped.__dict__.update(outcome=error.outcome, retriable=error.retriable)
        return stopped


def _place(name: str, row: InvalidRow) -> RejectedRow:
    return RejectedRow(name, row.line, row.column, row.value, row.reason, row.sqlstate)


def _encoded(chunk: CopyChunk) -> bytes:
    import pyarrow as pa

    batch = pa.RecordBatch.from_arrays(list(chunk.columns), names=list(chunk.names))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _decoded(decoder: ArrowDecoder, data: bytes) -> list[Any]:
    try:
        return decoder.feed(data)
    except InvalidStreamError as error:
        raise ConnectionLostError(f"the answer is not a stream of Arrow: {error}") from error


def _query_of(source: str, columns: Sequence[str] | None) -> str:
    if _QUERY.match(source):
        return source
    listed = ", ".join(map(_quoted, columns)) if columns else "*"
    return f"SELECT {listed} FROM {quoted_name(source)}"  # noqa: S608  quoted names


def quoted_name(name: str) -> str:
    """Quote every part of a name, so that SQL takes it as one whatever it is."""
    return ".".join(map(_quoted, name.split(".")))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
