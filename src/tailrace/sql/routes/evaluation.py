"""Evaluates routes in Python, change by change: all of a route for the dry run, and for the pipeline what Spark can't compute.

An `AnalyzedRoute` is a value that Spark can send to its tasks. A task compiles it once and evaluates it on the JSON of rows,
of which only the cells that the route names are read.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from tailrace.model.errors import CorruptBatchError
from tailrace.model.source import ABSENT
from tailrace.model.table import ColumnType
from tailrace.sql.analysis.errors import AnalysisError, UnsupportedError
from tailrace.sql.analysis.interval_texts import read_interval
from tailrace.sql.analysis.tree import Call, ColumnReference, Constant, Expression, Logical
from tailrace.sql.analysis.types import SqlType
from tailrace.sql.evaluation.casts import as_real
from tailrace.sql.evaluation.evaluator import Evaluate, compile_expression
from tailrace.sql.evaluation.functions import EvaluationError
from tailrace.sql.evaluation.patterns import PATTERNS
from tailrace.wire.routing import KeyValue

NEW, OLD, ROW = 1, 2, 3
"""The numbers of the relations that columns belong to: the row after the change, the one before it, and the one of both that
the operation leaves or removes."""
_BOOL = SqlType("bool")


class AnalyzedRoute(NamedTuple):
    columns: Mapping[str, ColumnType]
    """The columns that the expressions use."""
    conjuncts: tuple[Expression, ...]
    """The condition, as parts that must all be true."""
    rest: tuple[int, ...] = ()
    """The indices of the conjuncts that Spark can't compute."""
    keys: tuple[Expression, ...] = ()
    has_own_keys: bool = False
    """Whether Spark can't compute the keys."""


class RouteOutcome(NamedTuple):
    """The outcome for one change. If it failed, the other fields have no meaning."""

    matches: bool | None
    failed: bool
    key_values: Sequence[KeyValue]


_FAILED = RouteOutcome(None, True, ())


def check_evaluable(node: Expression) -> None:
    """Raise `UnsupportedError` if Python can't evaluate an expression."""
    compile_expression(node, _CellLayout([node]), in_any_order=True)
    _check_patterns(node)


def _check_patterns(node: Expression) -> None:
    """Refuse a constant pattern that is not supported, which would fail on every change."""
    for part in node.walk():
        entry = PATTERNS.get(part.signature.key) if isinstance(part, Call) else None
        if not isinstance(part, Call) or not callable(entry):
            continue
        constants = [one.value for one in part.arguments[1:] if isinstance(one, Constant)]
        if len(constants) == len(part.arguments) - 1 and None not in constants:
            try:
                entry("" if part.arguments[0].type.name != "bytea" else b"", *constants)
            except EvaluationError as error:
                if error.sqlstate == "0A000":
                    raise UnsupportedError(error.message, part.location) from error


class RouteEvaluator:
    """Evaluates a route on changes. AND, OR and IN do not fail where an operand decides, wherever it stands."""

    def __init__(self, route: AnalyzedRoute) -> None:
        self.decides_matches = bool(route.rest) or route.has_own_keys
        """Whether a change that Spark has matched is to be evaluated too."""
        layout = _CellLayout([*route.conjuncts, *route.keys])
        self._read = layout.reader(route.columns)
        self._lacks = layout.lacks
        compiled = partial(compile_expression, layout=layout, in_any_order=True)
        self._keys: list[Evaluate] = [compiled(key) for key in route.keys]
        self._own_keys = self._keys if route.has_own_keys else []
        self._whole = _condition(route.conjuncts, compiled)
        self._rest = _condition([route.conjuncts[at] for at in route.rest], compiled)

    def whole(self, old: bytes | None, new: bytes | None) -> RouteOutcome:
        """Evaluate the whole condition on a change, and where it is true the keys. The rows are JSON, as in the log."""
        return _FAILED if self._lacks(old, new) else _outcome(self._whole, self._keys, self._read(old, new))

    def rest(self, old: bytes | None, new: bytes | None) -> RouteOutcome:
        """Evaluate what Spark can't compute on a change for which everything else is true."""
        return _FAILED if self._lacks(old, new) else _outcome(self._rest, self._own_keys, self._read(old, new))


def _outcome(condition: Evaluate, keys: Sequence[Evaluate], row: Sequence[Any]) -> RouteOutcome:
    try:
        matches = condition(row)
        return RouteOutcome(matches, False, [_key_value(key(row)) for key in keys] if matches else ())
    except Exception:  # noqa: BLE001  a change on which an expression fails must not stop those after it
        return _FAILED


def _condition(conjuncts: Sequence[Expression], compiled: Callable[[Expression], Evaluate]) -> Evaluate:
    if not conjuncts:
        return _always
    return compiled(conjuncts[0] if len(conjuncts) == 1 else Logical(_BOOL, "and", conjuncts))


def _always(_: Sequence[object]) -> bool:
    return True


def _key_value(value: Any) -> KeyValue:
    if isinstance(value, UUID):
        return str(value)
    is_local = isinstance(value, datetime) and value.tzinfo is None
    found: KeyValue = value.replace(tzinfo=UTC) if is_local else value
    return found


