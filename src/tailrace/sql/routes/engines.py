"""How Spark and DuckDB write the operators, columns, constants and types of checked expressions.

Each pair of forms means the same on every row, which `tests/property/test_routes.py` checks; where the engines differ, the form
is chosen so that they agree. No operator raises on bad data: one that has no value (`fails`) returns null instead, and only
then returns null for operands that are not null.

In a form `{0}`, `{1}` are operands, `{rest}` all but the first, `{all}` all of them, `{type}` the type of the result. For
decimals `{whole}` and `{scale}` are the digits before and after the decimal point, `{roomy}` the type of the left operand with
as many digits as the result.

Spark substitutes `${name}` by its settings anywhere in a text, also within strings, so no dollar sign may reach it.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import NamedTuple

from tailrace.model.errors import invariant
from tailrace.model.table import ColumnKind, ColumnType, Table
from tailrace.sql.routes.expression import TEXT, ConstantValue, RouteColumn, digits_of

_LEAST = "-9223372036854775808"
_WHOLE = r"^[+-]?[0-9]{1,40}\z"
_REAL = r"^[+-]?([0-9]{1,40}([.][0-9]{1,40})?|[.][0-9]{1,40})([eE][+-]?[0-9]{1,2})?\z"
_DECIMAL = r"^[+-]?[0-9]{{1,{whole}}}([.][0-9]{{1,{scale}}})?\z"
_YEAR_MONTH_DAY = r"(000[1-9]|00[1-9][0-9]|0[1-9][0-9][0-9]|[1-9][0-9][0-9][0-9])-[0-9][0-9]-[0-9][0-9]"
_DATE = rf"^{_YEAR_MONTH_DAY}\z"
_TIMESTAMP = rf"^{_YEAR_MONTH_DAY}[ T]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{{1,6}})?Z?\z"
_UUID = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\z"
_SPARK_TYPES: dict[ColumnKind, str] = {
    "boolean": "BOOLEAN",
    "smallint": "SMALLINT",
    "integer": "INT",
    "bigint": "BIGINT",
    "double": "DOUBLE",
    "text": "STRING",
    "bytes": "BINARY",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "uuid": "STRING",
    "json": "STRING",
}
_DUCKDB_TYPES = _SPARK_TYPES | {"integer": "INTEGER", "text": "VARCHAR", "bytes": "BLOB", "uuid": "VARCHAR", "json": "VARCHAR"}
_JSON_TEXTS: dict[ColumnKind, str] = {
    "date": "concat('\"', CAST({0} AS STRING), '\"')",
    "decimal": "concat('\"', CAST({0} AS STRING), '\"')",
    "timestamp": "concat('\"', date_format({0}, 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSS\\'Z\\''), '\"')",
    "text": "substring(to_json(array({0})), 2, length(to_json(array({0}))) - 2)",
    "uuid": "concat('\"', {0}, '\"')",
}
"""Other types are the same in JSON and in text."""


class RouteOperator(NamedTuple):
    spark: str
    duckdb: str = ""
    """As in Spark if it is empty."""
    fails: bool = False
    strict: bool = True
    """Whether a null operand makes the result null."""


def _parsed(pattern: str, result: str) -> RouteOperator:
    """Return the operator that parses a text. Engines accept different forms, so only texts that match the pattern are"
    " parsed."""
    quoted = pattern.replace("\\", "\\\\")
    return RouteOperator(
        result.replace("{text}", f"CASE WHEN {{0}} RLIKE '{quoted}' THEN {{0}} END"),
        result.replace("{text}", f"CASE WHEN regexp_matches({{0}}, '{pattern}') THEN {{0}} END"),
        fails=True,
    )


def _braced(pattern: str) -> str:
    """Double the braces of a pattern that is part of a form."""
    return pattern.replace("{", "{{").replace("}", "}}")


