"""Where COPY reads from: CSV files, Parquet files, and tables and readers of Arrow, in chunks of bounded size.

A chunk is what is sent in one request: rows, where each of them stands in the file, and what is wrong with those that could not
be read. Reading blocks, so it is done in a thread beside the requests.
"""

import os
import stat
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

import msgspec

from tailrace.client.copying.csv_reader import CsvFormat, CsvReader, InvalidRow
from tailrace.client.copying.csv_writer import CsvWriter
from tailrace.model.errors import ConfigurationError
from tailrace.model.limits import MIB

FileFormat = Literal["csv", "parquet"]
Header = bool | Literal["match", "skip"]
"""Whether the first line has names. `True`: they say which columns follow. `"skip"`: they are ignored. `"match"`: they must be
the names of the columns, in their order."""

_SUFFIXES: dict[str, FileFormat] = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}
_BLOCK_BYTES = MIB
_CHUNK_ROWS = 20_000
_CHUNK_CELLS = 400_000
_CHUNK_BYTES = 4 * MIB


class CopyChunk(msgspec.Struct, frozen=True):
    """Rows that are sent in one request."""

    names: Sequence[str]
    columns: Sequence[Any]
    """An Arrow array for each name."""
    lines: Sequence[int]
    """Where each row begins: the line of a CSV file, the number of the row of anything else. Counted from 1."""
    raw: Sequence[bytes]
    """Each row as a line of CSV."""
    invalid: Sequence[InvalidRow]
    first_line: int
    next_line: int
    """Where the next chunk begins."""
    read_bytes: int
    """How much of the file was read for this chunk and those before it."""

    def halves(self) -> "list[CopyChunk]":
        """Return it as two chunks, for a server that can't take it as one."""
        middle = len(self.lines) // 2
        line = self.lines[middle]
        second = msgspec.structs.replace(
            self,
            columns=[column[middle:] for column in self.columns],
            lines=self.lines[middle:],
            raw=_Slice(self.raw, middle, len(self.lines)),
            invalid=[row for row in self.invalid if row.line >= line],
            first_line=line,
        )
        return [self.before(line), second]

    def before(self, line: int) -> "CopyChunk":
        """Return the rows that begin before this line."""
        count = bisect_left(self.lines, line)
        return msgspec.structs.replace(
            self,
            columns=[column[:count] for column in self.columns],
            lines=self.lines[:count],
            raw=_Slice(self.raw, 0, count),
            invalid=[row for row in self.invalid if row.line < line],
            next_line=line,
        )


class CopySource(Protocol):
    name: str
    """What messages call it."""
    unit: Literal["line", "row"]
    """What is counted in it."""
    total_bytes: int | None
    header_line: bytes
    """The line of names before the rows, for a file of rejected rows."""

    def chunks(self) -> Iterator[CopyChunk]: ...
    def close(self) -> None: ...


def format_of(path: object, wanted: FileFormat | None) -> FileFormat:
    """Return the format of a file, which its name tells if nothing else does."""
    if wanted is not None:
        return wanted
    found = _SUFFIXES.get(Path(os.fspath(path)).suffix.lower()) if isinstance(path, str | os.PathLike) else None
    if found is None:
        raise ConfigurationError(f"the format of {_shown(path)} is not known; say csv or parquet")
    return found


def open_source(
    source: Any,
    known: Sequence[str],
    *,
    columns: Sequence[str] | None,
    format: FileFormat | None,
    header: Header,
    csv: CsvFormat,
    start_line: int,
) -> CopySource:
    """Open a path, a binary file, or a table or reader of Arrow. `known` are the columns of the table, in their order."""
    if start_line < 1:
        raise ConfigurationError(f"start_line is {start_line}; lines are counted from 1")
    if columns is not None:
        _check_names(columns, known)
    if hasattr(source, "schema") and (hasattr(source, "to_batches") or hasattr(source, "read_next_batch")):
        return ArrowSource(source, known, columns, csv, start_line)
    name = str(os.fspath(source)) if isinstance(source, str | os.PathLike) else str(getattr(source, "name", "the file"))
    chosen = format_of(source, format)
    is_path = isinstance(source, str | os.PathLike)
    if not is_path and not hasattr(source, "read"):
        raise ConfigurationError(f"{_shown(source)} is not a path, a binary file, or a table or reader of Arrow")
    file: BinaryIO = Path(os.fspath(source)).open("rb") if is_path else source  # noqa: SIM115
    try:
        if chosen == "parquet":
            return ParquetSource(file, name, is_path, known, columns, csv, start_line)
        return CsvSource(file, name, is_path, known, columns, header, csv, start_line)
    except BaseException:
        if is_path:
            file.close()
        raise


