"""Casts between types, and the text forms of values.

PostgreSQL reads some types from many forms of text. Here a text is read from one form, which all engines read alike; on any
other the cast fails, also where PostgreSQL would read it.
"""

from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.tree import Expression
from tailrace.sql.analysis.types import SqlType, digits_of
from tailrace.sql.spark.templates import Rendered, fails, fixed_type, has_fixed_scale, spark_string, spark_type

PLAIN_SCALE = 6
"""Spark writes decimals with more digits after the decimal point with an exponent, depending on a setting."""
_BITS = {"int2": 16, "int4": 32, "int8": 64}
_STRINGS = ("text", "varchar", "name")
_AS_IT_IS = ("int2", "int4", "int8", "bool", "date", "uuid", *_STRINGS)
_SPACES = r"[ \t\n\r\x0B\f]*"
_DAY = r"(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9][0-9]|[1-9][0-9][0-9][0-9])-[0-9][0-9]?-[0-9][0-9]?"
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{1,6})?"
_ZONE = r"(?:Z|[+-](?:0[0-9]|1[0-4])(?::[0-5][0-9])?)?"
_READ = {
    "int2": r"[+-]?[0-9]{1,40}",
    "int4": r"[+-]?[0-9]{1,40}",
    "int8": r"[+-]?[0-9]{1,40}",
    "float8": r"[+-]?(?:[0-9]{1,40}(?:[.][0-9]{0,40})?|[.][0-9]{1,40})(?:[eE][+-]?[0-9]{1,2})?",
    "numeric": r"[+-]?(?:[0-9]{1,38}(?:[.][0-9]{0,38})?|[.][0-9]{1,38})",
    "date": _DAY,
    "timestamp": rf"{_DAY}(?:[ T]{_CLOCK})?",
    "timestamptz": rf"{_DAY}(?:[ T]{_CLOCK}{_ZONE})?",
    "uuid": r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}",
}
"""The texts that are read, by type. Spaces around them are allowed where PostgreSQL allows them."""
_TRUE = ("t", "tr", "tru", "true", "y", "ye", "yes", "on", "1")
_FALSE = ("f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0")
_DATES_AND_TIMES = ("date", "timestamp", "timestamptz")


def cast(text: str, node: Expression, target: SqlType) -> Rendered:
    """Return the cast of a rendered expression to another type."""
    if target.name in _STRINGS and not has_fixed_scale(node):
        raise UnsupportedError(
            "the numbers can have several scales, which their texts would show; cast them, as in x::numeric(12, 2)",
            node.location,
        )
    found = _cast(text, fixed_type(node), target, node.location)
    if found is None:
        raise UnsupportedError(f"a route can't cast {node.type} to {target}", node.location)
    return found


def _cast(text: str, source: SqlType, target: SqlType, location: int) -> Rendered | None:
    mine, wanted = source.name, target.name
    if wanted in _STRINGS:
        return _to_text(text, source, target, location)
    if mine in _STRINGS:
        return _of_text(text, target, location)
    if mine in _BITS:
        if wanted in _BITS:
            kind = spark_type(target)
            return f"CAST({text} AS {kind})" if _BITS[mine] <= _BITS[wanted] else fails(f"try_cast({text} AS {kind})")
        if wanted == "float8":
            return f"CAST({text} AS DOUBLE)"
        if wanted == "bool" and mine == "int4":
            return f"({text} <> 0)"
    if mine == "bool" and wanted == "int4":
        return f"CAST({text} AS INT)"
    if wanted == "numeric" and (mine in _BITS or mine == "numeric"):
        return _to_decimal(text, source, target, location)
    if mine == "numeric":
        spark_type(source, location)
        if wanted == "float8":
            return f"CAST({text} AS DOUBLE)"
        return fails(f"try_cast(round({text}, 0) AS {spark_type(target)})") if wanted in _BITS else None
    if mine == "float8" and wanted in _BITS:
        bound = f"{2.0 ** (_BITS[wanted] - 1)!r}D"
        kind = spark_type(target)
        return fails(f"CAST(CASE WHEN rint({text}) >= -{bound} AND rint({text}) < {bound} THEN rint({text}) END AS {kind})")
    if mine in _DATES_AND_TIMES and wanted in _DATES_AND_TIMES:
        return f"CAST({text} AS {spark_type(target)})"
    return None


def _to_decimal(text: str, source: SqlType, target: SqlType, location: int) -> Rendered:
    if target.precision is None:
        # Only the digits that are known already.
        return (
            text
            if source.name == "numeric"
            else f"CAST({text} AS {spark_type(SqlType('numeric', *(digits_of(source) or ())))})"
        )
    kind = spark_type(target, location)
    spark_type(source, location)
    (precision, scale), (wanted, wanted_scale) = digits_of(source) or (0, 0), digits_of(target) or (0, 0)
    if precision - scale <= wanted - wanted_scale and scale <= wanted_scale:
        return f"CAST({text} AS {kind})"
    return fails(f"try_cast({text} AS {kind})")


def text_of(text: str, node: Expression) -> str:
    """Return the text of a rendered value, as PostgreSQL prints it."""
    found = _printed(text, fixed_type(node)) if has_fixed_scale(node) else None
    if found is None:
        raise UnsupportedError(f"a route can't cast {node.type} to text", node.location)
    return found


def _printed(text: str, source: SqlType) -> str | None:
    if source.name in ("text", "varchar", "name", "uuid"):
        return text
    if source.name in _AS_IT_IS:
        return f"CAST({text} AS STRING)"
    if source.name == "numeric" and (source.scale or 0) <= PLAIN_SCALE:
        spark_type(source)
        return f"CAST({text} AS STRING)"
    if source.name == "bytea":
        return f"('\\\\x' || lower(hex({text})))"
    if source.name == "timestamp":
        return f"CAST({text} AS STRING)"
    if source.name == "timestamptz":
        return f"(CAST({text} AS STRING) || '+00')"
    return None


def _to_text(text: str, source: SqlType, target: SqlType, location: int) -> Rendered | None:
    if target.name == "name":
        return None
    printed = _printed(text, source)
    return printed if printed is None or target.length is None else f"substring({printed}, 1, {target.length})"


def _of_text(text: str, target: SqlType, location: int) -> Rendered | None:
    name = target.name
    if name == "bool":
        trimmed = f"lower(trim(BOTH ' \\t\\n\\r\\u000B\\u000C' FROM {text}))"
        words = [
            f"WHEN {trimmed} IN ({', '.join(map(spark_string, words))}) THEN {value}"
            for words, value in ((_TRUE, "TRUE"), (_FALSE, "FALSE"))
        ]
        return fails(f"CASE {' '.join(words)} END")
    if name not in _READ:
        return None
    kind = spark_type(target, location)
    spaces = "" if name == "uuid" else _SPACES
    read = f"regexp_extract({text}, {spark_string(f'^{spaces}({_READ[name]}){spaces}' + chr(92) + 'z')}, 1)"
    if name == "uuid":
        return fails(f"nullif(lower({read}), '')")
    return fails(f"try_cast({read} AS {kind})")