OPERATORS = {
    "not": RouteOperator("(NOT {0})"),
    "eq": RouteOperator("({0} = {1})"),
    "ne": RouteOperator("({0} <> {1})"),
    "lt": RouteOperator("({0} < {1})"),
    "le": RouteOperator("({0} <= {1})"),
    "gt": RouteOperator("({0} > {1})"),
    "ge": RouteOperator("({0} >= {1})"),
    "same": RouteOperator("({0} <=> {1})", "({0} IS NOT DISTINCT FROM {1})", strict=False),
    "differs": RouteOperator("(NOT ({0} <=> {1}))", "({0} IS DISTINCT FROM {1})", strict=False),
    "is_null": RouteOperator("({0} IS NULL)", strict=False),
    "is_true": RouteOperator("({0} IS TRUE)", strict=False),
    "is_false": RouteOperator("({0} IS FALSE)", strict=False),
    "in": RouteOperator("({0} IN ({rest}))", strict=False),
    "like": RouteOperator("({0} LIKE {1} ESCAPE '\\\\')", "({0} LIKE {1} ESCAPE '\\')"),
    # Numbers.
    "add": RouteOperator("try_add({0}, {1})", "TRY({0} + {1})", fails=True),
    "subtract": RouteOperator("try_subtract({0}, {1})", "TRY({0} - {1})", fails=True),
    "multiply": RouteOperator("try_multiply({0}, {1})", "TRY({0} * {1})", fails=True),
    "add_exact": RouteOperator("({0} + {1})"),
    "subtract_exact": RouteOperator("({0} - {1})"),
    # With operands of few digits DuckDB would limit the product to 18 digits.
    "multiply_exact": RouteOperator("({0} * {1})", "(CAST({0} AS {roomy}) * {1})"),
    "divide": RouteOperator("({0} / nullif({1}, 0))", fails=True),
    # DuckDB fails on the remainder of the smallest number by -1.
    "remainder": RouteOperator(
        "({0} % nullif({1}, 0))", "CASE WHEN {1} = -1 THEN {0} - {0} ELSE {0} % nullif({1}, 0) END", fails=True
    ),
    "negate": RouteOperator("try_subtract(0L, {0})", "TRY(CAST(0 AS BIGINT) - {0})", fails=True),
    "negate_exact": RouteOperator("(- {0})"),
    "absolute": RouteOperator(f"CASE WHEN {{0}} > {_LEAST} THEN abs({{0}}) END", fails=True),
    "absolute_exact": RouteOperator("abs({0})"),
    "greatest": RouteOperator("greatest({all})", strict=False),
    "least": RouteOperator("least({all})", strict=False),
    # Text.
    "lower": RouteOperator("lower({0})"),
    "upper": RouteOperator("upper({0})"),
    "length": RouteOperator("CAST(length({0}) AS BIGINT)"),
    "trim": RouteOperator("trim(BOTH ' ' FROM {0})", "trim({0}, ' ')"),
    "ltrim": RouteOperator("trim(LEADING ' ' FROM {0})", "ltrim({0}, ' ')"),
    "rtrim": RouteOperator("trim(TRAILING ' ' FROM {0})", "rtrim({0}, ' ')"),
    "substring": RouteOperator("substring({0}, {1}, {2})"),
    "concat": RouteOperator("({0} || {1})"),
    "starts_with": RouteOperator("startswith({0}, {1})", "starts_with({0}, {1})"),
    "ends_with": RouteOperator("endswith({0}, {1})", "ends_with({0}, {1})"),
    "contains": RouteOperator("contains({0}, {1})"),
    # Dates and times.
    "year": RouteOperator("CAST(year({0}) AS BIGINT)"),
    "month": RouteOperator("CAST(month({0}) AS BIGINT)"),
    "day": RouteOperator("CAST(day({0}) AS BIGINT)"),
    "hour": RouteOperator("CAST(hour({0}) AS BIGINT)"),
    "minute": RouteOperator("CAST(minute({0}) AS BIGINT)"),
    # Lists. For a value that is missing in a list with nulls, Spark returns null and DuckDB false.
    "array_contains": RouteOperator(
        "CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN coalesce(array_contains({0}, {1}), FALSE) END",
        "CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN coalesce(list_contains({0}, {1}), FALSE) END",
    ),
    "array_size": RouteOperator("CAST(array_size({0}) AS BIGINT)", "len({0})"),
    # Nulls.
    "nullif": RouteOperator("nullif({0}, {1})", strict=False),
    # Casts. The first ones always succeed.
    "widen": RouteOperator("CAST({0} AS {type})"),
    "text_of": RouteOperator("CAST({0} AS STRING)", "CAST({0} AS VARCHAR)"),
    "uuid_as_text": RouteOperator("{0}"),
    # DuckDB's direct cast from decimal to double does not round correctly.
    "decimal_as_double": RouteOperator("CAST({0} AS DOUBLE)", "CAST(CAST({0} AS VARCHAR) AS DOUBLE)"),
    "boolean_as_bigint": RouteOperator("CAST({0} AS BIGINT)"),
    "narrow": RouteOperator("try_cast({0} AS {type})", fails=True),
    "whole_of_decimal": RouteOperator("try_cast({0} AS {type})", "TRY_CAST(trunc({0}) AS {type})", fails=True),
    # Spark converts 2^63 to the largest bigint, so both stop before it.
    "whole_of_double": RouteOperator(
        "try_cast(CASE WHEN {0} BETWEEN -9.2E18D AND 9.2E18D THEN {0} END AS {type})",
        "TRY_CAST(trunc(CASE WHEN {0} BETWEEN CAST('-9.2E18' AS DOUBLE) AND CAST('9.2E18' AS DOUBLE) THEN {0} END) AS {type})",
        fails=True,
    ),
    "whole_of_text": _parsed(_braced(_WHOLE), "try_cast({text} AS {type})"),
    "decimal_of_text": _parsed(_DECIMAL, "try_cast({text} AS {type})"),
    "double_of_text": _parsed(_braced(_REAL), "try_cast({text} AS DOUBLE)"),
    "date_of_text": _parsed(_braced(_DATE), "try_cast({text} AS DATE)"),
    "timestamp_of_text": _parsed(_braced(_TIMESTAMP), "try_cast({text} AS TIMESTAMP)"),
    "uuid_of_text": _parsed(_braced(_UUID), "lower({text})"),
    "boolean_of_text": RouteOperator("CASE lower({0}) WHEN 'true' THEN TRUE WHEN 'false' THEN FALSE END", fails=True),
}
"""All operators but `and`, `or`, `case` and `coalesce`, which do not evaluate all of their operands; see `compile`."""


