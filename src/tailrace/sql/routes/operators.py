"""Every operator that a checked expression can have, as it is written in Spark's and in DuckDB's SQL.

Each pair means the same on every row: that is what the tests of this module hold. Where the engines differ, the form is
chosen so that they don't. Nothing here raises on bad data: an operator that can't give a value (`fails`) gives null instead,
and only then gives null for operands that are not.

`{0}`, `{1}` are operands, `{rest}` all but the first, `{all}` all of them, `{type}` the type of the result. For decimals
`{whole}` and `{scale}` are its digits before and behind the point, `{roomy}` the type of the left operand with as many digits.
"""

from typing import NamedTuple


class Operator(NamedTuple):
    spark: str
    duckdb: str = ""
    """As in Spark, if it is left out."""
    fails: bool = False
    strict: bool = True
    """Whether a null operand makes it null."""


_LEAST = "-9223372036854775808"
_WHOLE = r"^[+-]?[0-9]{1,40}\z"
_REAL = r"^[+-]?([0-9]{1,40}([.][0-9]{1,40})?|[.][0-9]{1,40})([eE][+-]?[0-9]{1,2})?\z"
_DECIMAL = r"^[+-]?[0-9]{{1,{whole}}}([.][0-9]{{1,{scale}}})?\z"
_YEAR_MONTH_DAY = r"(000[1-9]|00[1-9][0-9]|0[1-9][0-9][0-9]|[1-9][0-9][0-9][0-9])-[0-9][0-9]-[0-9][0-9]"
_DATE = rf"^{_YEAR_MONTH_DAY}\z"
_TIMESTAMP = rf"^{_YEAR_MONTH_DAY}[ T]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{{1,6}})?Z?\z"
_UUID = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\z"


def _parsed(pattern: str, result: str) -> Operator:
    """Something read from a text. Engines take many forms, not the same ones; only those of the pattern are let through."""
    quoted = pattern.replace("\\", "\\\\")
    return Operator(
        result.replace("{text}", f"CASE WHEN {{0}} RLIKE '{quoted}' THEN {{0}} END"),
        result.replace("{text}", f"CASE WHEN regexp_matches({{0}}, '{pattern}') THEN {{0}} END"),
        fails=True,
    )


def _braced(pattern: str) -> str:
    """A pattern as part of a form, where braces are doubled."""
    return pattern.replace("{", "{{").replace("}", "}}")


OPERATORS = {
    "not": Operator("(NOT {0})"),
    "eq": Operator("({0} = {1})"),
    "ne": Operator("({0} <> {1})"),
    "lt": Operator("({0} < {1})"),
    "le": Operator("({0} <= {1})"),
    "gt": Operator("({0} > {1})"),
    "ge": Operator("({0} >= {1})"),
    "same": Operator("({0} <=> {1})", "({0} IS NOT DISTINCT FROM {1})", strict=False),
    "differs": Operator("(NOT ({0} <=> {1}))", "({0} IS DISTINCT FROM {1})", strict=False),
    "is_null": Operator("({0} IS NULL)", strict=False),
    "is_true": Operator("({0} IS TRUE)", strict=False),
    "is_false": Operator("({0} IS FALSE)", strict=False),
    "in": Operator("({0} IN ({rest}))", strict=False),
    "like": Operator("({0} LIKE {1} ESCAPE '\\\\')", "({0} LIKE {1} ESCAPE '\\')"),
    # Numbers.
    "add": Operator("try_add({0}, {1})", "TRY({0} + {1})", fails=True),
    "subtract": Operator("try_subtract({0}, {1})", "TRY({0} - {1})", fails=True),
    "multiply": Operator("try_multiply({0}, {1})", "TRY({0} * {1})", fails=True),
    "add_exact": Operator("({0} + {1})"),
    "subtract_exact": Operator("({0} - {1})"),
    # With operands of few digits DuckDB would give the product no more than 18.
    "multiply_exact": Operator("({0} * {1})", "(CAST({0} AS {roomy}) * {1})"),
    "divide": Operator("({0} / nullif({1}, 0))", fails=True),
    # DuckDB finds no remainder of the least number by -1.
    "remainder": Operator(
        "({0} % nullif({1}, 0))", "CASE WHEN {1} = -1 THEN {0} - {0} ELSE {0} % nullif({1}, 0) END", fails=True
    ),
    "negate": Operator("try_subtract(0L, {0})", "TRY(CAST(0 AS BIGINT) - {0})", fails=True),
    "negate_exact": Operator("(- {0})"),
    "absolute": Operator(f"CASE WHEN {{0}} > {_LEAST} THEN abs({{0}}) END", fails=True),
    "absolute_exact": Operator("abs({0})"),
    "greatest": Operator("greatest({all})", strict=False),
    "least": Operator("least({all})", strict=False),
    # Text.
    "lower": Operator("lower({0})"),
    "upper": Operator("upper({0})"),
    "length": Operator("CAST(length({0}) AS BIGINT)"),
    "trim": Operator("trim(BOTH ' ' FROM {0})", "trim({0}, ' ')"),
    "ltrim": Operator("trim(LEADING ' ' FROM {0})", "ltrim({0}, ' ')"),
    "rtrim": Operator("trim(TRAILING ' ' FROM {0})", "rtrim({0}, ' ')"),
    "substring": Operator("substring({0}, {1}, {2})"),
    "concat": Operator("({0} || {1})"),
    "starts_with": Operator("startswith({0}, {1})", "starts_with({0}, {1})"),
    "ends_with": Operator("endswith({0}, {1})", "ends_with({0}, {1})"),
    "contains": Operator("contains({0}, {1})"),
    # Dates and times.
    "year": Operator("CAST(year({0}) AS BIGINT)"),
    "month": Operator("CAST(month({0}) AS BIGINT)"),
    "day": Operator("CAST(day({0}) AS BIGINT)"),
    "hour": Operator("CAST(hour({0}) AS BIGINT)"),
    "minute": Operator("CAST(minute({0}) AS BIGINT)"),
    # Lists. A list with nulls in it makes Spark answer null for what is not there, DuckDB false.
    "array_contains": Operator(
        "CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN coalesce(array_contains({0}, {1}), FALSE) END",
        "CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN coalesce(list_contains({0}, {1}), FALSE) END",
    ),
    "array_size": Operator("CAST(array_size({0}) AS BIGINT)", "len({0})"),
    # Nulls.
    "nullif": Operator("nullif({0}, {1})", strict=False),
    # Casts. The first ones always succeed.
    "widen": Operator("CAST({0} AS {type})"),
    "text_of": Operator("CAST({0} AS STRING)", "CAST({0} AS VARCHAR)"),
    "uuid_as_text": Operator("{0}"),
    # DuckDB's own way from decimal to double does not round right.
    "decimal_as_double": Operator("CAST({0} AS DOUBLE)", "CAST(CAST({0} AS VARCHAR) AS DOUBLE)"),
    "boolean_as_bigint": Operator("CAST({0} AS BIGINT)"),
    "narrow": Operator("try_cast({0} AS {type})", fails=True),
    "whole_of_decimal": Operator("try_cast({0} AS {type})", "TRY_CAST(trunc({0}) AS {type})", fails=True),
    # Spark takes 2^63 for the greatest bigint, so both stop before it.
    "whole_of_double": Operator(
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
    "boolean_of_text": Operator("CASE lower({0}) WHEN 'true' THEN TRUE WHEN 'false' THEN FALSE END", fails=True),
}
"""All but `and`, `or`, `case` and `coalesce`, which do not look at all of their operands: `compile` knows them."""