class _CellLayout:
    """The cells that expressions name, ordered by the row that they belong to."""

    def __init__(self, nodes: Sequence[Expression]) -> None:
        found = {(part.relation, part.column) for node in nodes for part in node.walk() if isinstance(part, ColumnReference)}
        self._cells = sorted(found)
        self._places = {cell: place for place, cell in enumerate(self._cells)}

    def column(self, reference: ColumnReference) -> int:
        return self._places[reference.relation, reference.column]

    def parameter(self, number: int) -> int:
        raise UnsupportedError("a route can't have parameters")

    def now(self) -> int:
        raise UnsupportedError("a route can't use the current time")

    def lacks(self, old: bytes | None, new: bytes | None) -> bool:
        """Return whether a captured row does not have a value of these cells."""
        if not any(image is not None and _ABSENT in image for image in (old, new)):
            return False
        absent = {relation: _absent(_image(relation, old, new)) for relation in (NEW, OLD, ROW)}
        return any(f",{column}," in absent[relation] for relation, column in self._cells)

    def reader(self, columns: Mapping[str, ColumnType]) -> Callable[[bytes | None, bytes | None], Sequence[Any]]:
        """Return a function from the rows before and after a change to the cells."""
        readers = {}
        for relation in (NEW, OLD, ROW):
            names = [name for at, name in self._cells if at == relation]
            if names:
                readers[relation] = _row_reader({name: columns[name] for name in names})
        if not readers:
            return lambda old, new: ()
        if len(readers) == 1:
            ((relation, read),) = readers.items()
            return lambda old, new: read(_image(relation, old, new))
        return lambda old, new: [cell for at, read in readers.items() for cell in read(_image(at, old, new))]


def _absent(row: bytes | None) -> str:
    return "" if row is None else _decode_absent(row).absent


class _AbsentColumns(msgspec.Struct, rename={"absent": ABSENT}):
    absent: str = ""


_decode_absent = msgspec.json.Decoder(_AbsentColumns).decode
_ABSENT = f'"{ABSENT}":",'.encode()


def _image(relation: int, old: bytes | None, new: bytes | None) -> bytes | None:
    if relation == NEW:
        return new
    return old if relation == OLD or new is None else new


def _row_reader(columns: Mapping[str, ColumnType]) -> Callable[[bytes | None], Sequence[Any]]:
    """Return a function from the JSON of a row to the values of some columns. A column that the row lacks is null."""
    decode = _row_decoder({name: _cell_type(type_) for name, type_ in columns.items()})
    converters = [(place, convert) for place, type_ in enumerate(columns.values()) if (convert := _converter(type_))]
    nulls = (None,) * len(columns)

    def read(row: bytes | None) -> Sequence[Any]:
        if row is None:
            return nulls
        try:
            cells = decode(row)
            if not converters:
                return cells
            found = list(cells)
            for place, convert in converters:
                if found[place] is not None:
                    found[place] = convert(found[place])
        except (msgspec.MsgspecError, AnalysisError, ValueError, ArithmeticError) as error:
            raise CorruptBatchError(f"the row of a change does not match the columns of its table: {error}") from error
        return found

    return read


def _row_decoder(types: Mapping[str, Any]) -> Callable[[bytes], tuple[Any, ...]]:
    nullable = {name: type_ if type_ is msgspec.Raw else type_ | None for name, type_ in types.items()}
    if any(_UNUSUAL.search(name) for name in types):
        decode_all = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
        decoders = [(name, msgspec.json.Decoder(type_).decode) for name, type_ in nullable.items()]

        def decode_unusual(row: bytes) -> tuple[Any, ...]:
            cells = decode_all(row)
            return tuple(decode(cells.get(name, _NULL)) for name, decode in decoders)

        return decode_unusual
    fields = [(f"cell_{place}", type_, None) for place, type_ in enumerate(nullable.values())]
    names = {f"cell_{place}": name for place, name in enumerate(types)}
    decode = msgspec.json.Decoder(msgspec.defstruct("RouteCells", fields, rename=names)).decode
    return lambda row: msgspec.structs.astuple(decode(row))


_NULL = msgspec.Raw(b"null")
_UNUSUAL = re.compile(r'["\\\x00-\x1f]')
"""Characters that a struct can't have in the names of its fields."""
_CELL_TYPES: Mapping[str, Any] = {
    "boolean": bool,
    "smallint": int,
    "integer": int,
    "bigint": int,
    "double": float | str,
    "real": float | str,
    "decimal": Decimal,
    "text": str,
    "char": str,
    "enum": str,
    "bytes": bytes,
    "date": date,
    "time": time,
    "interval": str,
    "timestamp": datetime,
    "uuid": UUID,
    "json": msgspec.Raw,
}
"""How cells of the kinds of columns are decoded. Numbers that JSON does not have are texts."""


def _cell_type(type_: ColumnType) -> Any:
    if type_.kind == "list":
        return list[_cell_type(type_.element or ColumnType("text")) | None]  # type: ignore[misc]
    return _CELL_TYPES[type_.kind]


def _converter(type_: ColumnType) -> Callable[[Any], Any] | None:
    match type_.kind:
        case "json":
            return _json_text
        case "double":
            return float
        case "real":
            return lambda number: as_real(float(number))
        case "timestamp":
            return lambda at: at.astimezone(UTC)
        case "interval":
            return read_interval
        case "list" if type_.element is not None:
            convert = _converter(type_.element)
            return None if convert is None else lambda items: [None if item is None else convert(item) for item in items]
    return None


def _json_text(cell: msgspec.Raw) -> str | None:
    text = bytes(cell).decode()
    return None if text == "null" else text