class CsvSource:
    unit: Literal["line", "row"] = "line"

    def __init__(
        self,
        file: BinaryIO,
        name: str,
        is_owned: bool,
        known: Sequence[str],
        columns: Sequence[str] | None,
        header: Header,
        csv: CsvFormat,
        start_line: int,
    ) -> None:
        self.name = name
        self.total_bytes = _size(file)
        self._file = file
        self._is_owned = is_owned
        self._reader = CsvReader(csv)
        self._read_bytes = 0
        names = list(columns or known)
        if header is not False:
            found = self._header()
            if header == "match":
                _check_match(found, names)
            elif header is True and columns is None:
                _check_names(found, known)
                names = found
        self._names = names
        self._skip_to(start_line)
        self.header_line = b"" if header is False else CsvWriter(csv).header(names)

    def chunks(self) -> Iterator[CopyChunk]:
        while True:
            data = self._read()
            part = self._reader.feed(data, self._names) if data else self._reader.finish(self._names)
            first = part.next_line
            if part.lines or part.invalid:
                first = min([*part.lines[:1], *(row.line for row in part.invalid[:1])])
            whole = CopyChunk(
                self._names, part.columns, part.lines, part.raw, part.invalid, first, part.next_line, self._read_bytes
            )
            if whole.lines or whole.invalid:
                yield from _bounded(whole)
            if not data:
                return

    def close(self) -> None:
        if self._is_owned:
            self._file.close()

    def _read(self) -> bytes:
        data = self._file.read(_BLOCK_BYTES)
        if not isinstance(data, bytes):
            raise ConfigurationError(f"{self.name} is not a binary file; open it with 'rb'")
        self._read_bytes += len(data)
        return data

    def _header(self) -> list[str]:
        while True:
            data = self._read()
            names = self._reader.header(data, is_last=not data)
            if names is not None:
                return names

    def _skip_to(self, line: int) -> None:
        data = b""
        while not self._reader.skip_lines(data, line):
            data = self._read()
            if not data:
                raise ConfigurationError(f"{self.name} ends before line {line:,}")


class ArrowSource:
    """Rows that are in memory, or come from a reader."""

    name = "the rows"
    unit: Literal["line", "row"] = "row"
    total_bytes: int | None = None

    def __init__(
        self, source: Any, known: Sequence[str], columns: Sequence[str] | None, csv: CsvFormat, start_row: int
    ) -> None:
        self._batches: Iterator[Any] = iter(source.to_batches() if hasattr(source, "to_batches") else source)
        self._init(source.schema.names, known, columns, csv, start_row)

    def _init(
        self, found: Sequence[str], known: Sequence[str], columns: Sequence[str] | None, csv: CsvFormat, start_row: int
    ) -> None:
        names = list(columns or found)
        for name in names:
            if name not in found:
                raise ConfigurationError(f"{self.name} has no column {name!r}; it has {', '.join(found)}")
        _check_names(names, known)
        self._names = names
        self._start_row = start_row
        self._csv = CsvWriter(csv)
        self.header_line = self._csv.header(names)

    def chunks(self) -> Iterator[CopyChunk]:
        row = 1
        for batch in self._batches:
            begin = max(0, self._start_row - row)
            row += batch.num_rows
            if begin < batch.num_rows:
                kept = batch.slice(begin)
                first = row - kept.num_rows
                columns = [_storable(kept.column(name)) for name in self._names]
                raw = _CsvLines(columns, self._csv)
                whole = CopyChunk(self._names, columns, range(first, row), raw, (), first, row, self._read_bytes(row - 1))
                yield from _bounded(whole)

    def close(self) -> None:
        """Do nothing: what was given stays open."""

    def _read_bytes(self, rows: int) -> int:
        return 0


