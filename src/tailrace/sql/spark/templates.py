"""Templates: how a call of PostgreSQL's catalog is written in Spark's SQL.

A template has the arguments as `{0}`, `{1}` and the type of the result as `{type}`; a function of Python makes the text where
it depends on more than that. What is not listed is refused. No text raises on bad data, with or without Spark's ANSI mode: a
call that PostgreSQL would fail has no value, and its failure is known beside it. Each entry is held equal to a real PostgreSQL
by the differential test.

Spark substitutes `${name}` by its settings anywhere in a text, also within strings, so no dollar sign may reach it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tailrace.sql.analysis.catalog import Signature
from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.numeric_digits import digits_of_call
from tailrace.sql.analysis.tree import Call, Case, Cast, Coalesce, Constant, Expression, Extreme, NullIf
from tailrace.sql.analysis.types import SqlType, digits_of, is_enum

MAX_PRECISION = 38
"""The digits of Spark's largest decimal."""
LEAST_INT8 = "-9223372036854775808"
_TYPES = {
    "bool": "BOOLEAN",
    "int2": "SMALLINT",
    "int4": "INT",
    "int8": "BIGINT",
    "float8": "DOUBLE",
    "text": "STRING",
    "varchar": "STRING",
    "name": "STRING",
    "bytea": "BINARY",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMP",
    "uuid": "STRING",
    "jsonb": "VARIANT",
    # All of its microseconds, with 30 days for a month: intervals are only compared.
    "interval": "BIGINT",
}
_EXTRACTED_DIGITS = {
    **dict.fromkeys(("year", "isoyear", "quarter", "month", "week", "day", "dow", "isodow", "doy", "hour", "minute"), (5, 0)),
    "second": (8, 6),
    "milliseconds": (8, 3),
    "microseconds": (8, 0),
    "epoch": (18, 6),
}


class SparkTemplate(NamedTuple):
    value: str
    null_fails: bool = False
    """Whether the call failed where it is null although no argument is."""
    failure: str = ""
    """The condition under which it failed, never null. The value is not used there."""
    is_strict: bool = True
    """Whether a null argument makes the result null."""


Rendered = str | SparkTemplate
Template = Rendered | Callable[[Sequence[str], Call], Rendered]


def fails(value: str) -> SparkTemplate:
    """Return the template of a call that is null where it fails, and only there."""
    return SparkTemplate(value, null_fails=True)


def spark_type(sql_type: SqlType, location: int = -1) -> str:
    """Return the type in which Spark holds values of a type. Raises `UnsupportedError` if there is none."""
    if sql_type.is_array:
        return f"ARRAY<{spark_type(sql_type.element, location)}>"
    if sql_type.name == "numeric":
        digits = digits_of(sql_type)
        if digits is None or digits[0] > MAX_PRECISION:
            raise UnsupportedError(
                "this numeric can have any number of digits; routes compute with up to 38: cast it, as in x::numeric(20, 6)",
                location,
            )
        return f"DECIMAL({digits[0]}, {digits[1]})"
    if is_enum(sql_type.name):
        return "STRING"
    if sql_type.name not in _TYPES:
        raise UnsupportedError(f"routes can't use values of the type {sql_type}", location)
    return _TYPES[sql_type.name]


def check_readable(sql_type: SqlType, location: int = -1) -> None:
    """Raise `UnsupportedError` for a type whose values Spark computes with but can't read from an event."""
    if (sql_type.element if sql_type.is_array else sql_type).name == "interval":
        raise UnsupportedError("a route can't read an interval of a column in Spark", location)


def fixed_type(node: Expression) -> SqlType:
    """Return the type of an expression, with digits that suffice for its values as far as they are known.

    A numeric of a scale that differs from value to value has the largest one here, which only its text would tell.
    """
    if node.type.name != "numeric" or digits_of(node.type) is not None:
        return node.type
    match node:
        case Cast() if node.argument.type.name == "numeric":
            return fixed_type(node.argument)
        case Call(signature=Signature(name="extract"), arguments=[Constant() as field, _]):
            digits = _EXTRACTED_DIGITS.get(time_field(field))
            return node.type if digits is None else SqlType("numeric", *digits)
        case Call():
            arguments = [one if isinstance(one, Constant) else Expression(fixed_type(one)) for one in node.arguments]
            return digits_of_call(node.signature.key, node.type, arguments)
        case Case():
            return _widest([*(then for _, then in node.branches), *([node.otherwise] if node.otherwise is not None else [])])
        case Coalesce() | Extreme():
            return _widest(node.arguments)
        case NullIf() if node.left is not None:
            return fixed_type(node.left)
    return node.type


def _widest(nodes: Sequence[Expression]) -> SqlType:
    digits = [digits_of(fixed_type(one)) for one in nodes if not (isinstance(one, Constant) and one.value is None)]
    known = [one for one in digits if one is not None]
    if not known or len(known) < len(digits):
        return SqlType("numeric")
    scale = max(scale for _, scale in known)
    return SqlType("numeric", max(precision - scale for precision, scale in known) + scale, scale)


def has_fixed_scale(node: Expression) -> bool:
    """Return whether all values of an expression have the same number of digits behind the point."""
    if node.type.name != "numeric" or digits_of(node.type) is not None:
        return True
    if isinstance(node, Case | Coalesce | Extreme):
        return False
    return all(has_fixed_scale(one) for one in node.children())


def type_of(node: Expression) -> str:
    """Return the type in which Spark holds an expression."""
    return spark_type(fixed_type(node), node.location)


def constant_of(node: Expression, what: str) -> object:
    """Return the value of a constant that is not null. Raises `UnsupportedError` for anything else."""
    if not isinstance(node, Constant) or node.value is None:
        raise UnsupportedError(f"in a route {what} must be a constant", node.location)
    return node.value


def time_field(node: Constant) -> str:
    """Return the singular name of a field of a date or time, as `extract` takes it."""
    name = str(node.value).lower()
    names = {"seconds": "second", "millisecond": "milliseconds", "microsecond": "microseconds"}
    plurals = ("years", "quarters", "months", "weeks", "days", "hours", "minutes")
    return names.get(name, name.removesuffix("s") if name in plurals else name)


def spark_string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"


def spark_identifier(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def braced(text: str) -> str:
    """Double the braces of a text that is part of a template."""
    return text.replace("{", "{{").replace("}", "}}")
