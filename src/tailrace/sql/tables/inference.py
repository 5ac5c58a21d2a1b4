"""Infers the type of an expression from the tables that it names.

SQLite has five kinds of values, tables have more types: without this a query could not return `max(created_at)` as a timestamp
or add decimals exactly. `None` means that the type is unknown; it is then derived from the value.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlglot import exp

from tailrace.model.table import ColumnKind, ColumnType, Table

BOOLEAN = ColumnType("boolean")
BIGINT = ColumnType("bigint")
DOUBLE = ColumnType("double")
DECIMAL = ColumnType("decimal")
TEXT = ColumnType("text")
DATE = ColumnType("date")
TIMESTAMP = ColumnType("timestamp")
JSON = ColumnType("json")
UUID = ColumnType("uuid")
BYTES = ColumnType("bytes")

MAX_PRECISION = 38

_WHOLE: frozenset[ColumnKind] = frozenset(("smallint", "integer", "bigint"))

_FIXED: tuple[tuple[tuple[type[Any], ...], ColumnType], ...] = (
    ((exp.Predicate, exp.Connector, exp.Not, exp.Boolean, exp.Exists), BOOLEAN),
    ((exp.Count, exp.Length, exp.RowNumber, exp.Rank, exp.DenseRank, exp.Ntile, exp.StrPosition, exp.DateDiff), BIGINT),
    ((exp.Extract, exp.Rand, exp.Sqrt, exp.Ln, exp.Exp, exp.Pow, exp.PercentRank, exp.CumeDist), DOUBLE),
    ((exp.Concat, exp.DPipe, exp.Upper, exp.Lower, exp.Substring, exp.Trim, exp.Replace, exp.GroupConcat), TEXT),
    ((exp.JSONExtractScalar,), TEXT),
    ((exp.JSONExtract, exp.JSONArray, exp.JSONObject, exp.JSONArrayAgg, exp.JSONObjectAgg, exp.Array), JSON),
    ((exp.CurrentTimestamp, exp.TimestampTrunc, exp.Localtimestamp), TIMESTAMP),
    ((exp.CurrentDate,), DATE),
    ((exp.Uuid,), UUID),
    ((exp.HexString,), BYTES),
)
_TYPE_OF_FIRST_OPERAND = (
    exp.Paren,
    exp.Alias,
    exp.Neg,
    exp.Min,
    exp.Max,
    exp.Window,
    exp.Filter,
    exp.Abs,
    exp.Round,
    exp.Distinct,
    exp.Ordered,
    exp.Nullif,
    exp.Collate,
    exp.Lag,
    exp.Lead,
    exp.FirstValue,
    exp.LastValue,
    exp.NthValue,
    exp.IgnoreNulls,
    exp.RespectNulls,
)


_CASTS: dict[str, ColumnType] = {
    "BOOLEAN": BOOLEAN,
    "SMALLINT": ColumnType("smallint"),
    "TINYINT": ColumnType("smallint"),
    "INT": ColumnType("integer"),
    "BIGINT": BIGINT,
    "DOUBLE": DOUBLE,
    "FLOAT": DOUBLE,
    "TEXT": TEXT,
    "VARCHAR": TEXT,
    "CHAR": TEXT,
    "VARBINARY": BYTES,
    "BINARY": BYTES,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPTZ": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP,
    "UUID": UUID,
    "JSON": JSON,
    "JSONB": JSON,
}


class Inference:
    """Infers the types of the expressions of one statement."""

    def __init__(self, tree: exp.Expr, tables: Mapping[str, Table]) -> None:
        """`tables` is keyed by every qualifier that a column may have: aliases, bare and full names."""
        self._tables = tables
        self._aliased: dict[str, list[exp.Expr]] = {}
        for alias in tree.find_all(exp.Alias):
            self._aliased.setdefault(alias.alias.lower(), []).append(alias.this)
        self._known: dict[int, tuple[exp.Expr, ColumnType | None]] = {}
        """By the identity of nodes, which are kept so that no other node gets the same address."""
        self._asked: set[int] = set()

    def __call__(self, node: exp.Expr | None) -> ColumnType | None:
        if node is None or id(node) in self._asked:
            return None
        if id(node) not in self._known:
            self._asked.add(id(node))
            self._known[id(node)] = node, self._infer(node)
            self._asked.discard(id(node))
        return self._known[id(node)][1]

    def remember(self, node: exp.Expr, type_: ColumnType | None) -> None:
        """Set the type of a node that replaces one of this type."""
        self._known[id(node)] = node, type_

    def _infer(self, node: exp.Expr) -> ColumnType | None:
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.Literal):
            return None if node.is_string else BIGINT if node.is_int else DOUBLE
        if isinstance(node, exp.Cast):
            return type_of_cast(node.to)
        if isinstance(node, _TYPE_OF_FIRST_OPERAND):
            return self(node.this if isinstance(node.this, exp.Expr) else (node.expressions or [None])[0])
        if isinstance(node, exp.Coalesce):
            return self._common((node.this, *node.expressions))
        if isinstance(node, exp.Case):
            return self._common((*(branch.args.get("true") for branch in node.args["ifs"]), node.args.get("default")))
        if isinstance(node, (exp.Sum, exp.Avg)):
            return self._total(node)
        if isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)):
            return self._arithmetic(node)
        if isinstance(node, (exp.Subquery, exp.Select)):
            selects = node.selects
            return self(selects[0]) if selects else None
        return next((type_ for kinds, type_ in _FIXED if isinstance(node, kinds)), None)

    def _common(self, nodes: Iterable[exp.Expr | None]) -> ColumnType | None:
        found = [type_ for node in nodes if (type_ := self(node)) is not None]
        kinds = {type_.kind for type_ in found}
        if "decimal" in kinds and kinds <= {"decimal", *_WHOLE}:
            return DECIMAL
        return found[0] if len(kinds) == 1 else None

    def _total(self, node: exp.Expr) -> ColumnType | None:
        of = self(node.this)
        if of is not None and of.kind == "decimal":
            return DECIMAL
        if isinstance(node, exp.Avg):
            return DOUBLE
        return BIGINT if of is not None and of.kind in _WHOLE else None

    def _arithmetic(self, node: exp.Expr) -> ColumnType | None:
        left, right = self(node.this), self(node.expression)
        kinds = {type_.kind for type_ in (left, right) if type_ is not None}
        if isinstance(node.expression, exp.Interval) or isinstance(node.this, exp.Interval):
            return DATE if kinds == {"date"} else TIMESTAMP
        if "decimal" in kinds:
            return DECIMAL
        if "date" in kinds:
            return BIGINT if kinds == {"date"} and left is not None and right is not None else DATE
        if "double" in kinds:
            return DOUBLE
        return BIGINT if left is not None and right is not None and kinds <= _WHOLE else None

    def _column(self, column: exp.Column) -> ColumnType | None:
        name = column.name.lower()
        qualifier = ".".join(part.name for part in column.parts[:-1]).lower()
        if qualifier:
            table = self._tables.get(qualifier)
            return self._agreed([type_in(table, name)]) if table is not None else self._of_alias(name)
        found = [type_ for table in self._tables.values() if (type_ := type_in(table, name)) is not None]
        return self._agreed(found) if found else self._of_alias(name)

    def _of_alias(self, name: str) -> ColumnType | None:
        return self._agreed([self(node) for node in self._aliased.get(name, ())])

    def _agreed(self, found: Sequence[ColumnType | None]) -> ColumnType | None:
        return found[0] if found and all(type_ == found[0] for type_ in found) else None


def type_in(table: Table, name: str) -> ColumnType | None:
    """Return the type of a column; the case of its name does not matter."""
    return next((column.type for column in table.columns if column.name.lower() == name), None)


def type_of_cast(to: exp.Expr) -> ColumnType | None:
    """Return the type of `CAST(... AS to)`, or `None` for a type that tables don't have."""
    name = to.this.name if isinstance(to, exp.DataType) else ""
    if name == "ARRAY":
        element = type_of_cast(to.expressions[0]) if to.expressions else None
        return None if element is None else ColumnType("list", element=element)
    if name == "DECIMAL":
        digits = [int(parameter.name) for parameter in to.expressions if parameter.name.isdigit()]
        if not digits:
            return DECIMAL
        precision, scale = digits[0], digits[1] if len(digits) > 1 else 0
        fits = scale <= precision <= MAX_PRECISION
        return ColumnType("decimal", precision=precision, scale=scale) if fits else None
    return _CASTS.get(name)


FindTable = Callable[[str], Table | None]
"""Returns the table of a name, if there is one."""
