"""What a route would do with changes that are there: its compiled form, run by DuckDB over them.

Only the columns that the route looks at are brought over. DuckDB gets no files, no network and no settings, and a time and a
memory limit; what it runs was written by `compile`, never by a user.
"""

from base64 import b64decode
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from threading import Timer
from typing import Any, NamedTuple

import msgspec

from tailrace.model.errors import CorruptionError, QueryLimitError
from tailrace.model.limits import Limits
from tailrace.model.table import ColumnType, Table
from tailrace.sql.routes.check import CheckedRoute
from tailrace.sql.routes.compile import CompiledRoute, compile_route
from tailrace.sql.routes.engines import DUCKDB
from tailrace.sql.routes.expression import columns_of
from tailrace.wire.routing import ChangeEvent, KeyValue

_decode_row = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Outcome(NamedTuple):
    """What came of one change. Where it failed, nothing else counts."""

    matches: bool | None
    failed: bool
    key_values: Sequence[KeyValue]


def dry_run(checked: CheckedRoute, table: Table, changes: Sequence[ChangeEvent], limits: Limits) -> list[Outcome]:
    """One outcome for each change. Takes as long as it takes, up to `query_seconds`: for a thread of its own."""
    compiled = compile_route(checked.where, checked.keys, DUCKDB, limits)
    used = {column.name for part in (checked.where, *checked.keys) if part is not None for column in columns_of(part)}
    return _run(compiled, _arrow(changes, [column for column in table.columns if column.name in used]), limits)


def _run(compiled: CompiledRoute, changes: Any, limits: Limits) -> list[Outcome]:
    import duckdb

    connection = duckdb.connect(
        config={
            "threads": 1,
            "memory_limit": f"{limits.query_bytes}B",
            "enable_external_access": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
    )
    alarm = Timer(limits.query_seconds, connection.interrupt)
    alarm.daemon = True
    alarm.start()
    try:
        connection.register("changes", changes)
        columns = ", ".join([compiled.condition, compiled.failure, *compiled.keys])
        rows = connection.execute(f"SELECT {columns} FROM changes ORDER BY number").fetchall()  # noqa: S608  ours alone
    except (duckdb.InterruptException, duckdb.OutOfMemoryException) as error:
        raise QueryLimitError(
            f"the dry run took more than {limits.query_seconds} s (query_seconds) or {limits.query_bytes} bytes (query_bytes)"
        ) from error
    finally:
        alarm.cancel()
        connection.close()
    return [Outcome(matches, failed, keys) for matches, failed, *keys in rows]


def _arrow(changes: Sequence[ChangeEvent], columns: Sequence[Any]) -> Any:
    """Both images of each change, as DuckDB knows them."""
    import pyarrow as pa

    arrays = {"number": pa.array(range(len(changes)), pa.int64())}
    if columns:
        image_type = pa.struct([(column.name, _arrow_type(column.type)) for column in columns])
        reads = [(column.name, _reader(column.type)) for column in columns]
        for name, images in (("old", [change.old for change in changes]), ("new", [change.new for change in changes])):
            arrays[name] = pa.array([_image(image, reads) for image in images], image_type)
    return pa.table(arrays)


def _image(image: bytes | None, reads: Sequence[tuple[str, Callable[[Any], object]]]) -> dict[str, object] | None:
    if image is None:
        return None
    try:
        row = _decode_row(image)
        return {name: _read(row[name], read) for name, read in reads}
    except (msgspec.MsgspecError, KeyError, ValueError, ArithmeticError) as error:
        raise CorruptionError(f"a change event does not hold what its table has: {error!r}") from error


def _read(cell: msgspec.Raw, read: Callable[[Any], object]) -> object:
    value = msgspec.json.decode(cell)
    return None if value is None else read(value)


def _reader(type_: ColumnType) -> Callable[[Any], object]:
    match type_.kind:
        case "decimal":
            return Decimal
        case "bytes":
            return b64decode
        case "date":
            return date.fromisoformat
        case "timestamp":
            return lambda text: datetime.fromisoformat(text).astimezone(UTC).replace(tzinfo=None)
        case "json":
            return lambda value: msgspec.json.encode(value).decode()
        case "list":
            read = _reader(type_.element or type_)
            return lambda items: [None if item is None else read(item) for item in items]
    return lambda value: value


def _arrow_type(type_: ColumnType) -> Any:
    import pyarrow as pa

    match type_.kind:
        case "decimal" if type_.precision is not None and type_.precision <= 38:
            return pa.decimal128(type_.precision, type_.scale or 0)
        case "list":
            return pa.list_(_arrow_type(type_.element or type_))
    return {
        "boolean": pa.bool_(),
        "smallint": pa.int16(),
        "integer": pa.int32(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "bytes": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us"),
    }.get(type_.kind, pa.string())
