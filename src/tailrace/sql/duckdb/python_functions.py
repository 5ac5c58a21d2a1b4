"""Functions that DuckDB calls in Python, a vector of values at a time. Nulls never reach them: their result is null.

They are for what DuckDB can't express. A query over many rows should meet them after it has grouped, or not at all.
"""

from collections.abc import Callable, Sequence
from decimal import ROUND_DOWN, Decimal
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from tailrace.sql.duckdb import array_texts, byte_functions, characters, json_functions, numerics, text_functions


class PythonFunction(NamedTuple):
    name: str
    call: Callable[..., object]
    arguments: Sequence[str]
    result: str


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Make all functions known to a session."""
    for function in PYTHON_FUNCTIONS:
        connection.create_function(
            function.name,
            _vectorized(function),
            list(function.arguments),
            function.result,
            type=PythonUDFType.ARROW,
            # Some have no answer for values that are not null.
            null_handling=FunctionNullHandling.SPECIAL,
        )


def _vectorized(function: PythonFunction) -> Callable[..., pa.Array]:
    call = function.call
    kind = _ARROW[function.result]

    def run(*columns: Any) -> pa.Array:
        values = [column.to_pylist() for column in columns]
        return pa.array([None if None in row else call(*row) for row in zip(*values, strict=True)], kind)

    # DuckDB counts the parameters of the function that it is given.
    match len(function.arguments):
        case 1:
            return lambda a: run(a)
        case 2:
            return lambda a, b: run(a, b)
        case 3:
            return lambda a, b, c: run(a, b, c)
    return lambda a, b, c, d: run(a, b, c, d)


_ARROW = {
    "VARCHAR": pa.string(),
    "BOOLEAN": pa.bool_(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "BLOB": pa.binary(),
    "VARCHAR[]": pa.list_(pa.string()),
    "TIMESTAMP": pa.timestamp("us"),
    "STRUCT(c1 VARCHAR, c2 VARCHAR)[]": pa.list_(pa.struct([("c1", pa.string()), ("c2", pa.string())])),
}


def _binary(operate: Callable[[Decimal, Decimal], Decimal]) -> Callable[[str, str], str]:
    return lambda a, b: format(operate(Decimal(a), Decimal(b)), "f")


def _compare(test: Callable[[Decimal, Decimal], bool]) -> Callable[[str, str], bool]:
    return lambda a, b: test(Decimal(a), Decimal(b))


def numeric_sort_key(text: str) -> bytes:
    """Return bytes that are ordered as the numbers are, and equal where they are equal."""
    value = Decimal(text)
    if not value:
        return b"\x01"
    exponent = value.adjusted() + 100_000
    digits = "".join(map(str, abs(value).normalize().as_tuple().digits)).encode()
    if value > 0:
        return b"\x02" + exponent.to_bytes(4, "big") + digits
    return b"\x00" + (0xFFFF_FFFF - exponent).to_bytes(4, "big") + bytes(0x69 - digit for digit in digits) + b"\xff"


_TWO = ("VARCHAR", "VARCHAR")

PYTHON_FUNCTIONS: Sequence[PythonFunction] = (
    PythonFunction("numeric_add", _binary(numerics.add), _TWO, "VARCHAR"),
    PythonFunction("numeric_sub", _binary(numerics.subtract), _TWO, "VARCHAR"),
    PythonFunction("numeric_mul", _binary(numerics.multiply), _TWO, "VARCHAR"),
    PythonFunction("numeric_div", _binary(numerics.divide), _TWO, "VARCHAR"),
    PythonFunction("numeric_mod", _binary(numerics.remainder), _TWO, "VARCHAR"),
    PythonFunction("numeric_eq", _compare(lambda a, b: a == b), _TWO, "BOOLEAN"),
    PythonFunction("numeric_ne", _compare(lambda a, b: a != b), _TWO, "BOOLEAN"),
    PythonFunction("numeric_lt", _compare(lambda a, b: a < b), _TWO, "BOOLEAN"),
    PythonFunction("numeric_le", _compare(lambda a, b: a <= b), _TWO, "BOOLEAN"),
    PythonFunction("numeric_gt", _compare(lambda a, b: a > b), _TWO, "BOOLEAN"),
    PythonFunction("numeric_ge", _compare(lambda a, b: a >= b), _TWO, "BOOLEAN"),
    PythonFunction("numeric_neg", lambda a: format(-Decimal(a), "f"), ("VARCHAR",), "VARCHAR"),
    PythonFunction("numeric_abs", lambda a: format(abs(Decimal(a)), "f"), ("VARCHAR",), "VARCHAR"),
    PythonFunction(
        "numeric_round", lambda a, n: format(numerics.rounded(Decimal(a), n), "f"), ("VARCHAR", "INTEGER"), "VARCHAR"
    ),
    PythonFunction(
        "numeric_trunc",
        lambda a, n: format(numerics.rounded(Decimal(a), n, ROUND_DOWN), "f"),
        ("VARCHAR", "INTEGER"),
        "VARCHAR",
    ),
    PythonFunction("numeric_sort_key", numeric_sort_key, ("VARCHAR",), "BLOB"),
    PythonFunction("upper_other", characters.upper, ("VARCHAR",), "VARCHAR"),
    PythonFunction("lower_other", characters.lower, ("VARCHAR",), "VARCHAR"),
    PythonFunction("casefold_other", characters.casefold, ("VARCHAR",), "VARCHAR"),
    PythonFunction("initcap_text", characters.initcap, ("VARCHAR",), "VARCHAR"),
    PythonFunction("format_text", text_functions.format_text, ("VARCHAR", "VARCHAR[]", "VARCHAR[]"), "VARCHAR"),
    PythonFunction("normalize_other", text_functions.normalized, _TWO, "VARCHAR"),
    PythonFunction("unicode_unescaped", text_functions.unicode_unescaped, ("VARCHAR",), "VARCHAR"),
    PythonFunction("identifier_parts", text_functions.identifier_parts, ("VARCHAR", "BOOLEAN"), "VARCHAR[]"),
    PythonFunction("like_with_escapes", text_functions.like_with_escapes, _TWO, "BOOLEAN"),
    PythonFunction("like_escape", text_functions.like_escape, _TWO, "VARCHAR"),
    PythonFunction("bytes_like", text_functions.bytes_like, ("BLOB", "BLOB"), "BOOLEAN"),
    PythonFunction("encode_bytes", byte_functions.encoded, ("BLOB", "VARCHAR"), "VARCHAR"),
    PythonFunction("decode_text", byte_functions.decoded, _TWO, "BLOB"),
    PythonFunction("bytes_of_text", byte_functions.bytes_of_text, ("VARCHAR",), "BLOB"),
    PythonFunction("text_of_bytes", byte_functions.text_of_bytes, ("BLOB",), "VARCHAR"),
    PythonFunction("byte_at", byte_functions.byte_at, ("BLOB", "INTEGER"), "INTEGER"),
    PythonFunction("with_byte", byte_functions.with_byte, ("BLOB", "INTEGER", "INTEGER"), "BLOB"),
    PythonFunction("bit_at", byte_functions.bit_at, ("BLOB", "BIGINT"), "INTEGER"),
    PythonFunction("with_bit", byte_functions.with_bit, ("BLOB", "BIGINT", "INTEGER"), "BLOB"),
    PythonFunction("bytes_position", byte_functions.position, ("BLOB", "BLOB"), "INTEGER"),
    PythonFunction("bytes_trimmed", byte_functions.trimmed, ("BLOB", "BLOB", "VARCHAR"), "BLOB"),
    PythonFunction("bytes_reversed", lambda data: data[::-1], ("BLOB",), "BLOB"),
    PythonFunction("hash_of", byte_functions.hash_of, ("BLOB", "VARCHAR"), "BLOB"),
    PythonFunction("checksum_crc32", byte_functions.crc32, ("BLOB",), "BIGINT"),
    PythonFunction("checksum_crc32c", byte_functions.crc32c, ("BLOB",), "BIGINT"),
    PythonFunction("signed_integer", byte_functions.signed_integer, ("BLOB", "INTEGER"), "BIGINT"),
    PythonFunction("name_of_text", text_functions.name_of_text, ("VARCHAR",), "VARCHAR"),
    PythonFunction("uuid_microseconds", byte_functions.uuid_microseconds, ("VARCHAR",), "BIGINT"),
    PythonFunction("array_in", array_texts.read_array, ("VARCHAR",), "VARCHAR[]"),
    *(PythonFunction(*one) for one in json_functions.JSON_FUNCTIONS),
)
