"""The dry run: evaluates a route over changes in Python, change by change, with the same meaning as Spark."""

from base64 import b64decode
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from time import monotonic
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from tailrace.model.errors import CorruptionError, QueryLimitError
from tailrace.model.limits import Limits
from tailrace.model.table import ColumnType, Table
from tailrace.sql.analysis.errors import AnalysisError, UnsupportedError
from tailrace.sql.analysis.tree import ColumnReference
from tailrace.sql.evaluation.evaluator import Evaluate, compile_expression
from tailrace.sql.routes.check import NEW, OLD, CheckedRoute, located
from tailrace.sql.tables.values import store_real
from tailrace.wire.routing import ChangeEvent, KeyValue

_decode_row = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class DryRunOutcome(NamedTuple):
    """The outcome for one change. If it failed, the other fields have no meaning."""

    matches: bool | None
    failed: bool
    key_values: Sequence[KeyValue]


_FAILED = DryRunOutcome(None, True, ())


def dry_run(checked: CheckedRoute, table: Table, changes: Sequence[ChangeEvent], limits: Limits) -> list[DryRunOutcome]:
    """Return an outcome for each change. Takes up to `query_seconds`, so run it in a thread."""
    cells = _Cells(table)
    nodes = [*checked.keys, *([checked.where] if checked.where is not None else [])]
    compiled = [
        located(text, partial(compile_expression, node, cells, in_any_order=True))
        for node, text in zip(nodes, checked.texts, strict=True)
    ]
    condition = compiled.pop() if checked.where is not None else _always
    outcomes = []
    end = monotonic() + limits.query_seconds
    for change in changes:
        outcomes.append(_outcome(condition, compiled, cells.read(change)))
        if monotonic() > end:
            raise QueryLimitError(f"the dry run took more than {limits.query_seconds} s (query_seconds); simplify the route")
    return outcomes


def _outcome(condition: Evaluate, keys: Sequence[Evaluate], row: Sequence[object]) -> DryRunOutcome:
    try:
        matches = condition(row)
        return DryRunOutcome(matches, False, [_key_value(key(row)) for key in keys] if matches else ())
    except AnalysisError:
        return _FAILED


def _always(_: Sequence[object]) -> bool:
    return True


def _key_value(value: Any) -> KeyValue:
    if isinstance(value, UUID):
        return str(value)
    is_local = isinstance(value, datetime) and value.tzinfo is None
    found: KeyValue = value.replace(tzinfo=UTC) if is_local else value
    return found


class _Cells:
    """The cells of a change that a route uses, in the order in which its expressions name them."""

    def __init__(self, table: Table) -> None:
        self._readers = {column.name: _reader(column.type) for column in table.columns}
        self._used: list[tuple[int, str]] = []

    def column(self, reference: ColumnReference) -> int:
        cell = (reference.relation, reference.column)
        if cell not in self._used:
            self._used.append(cell)
        return self._used.index(cell)

    def parameter(self, number: int) -> int:
        raise UnsupportedError("a route can't have parameters")

    def now(self) -> int:
        raise UnsupportedError("a route can't use the current time")

    def read(self, change: ChangeEvent) -> list[object]:
        try:
            old, new = ({} if image is None else _decode_row(image) for image in (change.old, change.new))
            images = {NEW: new, OLD: old}
            row = old if change.new is None else new
            return [self._cell(images.get(relation, row), name) for relation, name in self._used]
        except (msgspec.MsgspecError, KeyError, ValueError, ArithmeticError) as error:
            raise CorruptionError(f"a change event does not match the columns of its table: {error!r}") from error

    def _cell(self, row: dict[str, msgspec.Raw], name: str) -> object:
        if not row:
            return None
        cell = row[name]
        return None if bytes(cell) == b"null" else self._readers[name](cell)


def _reader(type_: ColumnType) -> Callable[[msgspec.Raw], object]:
    if type_.kind == "json":
        return lambda cell: bytes(cell).decode()
    convert = _converter(type_)
    return lambda cell: convert(msgspec.json.decode(cell))


def _converter(type_: ColumnType) -> Callable[[Any], object]:
    match type_.kind:
        case "decimal":
            return Decimal
        case "bytes":
            return b64decode
        case "date":
            return date.fromisoformat
        case "timestamp":
            return lambda text: datetime.fromisoformat(text).astimezone(UTC)
        case "uuid":
            return UUID
        case "double":
            return float
        case "real":
            return store_real
        case "time":
            return time.fromisoformat
        case "list":
            convert = _converter(type_.element or type_)
            return lambda items: [None if item is None else convert(item) for item in items]
    return lambda value: value