class ParquetSource(ArrowSource):
    def __init__(
        self,
        file: BinaryIO,
        name: str,
        is_owned: bool,
        known: Sequence[str],
        columns: Sequence[str] | None,
        csv: CsvFormat,
        start_row: int,
    ) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        self.name = name
        self.total_bytes = _size(file)
        if self.total_bytes is None:
            raise ConfigurationError(f"{name} is a stream; Parquet is read from its end, so it must be a file")
        self._file = file
        self._is_owned = is_owned
        try:
            opened = self._parquet = parquet.ParquetFile(file, pre_buffer=False)
        except (pa.ArrowInvalid, OSError) as error:
            raise ConfigurationError(f"{name} can't be read as Parquet: {error}") from error
        self._rows: int = opened.metadata.num_rows
        self._init(opened.schema_arrow.names, known, columns, csv, start_row)
        self._batches = opened.iter_batches(batch_size=_CHUNK_ROWS, columns=self._names, use_threads=False)

    def close(self) -> None:
        if self._is_owned:
            self._file.close()

    def _read_bytes(self, rows: int) -> int:
        return (self.total_bytes or 0) * rows // max(self._rows, 1)


class _Slice(Sequence[bytes]):
    """A part of a sequence whose items are made when they are asked for."""

    def __init__(self, whole: Sequence[bytes], begin: int, end: int) -> None:
        self._whole = whole
        self._begin = begin
        self._end = end

    def __len__(self) -> int:
        return self._end - self._begin

    def __getitem__(self, at: Any) -> Any:
        return self._whole[self._begin + at]


class _CsvLines(Sequence[bytes]):
    """Rows of Arrow as lines of CSV, made when one is asked for."""

    def __init__(self, columns: Sequence[Any], csv: CsvWriter) -> None:
        self._columns = columns
        self._csv = csv

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, at: Any) -> Any:
        return self._csv.rows([column.slice(at, 1) for column in self._columns])


def _bounded(chunk: CopyChunk) -> Iterator[CopyChunk]:
    """Yield a chunk in parts that are no larger than a request should be."""
    most = max(1, min(_CHUNK_ROWS, _CHUNK_CELLS // max(1, len(chunk.names))))
    size = sum(column.nbytes for column in chunk.columns)
    if len(chunk.lines) > 1 and (len(chunk.lines) > most or size > _CHUNK_BYTES):
        for half in chunk.halves():
            yield from _bounded(half)
    else:
        yield chunk


def _storable(column: Any) -> Any:
    """Return a column in types that every version of Arrow reads."""
    import pyarrow as pa

    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type in (pa.string_view(), pa.large_string()):
        return column.cast(pa.string())
    return column.cast(pa.binary()) if column.type in (pa.binary_view(), pa.large_binary()) else column


def _check_names(names: Sequence[str], known: Sequence[str]) -> None:
    if not names:
        raise ConfigurationError("no columns are named; name those that the file has")
    by_name = {name.lower() for name in known}
    for name in names:
        if name.lower() not in by_name:
            raise ConfigurationError(f"the table has no column {name!r}; it has {', '.join(known)}")
        if [other.lower() for other in names].count(name.lower()) > 1:
            raise ConfigurationError(f"column {name!r} is named twice; name it once")


def _check_match(found: Sequence[str], wanted: Sequence[str]) -> None:
    if len(found) != len(wanted):
        raise ConfigurationError(f"wrong number of fields in header line: got {len(found)}, expected {len(wanted)}")
    for number, (name, expected) in enumerate(zip(found, wanted, strict=True), 1):
        if name != expected:
            raise ConfigurationError(f'column name mismatch in header line field {number}: got "{name}", expected "{expected}"')


def _size(file: Any) -> int | None:
    try:
        status = os.fstat(file.fileno())
    except (AttributeError, OSError):
        return len(file.getbuffer()) if hasattr(file, "getbuffer") else None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _shown(source: object) -> str:
    return repr(os.fspath(source)) if isinstance(source, str | os.PathLike) else f"a {type(source).__name__}"
