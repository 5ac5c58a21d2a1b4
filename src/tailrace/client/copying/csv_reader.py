"""Reads CSV as PostgreSQL's COPY does.

A quote may stand anywhere in a field, and ends where the next one stands; line breaks and delimiters between quotes belong to
the field. A field is null if it is the null string and has no quotes, so `,,` and `,"",` differ. Lines end as the first line
does: with a line feed, a carriage return or both. Unlike PostgreSQL it skips a byte order mark at the start, which some
programs write.

`CsvReader` takes blocks of any size and returns parts of whole rows, whose values are texts; what they mean is decided by the
types of the columns, in the server. A row that is not right is returned as an error, and the rows behind it are read.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from tailrace.model.errors import ConfigurationError
from tailrace.model.limits import MIB

_MARK = b"\xef\xbb\xbf"
_MAX_ROW_BYTES = 16 * MIB
"""More than one request holds."""
_SHOWN_BYTES = 200
INVALID_FILE = "22P04"
"""The SQLSTATE of a row that is not CSV, or has too many or too few fields."""
_INVALID_BYTES = "22021"


class CsvFormat(msgspec.Struct, frozen=True, kw_only=True):
    """How a CSV file is written."""

    delimiter: str = ","
    quote: str = '"'
    escape: str | None = None
    """What stands before a quote inside of quotes; by default the quote itself."""
    null: str = ""
    """What stands for a null, without quotes."""

    def __post_init__(self) -> None:
        escape = self.escape_character
        for name, value in (("delimiter", self.delimiter), ("quote", self.quote), ("escape", escape)):
            if len(value.encode()) != 1 or value in "\r\n":
                raise ConfigurationError(f"{name} is {value!r}; it must be one single-byte character and no line break")
        if self.delimiter in (self.quote, escape):
            raise ConfigurationError(f"delimiter and quote are both {self.delimiter!r}; they must differ")
        if set(self.null) & set("\r\n" + self.delimiter + self.quote):
            raise ConfigurationError(f"null is {self.null!r}; it can't hold a line break, the delimiter or the quote")

    @property
    def escape_character(self) -> str:
        return self.quote if self.escape is None else self.escape


class InvalidRow(NamedTuple):
    """A row that is not right, and where it is."""

    line: int
    reason: str
    sqlstate: str
    raw: bytes
    column: str | None = None
    value: str | None = None


class CsvPart(NamedTuple):
    """Whole rows of a file."""

    columns: Sequence[Any]
    """An Arrow array of texts for each column."""
    lines: Sequence[int]
    """The line on which each row begins, counted from 1."""
    raw: Sequence[bytes]
    """Each row as it is written in the file, with its line end."""
    invalid: Sequence[InvalidRow]
    next_line: int
    """The line on which the next part begins."""


class _Row(NamedTuple):
    raw: bytes
    """With its line end."""
    content: bytes
    line: int


class CsvReader:
    """Feed it blocks, then call `finish` for what is left."""

    def __init__(self, csv: CsvFormat, *, first_line: int = 1) -> None:
        self._delimiter = csv.delimiter.encode()
        self._quote = csv.quote.encode()
        self._escape = csv.escape_character.encode()
        self._null = csv.null.encode()
        self._csv = csv
        quote, escape, delimiter = (re.escape(mark) for mark in (self._quote, self._escape, self._delimiter))
        if self._escape == self._quote:
            inside = b"[^%b]*+" % quote
        else:
            # What follows an escape is no end, if it is a quote or another escape.
            inside = b"(?:[^%b%b]++|%b[%b%b]|%b)*+" % (quote, escape, escape, quote, escape, escape)
        quoted = b"%b%b%b" % (quote, inside, quote)
        self._row = re.compile(b"(?:[^%b\r\n]++|%b)*+" % (quote, quoted))
        self._field = re.compile(b"((?:[^%b%b]++|%b)*+)(%b|$)" % (quote, delimiter, quoted, delimiter), re.DOTALL)
        self._piece = re.compile(b"[^%b]++|%b(%b)%b" % (quote, quote, inside, quote), re.DOTALL)
        self._escaped = re.compile(b"%b([%b%b])" % (escape, quote, escape), re.DOTALL)
        self._is_doubled = self._escape == self._quote
        self._buffer = b""
        self._line = first_line
        self._line_end: bytes | None = None
        self._is_at_start = first_line == 1

    def header(self, data: bytes, *, is_last: bool) -> list[str] | None:
        """Take the first line as names of columns, and keep the rest of the block. `None` if more is needed."""
        self._append(data)
        rows = self._rows(is_last=is_last, most=1)
        found = next(iter(rows), None)
        if found is None:
            return [] if is_last and not self._buffer else None
        if isinstance(found, InvalidRow):
            raise ConfigurationError(f"line 1: {found.reason}")
        try:
            return [(field or b"").decode() for field in self._fields(found.content)]
        except UnicodeDecodeError as error:
            raise ConfigurationError("line 1: the names of the columns are not UTF-8") from error

    def skip_lines(self, data: bytes, before: int) -> bool:
        """Skip lines up to this one, counting line ends and not rows. Return whether it is reached."""
        self._append(data)
        while self._line < before:
            end = self._next_line_end()
            if end is None:
                return False
            self._buffer = self._buffer[end:]
            self._line += 1
        return True

    def feed(self, data: bytes, names: Sequence[str]) -> CsvPart:
        """Return the rows that this block completes."""
        self._append(data)
        return self._fast_read(names) or self._read(names, is_last=False)

    def finish(self, names: Sequence[str]) -> CsvPart:
        """Return the last row, if it has no line end."""
        return self._read(names, is_last=True)

    def _append(self, data: bytes) -> None:
        self._buffer += data
        if self._is_at_start and len(self._buffer) >= len(_MARK):
            self._buffer = self._buffer.removeprefix(_MARK)
            self._is_at_start = False

    def _next_line_end(self) -> int | None:
        found = re.search(rb"\r\n|\r|\n", self._buffer)
        if found is None or (found[0] == b"\r" and found.end() == len(self._buffer)):
            return None
        return found.end()

    def _fast_read(self, names: Sequence[str]) -> CsvPart | None:
        """Fast path of `_read`: a regular block is read by Arrow, in a tenth of the time.

        Triggered by a block with whole rows in which quotes stand around whole fields, inner quotes are doubled, all rows end
        alike and none is empty. `None` leaves the block to the general path. `tests/differential/test_copy_csv.py` holds both
        equal to PostgreSQL.
        """
        rows = _regular_rows(self._buffer, self._delimiter, self._quote, self._line_end) if self._is_doubled else None
        if rows is None:
            return None
        block = self._buffer[: rows.ends[-1]]
        columns = None if b"\0" in block else self._arrow_columns(block, names, len(rows.ends))
        if columns is None:
            return None
        first = self._line
        self._line_end = rows.line_end
        self._line += rows.line_count
        self._buffer = self._buffer[len(block) :]
        lines = range(first, self._line) if rows.lines is None else [first + line for line in rows.lines]
        return CsvPart(columns, lines, _RawRows(block, rows.ends), (), self._line)

    def _arrow_columns(self, block: bytes, names: Sequence[str], rows: int) -> Sequence[Any] | None:
        import pyarrow as pa
        from pyarrow import csv

        numbered = [str(number) for number in range(len(names))]
        try:
            table = csv.read_csv(
                pa.BufferReader(block),
                csv.ReadOptions(use_threads=False, column_names=numbered, block_size=len(block) + 1),
                csv.ParseOptions(
                    delimiter=self._csv.delimiter,
                    quote_char=self._csv.quote,
                    double_quote=True,
                    escape_char=False,
                    newlines_in_values=True,
                    ignore_empty_lines=False,
                ),
                csv.ConvertOptions(
                    column_types=dict.fromkeys(numbered, pa.string()),
                    null_values=[self._csv.null],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid:
            return None
        return [column.combine_chunks() for column in table.columns] if table.num_rows == rows else None

    def _read(self, names: Sequence[str], *, is_last: bool) -> CsvPart:
        fields: list[list[bytes | None]] = []
        lines: list[int] = []
        raw: list[bytes] = []
        invalid: list[InvalidRow] = []
        for row in self._rows(is_last=is_last):
            if isinstance(row, InvalidRow):
                invalid.append(row)
                continue
            found = self._fields(row.content)
            reason = _encoding_fault(row.content) or _count_fault(found, names)
            if reason is not None:
                sqlstate = _INVALID_BYTES if reason.startswith("invalid byte") else INVALID_FILE
                invalid.append(InvalidRow(row.line, reason, sqlstate, row.raw))
                continue
            fields.append(found)
            lines.append(row.line)
            raw.append(row.raw)
        return CsvPart(_text_columns(fields, len(names)), lines, raw, invalid, self._line)

    def _rows(self, *, is_last: bool, most: int | None = None) -> Iterator["_Row | InvalidRow"]:
        """Yield the whole rows of the buffer, and keep the rest."""
        buffer, at, count = self._buffer, 0, 0
        try:
            while at < len(buffer) and (most is None or count < most):
                row, end = self._row_at(buffer, at, is_last=is_last)
                if row is None:
                    if len(buffer) - at > _MAX_ROW_BYTES:
                        raise ConfigurationError(
                            f"line {self._line:,}: the row is longer than {_MAX_ROW_BYTES:,} bytes; is a quote missing?"
                        )
                    return
                self._line += _line_count(buffer[at:end], self._line_end)
                at = end
                count += 1
                yield row
        finally:
            self._buffer = buffer[at:]

    def _row_at(self, buffer: bytes, at: int, *, is_last: bool) -> "tuple[_Row | InvalidRow | None, int]":
        found = self._row.match(buffer, at)
        stop = at if found is None else found.end()
        if stop == len(buffer):
            if not is_last:
                return None, at
            return _Row(buffer[at:], buffer[at:], self._line), stop
        if buffer[stop : stop + 1] == self._quote:
            if not is_last:
                return None, at
            raw = buffer[at:]
            return InvalidRow(self._line, "unterminated CSV quoted field", INVALID_FILE, raw), len(buffer)
        line_end = buffer[stop : stop + 2]
        if line_end == b"\r" and not is_last:
            return None, at  # a line feed may follow
        if line_end != b"\r\n" or self._line_end == b"\r":
            line_end = line_end[:1]
        if self._line_end is None:
            self._line_end = line_end
        end = stop + len(line_end)
        if line_end != self._line_end:
            what = "newline" if line_end == b"\n" else "carriage return"
            reason = f"unquoted {what} found in data"
            return InvalidRow(self._line, reason, INVALID_FILE, buffer[at:end]), end
        return _Row(buffer[at:end], buffer[at:stop], self._line), end

    def _fields(self, content: bytes) -> list[bytes | None]:
        null = self._null
        if self._quote not in content:
            return [None if field == null else field for field in content.split(self._delimiter)]
        fields: list[bytes | None] = []
        at = 0
        while True:
            found = self._field.match(content, at)
            if found is None:  # can't happen: the row was matched as a whole
                raise ConfigurationError(f"invalid row {content[:_SHOWN_BYTES]!r}")
            field, delimiter = found.groups()
            if self._quote in field:
                fields.append(self._unquoted(field))
            else:
                fields.append(None if field == null else field)
            if not delimiter:
                return fields
            at = found.end()

    def _unquoted(self, field: bytes) -> bytes:
        quote = self._quote
        if self._escape == quote:
            # A quote closes the quotes; another one right behind it opens them again, and stands for one.
            inner = field[1:-1]
            if field.startswith(quote) and field.endswith(quote) and quote not in inner:
                return inner
            pieces = []
            previous_end = -1
            for piece in self._piece.finditer(field):
                is_quoted = piece[1] is not None
                if is_quoted and piece.start() == previous_end:
                    pieces.append(quote)
                pieces.append(piece[1] if is_quoted else piece[0])
                previous_end = piece.end() if is_quoted else -1
            return b"".join(pieces)
        return b"".join(
            piece[0] if piece[1] is None else self._escaped.sub(rb"\1", piece[1]) for piece in self._piece.finditer(field)
        )


class _RegularRows(NamedTuple):
    """The rows of a block that Arrow reads as PostgreSQL does."""

    ends: Any
    """Where each row ends in the block, behind its line end."""
    lines: Sequence[int] | None
    """The line on which each row begins, counted from 0; `None` if each has one line."""
    line_count: int
    line_end: bytes


def _regular_rows(block: bytes, delimiter: bytes, quote: bytes, line_end: bytes | None) -> _RegularRows | None:
    """Return the whole rows at the start of a block, or `None` if one of them is not regular."""
    import numpy as np

    data = np.frombuffer(block, np.uint8)
    breaks = np.flatnonzero(data == _LF)
    quotes = np.flatnonzero(data == quote[0])
    # Outside of quotes is what has an even number of them before it.
    outer = breaks[np.searchsorted(quotes, breaks) % 2 == 0] if len(quotes) else breaks
    if not len(outer):
        return None
    end = int(outer[-1]) + 1
    breaks, quotes = breaks[breaks < end], quotes[quotes < end]
    returns = np.flatnonzero(data[:end] == _CR)
    outer_returns = returns[np.searchsorted(quotes, returns) % 2 == 0]
    found_end = b"\r\n" if len(outer_returns) else b"\n"
    if line_end not in (None, found_end) or (len(outer_returns) and not np.array_equal(outer_returns + 1, outer)):
        return None
    if found_end == b"\r\n" and len(quotes) and len(breaks) != len(outer):
        return None  # in which lines are counted by their carriage returns
    starts = np.concatenate(([0], outer[:-1] + 1))
    if np.any(outer + 1 - starts <= len(found_end)):
        return None  # an empty row
    if len(quotes):
        # Quotes open at even places and close at odd ones; between two that touch, one stands for itself.
        before = np.where(quotes[0::2] > 0, data[quotes[0::2] - 1], _LF)
        after = data[quotes[1::2] + 1]
        edges = [delimiter[0], quote[0], _LF]
        if not (np.isin(before, edges).all() and np.isin(after, [*edges, _CR]).all()):
            return None
    if len(breaks) == len(outer):
        return _RegularRows(outer + 1, None, len(outer), found_end)
    return _RegularRows(outer + 1, np.searchsorted(breaks, starts).tolist(), len(breaks), found_end)


_LF, _CR = b"\n\r"


class _RawRows(Sequence[bytes]):
    """The rows of a block, cut out when one is asked for."""

    def __init__(self, block: bytes, ends: Any) -> None:
        self._block = block
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, at: Any) -> Any:
        return self._block[0 if at == 0 else int(self._ends[at - 1]) : int(self._ends[at])]


def _line_count(raw: bytes, line_end: bytes | None) -> int:
    return raw.count(line_end) if line_end is not None else 0


def _count_fault(fields: Sequence[object], names: Sequence[str]) -> str | None:
    if len(fields) > len(names):
        return "extra data after last expected column"
    return f'missing data for column "{names[len(fields)]}"' if len(fields) < len(names) else None


def _encoding_fault(content: bytes) -> str | None:
    try:
        content.decode()
    except UnicodeDecodeError as error:
        shown = " ".join(f"0x{byte:02x}" for byte in content[error.start : error.end])
        return f'invalid byte sequence for encoding "UTF8": {shown}'
    return 'invalid byte sequence for encoding "UTF8": 0x00' if b"\0" in content else None


def _text_columns(rows: Sequence[Sequence[bytes | None]], width: int) -> list[Any]:
    import pyarrow as pa

    if not rows:
        return [pa.array([], pa.string())] * width
    return [pa.array(column, pa.binary()).cast(pa.string()) for column in zip(*rows, strict=True)]