class RouteDialect(NamedTuple):
    form: Callable[[RouteOperator], str]
    """Returns the form of an operator."""
    types: dict[ColumnKind, str]
    list_of: str
    row_of: str
    field: str
    identifier: Callable[[str], str]
    string: Callable[[str], str]
    zone: str
    """The suffix of a timestamp in UTC."""

    def type_name(self, type_: ColumnType) -> str:
        if type_.kind == "decimal":
            return f"DECIMAL({type_.precision}, {type_.scale or 0})"
        if type_.kind == "list":
            invariant(type_.element is not None, "a list type must have the type of its elements")
            return self.list_of.format(self.type_name(type_.element or type_))
        return self.types[type_.kind]

    def row_type(self, table: Table) -> str:
        """Return the type of a row. Decimals with too many digits for the engines become text; no route can use them."""
        fields = []
        for column in table.columns:
            is_known = column.type.kind != "decimal" or digits_of(column.type) is not None
            fields.append(self.field.format(self.identifier(column.name), self.type_name(column.type if is_known else TEXT)))
        return self.row_of.format(", ".join(fields))

    def column(self, column: RouteColumn) -> str:
        """Return a column of `old` or `new`, which are structs with a field for each column, or null if there is no such"
        " row."""
        name = self.identifier(column.name)
        if column.image == "row":
            return f"CASE WHEN new IS NULL THEN old.{name} ELSE new.{name} END"
        return f"{column.image}.{name}"

    def constant(self, value: ConstantValue, type_: ColumnType) -> str:
        match value:
            case None:
                return f"CAST(NULL AS {self.type_name(type_)})"
            case bool():
                return "TRUE" if value else "FALSE"
            case int():
                return f"CAST({value} AS {self.type_name(type_)})" if type_.kind != "bigint" else str(value)
            case float():
                return f"CAST('{value!r}' AS DOUBLE)"
            case Decimal():
                return f"CAST('{value:f}' AS {self.type_name(type_)})"
            case datetime():
                at = value.astimezone(UTC).replace(tzinfo=None)
                return f"TIMESTAMP '{at.isoformat(' ', 'microseconds')}{self.zone}'"
            case date():
                return f"DATE '{value.isoformat()}'"
        return self.string(value)


def key_text(value: str, type_: ColumnType) -> str:
    """Return the Spark SQL for a value as JSON."""
    return f"coalesce({_JSON_TEXTS.get(type_.kind, 'CAST({0} AS STRING)').format(value)}, 'null')"


def _spark_string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"


def _spark_identifier(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _duckdb_string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _duckdb_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


SPARK = RouteDialect(
    form=lambda operator: operator.spark,
    types=_SPARK_TYPES,
    list_of="ARRAY<{}>",
    row_of="STRUCT<{}>",
    field="{}: {}",
    identifier=_spark_identifier,
    string=_spark_string,
    zone="Z",
)
DUCKDB = RouteDialect(
    form=lambda operator: operator.duckdb or operator.spark,
    types=_DUCKDB_TYPES,
    list_of="{}[]",
    row_of="STRUCT({})",
    field="{} {}",
    identifier=_duckdb_identifier,
    string=_duckdb_string,
    zone="",
)
