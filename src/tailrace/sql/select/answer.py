"""What DuckDB answers, as rows of Python values."""

import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa

from tailrace.model.errors import QueryLimitError, SqlError
from tailrace.model.limits import Limits
from tailrace.sql.answer_stream import AnswerStream
from tailrace.sql.result import Result, ResultColumn
from tailrace.sql.select.channel import AnswerColumn
from tailrace.sql.select.forms import JSON, LIST, NESTED, TEXT, TIMESTAMP, UUID_TEXT, WHOLE

_PAUSE_SECONDS = 0.00005
_CELL_BYTES = 16
"""What a value takes besides its bytes."""


def read_answer(
    described: Sequence[AnswerColumn], batches: Iterator[pa.RecordBatch], limits: Limits, on_rows: Callable[[int], None]
) -> Result:
    """At most `query_rows` rows; more are cut off. `on_rows` learns of their bytes before they are made."""
    columns = [ResultColumn(column.name, column.type) for column in described]
    reads = [_reader(column.form) for column in described]
    rows: list[Sequence[object]] = []
    size = 0
    for batch in batches:
        size += batch.nbytes
        if size > limits.query_bytes:
            raise QueryLimitError(
                f"the answer has more than {limits.query_bytes} bytes (query_bytes); ask for fewer rows or columns"
            )
        if size > limits.query_answer_bytes:
            raise QueryLimitError(
                f"the answer has more than {limits.query_answer_bytes} bytes (query_answer_bytes); ask for fewer rows"
            )
        on_rows(batch.nbytes + batch.num_rows * batch.num_columns * _CELL_BYTES)
        # Making rows takes the interpreter's lock; between batches it goes to whoever waits for it, who needs a moment to wake.
        time.sleep(_PAUSE_SECONDS)
        rows += zip(*(_values(column, read) for column, read in zip(batch.columns, reads, strict=True)), strict=True)
    return Result(
        columns,
        rows[: limits.query_rows],
        f"SELECT {min(len(rows), limits.query_rows)}",
        truncated=len(rows) > limits.query_rows,
    )


def stream_answer(
    described: Sequence[AnswerColumn], batches: Iterator[pa.RecordBatch], limits: Limits, out: AnswerStream
) -> Result:
    """Hand over all rows, however many."""
    columns = [ResultColumn(column.name, column.type) for column in described]
    reads = [_reader(column.form) for column in described]
    for batch in batches:
        if batch.nbytes > limits.query_bytes:
            raise QueryLimitError(
                f"{batch.num_rows} rows of the answer take more than query_bytes ({limits.query_bytes}); ask for fewer columns"
            )
        cells = [_values(column, read) for column, read in zip(batch.columns, reads, strict=True)]
        out.put(columns, list(zip(*cells, strict=True)))
    if not out.row_count:
        out.put(columns, ())
    return Result(columns, status=f"SELECT {out.row_count}")


def _values(column: pa.Array, read: Callable[[Any], object] | None) -> Sequence[object]:
    try:
        values: list[object] = column.to_pylist()
    except (ValueError, OverflowError):
        raise SqlError("the answer holds a time outside of the years 1 to 9999; cast it to text") from None
    return values if read is None else [None if value is None else read(value) for value in values]


def _reader(form: str) -> Callable[[Any], object] | None:
    """How a value of Arrow becomes one of ours; `None` where it is one already."""
    kind, _, inner_form = form.partition(" ")
    if kind == LIST:
        inner = _reader(inner_form)
        return None if inner is None else lambda items: [None if item is None else inner(item) for item in items]
    return _READERS.get(kind)


def _timestamp(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _plain(value: object) -> object:
    """A value of any kind within a struct or map, as JSON can hold it."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case dict():
            return {str(name): _plain(item) for name, item in value.items()}
        case list() if value and all(isinstance(item, tuple) for item in value):
            return {str(name): _plain(item) for name, item in value}
        case list():
            return [_plain(item) for item in value]
        case bytes():
            return b64encode(value).decode()
        case datetime():
            return _timestamp(value).isoformat()
    return str(value)


def _json(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    except RecursionError:
        raise SqlError("the answer holds JSON that is nested too deep to be shown; cast it to text") from None


_READERS: dict[str, Callable[[Any], object]] = {
    JSON: _json,
    NESTED: _plain,
    TEXT: str,
    TIMESTAMP: _timestamp,
    UUID_TEXT: UUID,
    WHOLE: int,
}
