"""Fast path of `select/execution.py`: a SELECT of few rows by an index is read from SQLite directly.

    SELECT * | column, ... FROM table WHERE column = constant or parameter [AND ...]

Triggered by queries of exactly this form, in which columns are compared with values of their own type, among them all columns
of the primary key or of a unique index, or the first one of another index. What an index finds is left to the general way if
it is more than a few rows; so is everything else, and every value that PostgreSQL would have to convert. A row by a unique key
is read on the event loop.
`tests/unit/sql/select/test_point_select.py` holds both equal.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from tailrace.model.table import Column, ColumnType, Table
from tailrace.sql.analysis.errors import AnalysisError
from tailrace.sql.analysis.input_texts import read_text
from tailrace.sql.analysis.types import of_column, to_column
from tailrace.sql.parameters import Parameters, in_order
from tailrace.sql.results import Result, ResultColumn
from tailrace.sql.statements import Query
from tailrace.sql.tables.database import quoted
from tailrace.sql.tables.readers import one_row_sql
from tailrace.sql.tables.values import InvalidValueError, LoadValue, StoredValue, codec_of

_PLAIN_FIELDS = {"targetList", "fromClause", "whereClause", "limitOption", "op"}
_UNCHANGED = frozenset(("smallint", "integer", "bigint", "double", "text", "char", "bytes", "interval"))
"""Kinds whose stored values are those of results."""
_KNOWN_QUERIES = 1_000
_MOST_ROWS = 20
"""How many rows an index may find. A row takes up to `change_bytes`."""


class KeyParameter(NamedTuple):
    number: int


class _Form(NamedTuple):
    """What a query of this form says."""

    table: str
    columns: Sequence[tuple[str, str]] | None
    """The columns with their names in the result; `None` for all."""
    keys: Mapping[str, object]
    """Constants and `KeyParameter`, by column."""


class BoundPointSelect(NamedTuple):
    """A statement of SQLite that reads the rows, and how they become a result."""

    table: Table
    sql: str
    values: Sequence[StoredValue]
    columns: Sequence[ResultColumn]
    loads: Sequence[LoadValue | None]
    keys: Sequence[str]
    """The columns of the primary key, in the order of `values`."""
    one_row_sql: str | None
    """The statement for `TableReaders.get_one`, if the key is unique."""

    def result(self, rows: Sequence[Sequence[StoredValue]]) -> Result | None:
        """Return the result of these rows, or `None` if they are too many for this path."""
        if len(rows) > _MOST_ROWS:
            return None
        found = [
            tuple(cell if load is None or cell is None else load(cell) for cell, load in zip(row, self.loads, strict=True))
            for row in rows
        ]
        return Result(self.columns, found, status=f"SELECT {len(found)}")


class _Prepared(NamedTuple):
    """A query for a table, without the values of its key."""

    query: Query
    table: Table
    keys: Sequence[tuple[ColumnType, object]]
    bound: BoundPointSelect


class PointSelects:
    """Recognizes queries of this form. Used by any thread."""

    def __init__(self, find: Callable[[str], Table | None]) -> None:
        self._find = find
        self._known: OrderedDict[int, tuple[Query, _Form | None, _Prepared | None]] = OrderedDict()

    def bind(self, query: Query, params: Parameters) -> BoundPointSelect | None:
        """Return the statement for a query, or `None` if the query has another form."""
        known = self._known.get(id(query))
        if known is None or known[0] is not query:
            known = (query, _form(query.tree["SelectStmt"]), None)
            self._known[id(query)] = known
            while len(self._known) > _KNOWN_QUERIES:
                self._known.popitem(last=False)
        _, form, prepared = known
        if form is None:
            return None
        table = self._find(form.table)
        if table is None:
            return None
        if prepared is None or prepared.table is not table:
            prepared = _prepared(query, form, table)
            if prepared is None:
                return None
            self._known[id(query)] = (query, form, prepared)
        given = in_order(query, params)
        values: list[StoredValue] = []
        for kind, value in prepared.keys:
            stored = _stored(kind, given[value.number - 1] if isinstance(value, KeyParameter) else value)
            if stored is None:
                return None
            values.append(stored)
        return prepared.bound._replace(values=values)


def _form(fields: Mapping[str, Any]) -> _Form | None:
    sources = fields.get("fromClause", ())
    if (
        not fields.keys() <= _PLAIN_FIELDS
        or fields.get("op", "SETOP_NONE") != "SETOP_NONE"
        or len(sources) != 1
        or "RangeVar" not in sources[0]
        or "alias" in sources[0]["RangeVar"]
    ):
        return None
    source = sources[0]["RangeVar"]
    table = ".".join(source[part] for part in ("catalogname", "schemaname", "relname") if part in source)
    keys = _keys(fields.get("whereClause", {}))
    columns = _columns(fields.get("targetList", ()))
    return None if keys is None or columns is None else _Form(table, columns or None, keys)


def _columns(targets: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]] | None:
    """Return the columns; none for `*`, and `None` if there is anything else."""
    found = []
    for target in targets:
        fields = target["ResTarget"]
        parts = fields["val"].get("ColumnRef", {}).get("fields", ())
        if len(parts) != 1:
            return None
        if "A_Star" in parts[0]:
            return [] if len(targets) == 1 else None
        name = parts[0]["String"]["sval"]
        found.append((name, fields.get("name", name)))
    return found or None


def _keys(where: Mapping[str, Any]) -> dict[str, object] | None:
    terms = where["BoolExpr"]["args"] if where.get("BoolExpr", {}).get("boolop") == "AND_EXPR" else [where]
    keys: dict[str, object] = {}
    for term in terms:
        fields = term.get("A_Expr", {})
        if fields.get("kind") != "AEXPR_OP" or fields["name"][-1]["String"]["sval"] != "=" or "lexpr" not in fields:
            return None
        parts = fields["lexpr"].get("ColumnRef", {}).get("fields", ())
        value = fields["rexpr"]
        if len(parts) != 1 or "String" not in parts[0]:
            return None
        name = parts[0]["String"]["sval"]
        constant = value.get("A_Const")
        if name in keys:
            return None
        if "ParamRef" in value:
            keys[name] = KeyParameter(value["ParamRef"].get("number", 0))
        elif constant is not None and "ival" in constant:
            keys[name] = constant["ival"].get("ival", 0)
        elif constant is not None and "sval" in constant:
            keys[name] = constant["sval"].get("sval", "")
        else:
            return None
    return keys


def _prepared(query: Query, form: _Form, table: Table) -> _Prepared | None:
    known = {column.name: column for column in table.columns}
    asked = list(form.keys)
    if not all(name in known for name in asked):
        return None
    is_one = any(set(columns) <= form.keys.keys() for columns in table.unique_keys.values())
    if not is_one and not any(index.columns[0] in form.keys for index in table.indexes):
        return None
    wanted = [(column.name, column.name) for column in table.columns] if form.columns is None else form.columns
    if not all(name in known for name, _ in wanted):
        return None
    columns = [known[name] for name, _ in wanted]
    test = " AND ".join(f"{quoted(name)} = ?" for name in asked)
    limit = "" if is_one else f" LIMIT {_MOST_ROWS + 1}"
    shown = ", ".join(quoted(column.name) for column in columns)
    sql = f"SELECT {shown} FROM {quoted(table.name)} WHERE {test}{limit}"  # noqa: S608
    bound = BoundPointSelect(
        table,
        sql,
        (),
        [ResultColumn(name, to_column(of_column(column.type))) for (_, name), column in zip(wanted, columns, strict=True)],
        [_load(column) for column in columns],
        table.primary_key,
        one_row_sql(sql) if is_one else None,
    )
    return _Prepared(query, table, [(known[name].type, form.keys[name]) for name in asked], bound)


def _load(column: Column) -> LoadValue | None:
    if column.type.element is not None and column.type.element.kind == "interval":
        return lambda kept: msgspec.json.decode(str(kept))
    return None if column.type.kind in _UNCHANGED else codec_of(column.type).load


def _stored(kind: ColumnType, value: object) -> StoredValue:
    """Return the value of a key in its stored form, or `None` if it is not plainly of the type of its column."""
    match kind.kind:
        case "smallint" | "integer" | "bigint":
            is_whole = isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63
            return value if is_whole else None  # type: ignore[return-value]
        case "text":
            return value if isinstance(value, str) else None
        case "uuid" | "date" | "time" | "timestamp" | "bytes":
            return _stored_text(kind, value)
    return None


def _stored_text(kind: ColumnType, value: object) -> StoredValue:
    if isinstance(value, str):
        try:
            value = read_text(value, of_column(kind))
        except AnalysisError:
            return None
    wanted: type = {"uuid": UUID, "date": date, "time": time, "timestamp": datetime, "bytes": bytes}[kind.kind]
    if not isinstance(value, wanted) or (kind.kind == "date" and isinstance(value, datetime)):
        return None
    try:
        return codec_of(kind).store(value)
    except InvalidValueError:
        return None
